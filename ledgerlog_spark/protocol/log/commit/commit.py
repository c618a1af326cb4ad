"""The transactional commit (LOGS.md#K1-K10).

One transaction replaces the head and the producer record, both at the versions that were read, and
checks the node of the pages that were written before. Whatever was concluded from the records thus
still holds when it passes.

An unknown outcome is settled, never guessed (LOGS.md#K7). After a `Sync`, head and producer are
read again:

- the token in one of them: it happened;
- both at the versions that the transaction compares: it may still be on its way, so the very same
  transaction is sent again; whichever of the two passes, the other cannot;
- the producer record as it was, the head not: it neither happened nor can happen any more;
- the producer record changed: every commit sets its last batch id, which never goes back. Ours or a
  later one there means that the batch is committed, an earlier one that it is not.

A producer that commits one batch after the other need not read what it wrote itself: the machine
may start from what the last commit left (LOGS.md#K11). A commit that was overtaken need not read
everything again either: it reads the new head and plans on it, with the producer record that it has
(LOGS.md#K14). Only the transaction is concluded from such records, because it compares their
versions; every other end of the machine comes after a `Sync`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.errors import ConcurrentCommitError, ProducerFencedError
from ledgerlog_spark.protocol.ledger.messages import MetadataOutcome
from ledgerlog_spark.protocol.log.commit.current_schema import by_place, schema_in, schema_pages_of
from ledgerlog_spark.protocol.log.commit.known import left_by
from ledgerlog_spark.protocol.log.commit.password_guard import PasswordGuard
from ledgerlog_spark.protocol.log.commit.phases import CommitPhase
from ledgerlog_spark.protocol.log.commit.plan import (
    CommitRequest,
    needs_current_schema,
    plan_commit,
)
from ledgerlog_spark.protocol.log.commit.result import (
    CommitResult,
    CommitStatus,
    result_of,
    unknown,
)
from ledgerlog_spark.protocol.log.machine import LogMachine, lost_page, token_after
from ledgerlog_spark.protocol.log.messages import (
    AskedTime,
    HeadRead,
    LogEffects,
    LogReply,
    PagesRead,
    PagesWritten,
    PasswordRead,
    ProducerRead,
    ReadHead,
    ReadPages,
    ReadProducer,
    ReadRegistered,
    RegisteredRead,
    Sync,
    Synced,
    WriteHead,
    WritePages,
    Written,
)
from ledgerlog_spark.protocol.log.state.records import LogHead, LogKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ledgerlog_spark.errors import LedgerLogError
    from ledgerlog_spark.model import Version, Versioned
    from ledgerlog_spark.protocol.log.commit.known import KnownLog
    from ledgerlog_spark.protocol.log.commit.plan import HeadChange
    from ledgerlog_spark.protocol.log.state.pages import Loaded, PageRequest
    from ledgerlog_spark.protocol.log.state.records import ProducerRecord

ATTEMPTS_MAX = 100
"""Conflicts after which a commit gives up; each means that somebody else got through."""

UNKNOWN_MAX = 10
"""Unanswered transactions, or reads that failed while one is open, before the caller is told."""

REBASES_MAX = 3
"""Conflicts in a row after which the producer record is read again too (LOGS.md#K14)."""


class CommitMachine(LogMachine[CommitResult]):
    """Commits one batch once, or shows that it cannot be.

    Ends with `Finished(CommitResult)`, or `Failed` with one of `LogNotFoundError`, `LogKindError`,
    `ProducerFencedError`, `ConcurrentCommitError`, `SchemaMismatchError`, `UnauthorizedError`,
    `DataLossError`, `MetadataFormatError`, `MetadataUnavailableError` (all definite: nothing
    changed and nothing will), or `CommitUnknownError`.
    """

    __slots__ = (
        "_attempts", "_built", "_change", "_guard", "_head", "_is_synced", "_known", "_loaded",
        "_missed_token", "_now_ms", "_open", "_producer", "_rebases", "_registered", "_request",
        "_schema_pages", "_sent", "_token", "_unknowns", "_unlisted", "_wanted", "_was_refused",
        "known_after", "phase",
    )  # fmt: skip

    def __init__(
        self,
        log: str,
        request: CommitRequest,
        *,
        token: str,
        known: KnownLog | None = None,
        now_ms: int = 0,
    ) -> None:
        """Machine of one commit.

        Args:
            log: Name, for messages.
            request: What to commit.
            token: 32 random hexadecimal digits; later attempts count on from it.
            known: What the app's last commit left, None to read everything. It may be old.
            now_ms: By the store's clock; only looked at with `known`.
        """
        super().__init__(log)
        self.phase = CommitPhase.IDLE
        self.known_after: KnownLog | None = None
        """What this commit left, once it has ended with `COMMITTED`; None when not known."""
        self._known = known if known is not None and known.may_precede(request) else None
        self._registered: frozenset[int] = frozenset()
        self._request = request
        self._missed_token: str | None = None
        self._guard = PasswordGuard(log, request.password)
        self._token = token
        self._attempts = 0
        self._rebases = 0
        self._unknowns = 0
        self._is_synced = False
        self._head: Versioned[LogHead] | None = None
        self._producer: Versioned[ProducerRecord] | None = None
        self._now_ms = now_ms
        self._change: HeadChange | None = None
        self._wanted: tuple[PageRequest, ...] = ()
        self._schema_pages: Loaded = {}
        self._loaded: Loaded = {}
        self._built: LogHead | None = None
        self._open: WriteHead | None = None
        """The transaction whose outcome is unknown."""
        self._sent: WriteHead | None = None
        self._was_refused = False
        self._unlisted: tuple[int, ...] = ()

    def _begin(self) -> LogEffects[CommitResult]:
        if self._request.is_empty:
            return self._end(CommitResult(CommitStatus.NOTHING_TO_COMMIT))
        return self._sync() if self._known is None else self._start_from(self._known)

    def _start_from(self, known: KnownLog) -> LogEffects[CommitResult]:
        """Spare the reads: the transaction compares both versions (LOGS.md#K11)."""
        self._head, self._producer = known.head, known.producer
        if not self._missing(known.registered):
            self._registered = known.registered
            return self._compare()
        self.phase = CommitPhase.REGISTERED
        return self._ask(lambda number: ReadRegistered(number, self._request.app))

    def _fail(self, error: LedgerLogError) -> LogEffects[CommitResult]:
        """A failure that was concluded from records that may be old does not count: read them."""
        if not self._is_synced and self._open is None:
            return self._sync()
        return super()._fail(error)

    def _step(self, reply: LogReply) -> LogEffects[CommitResult]:
        failed = reply.outcome not in {MetadataOutcome.OK, MetadataOutcome.GONE}
        if failed and self.phase not in {CommitPhase.PAGES, CommitPhase.COMMIT}:
            return self._on_read_failed(reply.outcome)
        if isinstance(reply, PagesRead) and reply.outcome is MetadataOutcome.GONE:
            return self._pages_gone()
        steps: dict[CommitPhase, Callable[[Any], LogEffects[CommitResult]]] = {
            CommitPhase.SYNC: self._on_synced,
            CommitPhase.HEAD: self._on_head,
            CommitPhase.REBASE: self._on_rebase,
            CommitPhase.PRODUCER: self._on_producer,
            CommitPhase.REGISTERED: self._on_registered,
            CommitPhase.PASSWORD: self._on_password,
            CommitPhase.SCHEMA: self._on_schema_pages,
            CommitPhase.MERGE: self._on_merge_pages,
            CommitPhase.PAGES: self._on_pages_written,
            CommitPhase.COMMIT: self._on_committed,
        }
        return steps[self.phase](reply)

    def _on_synced(self, _: Synced) -> LogEffects[CommitResult]:
        self.phase = CommitPhase.HEAD
        return self._ask(partial(ReadHead, time=AskedTime.RECENT))

    def _sync(self) -> LogEffects[CommitResult]:
        self._is_synced = True
        self._rebases = 0
        self.phase = CommitPhase.SYNC
        return self._ask(Sync)

    def _on_head(self, reply: HeadRead) -> LogEffects[CommitResult]:
        self._head = reply.head
        self._now_ms = reply.now_ms
        if self._open is None:
            self._head_of(reply.head.value if reply.head else None, writes=LogKind.TRANSACTIONAL)
        self.phase = CommitPhase.PRODUCER
        return self._ask(lambda number: ReadProducer(number, self._request.app))

    def _on_producer(self, reply: ProducerRead) -> LogEffects[CommitResult]:
        self._producer = reply.producer
        if self._open is not None:
            return self._settle(self._open)
        return self._check()

    def _check(self) -> LogEffects[CommitResult]:
        """Whether the batch is still to be committed, and by this run (LOGS.md#K2, LOGS.md#K3)."""
        if self._producer is None:
            raise ProducerFencedError(
                f"log {self.log!r} no longer has producer {self._request.app!r}: the job took "
                "longer than stagingTtlMs; run it again",
                log=self.log,
                app=self._request.app,
            )
        record = self._producer.value
        if self._is_replay(record):
            return self._end(CommitResult(CommitStatus.ALREADY_COMMITTED))
        if record.current_run != self._request.run:
            raise ProducerFencedError(
                f"run {self._request.run!r} of producer {self._request.app!r} was replaced by "
                f"{record.current_run!r}; nothing was committed",
                log=self.log,
                app=self._request.app,
                run=self._request.run,
                current_run=record.current_run,
            )
        if not self._request.ranges:
            return self._compare()
        self.phase = CommitPhase.REGISTERED
        return self._ask(lambda number: ReadRegistered(number, self._request.app))

    def _is_replay(self, record: ProducerRecord) -> bool:
        """Whether the batch, or a later one, is in the log already (LOGS.md#K2)."""
        return record.last_batch_id >= self._request.batch_id

    def _on_registered(self, reply: RegisteredRead) -> LogEffects[CommitResult]:
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
        return self._compare()

    def _missing(self, registered: Iterable[int]) -> list[int]:
        """Ledgers of the batch that are not registered any more, rising (LOGS.md#K4)."""
        return sorted(self._request.ledger_ids.difference(registered))

    def _compare(self) -> LogEffects[CommitResult]:
        """Whether the ledgers of the batch have the log's password; then plan (LOGS.md#G11)."""
        assert self._head is not None
        ask = self._guard.next_request(self._head.value) if self._request.ranges else None
        if ask is None:
            return self._plan()
        self.phase = CommitPhase.PASSWORD
        return self._ask(ask)

    def _on_password(self, reply: PagesRead | PasswordRead) -> LogEffects[CommitResult]:
        self._guard.take(reply)
        return self._compare()

    def _plan(self) -> LogEffects[CommitResult]:
        assert self._head is not None
        head = self._head.value
        if self._request.is_nothing_for(head):
            return self._end(CommitResult(CommitStatus.NOTHING_TO_COMMIT))
        current: bytes | None = None
        if needs_current_schema(head, self._request):
            current = schema_in(head, self._schema_pages)
            wanted = () if current is not None else schema_pages_of(head, self._schema_pages)
            if wanted:
                self.phase = CommitPhase.SCHEMA
                self._wanted = wanted
                return self._ask(lambda number: ReadPages(number, wanted))
        return self._prepare(
            plan_commit(head, self._request, now_ms=self._now_ms, current_schema=current)
        )

    def _prepare(self, change: HeadChange) -> LogEffects[CommitResult]:
        self._change = change
        wanted = change.pages_to_merge()
        if wanted:
            self.phase = CommitPhase.MERGE
            self._wanted = wanted
            return self._ask(lambda number: ReadPages(number, wanted))
        self._loaded = {}
        return self._build()

    def _on_schema_pages(self, reply: PagesRead) -> LogEffects[CommitResult]:
        self._schema_pages = self._schema_pages | by_place(self._wanted, reply)
        return self._plan()

    def _on_merge_pages(self, reply: PagesRead) -> LogEffects[CommitResult]:
        self._loaded = by_place(self._wanted, reply)
        return self._build()

    def _build(self) -> LogEffects[CommitResult]:
        assert self._change is not None
        token = self._token
        head, pages = self._change.build(token, self._loaded)
        if self._request.ranges:
            head = self._guard.stored(head, token)
        if pages:
            self.phase = CommitPhase.PAGES
            self._built = head
            return self._ask(lambda number: WritePages(number, token, pages))
        return self._commit(head, None)

    def _on_pages_written(self, reply: PagesWritten) -> LogEffects[CommitResult]:
        if reply.outcome is MetadataOutcome.OK:
            assert self._built is not None
            return self._commit(self._built, reply.version)
        if reply.outcome in {MetadataOutcome.CONFLICT, MetadataOutcome.UNKNOWN}:
            return self._again()
        raise self._read_error(reply.outcome)

    def _commit(self, head: LogHead, pages_version: Version | None) -> LogEffects[CommitResult]:
        assert self._head is not None
        assert self._producer is not None
        producer, batch_id = self._producer, self._request.batch_id
        record = replace(
            producer.value, last_batch_id=batch_id, token=head.token, time_ms=self._now_ms
        )
        return self._send(
            WriteHead(
                request=-1,
                token=head.token,
                head=head,
                head_version=self._head.version,
                app=self._request.app,
                producer=record,
                producer_version=producer.version,
                pages_version=pages_version,
                unlisted=self._unlisted,
            )
        )

    def _send(self, write: WriteHead) -> LogEffects[CommitResult]:
        self.phase = CommitPhase.COMMIT
        self._sent = write
        return self._ask(lambda number: replace(write, request=number))

    def _on_committed(self, reply: Written) -> LogEffects[CommitResult]:
        write = self._sent
        assert write is not None
        match reply.outcome:
            case MetadataOutcome.OK:
                self.known_after = left_by(write, reply.version, self._registered)
                return self._end(result_of(write))
            case MetadataOutcome.UNKNOWN:
                return self._on_unknown(write)
            case MetadataOutcome.CONFLICT | MetadataOutcome.GONE if self._open is not None:
                self._was_refused = True
                return self._sync()
            case MetadataOutcome.CONFLICT | MetadataOutcome.GONE:
                return self._overtaken()
            case _ if self._open is not None:
                return self._on_read_failed(reply.outcome)
        raise self._read_error(reply.outcome)

    def _on_unknown(self, write: WriteHead) -> LogEffects[CommitResult]:
        """Nothing is concluded from silence: settle it (LOGS.md#K7)."""
        self._open = write
        return self._count_unknown() or self._sync()

    def _settle(self, write: WriteHead) -> LogEffects[CommitResult]:
        """What became of the transaction whose reply was lost (LOGS.md#K7)."""
        producer = self._producer
        if self._has_token(write.token):
            return self._end(result_of(write))
        if producer is None:
            return self._unknown()
        assert write.producer_version is not None
        if producer.version == write.producer_version:
            unmoved = self._head is not None and self._head.version == write.head_version
            # Refused although both are as they were: the pages' node moved, and stays moved.
            if unmoved and not (self._was_refused and write.pages_version is not None):
                return self._count_unknown() or self._send(write)
        elif self._is_replay(producer.value):
            return self._end(CommitResult(CommitStatus.ALREADY_COMMITTED))
        self._open = None
        self._was_refused = False
        self._head_of(self._head.value if self._head else None, writes=LogKind.TRANSACTIONAL)
        self._next_token()
        return self._check()

    def _has_token(self, token: str) -> bool:
        """Whether one of the records that were just read was written by that transaction."""
        if self._producer is not None and self._producer.value.token == token:
            return True
        if self._head is None:
            return False
        head = self._head.value
        return head.token == token or any(v.token == token for v in head.history.recent)

    def _overtaken(self) -> LogEffects[CommitResult]:
        """The transaction was refused: plan again, mostly on the new head alone.

        LOGS.md#K6, LOGS.md#K14.
        """
        if self._rebases == REBASES_MAX:
            return self._again()
        self._count_attempt()
        self._rebases += 1
        self._is_synced = False
        self.phase = CommitPhase.REBASE
        return self._ask(partial(ReadHead, time=AskedTime.RECENT))

    def _on_rebase(self, reply: HeadRead) -> LogEffects[CommitResult]:
        assert self._head is not None
        found = reply.head
        if found is None or found.version.number <= self._head.version.number:
            return self._sync()  # not the head alone moved, or this replica is behind
        self._head = found
        self._now_ms = reply.now_ms
        self._head_of(found.value, writes=LogKind.TRANSACTIONAL)
        return self._compare()

    def _pages_gone(self) -> LogEffects[CommitResult]:
        """A page is missing: another took its place, or it is lost (LOGS.md#Q3)."""
        assert self._head is not None
        token = self._head.value.token
        if token == self._missed_token:
            raise lost_page(self.log)
        self._missed_token = token
        return self._again()

    def _again(self) -> LogEffects[CommitResult]:
        """Read everything again, check again, try again (LOGS.md#K6)."""
        self._count_attempt()
        return self._sync()

    def _count_attempt(self) -> None:
        self._attempts += 1
        self._next_token()  # also for the last look that `_fail` may begin
        if self._attempts >= ATTEMPTS_MAX:
            raise ConcurrentCommitError(
                f"{ATTEMPTS_MAX} attempts to commit to log {self.log!r} were overtaken; nothing "
                "was committed, run the job again",
                log=self.log,
                retriable=True,
            )

    def _next_token(self) -> None:
        """A token names one attempt only: the sweeper may have touched the last one's pages."""
        self._token = token_after(self._token)

    def _on_read_failed(self, outcome: MetadataOutcome) -> LogEffects[CommitResult]:
        if self._open is None:
            raise self._read_error(outcome)
        if outcome is MetadataOutcome.UNREADABLE:
            return self._unknown()
        return self._count_unknown() or self._sync()

    def _count_unknown(self) -> LogEffects[CommitResult]:
        self._unknowns += 1
        return self._unknown() if self._unknowns > UNKNOWN_MAX else []

    def _unknown(self) -> LogEffects[CommitResult]:
        assert self._open is not None
        request = self._request
        return self._fail(unknown(self.log, request.app, request.batch_id, self._open.token))

    @property
    def may_write(self) -> bool:
        """Whether a transaction is out, or has an outcome that is not settled."""
        return self._open is not None or (self.is_waiting and self.phase is CommitPhase.COMMIT)

    def give_up(self, timeout_ms: int) -> LedgerLogError:
        """See `LogMachine`; a transaction that may have got through makes the outcome unknown."""
        error = super().give_up(timeout_ms)
        sent = self._request.app, self._request.batch_id, self._token
        return error if error.definite else unknown(self.log, *sent, timeout_ms)

    def _end(self, result: CommitResult) -> LogEffects[CommitResult]:
        self.phase = CommitPhase.ENDED
        return self._finish(result)
