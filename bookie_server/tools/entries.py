"""The entries of one ledger in a directory, in order. Only the newest copy of an entry is read."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Generator
from dataclasses import dataclass, field

from bookie_server.core.index_format import BLOCK_SIZE, IndexBlock
from bookie_server.core.manifest_codec import FileState
from bookie_server.core.pieces import Piece, Pieces
from bookie_server.core.record import JournalRecord, JournalRecordKind
from bookie_server.errors import StorageError
from bookie_server.storage.files.entry_log_file import FinishedFile, Need, read_body, read_header
from bookie_server.storage.files.index_rebuilds import rebuild_index
from bookie_server.storage.files.pool import PooledFile
from bookie_server.storage.open_files import Replayed
from bookie_server.storage.reading.readings import finish
from bookie_server.tools.directory import RestingDirectory

PORTION_SIZE_BYTES = 1 << 20
RANGES_REPORTED_MAX = 20


@dataclass(slots=True)
class Ranges:
    """Ranges of entry ids: the first ranges, and the number of all ids."""

    count: int = 0
    first_ones: list[tuple[int, int]] = field(default_factory=list)  # inclusive

    def add(self, first: int, last: int) -> None:
        """Add a range whose ids are above the ids of all earlier ranges."""
        self.count += last - first + 1
        ranges = self.first_ones
        if ranges and ranges[-1][1] + 1 == first:
            ranges[-1] = (ranges[-1][0], last)
        elif len(ranges) < RANGES_REPORTED_MAX:
            ranges.append((first, last))


@dataclass(slots=True)
class DumpResult:
    """The numbers of the entries that `LedgerEntries.read` found and did not find."""

    is_known: bool = True  # whether the directory has a state of the ledger
    entries: int = 0
    size_bytes: int = 0
    missing: Ranges = field(default_factory=Ranges)
    unreadable: Ranges = field(default_factory=Ranges)  # entries whose record is damaged
    files_in_doubt: int = 0  # number of missing or damaged files, which may have had any entry


@dataclass(slots=True)
class _Source:
    """The pieces of the ledger in one file, in ascending order. One piece is read ahead."""

    pieces: AsyncIterator[Piece[int] | Piece[JournalRecord]]
    handle: PooledFile | None  # None if each record has its own file
    file: FinishedFile | None = None
    piece: Piece[int] | Piece[JournalRecord] | None = None

    async def skip_to(self, entry_id: int) -> None:
        """Advance to the first piece whose last entry is not below `entry_id`."""
        while self.piece is not None and self.piece.last < entry_id:
            self.piece = await anext(self.pieces, None)


class LedgerEntries:
    """Reads the entries of one ledger.

    The memory use does not grow with the number of entries in finished files. The records of the
    open files are in memory, as in a running bookie.
    """

    def __init__(self, directory: RestingDirectory, ledger_id: int) -> None:
        self._directory = directory
        self._ledger_id = ledger_id
        self._tombstone = 0
        self._handles: dict[int, PooledFile] = {}
        self.outcome = DumpResult()

    async def read(self, first: int, last: int | None) -> AsyncIterator[tuple[int, bytes]]:
        """Yield id and stored bytes of each entry from `first` to `last`, inclusive.

        If `last` is None, the ledger is read to its end. Afterwards, `outcome` is complete.
        """
        outcome = self.outcome
        sources = await self._sources(first)
        at = first
        while last is None or at <= last:
            for source in sources:
                await source.skip_to(at)
            begun = [s for s in sources if s.piece is not None and s.piece.first <= at]
            later = [s.piece.first for s in sources if s.piece is not None and s.piece.first > at]
            if not begun:
                if not later or (last is not None and min(later) > last):
                    break
                outcome.missing.add(at, min(later) - 1)
                at = min(later)
                continue
            newest = max(begun, key=_origin)
            # Where a piece ends, or a later piece begins, another file may have the newest copy.
            ends = [source.piece.last for source in begun if source.piece is not None]
            end = min([*ends, *(each - 1 for each in later)])
            if last is not None:
                end = min(end, last)
            async for entry in self._in_piece(newest, at, end):
                yield entry
            at = end + 1
        if last is not None and at <= last:
            outcome.missing.add(at, last)
        outcome.files_in_doubt = len(self._directory.shared.health.files_in_doubt)

    async def _sources(self, first: int) -> list[_Source]:
        directory = self._directory
        replayed = await directory.replay()
        doubts = directory.shared.health.files_in_doubt
        doubts |= {file.entry.file_id for file in replayed if file.verdict.has_damage}
        doubts |= {entry.file_id for entry in directory.manifest.files if entry.has_damage}
        self.outcome.is_known = self._ledger_id in directory.shared.states
        self._tombstone = directory.shared.states.tombstone_of(self._ledger_id)
        sources = [_Source(self._in_open(replayed), None)]
        for entry in directory.entries(FileState.FINISHED):
            try:
                file = await directory.index_or_rebuilt(entry)
            except StorageError:
                doubts.add(entry.file_id)
                continue
            if file.has(self._ledger_id):
                sources.append(_Source(self._in_finished(file, first), file.handle, file))
        for source in sources:
            source.piece = await anext(source.pieces, None)
        return sources

    async def _in_open(self, replayed: list[Replayed]) -> AsyncIterator[Piece[JournalRecord]]:
        pieces: Pieces[JournalRecord] = Pieces()
        for file in replayed:
            if file.handle is not None:
                self._handles[file.entry.file_id] = file.handle
            verdict = file.verdict
            for record in (*verdict.kept, *verdict.unreadable, *verdict.rewritten):
                is_ours = record.kind is JournalRecordKind.RUN
                is_ours &= record.ledger_id == self._ledger_id
                if is_ours and record.origin_sequence > self._tombstone:
                    pieces.insert(record.entry_ids, record.origin_sequence, record)
        for piece in pieces:
            yield piece

    async def _in_finished(
        self, file: FinishedFile, first: int
    ) -> AsyncIterator[Piece[int] | Piece[JournalRecord]]:
        """Yield the live pieces of a file from `first` on, block by block."""
        at = first
        if file.rebuilt is None:
            try:
                assert file.head is not None
                number = file.head.block_of(self._ledger_id, first)
                while number is not None and number < len(file.head.keys):
                    block = await finish(_block(file, number))
                    for piece in block.pieces_of(self._ledger_id):
                        if piece.last >= at and piece.origin > self._tombstone:
                            yield piece
                            at = piece.last + 1
                    if file.head.keys[number][0] > self._ledger_id:
                        return
                    number += 1
            except StorageError:
                await self._rebuild(file)
        if file.rebuilt is not None:
            for rebuilt in file.rebuilt.pieces_of(self._ledger_id):
                if rebuilt.last >= at and rebuilt.origin > self._tombstone:
                    yield rebuilt

    async def _rebuild(self, file: FinishedFile) -> None:
        """Rebuild the index of a file. The file stays in doubt if a record cannot be read."""
        doubts, file_id = self._directory.shared.health.files_in_doubt, file.entry.file_id
        doubts.add(file_id)
        with contextlib.suppress(StorageError):
            if await rebuild_index(file, self._directory.shared) and not file.entry.has_damage:
                doubts.discard(file_id)

    async def _in_piece(
        self, source: _Source, first: int, last: int
    ) -> AsyncIterator[tuple[int, bytes]]:
        """Yield the entries `first` to `last` of the source's piece, in portions."""
        piece, outcome = source.piece, self.outcome
        assert piece is not None
        try:
            record, handle = await self._record_of(source)
        except StorageError:
            outcome.unreadable.add(first, last)
            return
        while first <= last:
            place = piece.place + first - piece.first
            lengths = record.lengths[place : place + last - first + 1]
            count = _fitting(lengths)
            start, end = record.span_of(place, count)
            try:
                data = await finish(read_body(handle, record, start, end))
            except StorageError:
                outcome.unreadable.add(first, first + count - 1)
                data = None
            at = 0
            for number in range(count if data is not None else 0):
                assert data is not None
                outcome.entries += 1
                outcome.size_bytes += lengths[number]
                yield first + number, data[at : at + lengths[number]]
                at += lengths[number]
            first += count

    async def _record_of(self, source: _Source) -> tuple[JournalRecord, PooledFile]:
        assert source.piece is not None
        target = source.piece.target
        if isinstance(target, JournalRecord):
            assert target.identity is not None
            handle = source.handle or self._handles[target.identity.file_id]
            return target, handle
        assert source.file is not None
        file = source.file
        return await finish(read_header(file.handle, file.identity, target)), file.handle


def _origin(source: _Source) -> int:
    assert source.piece is not None
    return source.piece.origin


def _fitting(lengths: tuple[int, ...]) -> int:
    """Return the number of entries that fit in a portion, at least 1."""
    size = count = 0
    for length in lengths:
        size += length
        if count and size > PORTION_SIZE_BYTES:
            break
        count += 1
    return count


def _block(file: FinishedFile, number: int) -> Generator[Need, bytes, IndexBlock]:
    """Return a block without keeping it in memory, because a ledger may have many blocks."""
    data = yield Need(file.handle, file.block_offset(number), BLOCK_SIZE)
    return IndexBlock(data, number, file.identity)


def describe_ranges(ranges: Ranges) -> str:
    """Return the first ranges as text, such as `3, 7-9`."""
    texts = [f"{a}" if a == b else f"{a}-{b}" for a, b in ranges.first_ones]
    shown = sum(b - a + 1 for a, b in ranges.first_ones)
    return ", ".join(texts) + (", ..." if shown < ranges.count else "")
