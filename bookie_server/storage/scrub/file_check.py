"""Verifies one finished file: its index, each pointer of the index, and each record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import Enum

from bookie_server.core.index_format import BLOCK_SIZE, IndexBlock
from bookie_server.core.pieces import Piece
from bookie_server.core.record import JournalRecord
from bookie_server.core.record_codec import CHUNK_SIZE, aligned, check_chunks
from bookie_server.core.slot_header import RECORDS_START
from bookie_server.errors import CorruptRecordError, FreedFileError, StorageError
from bookie_server.storage.compaction.draft import PORTION_SIZE_BYTES
from bookie_server.storage.compaction.live import LiveEntries
from bookie_server.storage.compaction.pace import RECORD_COST_BYTES, Pace
from bookie_server.storage.files.entry_log_file import (
    FinishedFile,
    by_offset,
    read_index_head,
)
from bookie_server.storage.files.keeper import FileKeeper
from bookie_server.storage.files.pool import Pins
from bookie_server.storage.replay import FileWindow, Headers, run_in_window
from bookie_server.storage.scrub.device_reads import DeviceReads
from bookie_server.storage.scrub.pointers import Pointer, Pointers
from bookie_server.storage.shared import Shared
from bookie_server.storage.slices import parts

OnDamaged = Callable[[FinishedFile, int, int, Sequence[int]], None]
"""A function that gets a file, the offset of a record, its ledger and its damaged live entries."""


class FileOutcome(Enum):
    """The result of the check of a file."""

    WHOLE = "whole"
    """The whole file was read."""
    FREED = "freed"
    """The file was freed."""
    TAKEN = "taken"
    """Compaction owns the file."""
    INDEX_DAMAGED = "index_damaged"
    """The index must be rebuilt."""
    UNREADABLE = "unreadable"
    """The device cannot read the file."""
    ENDED = "ended"
    """The storage stops or has failed."""


class FileCheck:
    """The check of one file."""

    def __init__(
        self,
        shared: Shared,
        keeper: FileKeeper,
        pace: Pace,
        file: FinishedFile,
        on_damaged: OnDamaged,
    ) -> None:
        self._shared = shared
        self._keeper = keeper
        self._pace = pace
        self._file = file
        self._on_damaged = on_damaged
        self._reads = DeviceReads(shared, file, pace)
        self._pointers = Pointers()
        # A copy with the same origin sequence in an older file does not supersede an entry, because
        # reads prefer the newer file.
        older = {each.entry.file_id for each in keeper.finished} - {file.entry.file_id}
        older = {file_id for file_id in older if file_id < file.entry.file_id}
        self._live = LiveEntries(shared, keeper, pace, older)

    async def run(self) -> FileOutcome:
        """Verify the file. The file is not freed before the end of the check."""
        try:
            with Pins() as pins:
                pins.add(self._file.handle)
                await self._reads.begin()
                outcome = await self._take_pointers()
                return outcome or await self._check_records()
        except FreedFileError:
            return FileOutcome.FREED
        except CorruptRecordError:
            return FileOutcome.INDEX_DAMAGED
        except StorageError:
            return FileOutcome.ENDED if self._pace.must_end else FileOutcome.UNREADABLE

    def _interruption(self) -> FileOutcome | None:
        file_id = self._file.entry.file_id
        if self._pace.must_end:
            return FileOutcome.ENDED
        if file_id in self._keeper.handover.owned:
            return FileOutcome.TAKEN
        return None if file_id in self._keeper.finished else FileOutcome.FREED

    async def _take_pointers(self) -> FileOutcome | None:
        """Read the pointers of the index. Return an outcome only if the check must end now.

        Raises:
            CorruptRecordError: The index is damaged.
        """
        file = self._file
        if file.rebuilt is not None:
            for ledger_ids in parts(file.rebuilt.ledger_ids):
                for ledger_id in ledger_ids:
                    for piece in file.rebuilt.pieces_of(ledger_id):
                        self._pointers.add(ledger_id, by_offset(piece))
                await self._shared.give_way()
            return None
        stored = FinishedFile(file.entry, file.handle, file.identity)
        window = FileWindow(self._reads, await file.handle.size(), PORTION_SIZE_BYTES)
        await run_in_window(read_index_head(stored), window)
        assert stored.head is not None
        for number in range(len(stored.head.keys)):
            outcome = self._interruption()
            if outcome is not None:
                return outcome
            data = await window.get(stored.block_offset(number), BLOCK_SIZE)
            block = IndexBlock(data, number, file.identity)
            for place in range(len(block)):
                self._pointers.add(*block.piece_at(place))
            await self._shared.give_way()
        return None

    async def _check_records(self) -> FileOutcome:
        entry, pointers = self._file.entry, self._pointers
        window = FileWindow(self._reads, entry.data_end, PORTION_SIZE_BYTES)
        headers = Headers(window, entry.identity)
        pointers.begin()
        offset = RECORDS_START
        while offset < entry.data_end:
            outcome = self._interruption()
            if outcome is not None:
                return outcome
            record = await headers.at(offset)
            if record is None:
                following = await headers.next_after(offset)
                end = entry.data_end if following is None else following.offset
                await self._report([(p.ledger_id, p.piece()) for p in pointers.before(end)])
            else:
                end = offset + aligned(record.size)
                found = pointers.before(end)
                if self._is_wrong([pointer for pointer in found if not pointer.fits(record)]):
                    return FileOutcome.INDEX_DAMAGED
                await self._check_body(window, record, found)
                await self._pace.spend(max(0, RECORD_COST_BYTES - (end - offset)))
            offset = end
        is_wrong = self._is_wrong(pointers.rest())
        return FileOutcome.INDEX_DAMAGED if is_wrong else FileOutcome.WHOLE

    def _is_wrong(self, wrong: list[Pointer]) -> bool:
        """Count the pointers `wrong`, and return whether the index must be rebuilt."""
        self._shared.counters.scrub_wrong_pointers += len(wrong)
        return bool(wrong) and self._file.rebuilt is None

    async def _check_body(
        self, window: FileWindow, record: JournalRecord, pointers: list[Pointer]
    ) -> None:
        damaged: set[int] = set()
        body = record.offset + record.header_size
        for number in range(len(record.chunk_checksums)):
            start = number * CHUNK_SIZE
            size = min(CHUNK_SIZE, record.body_size - start)
            data = await window.get(body + start, size)
            try:
                if len(data) == size:
                    check_chunks(record, number, data)
                else:
                    damaged.add(number)
            except CorruptRecordError:
                damaged.add(number)
        if damaged:
            found = [
                (pointer.ledger_id, piece)
                for pointer in pointers
                for piece in entries_in(record, pointer, damaged)
            ]
            await self._report(found)

    async def _report(self, found: list[tuple[int, Piece[int]]]) -> None:
        """Count damage, and report the damaged entries that reads may still need.

        Consecutive damaged headers count once. Their records are reported one by one.
        """
        self._shared.counters.scrub_damaged_records += 1
        by_record: dict[tuple[int, int], list[Piece[int]]] = {}
        for ledger_id, piece in sorted(found):
            by_record.setdefault((piece.target, ledger_id), []).append(piece)
        for (offset, ledger_id), pieces in by_record.items():
            live = await self._live.live_parts(self._file, ledger_id, pieces)
            ids = [
                each
                for piece in live
                for each in range(piece.first, piece.last + 1)
                if not self._is_replaced(ledger_id, each, piece.origin)
            ]
            if ids:
                self._shared.counters.scrub_damaged_entries += len(ids)
                self._on_damaged(self._file, offset, ledger_id, ids)

    def _is_replaced(self, ledger_id: int, entry_id: int, origin: int) -> bool:
        """Return whether a file that is not finished has a newer copy of an entry."""
        found = (file.index.find(ledger_id, entry_id) for file in self._keeper.opened)
        return any(piece is not None and piece.origin > origin for piece in found)


def entries_in(record: JournalRecord, pointer: Pointer, chunks: set[int]) -> Iterator[Piece[int]]:
    """Yield each entry of a pointer that has bytes in these chunks of the record's body."""
    start, _ = record.span_of(pointer.place)
    for number in range(pointer.last - pointer.first + 1):
        end = start + record.lengths[pointer.place + number]
        touched = range(start // CHUNK_SIZE, (max(end, start + 1) - 1) // CHUNK_SIZE + 1)
        if not chunks.isdisjoint(touched):
            entry_id = pointer.first + number
            place = pointer.place + number
            yield Piece(entry_id, entry_id, pointer.origin, pointer.offset, place)
        start = end
