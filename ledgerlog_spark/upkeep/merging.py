"""Merges small ranges of a log into large ledgers (LOGS.md#U13-U16)."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ledgerlog_spark.client.client import LedgerClient
from ledgerlog_spark.errors import (
    ConcurrentCommitError,
    DataLossError,
    LedgerNotFoundError,
    LogKindError,
    MetadataError,
    UnauthorizedError,
)
from ledgerlog_spark.log.committing.job import Job
from ledgerlog_spark.log.log import Log
from ledgerlog_spark.log.maintenance.log_maintenance import OnProgress, no_progress
from ledgerlog_spark.log.reading.committed_range import BegunRange
from ledgerlog_spark.metadata.logs.nodes import read_each
from ledgerlog_spark.protocol.log.commit.result import CommitStatus
from ledgerlog_spark.protocol.log.properties import LogProperties
from ledgerlog_spark.protocol.log.state.records import (
    Item,
    LogContent,
    LogHead,
    LogKind,
    LogSnapshot,
    StagedRange,
)
from ledgerlog_spark.upkeep.merge_plan import MergePolicy, plan_merges

if TYPE_CHECKING:
    import pyarrow as pa

READ_AHEAD = 16
"""Maximum number of ranges whose first entries are requested before they are needed."""


@dataclass(frozen=True, slots=True)
class Merged:
    """The result of a merge of one log."""

    log: str
    ranges_before: int
    ranges_after: int  # number of ranges after the merge, without new ranges of other jobs
    rows: int = 0  # number of copied rows
    size_bytes: int = 0  # total size of the new ledgers
    ledgers: int = 0  # number of new ledgers
    lost: int = 0  # number of merges that were given up, mostly because the list has changed


def is_mergeable(head: LogHead) -> bool:
    """Whether ranges of this log can be merged (LOGS.md#U14)."""
    return head.kind is LogKind.TRANSACTIONAL and head.content is LogContent.ROWS


def check_mergeable(head: LogHead) -> None:
    """Raise LogKindError if ranges of this log cannot be merged."""
    if not is_mergeable(head):
        raise LogKindError(
            f"log {head.name!r} is a {head.kind.name.lower()} log of "
            f"{head.content.name.lower()}, which cannot be merged: its leader sets the size of its "
            "ledgers. For larger ledgers, increase rollBytes and rollMs with `ledgerlog logs set`",
            log=head.name,
        )


class LogMerger:
    """Merges small ranges of one transactional log of rows."""

    def __init__(
        self,
        log: Log,
        client: LedgerClient,
        policy: MergePolicy,
        *,
        compression: str = "zstd",
        seals: bool = False,
        on_progress: OnProgress = no_progress,
    ) -> None:
        """Prepare a merger.

        If `seals` is True, open ledgers are sealed first, so that their ranges can be merged. A
        stream whose ledger was sealed continues in another ledger. `on_progress` is called on the
        event loop after each range, with the number of copied ranges and of all ranges.
        """
        self._log = log
        self._client = client
        self._policy = policy
        self._compression = compression
        self._seals = seals
        self._on_progress = on_progress
        self._ranges_done = 0
        self._ranges_total = 0

    async def merge(self) -> Merged:
        """Merge all runs that are worth merging.

        Each run is merged separately, with its own commit. If `is_mergeable` is false for the log,
        the method does nothing.
        """
        head = (await self._log.state()).head
        if not is_mergeable(head):
            return Merged(self._log.name, head.items.count, head.items.count)
        snapshot = await self._log.snapshot()
        before = len(snapshot.items)
        runs = await self._plan(snapshot)
        self._ranges_total = sum(map(len, runs))
        switched: list[StagedRange] = []
        after = before
        losses: list[DataLossError] = []
        for run in runs:
            try:
                staged = await self._merge_run(snapshot, run)
            except DataLossError as error:
                losses.append(error)
                continue
            if staged is not None:
                switched.append(staged)
                after -= len(run) - 1
        if losses:
            raise losses[0]
        return Merged(
            log=self._log.name,
            ranges_before=before,
            ranges_after=after,
            rows=sum(staged.rows for staged in switched),
            size_bytes=sum(staged.size_bytes for staged in switched),
            ledgers=len(switched),
            lost=len(runs) - len(switched),
        )

    async def _plan(self, snapshot: LogSnapshot) -> list[tuple[Item, ...]]:
        properties = LogProperties.from_mapping(snapshot.properties)
        target_bytes = min(self._policy.target_bytes, properties.roll_bytes)
        policy = replace(self._policy, target_bytes=target_bytes)
        # The merge is planned twice, so that only the metadata of ledgers in possible runs is read.
        ids = dict.fromkeys((item.ledger_id for item in snapshot.items), b"")
        candidates = plan_merges(snapshot.items, ids, policy)
        wanted = list(dict.fromkeys(item.ledger_id for run in candidates for item in run))
        found = zip(wanted, await read_each(self._password_of, wanted), strict=True)
        passwords = {ledger_id: each for ledger_id, each in found if each is not None}
        return plan_merges(snapshot.items, passwords, policy)

    async def _password_of(self, ledger_id: int) -> bytes | None:
        """Return the password of a closed ledger, or None if the ledger is open or deleted."""
        try:
            metadata = await self._client.ledger_metadata(ledger_id)
            if self._seals and not metadata.is_closed:
                metadata = await self._log.seal(ledger_id, password=metadata.password)
        except LedgerNotFoundError:
            return None
        return metadata.password if metadata.is_closed else None

    async def _merge_run(self, snapshot: LogSnapshot, run: Sequence[Item]) -> StagedRange | None:
        """Merge a run into one range, and return this range.

        The result is None if the merge was given up (see `Merged.lost`).
        """
        try:
            metadata = await self._client.ledger_metadata(run[0].ledger_id)
        except LedgerNotFoundError as error:
            if not await self._still_lists(run):
                return None
            raise DataLossError(
                f"ledger {error.ledger_id}, listed by log {self._log.name!r}, does not exist",
                log=self._log.name,
                ledger_id=error.ledger_id,
            ) from error
        try:
            begun = await self._log.begin(password=metadata.password)
        except UnauthorizedError:
            return None  # an older release listed ledgers with different passwords in one log
        job = replace(begun, since_offset=run[0].first_offset)
        try:
            staged = await self._copy(job, snapshot, run)
            result = await self._log.switch(job, run, staged)
            assert result.status is CommitStatus.COMMITTED, result
        except (ConcurrentCommitError, UnauthorizedError):
            return None
        except DataLossError:
            if await self._still_lists(run):
                raise
            return None
        finally:
            with contextlib.suppress(MetadataError):
                await self._log.release(job)
        return staged

    async def _still_lists(self, run: Sequence[Item]) -> bool:
        listed = {item.first_offset: item for item in (await self._log.snapshot()).items}
        return all(listed.get(item.first_offset) == item for item in run)

    async def _copy(self, job: Job, snapshot: LogSnapshot, run: Sequence[Item]) -> StagedRange:
        # The import is here, because upkeep needs Arrow only for merges.
        from ledgerlog_spark.upkeep.rows import begun, rows_of, write_range

        schema = snapshot.schemas[run[0].schema_id]

        async def rows() -> AsyncGenerator[pa.RecordBatch, None]:
            waiting: deque[BegunRange] = deque()
            try:
                for place, item in enumerate(run):
                    ahead = run[place + len(waiting) : place + READ_AHEAD]
                    waiting.extend(begun(self._log, each, job.password) for each in ahead)
                    copied = rows_of(item, schema, waiting.popleft(), log=self._log.name)
                    async with contextlib.aclosing(copied):
                        async for batch in copied:
                            yield batch
                    self._ranges_done += 1
                    self._on_progress(self._ranges_done, self._ranges_total)
            finally:
                for entries in waiting:
                    await entries.aclose()

        writer = await self._log.open_range(job, schema)
        return await write_range(writer, schema, rows(), compression=self._compression)
