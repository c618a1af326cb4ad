"""The calls with which jobs commit to one log (LOGS.md#K1)."""

from __future__ import annotations

import contextlib
import uuid
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace

from ledgerlog_spark.client.arguments import check_iterable, check_optional, check_type
from ledgerlog_spark.client.handles.creation import LedgerSpec, checked_new_password
from ledgerlog_spark.errors import (
    ConcurrentCommitError,
    ConfigurationError,
    LedgerLogError,
    MetadataVersionError,
)
from ledgerlog_spark.log.committing.job import Job, check_generated, checked_app, plan_job
from ledgerlog_spark.log.committing.new_log import delete_new_log
from ledgerlog_spark.log.committing.range_writer import RangeWriter, StagedLedger
from ledgerlog_spark.log.failpoints import reach
from ledgerlog_spark.log.host import CHANGE_TIMEOUT_MS, LogHost
from ledgerlog_spark.log.maintenance.older_ledgers import seal_open
from ledgerlog_spark.model import LedgerMetadata, Versioned
from ledgerlog_spark.protocol.log.commit.commit import CommitMachine
from ledgerlog_spark.protocol.log.commit.epoch import EpochMachine, JobKind, Joined
from ledgerlog_spark.protocol.log.commit.merge import MergeMachine, MergeRequest
from ledgerlog_spark.protocol.log.commit.plan import CommitRequest, check_expected
from ledgerlog_spark.protocol.log.commit.result import CommitResult, KnownLog
from ledgerlog_spark.protocol.log.password import check_password
from ledgerlog_spark.protocol.log.properties import JOB_APP_PREFIX, LogProperties
from ledgerlog_spark.protocol.log.read.versions import LogState, StateMachine
from ledgerlog_spark.protocol.log.seal import APP_KEY, LOG_ID_KEY, SINCE_KEY
from ledgerlog_spark.protocol.log.state.records import Item, StagedRange, WriteMode
from ledgerlog_spark.protocol.log.sweep import STEP_LEDGERS_MAX, StagedSweep

REGISTER_ATTEMPTS_MAX = 20
PRODUCERS_MAX = 64


class KnownLogs:
    """State that commits store for later commits of the same producers in the same process.

    With this state, a commit need not read the head and the producer record again. Instead, the
    transaction compares the versions of both nodes. The state of a producer is identified by the
    log id and the app. The states of at most 64 producers are stored. The state of the producer
    whose last commit is the oldest is dropped first.
    """

    # This state is used as LOGS.md#K11 describes.

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str], KnownLog] = OrderedDict()

    def take(self, log_id: str, app: str) -> KnownLog | None:
        """Remove and return the state of a producer. A failed commit therefore leaves no state."""
        return self._known.pop((log_id, app), None)

    def put(self, log_id: str, app: str, known: KnownLog | None) -> None:
        """Store the state of a producer after a commit. If `known` is None, store nothing."""
        if known is not None:
            self._known[log_id, app] = known
        while len(self._known) > PRODUCERS_MAX:
            self._known.popitem(last=False)


class LogCommits:
    """Begins jobs, writes the ranges of jobs, and commits jobs.

    All methods run on the client's event loop.
    """

    def __init__(self, host: LogHost) -> None:
        self._host = host

    async def begin(
        self,
        *,
        schema: bytes = b"",
        mode: WriteMode = WriteMode.APPEND,
        app: str | None = None,
        batch_id: int = 0,
        run: str | None = None,
        kind: JobKind = JobKind.BATCH,
        overwrite_if_changed: bool = False,
        password: bytes = b"",
        planned: LogState | None = None,
        expected_version: int | None = None,
        is_log_new: bool = False,
    ) -> Job:
        """Create the job of a batch, and make its run the current run of the producer.

        The driver of a job makes this call once, and sends the result to the tasks.

        Args:
            schema: Schema of the rows, as an Arrow schema message. The caller chooses the schema.
            mode: Whether the rows are appended, or replace the rows of the log.
            app: Id of the producer. If None, it is a new UUID, so the batch is never a duplicate.
            batch_id: Number of the batch, at least 0.
            run: The id of the query run. If it is None, a UUID is created.
            kind: If the app has already committed this batch or a later batch, a batch job is
                skipped, and a stream gets an error for an older batch.
            overwrite_if_changed: Whether to overwrite rows that other jobs commit after this call.
            password: Password of the new ledgers. All ledgers of a log with rows have one password.
            planned: The state of the log when the caller chose `schema`; by default, the present
                state. If another job has changed the schema since then, the commit fails.
            expected_version: The version that the log must have at the commit. None: any version.
            is_log_new: Whether the log was created for this job, so that `abort` deletes it.

        Raises:
            ConfigurationError: The app or batch id is not valid, or the password is too long.
            ConcurrentCommitError: The log is not at the expected version.
            LocalProtocolError: An argument has a wrong type; nothing was changed.
            StaleCheckpointError: The batch id of a stream is lower than an earlier batch id.
            ProducerFencedError: A later run of the producer has taken over.
            UnauthorizedError: The log has another password.
        """
        check_type("schema", schema, bytes)
        check_type("mode", mode, WriteMode)
        check_optional("app", app, str)
        check_optional("run", run, str)
        check_type("kind", kind, JobKind)
        check_optional("planned", planned, LogState)
        check_optional("expected_version", expected_version, int)
        is_named = app is not None
        app = checked_app(app) if app is not None else f"{JOB_APP_PREFIX}{uuid.uuid4()}"
        _check_batch_id(batch_id)
        checked_new_password(password)
        run = str(uuid.uuid4()) if run is None else run
        if planned is None:
            planned = await self._host.run(StateMachine(self._host.name))
        if not is_named:  # a batch of a named producer may be in the log already
            check_expected(planned.head, expected_version)
        check_password(self._host.name, planned.head, password)
        plan = plan_job(
            planned,
            schema=schema,
            mode=mode,
            overwrite_if_changed=overwrite_if_changed,
            password=password,
            expected_version=expected_version,
            is_log_new=is_log_new,
        )
        job = plan.job(app=app, run=run, batch_id=batch_id, kind=kind)
        return replace(job, is_replay=(await self.take_over(job)).is_replay)

    async def open_range(self, job: Job, schema_message: bytes | None = None) -> RangeWriter:
        """Return a writer of a range in a new ledger. The ledger is closed at the end of the range.

        Args:
            job: The result of `begin`.
            schema_message: The bytes of entry 0 of the ledger. If it is None, the job's own schema
                is used.

        Raises:
            ProducerFencedError: A later run has taken over, so the job cannot commit any more.
            NotEnoughBookiesError: Fewer bookies are writable than the log's ensemble needs.
            MetadataUnavailableError: The metadata store cannot be reached.
        """
        check_optional("schema_message", schema_message, bytes)
        ledger = await self.open_ledger(job, schema_message)

        async def close(_: RangeWriter) -> None:
            await ledger.close()

        return RangeWriter(ledger, close)

    async def open_ledger(
        self, job: Job, schema_message: bytes | None = None, *, ledger_id: int | None = None
    ) -> StagedLedger:
        """Create and register a ledger for the job, and begin to send its schema message.

        `ledger_id` is an unused id that `new_ledger_ids` returned. If it is None, a new id is
        requested. The other arguments and the errors are the same as for `open_range`.
        """
        check_type("job", job, Job)
        properties = LogProperties.from_mapping(job.properties)

        async def register(ledger_id: int, metadata: LedgerMetadata) -> Versioned[LedgerMetadata]:
            return await self._register(job, ledger_id, metadata)

        custom = {
            LOG_ID_KEY: self._host.log_id.encode(),
            APP_KEY: job.app.encode(),
            SINCE_KEY: str(job.since_offset).encode(),
        }
        spec = LedgerSpec(properties.quorum, properties.digest_type, job.password, custom)
        handle = await self._host.ledgers.create_registered_ledger(
            register, spec, ledger_id=ledger_id
        )
        reach("ledger.registered")
        ledger = StagedLedger(handle, properties)
        ledger.start(job.schema if schema_message is None else schema_message)
        return ledger

    async def new_ledger_ids(self, count: int) -> Sequence[int]:
        """Return 1 to 64 new ledger ids for `open_ledger`, ascending.

        Each id may be used only once.
        """
        return await self._host.ledgers.new_ledger_ids(count)

    async def join(self, job: Job) -> Joined:
        """Make the job's run the producer's current run, if it is not yet the current run."""
        checked_app(job.app)
        return await self.take_over(job)

    async def seal_before(self, app: str, epoch: int) -> int:
        """Seal the producer's open ledgers of epochs before `epoch` (LOGS.md#P6).

        Return the number of ledgers that were sealed.
        """
        older = await self._host.store.producers.registered_before(self._host.log_id, app, epoch)
        return (await seal_open(older, self._host)).sealed

    async def commit(
        self,
        job: Job,
        ranges: Sequence[StagedRange],
        *,
        known: KnownLogs | None = None,
        is_last: bool = False,
        timeout_ms: int = CHANGE_TIMEOUT_MS,
    ) -> CommitResult:
        """Commit the batch atomically. When the call returns, the batch is visible and durable.

        Args:
            job: The result of `begin`.
            ranges: The ranges of all tasks, sorted by partition id.
            known: State that earlier commits of this process stored. This commit updates the state.
            is_last: Whether this call is the last use of the job. If so, one more request deletes
                the producer if its name was generated.
            timeout_ms: Time limit of the call, including the wait in the log's queue of writers.

        Raises:
            LocalProtocolError: `job` or a range has a wrong type; nothing was changed.
            ConcurrentCommitError: Another commit conflicts with this batch.
            ProducerFencedError: A later run has taken over, or the job took longer than
                `stagingTtlMs`.
            SchemaMismatchError: The schema cannot be stored.
            UnauthorizedError: The log has another password than the job.
            LogNotFoundError: The log was deleted.
            LogTimeoutError: The call took longer than `timeout_ms`. Nothing was committed;
                retriable.
            CommitUnknownError: The commit was sent, but there was no answer in time. The error is
                not definite; a retry is safe.
        """
        check_type("job", job, Job)
        check_iterable("ranges", ranges)
        check_optional("timeout_ms", timeout_ms, int)
        check_optional("known", known, KnownLogs)
        ranges = tuple(ranges)  # `ranges` may be an iterator, which can be read only once
        for staged in ranges:
            check_type("each of ranges", staged, StagedRange)
        request = CommitRequest(
            app=job.app,
            run=job.run,
            batch_id=job.batch_id,
            ranges=ranges,
            mode=job.mode,
            schema=job.schema,
            schema_id=job.schema_id,
            base_schema_id=job.base_schema_id,
            planned_version=job.planned_version,
            overwrite_if_changed=job.overwrite_if_changed,
            password=job.password,
            is_first=bool(job.schema) and job.planned_version == 0,
            expected_version=job.expected_version,
        )
        reach("commit.begun")
        before = known.take(self._host.log_id, job.app) if known is not None else None
        machine = CommitMachine(
            self._host.name,
            request,
            token=uuid.uuid4().hex,
            known=before,
            now_ms=await self._host.store.recent_ms() if before is not None else 0,
        )
        result = await self._host.run(machine, timeout_ms=timeout_ms)
        if known is not None:
            known.put(self._host.log_id, job.app, machine.known_after)
        if is_last:
            await self.forget_job(job.app, machine, request.ledger_ids)
        return result

    async def abort(self, job: Job) -> None:
        """End a job that failed. The sweeper later deletes the unlisted ledgers of the job.

        If the job began with `is_log_new`, the log is deleted. But the log stays if it has a commit
        or another change, or if another job has begun. Therefore a call after a successful commit,
        which Spark may make, changes nothing. If `is_log_new` is false, the call does nothing.

        Args:
            job: The result of `begin`.

        Raises:
            LocalProtocolError: `job` is not a job; nothing was changed.
            MetadataError: The store failed. The empty log may stay; a retry is safe.
        """
        check_type("job", job, Job)
        if job.is_log_new:
            await delete_new_log(self._host, job)

    async def has_batch(self, app: str, batch_id: int) -> bool:
        """Return whether the producer has committed this batch or a later batch. Change nothing.

        Args:
            app: Id of the producer.
            batch_id: Number of the batch, at least 0.

        Raises:
            ConfigurationError: The app is not valid.
            LocalProtocolError: An argument has a wrong type.
            MetadataError: The store failed.
        """
        check_type("app", app, str)
        check_type("batch_id", batch_id, int)
        checked_app(app)
        await self._host.store.sync()
        found = await self._host.store.producers.read(self._host.log_id, app)
        return found is not None and found.value.last_batch_id >= batch_id

    async def switch(self, job: Job, replaced: Sequence[Item], staged: StagedRange) -> CommitResult:
        """Replace several ranges of the list by one range with the same rows, in one transaction.

        Offsets, versions and the times of versions do not change. Only the ledger and the entry of
        each row are different.

        Args:
            job: A job that was begun only for this merge.
            replaced: The items of the replaced ranges, as they were when the rows were read.
            staged: The new range, in a ledger of the job.

        Raises:
            ConcurrentCommitError: The log no longer lists exactly these ranges. Nothing was
                changed.
            ProducerFencedError: The job took longer than stagingTtlMs. Nothing was changed.
            UnauthorizedError: The log has another password than the job. Nothing was changed.
            CommitUnknownError: It is not known whether the list was changed.
        """
        # This method performs the switch of LOGS.md#U13.
        check_type("job", job, Job)
        check_type("staged", staged, StagedRange)
        check_iterable("replaced", replaced)
        items = tuple(replaced)
        for item in items:
            check_type("each of replaced", item, Item)
        request = MergeRequest(job.app, job.run, items, staged, job.password)
        machine = MergeMachine(self._host.name, request, token=uuid.uuid4().hex)
        result = await self._host.run(machine, timeout_ms=CHANGE_TIMEOUT_MS)
        await self.forget_job(job.app, machine, frozenset((staged.ledger_id,)))
        return result

    async def release(self, job: Job) -> None:
        """Delete the producer of a job, if its name was generated. The job can then commit no more.

        The sweeper then deletes the unlisted ledgers of the job without waiting for `stagingTtlMs`.

        Raises:
            LocalProtocolError: `job` is not a job, or its producer has a name that the caller gave.
                Nothing was changed.
            MetadataError: The store failed. The sweeper deletes the producer after `stagingTtlMs`.
        """
        check_type("job", job, Job)
        check_generated(job)
        await self._host.store.sync()
        if await self._host.store.producers.read(self._host.log_id, job.app) is None:
            return
        while True:
            sweep = StagedSweep(self._host.name, app=job.app, staging_ttl_ms=-1)
            step = await self._host.run(sweep)
            if step.is_complete:
                break
        found = await self._host.store.producers.read(self._host.log_id, job.app)
        if found is not None:
            await self._host.store.producers.delete(self._host.log_id, job.app, found.version)

    async def take_over(
        self, job: Job, *, may_create: bool = True, syncs_first: bool = True
    ) -> Joined:
        """Make the job's run the producer's current run."""
        machine = EpochMachine(
            self._host.name,
            app=job.app,
            run=job.run,
            batch_id=job.batch_id,
            kind=job.kind,
            may_create=may_create,
            syncs_first=syncs_first,
        )
        return await self._host.run(machine, timeout_ms=CHANGE_TIMEOUT_MS)

    async def _register(
        self, job: Job, ledger_id: int, metadata: LedgerMetadata
    ) -> Versioned[LedgerMetadata]:
        for attempt in range(REGISTER_ATTEMPTS_MAX):
            joined = await self.take_over(
                job,
                may_create=job.kind is JobKind.STREAM,
                # The transaction checks the producer's version, so the first attempt needs no sync.
                syncs_first=attempt > 0,
            )
            try:
                return await self._host.store.producers.register_ledger(
                    self._host.log_id, job.app, joined.epoch, joined.version, ledger_id, metadata
                )
            except MetadataVersionError:
                continue
        raise ConcurrentCommitError(
            f"producer {job.app!r} of log {self._host.name!r} was changed by other processes at "
            "every attempt, so no ledger could be registered: stop the other runs of the producer, "
            "then retry",
            log=self._host.name,
            app=job.app,
            retriable=True,
        )

    async def forget_job(self, app: str, commit: CommitMachine, listed: frozenset[int]) -> None:
        """After a job's last commit, delete its producer if the name of the producer was generated.

        The deletion takes one request, or two requests if the commit wrote nothing. After a
        failure, the sweeper deletes the producer after `stagingTtlMs` (LOGS.md#W9).
        """
        if not app.startswith(JOB_APP_PREFIX):
            return
        after = commit.known_after
        if after is None:
            await self._forget_idle_job(app)
            return
        version, left = after.producer.version, sorted(after.registered)
        with contextlib.suppress(LedgerLogError):
            while len(left) > STEP_LEDGERS_MAX:
                some, left = left[:STEP_LEDGERS_MAX], left[STEP_LEDGERS_MAX:]
                version = await self._host.store.producers.write(
                    self._host.log_id, app, after.producer.value, version, *_apart(some, listed)
                )
            await self._host.store.producers.delete(
                self._host.log_id, app, version, *_apart(left, listed)
            )

    async def _forget_idle_job(self, app: str) -> None:
        """Delete the producer of a commit that wrote nothing, unless it has registered ledgers."""
        with contextlib.suppress(LedgerLogError):
            found = await self._host.store.producers.read(self._host.log_id, app)
            if found is not None:
                await self._host.store.producers.delete(self._host.log_id, app, found.version)


def _apart(ledger_ids: Sequence[int], listed: frozenset[int]) -> tuple[list[int], list[int]]:
    """Divide `ledger_ids` into two lists: the unlisted ledgers, and the listed ledgers."""
    return (
        [ledger_id for ledger_id in ledger_ids if ledger_id not in listed],
        [ledger_id for ledger_id in ledger_ids if ledger_id in listed],
    )


def _check_batch_id(batch_id: int) -> None:
    check_type("batch_id", batch_id, int)
    if batch_id < 0:
        raise ConfigurationError(f"txnVersion must be 0 or more, got {batch_id}", key="txnVersion")
