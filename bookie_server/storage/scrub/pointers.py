"""The pointers of the index of one file, in the order of the records that they point to."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import NamedTuple

from bookie_server.core.pieces import Piece
from bookie_server.core.record import JournalRecord, JournalRecordKind

REGION_SIZE_BYTES = 1 << 20


class Pointer(NamedTuple):
    """An index entry: the place of consecutive entries of a ledger in a record."""

    offset: int  # offset of the record
    place: int  # index of the first entry in the record
    ledger_id: int
    first: int  # id of the first entry
    last: int  # id of the last entry, inclusive
    origin: int

    def fits(self, record: JournalRecord) -> bool:
        """Return whether this is the record that the index describes."""
        ids = record.entry_ids
        end = self.place + self.last - self.first
        return (
            record.kind is JournalRecordKind.RUN
            and record.offset == self.offset
            and record.ledger_id == self.ledger_id
            and record.origin_sequence == self.origin
            and end < len(ids)
            and (ids[self.place], ids[end]) == (self.first, self.last)
        )

    def piece(self) -> Piece[int]:
        """Return the pointer as a piece of the index."""
        return Piece(self.first, self.last, self.origin, self.offset, self.place)


_NUMBERS = len(Pointer._fields)


class Pointers:
    """The pointers of a file, in arrays. Each pointer takes 48 bytes."""

    def __init__(self) -> None:
        self._regions: dict[int, array[int]] = {}
        self._count = 0
        self._sorted: Iterator[Pointer] = iter(())
        self._next: Pointer | None = None

    def __len__(self) -> int:
        return self._count

    def add(self, ledger_id: int, piece: Piece[int]) -> None:
        """Add a piece, whose target is the offset of a record."""
        region = self._regions.setdefault(piece.target // REGION_SIZE_BYTES, array("q"))
        region.extend((piece.target, piece.place, ledger_id, piece.first, piece.last, piece.origin))
        self._count += 1

    def begin(self) -> None:
        """Go to the first pointer, after all pointers were added."""
        self._sorted = self._in_order()
        self._next = next(self._sorted, None)

    def before(self, offset: int) -> list[Pointer]:
        """Return the next pointers to offsets below `offset`, in ascending order."""
        found = []
        while self._next is not None and self._next.offset < offset:
            found.append(self._next)
            self._next = next(self._sorted, None)
        return found

    def rest(self) -> list[Pointer]:
        """Return all pointers that `before` has not returned."""
        found = [] if self._next is None else [self._next, *self._sorted]
        self._next = None
        return found

    def _in_order(self) -> Iterator[Pointer]:
        """Yield all pointers. Free the memory of a region before its pointers are yielded."""
        for number in sorted(self._regions):
            numbers = self._regions.pop(number)
            yield from sorted(
                Pointer(*numbers[at : at + _NUMBERS]) for at in range(0, len(numbers), _NUMBERS)
            )
