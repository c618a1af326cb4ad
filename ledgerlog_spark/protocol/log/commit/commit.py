"""The transactional commit (LOGS.md#K1-K10).

If the head and the producer record still have the versions that the machine read, one transaction
replaces both. If the commit has new pages, they are written first, and the transaction also
compares the version of their node. So when the transaction succeeds, everything that the machine
concluded from the records is still true.

If the outcome of a transaction is unknown, the machine finds out whether the transaction happened,
and never guesses (LOGS.md#K7). It sends a `Sync`, and reads the head and the producer record again:

- If one of these records contains the token of the transaction, the transaction happened.
- If both records still have the versions that the transaction compares, the transaction may still
  be in flight. The machine sends the same transaction again. Only one of the two transactions can
  succeed.
- If only the head changed, the transaction did not happen, and cannot happen any more.
- If the producer record changed, its last batch id shows the outcome, because each commit sets this
  id and the id never decreases. If this id is the id of this batch or of a later batch, this batch
  is committed. Otherwise the batch is not committed.

When a producer commits again, it need not read the records that it wrote itself, because the
machine may start from the state after the last commit (LOGS.md#K11). After a conflict, a commit
reads only the new head, and uses the producer record that it already has (LOGS.md#K14). The records
that a commit starts from may be old. This is safe, because the transaction compares their versions.
Before the machine returns a result without a successful transaction, it sends a `Sync` and reads
the records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from ledgerlog_spark.errors import (
    CommitUnknownError,
    ConcurrentCommitError,
    DataLossError,
    LedgerLogError,
    MetadataFormatError,
    ProducerFencedError,
)
from ledgerlog_spark.model import Version, Versioned
from ledgerlog_spark.protocol.ledger.messages import MetadataOutcome
from ledgerlog_spark.protocol.log.commit.plan import (
    CommitRequest,
    NewVersion,
    check_expected,
    needs_current_schema,
    plan_commit,
)
from ledgerlog_spark.protocol.log.commit.result import (
    CommitResult,
    CommitStatus,
    KnownLog,
    forgotten,
    left_by,
)
from ledgerlog_spark.protocol.log.machine import Steps
from ledgerlog_spark.protocol.log.messages import (
    Finished,
    ReadHead,
    ReadPassword,
    ReadProducer,
    ReadRegistered,
    Sync,
    WriteHead,
)
from ledgerlog_spark.protocol.log.password import (
    PASSWORD_CHECK,
    check_password,
    compare_password,
    password_check,
    with_password,
)
from ledgerlog_spark.protocol.log.properties import JOB_APP_PREFIX
from ledgerlog_spark.protocol.log.read.versions import newest_of
from ledgerlog_spark.protocol.log.state.records import LogHead, LogKind, ProducerRecord
from ledgerlog_spark.protocol.log.state.rows import SCHEMAS
from ledgerlog_spark.protocol.log.state.walk import ListWalk
from ledgerlog_spark.protocol.log.transaction import (
    ATTEMPTS_MAX,
    HeadChange,
    HeadTransaction,
    Plan,
)

UNKNOWN_MAX = 10
"""Maximum number of unknown outcomes plus failed reads after unknown outcomes.

If there are more, the machine fails.
"""

REBASES_MAX = 3
"""Maximum number of consecutive conflicts after which only the head is read again. After further
conflicts, the producer record is read again, too (LOGS.md#K14)."""

LEDGERS_READ_MAX = 8
"""Maximum number of ledgers whose metadata is searched for the password. The machine searches the
newest listed ledgers."""

Ended = Finished[CommitResult]
CommitChange = HeadChange[CommitResult]


class CommitMachine(HeadTransaction[CommitResult]):
    """Commits one batch exactly once, or fails with an error that shows why it cannot.

    Ends with `Finished(CommitResult)`, or `Failed` with one of `LogNotFoundError`, `LogKindError`,
    `ProducerFencedError`, `ConcurrentCommitError`, `SchemaMismatchError`, `UnauthorizedError`,
    `DataLossError`, `MetadataFormatError`, `MetadataUnavailableError`, or `CommitUnknownError`. All
    these errors except `CommitUnknownError` are definite: this commit has changed nothing, and will
    change nothing.
    """

    def __init__(
        self,
        log: str,
        request: CommitRequest,
        *,
        token: str,
        known: KnownLog | None = None,
        now_ms: int = 0,
    ) -> None:
        """`known` is the state after the producer's last commit, and may be old.

        If `known` is None, all records are read. `now_ms` is a time by the store's clock, and is
        used only with `known`.
        """
        super().__init__(log, token=token)
        self._request = request
        self._now_ms = now_ms
        self._producer: Versioned[ProducerRecord] | None = None
        self._registered: frozenset[int] = frozenset()
        self._rebases = 0
        self._unknowns = 0
        self._is_synced = False
        self._is_compared = False
        self._schemas: dict[int, bytes] = {}
        self._open: WriteHead | None = None
        """The transaction whose outcome is unknown."""
        self.known_after: KnownLog | None = None
        """The state after a commit that ended with `COMMITTED`; None if this state is unknown."""
        self._begin: Callable[[], Steps[Ended | None]] = self._read_all
        """The first step of the next attempt.

        When the attempt begins, this attribute is set to `_read_all` again.
        """
        if known is not None and known.may_precede(request):
            self._begin = lambda: self._start_from(known)

    @property
    def may_write(self) -> bool:
        """Whether a transaction is pending, or its outcome is still unknown."""
        return self._open is not None or super().may_write

    def give_up(self, timeout_ms: int) -> LedgerLogError:
        """End the machine without the pending reply.

        If a transaction may have succeeded, the error is `CommitUnknownError`.
        """
        error = super().give_up(timeout_ms)
        return error if error.definite else self._unknown(self._token, timeout_ms=timeout_ms)

    def _run(self) -> Steps[CommitResult]:
        if self._request.is_empty:
            return CommitResult(CommitStatus.NOTHING_TO_COMMIT)
        return (yield from super()._run())

    def _attempt(self) -> Steps[Ended | None]:
        try:
            return (yield from super()._attempt())
        except LedgerLogError:
            if self._concludes():
                raise
            return None

    def _concludes(self) -> bool:
        """Whether a failure is final.

        A failure is not final if the records that caused it may be old.
        """
        return self._is_synced or self._open is not None

    def _planned(self) -> Plan[CommitResult]:
        begin, self._begin = self._begin, self._read_all
        ended = yield from begin()
        if ended is not None:
            return ended
        assert self._head is not None
        head = self._head.value
        if self._request.ranges:
            yield from self._compare_password(head)
        check_expected(head, self._request.expected_version)
        if self._request.is_nothing_for(head):
            return Finished(CommitResult(CommitStatus.NOTHING_TO_COMMIT))
        return (yield from self._plan(head))

    def _plan(self, head: LogHead) -> Plan[CommitResult]:
        schema: bytes | None = None
        if needs_current_schema(head, self._request):
            schema = yield from self._current_schema(head)
            if self._request.is_done_by(schema):
                # An old head does not show whether a later commit replaced the columns
                # (LOGS.md#K11).
                nothing = Finished(CommitResult(CommitStatus.NOTHING_TO_COMMIT))
                return nothing if self._is_synced else None
        new = plan_commit(head, self._request, now_ms=self._now_ms, current_schema=schema)
        return self._changed(new)

    def _changed(self, new: NewVersion) -> CommitChange:
        return HeadChange(new.build, committed, wanted=new.pages_to_merge())

    def _start_from(self, known: KnownLog) -> Steps[Ended | None]:
        """Skip the reads, because the transaction compares both records' versions (LOGS.md#K11)."""
        self._head, self._producer = known.head, known.producer
        if self._missing(known.registered):
            yield from self._check_registered()
        else:
            self._registered = known.registered
        return None

    def _read_all(self) -> Steps[Ended | None]:
        """Read both records. Return `Finished` if the log has the batch, otherwise None."""
        self._is_synced = True
        self._rebases = 0
        yield from self._read_records()
        return (yield from self._check())

    def _read_records(self) -> Steps[None]:
        yield from self._read(Sync())
        reply = yield from self._read(ReadHead(self.time_needed))
        self._head, self._now_ms = reply.head, reply.now_ms
        if self._open is None:
            self._check_head()
        producer = yield from self._read(ReadProducer(self._request.app))
        self._producer = producer.producer

    def _check_head(self) -> None:
        head = self._head.value if self._head is not None else None
        self._head_of(head, writes=LogKind.TRANSACTIONAL)

    def _check(self) -> Steps[Ended | None]:
        """Check that this run may still commit the batch (LOGS.md#K2, LOGS.md#K3)."""
        if self._producer is None:
            raise forgotten(self.log, self._request.app)
        record = self._producer.value
        if self._is_replay(record):
            return Finished(CommitResult(CommitStatus.ALREADY_COMMITTED))
        if record.current_run != self._request.run:
            raise ProducerFencedError(
                f"run {self._request.run!r} of producer {self._request.app!r} was replaced by "
                f"{record.current_run!r}; nothing was committed",
                log=self.log,
                app=self._request.app,
                run=self._request.run,
                current_run=record.current_run,
            )
        if self._request.ranges:
            yield from self._check_registered()
        return None

    def _is_replay(self, record: ProducerRecord) -> bool:
        """Whether the log already has the batch, or a later batch (LOGS.md#K2)."""
        return record.last_batch_id >= self._request.batch_id

    def _check_registered(self) -> Steps[None]:
        reply = yield from self._read(ReadRegistered(self._request.app))
        missing = self._missing(reply.ledger_ids)
        if missing:
            raise ProducerFencedError(
                f"{len(missing)} ledgers of the batch, {missing[0]} among them, expired: log "
                f"{self.log!r} waited for them longer than stagingTtlMs; run the job again",
                log=self.log,
                app=self._request.app,
                ledger_ids=tuple(missing[:100]),
            )
        self._registered = frozenset(reply.ledger_ids)

    def _missing(self, registered: Iterable[int]) -> list[int]:
        """Return the batch's ledgers that are not registered any more, ascending (LOGS.md#K4)."""
        return sorted(self._request.ledger_ids.difference(registered))

    def _compare_password(self, head: LogHead) -> Steps[None]:
        """Compare the password of the batch's ledgers with the log's password (LOGS.md#G11).

        The head stores a check of the log's password. If a head of an older release lists ledgers
        but contains no check, the password is compared with the metadata of a listed ledger.
        """
        check_password(self.log, head, self._request.password)
        if PASSWORD_CHECK in head.properties or self._is_compared:
            return
        items = yield from self._walk(newest_of(head))
        newest_first = dict.fromkeys(item.ledger_id for item in reversed(items))
        for ledger_id in list(newest_first)[:LEDGERS_READ_MAX]:
            reply = yield from self._read(ReadPassword(ledger_id))
            if reply.outcome is MetadataOutcome.OK:
                listed = password_check(reply.password, bytes.fromhex(head.token))
                compare_password(self.log, listed, self._request.password)
                self._is_compared = True
                return
        if items:
            raise DataLossError(
                f"the password of log {self.log!r} cannot be determined: none of the newest "
                f"ledgers that it lists has a record; run `ledgerlog logs check {self.log}`",
                log=self.log,
            )

    def _current_schema(self, head: LogHead) -> Steps[bytes | None]:
        """Return the head's schema. The schema of an id never changes (LOGS.md#G6)."""
        schema_id = head.schema_id
        if schema_id not in self._schemas:
            walk = ListWalk(SCHEMAS, head.schemas, schema_id, schema_id + 1)
            for record in (yield from self._walk(walk)):
                self._schemas[record.schema_id] = record.schema
        return self._schemas.get(schema_id)

    def _write(
        self, change: CommitChange, head: LogHead, pages_version: Version | None
    ) -> WriteHead:
        assert self._producer is not None
        request, producer = self._request, self._producer
        record = replace(
            producer.value,
            last_batch_id=request.batch_id,
            token=self._token,
            time_ms=self._now_ms,
        )
        return replace(
            super()._write(change, self._stored(head), pages_version),
            app=request.app,
            producer=record,
            producer_version=producer.version,
        )

    def _stored(self, head: LogHead) -> LogHead:
        """Add a check of the batch's password to the head. The salt is the attempt's token."""
        if not self._request.ranges:
            return head
        return with_password(head, self._request.password, bytes.fromhex(self._token))

    def _send(self, change: CommitChange, write: WriteHead) -> Steps[Ended | None]:
        reply = yield from self._reply_to(write)
        match reply.outcome:
            case MetadataOutcome.OK:
                self.known_after = left_by(write, reply.version, self._registered)
                return Finished(change.result(write.head))
            case MetadataOutcome.UNKNOWN:
                return (yield from self._on_unknown(write))
            case MetadataOutcome.CONFLICT | MetadataOutcome.GONE:
                self._on_conflict()
                return None
        raise self._read_error(reply.outcome)

    def _on_conflict(self) -> None:
        """Prepare another attempt, which usually reads only the head (LOGS.md#K6, LOGS.md#K14)."""
        self._count_attempt()
        if self._rebases < REBASES_MAX:
            self._rebases += 1
            self._is_synced = False
            self._begin = self._rebase

    def _rebase(self) -> Steps[Ended | None]:
        """Read only the head."""
        before = self._head
        assert before is not None
        reply = yield from self._read(ReadHead(self.time_needed))
        if reply.head is None or reply.head.version.number <= before.version.number:
            # A node other than the head changed, or this replica lags.
            return (yield from self._read_all())
        self._head, self._now_ms = reply.head, reply.now_ms
        self._check_head()
        return None

    def _on_unknown(self, write: WriteHead) -> Steps[Ended | None]:
        """Find out the unknown outcome. A missing reply proves nothing (LOGS.md#K7)."""
        self._open = write
        self._count_unknown(write)
        ended = yield from self._settle(write)
        if ended is None:  # the write did not happen, and cannot happen any more
            self._open = None
            self._check_head()
            self._next_token()
            self._begin = self._check
        return ended

    def _settle(self, write: WriteHead) -> Steps[Ended | None]:
        """Find out the outcome of a transaction without a reply (LOGS.md#K7).

        Return the machine's last effect, or None when the transaction cannot succeed any more.
        """
        self._is_synced = True
        self._rebases = 0
        was_refused = False
        while True:
            if not (yield from self._read_again(write)):
                continue
            producer = self._producer
            if self._has_token(write.token):
                return Finished(committed(write.head))
            if producer is None:
                raise self._unknown(write.token)
            if producer.version != write.producer_version:
                is_replay = self._is_replay(producer.value)
                return Finished(CommitResult(CommitStatus.ALREADY_COMMITTED)) if is_replay else None
            unmoved = self._head is not None and self._head.version == write.head_version
            # If the transaction was refused although both records are unchanged, the node of the
            # pages has changed. So the transaction can never succeed.
            if not unmoved or (was_refused and write.pages_version is not None):
                return None
            self._count_unknown(write)
            reply = yield from self._reply_to(write)
            if reply.outcome is MetadataOutcome.OK:
                self.known_after = left_by(write, reply.version, self._registered)
                return Finished(committed(write.head))
            if reply.outcome in {MetadataOutcome.CONFLICT, MetadataOutcome.GONE}:
                was_refused = True
            elif reply.outcome is MetadataOutcome.UNREADABLE:
                raise self._unknown(write.token)
            else:
                self._count_unknown(write)

    def _read_again(self, write: WriteHead) -> Steps[bool]:
        """Read the head and the producer record again. Return whether they could be read."""
        try:
            yield from self._read_records()
        except MetadataFormatError:
            raise self._unknown(write.token) from None
        except LedgerLogError:
            self._count_unknown(write)
            return False
        return True

    def _has_token(self, token: str) -> bool:
        """Whether the records that were just read contain this token."""
        if self._producer is not None and self._producer.value.token == token:
            return True
        if self._head is None:
            return False
        head = self._head.value
        return head.token == token or any(v.token == token for v in head.history.recent)

    def _count_unknown(self, write: WriteHead) -> None:
        self._unknowns += 1
        if self._unknowns > UNKNOWN_MAX:
            raise self._unknown(write.token)

    def _unknown(self, token: str, **fields: Any) -> CommitUnknownError:
        """Return the error for a transaction that was sent and may have succeeded."""
        app, batch_id = self._request.app, self._request.batch_id
        # A job without a name gets another producer each time, so running it again is no retry.
        is_named = not app.startswith(JOB_APP_PREFIX)
        what_to_do = (
            "commit it again with the same producer and batch id"
            if is_named
            else "commit the same job again. Another run of a write without txnAppId would write "
            f"the rows twice, so first look for them in `ledgerlog logs history {self.log}`"
        )
        return CommitUnknownError(
            f"batch {batch_id} of producer {app!r} may or may not be in log {self.log!r}: "
            f"{what_to_do}",
            log=self.log,
            app=app,
            batch_id=batch_id,
            token=token,
            **fields,
        )

    def _overtaken(self) -> ConcurrentCommitError:
        return ConcurrentCommitError(
            f"{ATTEMPTS_MAX} attempts to commit to log {self.log!r} were overtaken; nothing "
            "was committed, run the job again",
            log=self.log,
            retriable=True,
        )


def committed(head: LogHead) -> CommitResult:
    """Return the result of a commit whose transaction wrote this head."""
    return CommitResult(CommitStatus.COMMITTED, head.version, head.end_offset)
