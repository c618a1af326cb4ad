"""The writers of groups, one for each write mode.

A writer gets the groups in the order of the entry-log files. Two calls may run at the same time.
They end in the order in which they began.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from bookie_server.core.record import JournalRecord, JournalRecordKind
from bookie_server.errors import SyncFailedError
from bookie_server.ports import Buffer, SurvivingNumber
from bookie_server.storage.files.entry_log_file import OpenFile
from bookie_server.storage.modes.checkpoints import Checkpoints, WrittenMark
from bookie_server.storage.modes.recorded_run import RecordedRun
from bookie_server.storage.modes.ring import JournalPlace, JournalRing

HAS_FAILED = -1
"""Value of the number in shared memory if the run may have lost written groups."""


@dataclass(slots=True)
class Group:
    """Encoded records, and their place in an entry-log file."""

    file: OpenFile
    offset: int
    buffers: Sequence[Buffer]
    records: Sequence[JournalRecord]

    def written(self, place: JournalPlace | None) -> WrittenMark:
        """Return the mark of the last record. `place` is the end of the group's copy, if any."""
        last = self.records[-1]
        return WrittenMark(last.sequence, last.ticket, place)

    @property
    def size_bytes(self) -> int:
        """Number of bytes of the group in its entry-log file."""
        return sum(map(len, self.buffers))


async def append_copy(ring: JournalRing, group: Group) -> JournalPlace:
    """Append the copy of a group to the journal files, and return its end."""
    records = group.records
    return await ring.append(
        group.file.identity,
        group.offset,
        group.buffers,
        (records[0].sequence, records[-1].sequence),
    )


class GroupWriter(Protocol):
    """Writes groups as required by a write mode."""

    async def write(self, group: Group) -> bool:
        """Write a group, and return whether it is synced.

        On return, the adds of the group may be acknowledged and read.

        Raises:
            SyncFailedError: The group may or may not be on the device.
        """

    def sync_soon(self) -> None:
        """Request a sync of the written groups, unless `write` returns only after a sync."""

    async def sync_now(self) -> None:
        """Wait until all written groups are synced, or the storage has failed."""


class SyncedWriter:
    """A writer whose groups are synced when `write` returns."""

    def sync_soon(self) -> None:
        """Do nothing, because all written groups are synced."""

    async def sync_now(self) -> None:
        """Do nothing, because all written groups are synced."""


class DirectWriter(SyncedWriter):
    """Writes and syncs a group in its entry-log file."""

    async def write(self, group: Group) -> bool:
        """Write and sync a group."""
        await group.file.handle.write_synced(group.offset, group.buffers)
        return True


class JournalWriter(SyncedWriter):
    """Syncs a copy of a group in a journal file, then writes the group in its entry-log file.

    The copy is written first, so a record is in the journal before it is in the entry-log file.
    """

    def __init__(self, ring: JournalRing, checkpoints: Checkpoints) -> None:
        self._ring = ring
        self._checkpoints = checkpoints

    async def write(self, group: Group) -> bool:
        """Write the copy and the group. The group counts as synced, because its copy is synced."""
        place = await append_copy(self._ring, group)
        await group.file.handle.write_in_order(group.offset, group.buffers)
        self._checkpoints.wrote(group.written(place), group.size_bytes)
        return True


class UnsyncedWriter:
    """Writes a group without a sync, with or without a copy in a journal file.

    Before the adds are acknowledged, the last sequence is set in memory that outlives the process,
    and the MANIFEST lists the run.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        recorded: RecordedRun,
        survivor: SurvivingNumber | None,
        ring: JournalRing | None,
    ) -> None:
        self._checkpoints = checkpoints
        self._recorded = recorded
        self._survivor = survivor
        self._ring = ring
        self._has_failed = False

    async def write(self, group: Group) -> bool:
        """Write a group, which a later checkpoint syncs."""
        self._recorded.groups += 1
        try:
            return await self._write(group)
        finally:
            self._recorded.groups -= 1

    async def _write(self, group: Group) -> bool:
        has_adds = any(record.kind is JournalRecordKind.RUN for record in group.records)
        is_later = await self._recorded.may_sync_later(has_adds=has_adds)
        place = None if self._ring is None else await append_copy(self._ring, group)
        handle = group.file.handle
        try:
            await (handle.write_in_order if is_later else handle.write_synced)(
                group.offset, group.buffers
            )
        except SyncFailedError:
            self.fail()
            raise
        # A checkpoint may have failed in the meantime. The number must not hide the failure.
        if self._survivor is not None and not self._has_failed:
            self._survivor.set(group.records[-1].sequence)
        mark = group.written(place)
        self._checkpoints.wrote(mark, group.size_bytes, is_synced=not is_later)
        return not is_later

    def sync_soon(self) -> None:
        """Request a checkpoint."""
        self._checkpoints.request()

    async def sync_now(self) -> None:
        """Wait for a checkpoint of all written groups."""
        await self._checkpoints.sync_now()

    def fail(self) -> None:
        """Record that written groups may be lost, so that the next start does not trust the files.

        If all written groups are synced, do nothing, because a failure then loses no group.
        """
        if self._checkpoints.is_synced:
            return
        self._has_failed = True
        if self._survivor is not None:
            self._survivor.set(HAS_FAILED)
