"""Deletes rows of a log, restores versions, and changes properties (LOGS.md#upkeep).

All methods are coroutines on the client's event loop. The modules in `log/blocking/` derive the
blocking methods from these coroutines.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import replace

from ledgerlog_spark.client.arguments import (
    check_callback,
    check_iterable,
    check_optional,
    check_type,
)
from ledgerlog_spark.errors import (
    ConcurrentCommitError,
    LedgerLogError,
    LocalProtocolError,
    LogKindError,
    MetadataVersionError,
    UnauthorizedError,
)
from ledgerlog_spark.log.committing.commits import LogCommits
from ledgerlog_spark.log.committing.job import Job, plan_job
from ledgerlog_spark.log.committing.new_log import delete_new_log
from ledgerlog_spark.log.host import CHANGE_TIMEOUT_MS, LogHost
from ledgerlog_spark.log.maintenance.check import LogCheck, LogChecker
from ledgerlog_spark.log.reading.version_at import version_at
from ledgerlog_spark.log.records import offset_of
from ledgerlog_spark.model import Position
from ledgerlog_spark.protocol.ledger.messages import MetadataOutcome
from ledgerlog_spark.protocol.log.change.expiry import Expired, ExpiryMachine
from ledgerlog_spark.protocol.log.change.retention import KEPT, PageSizes, RetentionMachine
from ledgerlog_spark.protocol.log.change.truncate import Truncated, TruncateMachine
from ledgerlog_spark.protocol.log.commit.epoch import JobKind
from ledgerlog_spark.protocol.log.commit.plan import check_expected
from ledgerlog_spark.protocol.log.commit.restore import (
    CutRange,
    RestoreMachine,
    RestoreRequest,
    cut_ranges,
)
from ledgerlog_spark.protocol.log.commit.result import CommitResult
from ledgerlog_spark.protocol.log.properties import JOB_APP_PREFIX, LogProperties, PropertiesMachine
from ledgerlog_spark.protocol.log.read.versions import (
    HistoryMachine,
    LogState,
    SnapshotMachine,
    StateMachine,
)
from ledgerlog_spark.protocol.log.state.records import (
    LogKind,
    StagedRange,
    VersionInterval,
    WriteMode,
)
from ledgerlog_spark.protocol.log.sweep import STEP_LEDGERS_MAX, OrphansMachine

CopyRows = Callable[[Job, CutRange], Awaitable[StagedRange]]
"""A function that copies some rows of a range to a ledger of the job."""

OnProgress = Callable[[int, int], None]
"""A function that is called with the number of finished ledgers and the number of all ledgers."""

RESTORE_ATTEMPTS_MAX = 5
DELETE_ATTEMPTS_MAX = 20
STEP_ATTEMPTS_MAX = 20
"""Maximum number of attempts of one step of a truncation or of retention.

After the last attempt, a later pass of the sweeper does the step."""


def no_progress(_done: int, _total: int) -> None:
    """Do nothing."""


class LogMaintenance:
    """The changes of a log that add no new rows, and the check of a log."""

    def __init__(self, host: LogHost, commits: LogCommits) -> None:
        self._host = host
        self._commits = commits

    async def version_at(self, timestamp_ms: int) -> VersionInterval:
        """Return the version that was the newest at a wall time in ms since 1970-01-01 UTC.

        Raises:
            VersionNotAvailableError: The version has expired or never existed. The field `oldest`
                of the error contains the oldest version.
            LogKindError: The log is a leader log, which has no versions.
        """
        check_type("timestamp_ms", timestamp_ms, int)
        await self._require_versions()
        history = await self._host.run(HistoryMachine(self._host.name))
        return version_at(self._host.name, history, timestamp_ms)

    async def truncate(
        self, position: Position | int, *, on_progress: OnProgress = no_progress
    ) -> Truncated:
        """Delete all rows below an offset, and all versions that begin below the offset.

        After this call, no read can begin below the offset. Ledgers are deleted after
        `deletedRetentionMs`, so that running reads can finish.

        Args:
            position: The position or the offset of the first row to keep. It is at most the end of
                the log. In a leader log, it is at most the first offset of the open ledgers.
            on_progress: A function that is called with the number of deleted ledgers.

        Raises:
            ConfigurationError: The log does not have that offset. Nothing was changed.
            LogNotFoundError: The log was deleted.
            ConcurrentCommitError: Other changes of the log succeeded first at every attempt. If the
                error is not definite, the log already begins at the offset, and the sweeper later
                deletes the rows below the offset.
            MetadataUnknownError: The outcome of the change is unknown; a retry is safe.
            LogTimeoutError: The call took over 120 s. A retry is safe. The error is definite if
                nothing was sent.
        """
        check_callback(on_progress, "on_progress")
        offset = offset_of(position, self._host.log_id, self._host.name)
        machine = TruncateMachine(self._host.name, offset=offset, token=uuid.uuid4().hex)
        done = await self._drop(machine, on_progress)
        if not done.is_complete:
            raise ConcurrentCommitError(
                f"log {self._host.name!r} now begins at offset {done.start_offset}, but "
                f"{STEP_ATTEMPTS_MAX} attempts to remove older ranges from its list were "
                "overtaken by other changes: to remove them, run `ledgerlog logs sweep` later",
                log=self._host.name,
                retriable=True,
                definite=False,
            )
        return done

    async def retain(
        self, *, page_sizes: PageSizes | None = None, untimed_to: int = 0
    ) -> Truncated:
        """Delete the rows beyond the limits `retentionMs` and `retentionBytes`.

        Args:
            page_sizes: Payload bytes of each page of the list, from earlier calls for this log.
                These numbers save requests.
            untimed_to: The field `untimed_to` of an earlier result. This offset also saves
                requests.

        Returns:
            The result. Its field `is_more_due` is true if more than about 8,000 ranges had to be
                deleted. If other changes succeed first at every attempt, the sweeper deletes the
                remaining rows.

        Raises:
            LogNotFoundError: The log was deleted.
            ConcurrentCommitError: Other changes of the log succeeded first at every attempt;
                retriable.
            MetadataUnknownError: The outcome of the change is unknown; a retry is safe.
            LogTimeoutError: The call took over 120 s. A retry is safe. The error is definite if
                nothing was sent.
        """
        check_optional("page_sizes", page_sizes, dict)
        check_type("untimed_to", untimed_to, int)
        state = await self._state()
        properties = LogProperties.from_mapping(state.head.properties)
        if (properties.retention_ms, properties.retention_bytes) == (KEPT, KEPT):
            head = state.head
            return Truncated(head.version, head.start_offset, head.oldest_version)
        machine = RetentionMachine(
            self._host.name,
            retention_ms=properties.retention_ms,
            retention_bytes=properties.retention_bytes,
            token=uuid.uuid4().hex,
            page_sizes=page_sizes,
            untimed_to=untimed_to,
        )
        return await self._drop(machine, no_progress)

    async def restore(
        self,
        version: int,
        *,
        copy: CopyRows | None = None,
        overwrite_if_changed: bool = False,
        expected_version: int | None = None,
    ) -> CommitResult:
        """Make the rows of an older version the current rows again, at new offsets.

        The log lists the ranges of the version again, so usually no data is copied. But if a merge
        put rows of the version and other rows into one range, the rows of the version are copied
        from this range.

        Args:
            version: The older version.
            copy: A coroutine function that copies rows of such a merged range into a ledger of a
                job. If it is None, no rows may be copied.
            overwrite_if_changed: Whether to replace even rows that other jobs commit during this
                call.
            expected_version: The version of the log that the caller read. The log is changed only
                if it still has this version. If it is None, the log may have any version.

        Raises:
            VersionNotAvailableError: The version has expired or never existed. The field `oldest`
                of the error contains the oldest version.
            ConcurrentCommitError: Another job committed during this call, or the log is not at the
                expected version. Nothing was changed.
            LocalProtocolError: Rows have to be copied, but `copy` is None; or `version` is not a
                number. Nothing was changed.
            LogKindError: The log is a leader log, which has no versions.
            CommitUnknownError: The outcome is unknown; the log's history shows whether the version
                was restored.
        """
        check_type("version", version, int)
        check_optional("expected_version", expected_version, int)
        if copy is not None:
            check_callback(copy, "copy")
        await self._require_versions()
        for _ in range(RESTORE_ATTEMPTS_MAX - 1):
            try:
                return await self._restore(version, copy, overwrite_if_changed, expected_version)
            except ConcurrentCommitError as error:
                # The error is retriable if the only other change was a merge, because a merge
                # changes no rows.
                if not error.retriable:
                    raise
        return await self._restore(version, copy, overwrite_if_changed, expected_version)

    async def set_properties(self, changes: Mapping[str, str | None]) -> dict[str, str]:
        """Change properties of the log, without a new version.

        Return all properties that differ from their defaults. A change of the ensemble, the quorums
        or the digest applies only to ledgers that are created later.

        Args:
            changes: New values by option name. The case of the names does not matter. If a value is
                None, the property gets its default.

        Raises:
            ConfigurationError: A name is unknown, a property cannot be changed, or a value is not
                valid. Nothing was changed.
            LogNotFoundError: The log was deleted.
            MetadataUnknownError: The outcome of the change is unknown; a retry is safe.
            LogTimeoutError: The call took over 120 s. A retry is safe. The error is definite if
                nothing was sent.
        """
        check_type("changes", changes, Mapping)
        machine = PropertiesMachine(self._host.name, changes, token=uuid.uuid4().hex)
        return await self._host.run(machine, timeout_ms=CHANGE_TIMEOUT_MS)

    async def check(
        self,
        *,
        every_entry: bool = False,
        reads_entries: bool = True,
        own_ledgers: Collection[int] | None = None,
        on_progress: OnProgress = no_progress,
    ) -> LogCheck:
        """Check that every listed range has enough copies. The check changes nothing.

        Args:
            every_entry: Whether to check all entries, not only the first and the last entry of each
                range.
            reads_entries: Whether entries are read. If false, no bookie is contacted.
            own_ledgers: Ids of all ledgers with the id of this log in their metadata, read before
                this call. If it is None, the metadata of all ledgers of the cluster is read.
            on_progress: A function that is called with the number of checked ledgers and the number
                of all ledgers.

        Raises:
            LogNotFoundError: The log was deleted.
            MetadataError: The store failed.
        """
        check_callback(on_progress, "on_progress")
        if own_ledgers is not None:
            check_iterable("own_ledgers", own_ledgers)
        return await LogChecker(self._host, own_ledgers).check(
            every_entry=every_entry, reads_entries=reads_entries, on_progress=on_progress
        )

    async def delete_orphans(self) -> tuple[int, ...]:
        """Mark the log's orphans that are older than `stagingTtlMs`, and return these ledgers.

        A leader of an older release leaves an orphan if it dies after the creation of a ledger and
        before it lists the ledger. After `deletedRetentionMs`, the sweeper seals and deletes the
        marked ledgers that are still not listed.

        Raises:
            LogNotFoundError: The log was deleted.
            ConcurrentCommitError: Other changes succeeded first at every attempt.
            MetadataUnknownError: The outcome of the change is unknown; a retry is safe.
            LogTimeoutError: The call took over 120 s. A retry is safe. The error is definite if
                nothing was sent.
        """
        properties = LogProperties.from_mapping((await self._state()).head.properties)
        old = await LogChecker(self._host).orphans(properties.staging_ttl_ms)
        gone: list[int] = []
        for first in range(0, len(old), STEP_LEDGERS_MAX):
            some = old[first : first + STEP_LEDGERS_MAX]
            gone += await self._host.run(
                OrphansMachine(self._host.name, some, token=uuid.uuid4().hex)
            )
        return tuple(gone)

    async def delete(self) -> None:
        """Delete the log. Its name is free immediately. Its ledgers stay for `deletedRetentionMs`.

        Raises:
            LogNotFoundError: The log is already deleted.
            MetadataUnknownError: The outcome of the change is unknown; a retry is safe.
            LogTimeoutError: The call took over 120 s. A retry is safe. The error is definite if
                nothing was sent.
        """
        async with self._host.retries() as retries:
            for _ in range(DELETE_ATTEMPTS_MAX):
                state = await self._state()
                now_ms = await self._host.store.recent_ms()
                deleted = replace(state.head, token=uuid.uuid4().hex, deleted_ms=now_ms)
                try:
                    await self._host.store.delete_log(deleted, state.version)
                except MetadataVersionError:
                    await retries.after(MetadataOutcome.CONFLICT, is_of_head=True)
                    continue
                return
        raise MetadataVersionError(
            f"log {self._host.name!r} was changed by other processes at every attempt: stop its "
            "writers, then delete it",
            log=self._host.name,
        )

    async def delete_if_unused(self) -> bool:
        """Delete the log if it has no change since its creation, and no job has begun.

        Return whether the log no longer exists. If the log is changed or a job begins during this
        call, the log is not deleted.

        Raises:
            MetadataError: The store failed. The log may have been deleted; a retry is safe.
        """
        return await delete_new_log(self._host, None)

    async def _state(self) -> LogState:
        return await self._host.run(StateMachine(self._host.name))

    async def _drop(self, machine: TruncateMachine, on_progress: OnProgress) -> Truncated:
        """Run steps of 1,000 items each until no item is left, or other changes succeed first."""
        done = await self._host.run(machine, timeout_ms=CHANGE_TIMEOUT_MS)
        unlisted = list(done.unlisted)
        is_complete = done.is_complete
        while not is_complete:
            on_progress(len(unlisted), len(unlisted) + 1)
            step = await self._step_on()
            if not (step.is_changed or step.is_complete):
                break
            unlisted += step.unlisted
            is_complete = step.is_complete
        on_progress(len(unlisted), len(unlisted))
        return replace(done, unlisted=tuple(unlisted), is_complete=is_complete)

    async def _step_on(self) -> Expired:
        """Run one more step.

        If other changes succeed first at every attempt, the result is not complete.
        """
        step = Expired(is_changed=False, is_complete=False)
        async with self._host.retries() as retries:
            for attempt in range(1, STEP_ATTEMPTS_MAX + 1):
                machine = ExpiryMachine(
                    self._host.name, version_retention_ms=None, token=uuid.uuid4().hex
                )
                step = await self._host.run(machine)
                if step.is_changed or step.is_complete:
                    break
                if attempt < STEP_ATTEMPTS_MAX:
                    await retries.after(MetadataOutcome.CONFLICT, is_of_head=True)
        return step

    async def _require_versions(self) -> None:
        if (await self._state()).head.kind is LogKind.LEADER:
            raise LogKindError(
                f"log {self._host.name!r} is a leader log, which has no versions: its rows stay "
                "until they are truncated. To see them, run "
                f"`ledgerlog logs show {self._host.name}`",
                log=self._host.name,
            )

    async def _restore(
        self,
        version: int,
        copy: CopyRows | None,
        overwrite_if_changed: bool,
        expected_version: int | None,
    ) -> CommitResult:
        planned = await self._state()
        check_expected(planned.head, expected_version)
        snapshot = await self._host.run(SnapshotMachine(self._host.name, version=version))
        parts = cut_ranges(snapshot.interval, snapshot.items)
        if parts and copy is None:
            raise LocalProtocolError(
                f"version {version} of log {self._host.name!r} begins or ends within a merged "
                "range, so a part of this range must be copied: run `ledgerlog logs restore`",
                log=self._host.name,
                version=version,
            )
        app, run = f"{JOB_APP_PREFIX}{uuid.uuid4()}", str(uuid.uuid4())
        plan = plan_job(planned, schema=b"", mode=WriteMode.OVERWRITE)
        job = plan.job(app=app, run=run, batch_id=0, kind=JobKind.BATCH)
        await self._commits.take_over(job)
        try:
            copies = {}
            for part in parts:
                assert copy is not None
                copies[part.offsets] = await copy(job, part)
            request = RestoreRequest(
                version=version,
                app=job.app,
                run=job.run,
                planned_version=job.planned_version,
                copies=copies,
                overwrite_if_changed=overwrite_if_changed,
                expected_version=expected_version,
                password=await self._password_of(copies.values()),
            )
            machine = RestoreMachine(self._host.name, request, token=uuid.uuid4().hex)
            result = await self._host.run(machine, timeout_ms=CHANGE_TIMEOUT_MS)
            ledger_ids = frozenset(staged.ledger_id for staged in copies.values())
            await self._commits.forget_job(job.app, machine, ledger_ids)
        finally:
            # The restore has already succeeded or failed, so an error of the release is ignored.
            # After such an error, the sweeper deletes the producer.
            with contextlib.suppress(LedgerLogError):
                await self._commits.release(job)
        return result

    async def _password_of(self, copies: Iterable[StagedRange]) -> bytes:
        """Return the password of the ledgers that contain the copies; empty without copies."""
        ledger_ids = {copied.ledger_id for copied in copies}
        found = {(await self._host.ledgers.ledger_metadata(i)).password for i in ledger_ids}
        if len(found) > 1:
            raise UnauthorizedError(
                f"the rows of the version have {len(found)} passwords, but all rows of log "
                f"{self._host.name!r} must have one password; nothing was changed",
                log=self._host.name,
            )
        return found.pop() if found else b""
