"""One log of either kind: snapshots, views, jobs, commits (docs/LOGS.md).

All methods are coroutines on the client's event loop; `blocking/` derives the blocking ones.
"""

from __future__ import annotations

import contextlib
import uuid
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.client.handles.creation import LedgerSpec, checked_new_password
from ledgerlog_spark.errors import (
    ConcurrentCommitError,
    ConfigurationError,
    LedgerNotFoundError,
    MetadataVersionError,
)
from ledgerlog_spark.log.committing.job import Job, checked_app, plan_job
from ledgerlog_spark.log.committing.range_writer import RangeWriter
from ledgerlog_spark.log.committing.staged_ledger import StagedLedger
from ledgerlog_spark.log.driver import CHANGE_TIMEOUT_MS, Driver
from ledgerlog_spark.log.failpoints import reach
from ledgerlog_spark.log.maintenance.older_ledgers import seal_open
from ledgerlog_spark.log.reading.committed_range import read_range
from ledgerlog_spark.log.reading.end_watch import EndWatch
from ledgerlog_spark.log.reading.newest_view import read_view
from ledgerlog_spark.log.reading.open_ends import while_ledgers_go, with_open_ends
from ledgerlog_spark.log.record_access import LogRecords
from ledgerlog_spark.protocol.log.commit.commit import CommitMachine
from ledgerlog_spark.protocol.log.commit.epoch import EpochMachine, JobKind, Joined
from ledgerlog_spark.protocol.log.commit.plan import CommitRequest
from ledgerlog_spark.protocol.log.commit.result import CommitResult
from ledgerlog_spark.protocol.log.password import check_password
from ledgerlog_spark.protocol.log.properties import JOB_APP_PREFIX, LogProperties
from ledgerlog_spark.protocol.log.read.versions import (
    HistoryMachine,
    LogState,
    SnapshotMachine,
    StateMachine,
)
from ledgerlog_spark.protocol.log.seal import (
    APP_KEY,
    LOG_ID_KEY,
    SINCE_KEY,
    FloorMachine,
    since_offset,
)
from ledgerlog_spark.protocol.log.state.records import (
    LogSnapshot,
    StagedRange,
    VersionInterval,
    WriteMode,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Collection, Sequence
    from random import Random

    from ledgerlog_spark.log.committing.known_logs import KnownLogs
    from ledgerlog_spark.log.ports import Ledgers
    from ledgerlog_spark.metadata.logs.store import LogStore
    from ledgerlog_spark.metadata.ports import CancelWatch, OnChange
    from ledgerlog_spark.model import LedgerMetadata, Versioned
    from ledgerlog_spark.protocol.ledger.read_room import ReadPlace
    from ledgerlog_spark.protocol.log.read.view import LogView

REGISTER_ATTEMPTS_MAX = 20


class Log(LogRecords):
    """A handle of one log; holds no connection of its own and needs no closing.

    Attributes:
        name: The name it was opened under.
        log_id: Its id; another log of the same name later has another.
    """

    def __init__(
        self,
        name: str,
        log_id: str,
        *,
        store: LogStore,
        ledgers: Ledgers,
        random: Random | None = None,
    ) -> None:
        self.name = name
        self.log_id = log_id
        self._store = store
        self._ledgers = ledgers
        self._driver = Driver(store, log_id, ledgers=ledgers, random=random)

    async def state(self, *, is_fresh: bool = True) -> LogState:
        """Head and schemas as they are now.

        Args:
            is_fresh: Without it, as they were at some earlier moment, for one request less.

        Raises:
            LogNotFoundError: The log was deleted.
            LogKindError: It is a leader log.
            MetadataFormatError: A later ledgerlog wrote it.
        """
        return await self._driver.run(StateMachine(self.name, is_fresh=is_fresh))

    async def snapshot(self, version: int | None = None) -> LogSnapshot:
        """One version whole; the newest when none is named. Errors as of `state`.

        A leader log has no versions. Its snapshot ends with the records that are readable now. Each
        open ledger is an item that ends at its last add confirmed.

        Raises:
            VersionNotAvailableError: It never existed, was truncated, or expired; has `oldest`.
            EntryUnknownError: Too few bookies of an open ledger answered; retriable.
        """

        async def taken() -> LogSnapshot:
            machine = SnapshotMachine(self.name, version=version)
            return await with_open_ends(await self._driver.run(machine), self._ledgers)

        return await while_ledgers_go(taken)

    async def history(self) -> tuple[VersionInterval, ...]:
        """Every retained version, oldest first. Errors as of `state`."""
        return await self._driver.run(HistoryMachine(self.name))

    async def view(
        self,
        first_offset: int = 0,
        *,
        seen_offset: int = 0,
        known_version: int | None = None,
        known_schemas: Collection[int] = (),
        is_fresh: bool = True,
    ) -> LogView:
        """All retained rows from an offset on, for a reader that follows. Errors as of `state`.

        Args:
            first_offset: The first row that may be read.
            seen_offset: The known end of the log, also from another process. A fresh view of an
                open ledger reaches that offset, even if the bookies that answer do not have the
                newest LAC yet. It ends before it only if records are lost.
            known_version: The newest version that the caller has; None for enough versions to
                find when those rows were committed.
            known_schemas: Ids of the schemas that the caller has.
            is_fresh: Whether the view is current; without it one request less, and it may lack
                rows that exist.
        """
        return await read_view(
            self.name,
            self._driver,
            self._ledgers,
            first_offset=first_offset,
            seen_offset=seen_offset,
            known_version=known_version,
            known_schemas=known_schemas,
            is_fresh=is_fresh,
        )

    def watch_end(self, on_change: OnChange) -> CancelWatch:
        """Call `on_change` on the event loop when the log may have more rows, or others.

        It must not block. It is also called after a lost session, when changes may have been
        missed.

        Returns a function that ends the watch, which the close of the client ends too. Costs one
        watch of the head and, in a leader log, one of the record of each open ledger and one of a
        bookie. Exceptions of `on_change` are reported to the event loop's exception handler.

        Raises:
            LocalProtocolError: The client is closed.
        """
        watch = EndWatch(self.log_id, store=self._store, ledgers=self._ledgers, on_change=on_change)
        return watch.cancel

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
    ) -> Job:
        """Fix the data that tasks and commit of one batch need, and take over as its producer.

        Called once for each job, before its tasks; the result is sent to them.

        Args:
            schema: Schema of the rows, as an Arrow schema message; decided by the caller.
            mode: Append or overwrite.
            app: The producer; None makes a UUID, so that the batch is committed for certain.
            batch_id: At least 0.
            run: The query run; None makes a UUID.
            kind: Whether an app's older batch is skipped (batch) or an error (stream).
            overwrite_if_changed: Overwrite also rows that others commit after this call.
            password: Password of the new ledgers, which is the log's if it has rows; guards
                against mistakes only.
            planned: The state that `schema` was decided on; None reads it now. If others change
                the schema after it, the commit fails.

        Raises:
            ConfigurationError: A bad app or batch id, or a password that is too long.
            StaleCheckpointError: A stream whose batch id went back.
            ProducerFencedError: A later run took over.
            UnauthorizedError: The log has another password.
        """
        app = f"{JOB_APP_PREFIX}{uuid.uuid4()}" if app is None else checked_app(app)
        if batch_id < 0:
            raise ConfigurationError(f"txnVersion {batch_id}: it counts from 0", key="txnVersion")
        checked_new_password(password)
        run = str(uuid.uuid4()) if run is None else run
        state = planned or await self.state()
        check_password(self.name, state.head, password)
        joined = await self._join(app=app, run=run, batch_id=batch_id, kind=kind)
        plan = plan_job(
            state,
            schema=schema,
            mode=mode,
            overwrite_if_changed=overwrite_if_changed,
            password=password,
        )
        return plan.job(app=app, run=run, batch_id=batch_id, kind=kind, is_replay=joined.is_replay)

    async def open_range(self, job: Job, schema_message: bytes | None = None) -> RangeWriter:
        """A range in a new ledger, which is closed when the range is finished.

        Args:
            job: As `begin` made it.
            schema_message: Entry 0; None for the job's own schema.

        Raises:
            ProducerFencedError: A later run took over; the job cannot commit any more.
            NotEnoughBookiesError: Fewer writable bookies than the log's ensemble size.
            MetadataUnavailableError: The metadata store cannot be reached.
        """
        ledger = await self.open_ledger(job, schema_message)

        async def close(_: RangeWriter) -> None:
            await ledger.close()

        return RangeWriter(ledger, close)

    async def open_ledger(
        self, job: Job, schema_message: bytes | None = None, *, ledger_id: int | None = None
    ) -> StagedLedger:
        """A new ledger, registered for the job; its schema message is being sent.

        Args:
            job: As `begin` made it.
            schema_message: Entry 0; None for the job's own schema.
            ledger_id: From `new_ledger_ids`, each once; None takes a new one.

        Raises:
            ProducerFencedError: A later run took over; the job cannot commit any more.
            NotEnoughBookiesError: Fewer writable bookies than the log's ensemble size.
            MetadataUnavailableError: The metadata store cannot be reached.
        """
        properties = LogProperties.from_mapping(job.properties)

        async def register(ledger_id: int, metadata: LedgerMetadata) -> Versioned[LedgerMetadata]:
            return await self._register(job, ledger_id, metadata)

        custom = {
            LOG_ID_KEY: self.log_id.encode(),
            APP_KEY: job.app.encode(),
            SINCE_KEY: str(job.since_offset).encode(),
        }
        spec = LedgerSpec(properties.quorum, properties.digest_type, job.password, custom)
        handle = await self._ledgers.create_registered_ledger(register, spec, ledger_id=ledger_id)
        reach("ledger.registered")
        ledger = StagedLedger(handle, properties)
        ledger.start(job.schema if schema_message is None else schema_message)
        return ledger

    async def new_ledger_ids(self, count: int) -> Sequence[int]:
        """Rising ids for `open_ledger`, unique in the cluster; each is used once.

        Args:
            count: 1 to 64.

        Raises:
            MetadataUnavailableError: None were taken.
        """
        return await self._ledgers.new_ledger_ids(count)

    async def join(self, job: Job) -> Joined:
        """Take over as the producer of a stream's job, or find that its run has done so.

        Raises:
            StaleCheckpointError: The batch id went back.
            ProducerFencedError: A later run took over.
            ConfigurationError: A bad app.
        """
        checked_app(job.app)
        return await self._join(app=job.app, run=job.run, batch_id=job.batch_id, kind=job.kind)

    async def seal_before(self, app: str, epoch: int) -> int:
        """Seal the producer's open ledgers of epochs before `epoch`; counts them (LOGS.md#P6).

        Args:
            app: The producer.
            epoch: Epoch of the run that took over.

        Raises:
            MetadataError: The registrations could not be read.
        """
        older = await self._store.registered_before(self.log_id, app, epoch)
        done = await seal_open(older, log=self.name, driver=self._driver, ledgers=self._ledgers)
        return done.sealed

    async def commit(
        self,
        job: Job,
        ranges: Sequence[StagedRange],
        *,
        known: KnownLogs | None = None,
        is_last: bool = False,
        timeout_ms: int = CHANGE_TIMEOUT_MS,
    ) -> CommitResult:
        """Make the batch visible, once and whole; durable on return.

        Args:
            job: As `begin` made it.
            ranges: Of all tasks, by partition id.
            known: State of this process after its last commits; this commit updates it.
            is_last: After this call returned the caller neither commits the job again nor writes
                for it: a producer that was made for it is deleted, with one request more.
            timeout_ms: Limit of the whole call, its turn among other writers included.

        Raises:
            ConcurrentCommitError: Another commit conflicts with this batch.
            ProducerFencedError: A later run took over, or the job took longer than stagingTtlMs.
            SchemaMismatchError: The schema cannot be stored.
            UnauthorizedError: The log has another password than the job.
            LogNotFoundError: The log was deleted.
            LogTimeoutError: It took longer than `timeout_ms`, and nothing was committed; retriable.
            CommitUnknownError: It was sent, and took longer or got no answer. Not definite; a retry
                is safe.
        """
        request = CommitRequest(
            app=job.app,
            run=job.run,
            batch_id=job.batch_id,
            ranges=tuple(ranges),
            mode=job.mode,
            schema=job.schema,
            schema_id=job.schema_id,
            base_schema_id=job.base_schema_id,
            planned_version=job.planned_version,
            overwrite_if_changed=job.overwrite_if_changed,
            password=job.password,
            is_first=bool(job.schema) and job.planned_version == 0,
        )
        reach("commit.begun")
        before = known.take(self.log_id, job.app) if known is not None else None
        machine = CommitMachine(
            self.name,
            request,
            token=uuid.uuid4().hex,
            known=before,
            now_ms=await self._store.recent_ms() if before is not None else 0,
        )
        result = await self._driver.run(machine, timeout_ms=timeout_ms)
        if known is not None:
            known.put(self.log_id, job.app, machine.known_after)
        if is_last:
            await self._forget_job(job.app, machine, request.ledger_ids)
        return result

    async def abort(self, job: Job) -> None:
        """Does nothing: Spark also calls it after a successful commit.

        The ledgers of the job were never listed, or are listed for good; the sweeper finds out
        which of the two.
        """

    async def floor(self, ledger_id: int) -> int:
        """The highest listed entry of the ledger, NO_ENTRY when no retained version lists it.

        Reads the commits since the ledger was made, a few pages at a time.

        Raises:
            LogNotFoundError: The log was deleted.
        """
        since = 0  # a ledger without a record may be listed anywhere
        with contextlib.suppress(LedgerNotFoundError):
            since = since_offset((await self._ledgers.ledger_metadata(ledger_id)).custom)
        machine = FloorMachine(self.name, {ledger_id: since})
        floors = await self._driver.run(machine)
        return floors[ledger_id]

    async def seal(self, ledger_id: int, *, password: bytes = b"") -> LedgerMetadata:
        """Fence, recover and close a ledger of this log, never below what the log lists.

        Args:
            ledger_id: The ledger.
            password: The ledger's password.

        Raises:
            NeedsOperatorError: Less than the listed entries could be found. Not closed.
            LedgerRecoveryError: Too few bookies answered. Not closed.
        """
        if (await self._ledgers.ledger_metadata(ledger_id)).is_closed:
            return await self._ledgers.seal(ledger_id, password=password)
        floor = await self.floor(ledger_id)
        return await self._ledgers.seal(ledger_id, password=password, floor_entry_id=floor)

    def read_range(
        self,
        ledger_id: int,
        first_entry_id: int,
        last_entry_id: int,
        *,
        password: bytes = b"",
        place: ReadPlace | None = None,
    ) -> AsyncGenerator[Sequence[Any], None]:
        """Entries of a listed range from first to last, both inclusive, in batches and in order.

        Args:
            ledger_id: The ledger.
            first_entry_id: At least the listed range's first.
            last_entry_id: At most the listed range's last.
            password: The ledger's password.
            place: Bounds what this and other reads hold together; None for 64 MiB of its own.

        Raises:
            DataLossError: Every replica answered twice that it does not have an entry, also after
                a sync; or the ledger was closed below the range's end, or does not exist.
            EntryUnknownError: Some replica could not answer, and none had the entry; retriable.
            DigestMismatchError: No replica had a good copy.
        """
        return read_range(
            self._ledgers,
            ledger_id,
            first_entry_id,
            last_entry_id,
            sync=self._store.sync,
            log=self.name,
            password=password,
            place=place,
        )

    async def _join(
        self,
        *,
        app: str,
        run: str,
        batch_id: int,
        kind: JobKind,
        may_create: bool = True,
        syncs_first: bool = True,
    ) -> Joined:
        machine = EpochMachine(
            self.name,
            app=app,
            run=run,
            batch_id=batch_id,
            kind=kind,
            may_create=may_create,
            syncs_first=syncs_first,
        )
        return await self._driver.run(machine, timeout_ms=CHANGE_TIMEOUT_MS)

    async def _register(
        self, job: Job, ledger_id: int, metadata: LedgerMetadata
    ) -> Versioned[LedgerMetadata]:
        for attempt in range(REGISTER_ATTEMPTS_MAX):
            joined = await self._join(
                app=job.app,
                run=job.run,
                batch_id=job.batch_id,
                kind=job.kind,
                may_create=job.kind is JobKind.STREAM,
                syncs_first=attempt > 0,  # the registration checks the version that was read
            )
            try:
                return await self._store.register_ledger(
                    self.log_id, job.app, joined.epoch, joined.version, ledger_id, metadata
                )
            except MetadataVersionError:
                continue
        raise ConcurrentCommitError(
            f"producer {job.app!r} of log {self.name!r} was changed by other processes at every "
            "attempt, so "
            "no ledger could be registered: stop the other runs of the producer, then retry",
            log=self.name,
            app=job.app,
            retriable=True,
        )
