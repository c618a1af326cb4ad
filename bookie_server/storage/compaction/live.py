"""Finds the entries of a file that must be copied.

An entry is dead if its origin sequence is not larger than the tombstone of its ledger, or if
another finished file holds a newer copy. All records of a finished file are synced. A newer copy in
a file that is not finished does not make an entry dead. This copy may not be synced, so a crash
could lose it after the older copy is deleted.
"""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import AsyncIterator, Collection, Iterator
from typing import NamedTuple

from bookie_server.core.background.compaction import uncovered
from bookie_server.core.index_format import BLOCK_SIZE, IndexBlock
from bookie_server.core.pieces import Piece
from bookie_server.errors import StorageError
from bookie_server.storage.compaction.pace import Pace
from bookie_server.storage.files.entry_log_file import FinishedFile, blocks_of, by_offset
from bookie_server.storage.files.keeper import FileKeeper
from bookie_server.storage.shared import Shared
from bookie_server.storage.slices import parts

REGION_SIZE_BYTES = 1 << 20
_NUMBERS = 5


class LiveStretch(NamedTuple):
    """Consecutive live entries of one record."""

    offset: int  # offset of the record
    place: int  # index of the first entry in the record
    first: int  # id of the first entry
    last: int  # id of the last entry, inclusive
    origin: int


class LiveStretches:
    """The live stretches of a file in the order of their records. A stretch takes 40 bytes."""

    def __init__(self) -> None:
        self._regions: dict[int, array[int]] = {}

    def add(self, piece: Piece[int]) -> None:
        """Add a piece, whose target is the offset of a record."""
        region = self._regions.setdefault(piece.target // REGION_SIZE_BYTES, array("q"))
        region.extend((piece.target, piece.place, piece.first, piece.last, piece.origin))

    def by_record(self) -> Iterator[list[LiveStretch]]:
        """Remove all stretches, and yield them by record, in ascending order of the offsets."""
        for number in sorted(self._regions):
            numbers = self._regions.pop(number)
            stretches = sorted(
                LiveStretch(*numbers[at : at + _NUMBERS]) for at in range(0, len(numbers), _NUMBERS)
            )
            of_record: list[LiveStretch] = []
            for stretch in stretches:
                if of_record and of_record[0].offset != stretch.offset:
                    yield of_record
                    of_record = []
                of_record.append(stretch)
            yield of_record


class LiveEntries:
    """Finds the live entries of files.

    `weak` contains the ids of all files that this compaction copies, and of the files that could
    not be read. A copy in one of these files does not make another copy with the same origin
    sequence dead.
    """

    def __init__(
        self, shared: Shared, keeper: FileKeeper, pace: Pace, weak: Collection[int]
    ) -> None:
        self._shared = shared
        self._keeper = keeper
        self._pace = pace
        self._weak = weak

    async def of(self, source: FinishedFile) -> LiveStretches:
        """Return the live stretches of a file.

        Raises:
            CorruptRecordError: A block of the index is damaged.
        """
        found = LiveStretches()
        if source.rebuilt is not None:
            for totals in parts(source.totals()):
                for total in totals:
                    in_memory = source.rebuilt.pieces_of(total.ledger_id)
                    placed = [by_offset(piece) for piece in in_memory]
                    await self._add(found, source, total.ledger_id, placed)
                await self._shared.give_way()
            return found
        assert source.head is not None, (
            "only a file in doubt has no valid index, and no file in doubt is compacted"
        )
        for number in range(len(source.head.keys)):
            offset = source.block_offset(number)
            data = await self._pace.read(source.handle, offset, BLOCK_SIZE)
            block = IndexBlock(data, number, source.identity)
            by_ledger: dict[int, list[Piece[int]]] = {}
            for place in range(len(block)):
                ledger_id, piece = block.piece_at(place)
                by_ledger.setdefault(ledger_id, []).append(piece)
            for ledger_id, pieces in by_ledger.items():
                await self._add(found, source, ledger_id, pieces)
            if self._pace.must_end:
                break
        return found

    async def _add(
        self, found: LiveStretches, source: FinishedFile, ledger_id: int, pieces: list[Piece[int]]
    ) -> None:
        for piece in await self.live_parts(source, ledger_id, pieces):
            found.add(piece)

    async def live_parts(
        self, source: FinishedFile, ledger_id: int, pieces: list[Piece[int]]
    ) -> list[Piece[int]]:
        """Return the live parts of `pieces`, the pieces of a ledger in ascending order."""
        tombstone = self._shared.states.tombstone_of(ledger_id)
        live = [piece for piece in pieces if piece.origin > tombstone]
        for rival in self._rivals(source, ledger_id, live) if live else ():
            if live:
                # If the rival was freed meanwhile, its entries of the ledger were dropped. Then the
                # read of the rival fails.
                live = await self._without_newer(live, rival, ledger_id)
        return live

    def _rivals(
        self, source: FinishedFile, ledger_id: int, pieces: list[Piece[int]]
    ) -> list[FinishedFile]:
        """Return the other finished files that may have newer copies of entries."""
        doubts = self._shared.health.unknown_files
        found = []
        for file in self._keeper.finished.holding(ledger_id):
            if file is source or file.entry.file_id in doubts:
                continue
            total = file.total_of(ledger_id)
            if file.rebuilt is None and total is not None:
                is_apart = (
                    total.first_entry_id > pieces[-1].last or total.last_entry_id < pieces[0].first
                )
                if is_apart or total.origin_newest < min(piece.origin for piece in pieces):
                    continue
            found.append(file)
        return found

    async def _without_newer(
        self, pieces: list[Piece[int]], rival: FinishedFile, ledger_id: int
    ) -> list[Piece[int]]:
        """Return the parts of pieces that have no newer copy in `rival`.

        If `rival` is not weak, a copy with the same origin sequence counts as newer, because an
        earlier compaction wrote this copy.
        """
        is_firm = rival.entry.file_id not in self._weak
        newer: list[list[tuple[int, int]]] = [[] for _ in pieces]
        number = 0
        # If this read fails, no newer copy is proved, so the entry is copied.
        with contextlib.suppress(StorageError):
            async for other in self._pieces_between(
                rival, ledger_id, pieces[0].first, pieces[-1].last
            ):
                while pieces[number].last < other.first:
                    number += 1
                for at in range(number, len(pieces)):
                    piece = pieces[at]
                    if piece.first > other.last:
                        break
                    if other.origin > piece.origin or (is_firm and other.origin == piece.origin):
                        newer[at].append((other.first, other.last))
        return [part for at, piece in enumerate(pieces) for part in uncovered(piece, newer[at])]

    async def _pieces_between(
        self, file: FinishedFile, ledger_id: int, first: int, last: int
    ) -> AsyncIterator[Piece[int]]:
        """Yield the pieces of a ledger with ids from `first` to `last`, in ascending order."""
        if file.rebuilt is not None:
            for part in parts(file.rebuilt.pieces_of(ledger_id)):
                for placed in part:
                    if placed.first <= last and placed.last >= first:
                        yield by_offset(placed)
                await self._shared.give_way()
            return
        for number in blocks_of(file, ledger_id, first, last):
            data = await self._pace.read(file.handle, file.block_offset(number), BLOCK_SIZE)
            for piece in IndexBlock(data, number, file.identity).pieces_of(ledger_id):
                if piece.first <= last and piece.last >= first:
                    yield piece
