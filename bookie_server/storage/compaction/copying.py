"""Copies the live entries of one file."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterator
from enum import Enum
from typing import TypeVar

from bookie_server.core.record import JournalRecord, JournalRecordKind
from bookie_server.core.record_codec import damage_at
from bookie_server.errors import DiskFullError, StorageError, SyncFailedError, TooManyFilesError
from bookie_server.storage.compaction.draft import PORTION_SIZE_BYTES, Draft
from bookie_server.storage.compaction.live import LiveEntries, LiveStretch
from bookie_server.storage.compaction.pace import Pace
from bookie_server.storage.files.entry_log_file import (
    FinishedFile,
    Need,
    read_body,
    read_header,
)
from bookie_server.storage.replay import FileWindow, run_in_window
from bookie_server.storage.shared import Shared

R = TypeVar("R")


class CopyOutcome(Enum):
    """The result of copying a file."""

    WHOLE = "whole"
    """All live entries of the file are copied."""
    FULL = "full"
    """The draft is full. The copying continues in another draft."""
    DEAD = "dead"
    """All ledgers of the file were dropped during the compaction."""
    UNREADABLE = "unreadable"
    """The file is damaged, or the device cannot read it. The file is kept."""
    ENDED = "ended"
    """The storage stops or has failed."""


class Copying:
    """The copying of one file into one draft or several drafts."""

    def __init__(self, shared: Shared, source: FinishedFile, live: LiveEntries, pace: Pace) -> None:
        self._shared = shared
        self._live = live
        self._pace = pace
        self._window = FileWindow(source.handle, source.entry.data_end, PORTION_SIZE_BYTES)
        self._records: Iterator[list[LiveStretch]] | None = None
        self._waiting: list[LiveStretch] | None = None  # stretches with no room in the last draft
        self.source = source

    async def into(self, draft: Draft) -> CopyOutcome:
        """Copy entries into a draft until the draft is full, or all entries are copied."""
        try:
            return await self._copy(draft)
        except (DiskFullError, SyncFailedError, TooManyFilesError):
            raise  # an error of the draft, not of the source
        except StorageError:
            return CopyOutcome.UNREADABLE

    async def _copy(self, draft: Draft) -> CopyOutcome:
        if self._records is None:
            self._records = (await self._live.of(self.source)).by_record()
        while True:
            outcome = self._interruption()
            if outcome is not None:
                return outcome
            stretches = self._waiting or next(self._records, None)
            if stretches is None:
                return CopyOutcome.WHOLE
            self._waiting = stretches
            if not await self._copy_record(draft, stretches):
                return CopyOutcome.FULL
            self._waiting = None

    def _interruption(self) -> CopyOutcome | None:
        if self._pace.must_end:
            return CopyOutcome.ENDED
        if self.source.entry.file_id in self._shared.health.files_in_doubt:
            return CopyOutcome.UNREADABLE
        return None if self.source.live else CopyOutcome.DEAD

    async def _copy_record(self, draft: Draft, stretches: list[LiveStretch]) -> bool:
        """Copy the live entries of a record. Return False if the draft has no room for them."""
        source = self.source
        before = self._window.read_bytes
        record = await self._run(read_header(source.handle, source.identity, stretches[0].offset))
        await self._pace.spend(self._window.read_bytes - before)
        tombstone = self._shared.states.tombstone_of(record.ledger_id)
        if record.origin_sequence <= tombstone:
            return True
        self._check(record, stretches)
        places = [range(s.place, s.place + s.last - s.first + 1) for s in stretches]
        copy = part_of(record, places)
        if not draft.has_room_for(copy):
            return False
        await draft.append(copy, self._body_of(record, places))
        return True

    def _check(self, record: JournalRecord, stretches: list[LiveStretch]) -> None:
        """Raise an error if the index points to other entries."""
        ids = record.entry_ids
        for stretch in stretches:
            count = stretch.last - stretch.first
            if (
                record.kind is not JournalRecordKind.RUN
                or record.origin_sequence != stretch.origin
                or stretch.place + count >= len(ids)
                or ids[stretch.place] != stretch.first
                or ids[stretch.place + count] != stretch.last
            ):
                reason = "the index points to another record"
                raise damage_at(self.source.identity, record.offset, reason)

    async def _body_of(self, record: JournalRecord, places: list[range]) -> AsyncIterator[bytes]:
        """Yield the bytes of some entries of a record in portions, after verifying each portion."""
        for place in places:
            at, end = record.span_of(place.start, len(place))
            while at < end:
                edge = min(end, (at // PORTION_SIZE_BYTES + 1) * PORTION_SIZE_BYTES)
                before = self._window.read_bytes
                data = await self._run(read_body(self.source.handle, record, at, edge))
                await self._pace.spend(self._window.read_bytes - before)
                yield data
                at = edge

    async def _run(self, reading: Generator[Need, bytes, R]) -> R:
        """Run the generator `reading`, and give it the source file's bytes from the window."""
        return await run_in_window(reading, self._window)


def part_of(record: JournalRecord, places: list[range]) -> JournalRecord:
    """Return a new record with some entries of `record`, and the same origin sequence."""
    ids, lengths = record.entry_ids, record.lengths
    if len(places) == 1:
        (only,) = places
        ids, lengths = ids[only.start : only.stop], lengths[only.start : only.stop]
    else:
        ids = tuple(ids[place] for part in places for place in part)
        lengths = tuple(lengths[place] for part in places for place in part)
    copy = JournalRecord(
        JournalRecordKind.RUN,
        record.ledger_id,
        entry_ids=ids,
        lengths=lengths,
        master_key=record.master_key,
        flags=record.flags,
    )
    copy.origin_sequence = record.origin_sequence
    copy.body_size = sum(lengths)
    return copy
