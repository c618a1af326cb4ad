"""Stores where the entries of one ledger are, as pieces that do not overlap.

A piece is the place of entries with consecutive ids in one record. If two records contain the same
id, only a piece of the newer record contains the id. The newer record is the record with the larger
origin sequence, so the result does not depend on the order of inserts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar

from bookie_server.core.requests import EntryIds

T = TypeVar("T")


class Piece(NamedTuple, Generic[T]):
    """Consecutive entries of one record."""

    first: int  # inclusive
    last: int  # inclusive
    origin: int  # sequence of the record; for a copy, the sequence of the original record
    target: T  # the record, or the offset of the record
    place: int  # index of the entry `first` in the record


def consecutive(ids: EntryIds) -> Iterator[tuple[int, int, int]]:
    """Yield each stretch of consecutive ids as (first id, last id, index of the first id)."""
    if type(ids) is range and ids.step == 1:
        yield ids[0], ids[-1], 0
        return
    first, place = ids[0], 0
    last = first
    for number, entry_id in enumerate(ids):
        if number and entry_id != last + 1:
            yield first, last, place
            first, place = entry_id, number
        last = entry_id
    yield first, last, place


def stretches_at_most(ids: EntryIds) -> int:
    """Return an upper limit for the number of stretches in `ids`, without reading each id."""
    return 1 if type(ids) is range and ids.step == 1 else len(ids)


class Pieces(Generic[T]):
    """The pieces of one ledger, in ascending order of entry ids, without overlaps."""

    __slots__ = ("_lasts", "_pieces")

    def __init__(self) -> None:
        self._lasts: list[int] = []
        self._pieces: list[Piece[T]] = []

    def __len__(self) -> int:
        return len(self._pieces)

    def __iter__(self) -> Iterator[Piece[T]]:
        return iter(self._pieces)

    @property
    def last_entry_id(self) -> int:
        """The largest entry id in the pieces, or -1 without pieces."""
        return self._lasts[-1] if self._lasts else -1

    def find(self, entry_id: int) -> Piece[T] | None:
        """Return the piece that holds an entry, or None."""
        number = bisect_left(self._lasts, entry_id)
        if number == len(self._lasts):
            return None
        piece = self._pieces[number]
        return piece if piece.first <= entry_id else None

    def overlapping(self, first: int, last: int) -> list[Piece[T]]:
        """Return all pieces with at least one id from `first` to `last`, inclusive."""
        start = bisect_left(self._lasts, first)
        end = start
        while end < len(self._pieces) and self._pieces[end].first <= last:
            end += 1
        return self._pieces[start:end]

    def insert(self, ids: EntryIds, origin: int, target: T) -> int:
        """Add the entries of a record, and return the increase of the number of pieces."""
        before = len(self._pieces)
        for first, last, place in consecutive(ids):
            if not self._lasts or first > self._lasts[-1]:
                self._lasts.append(last)
                self._pieces.append(Piece(first, last, origin, target, place))
            else:
                self._insert_within(Piece(first, last, origin, target, place))
        return len(self._pieces) - before

    def _insert_within(self, new: Piece[T]) -> None:
        start = bisect_left(self._lasts, new.first)
        old = self.overlapping(new.first, new.last)
        result: list[Piece[T]] = []
        at = new.first  # every id of `new` below this id is placed, or belongs to a newer piece
        for piece in old:
            if piece.origin > new.origin:
                if at < piece.first:
                    result.append(cut(new, at, piece.first - 1))
                result.append(piece)
                at = piece.last + 1
                continue
            if piece.first < new.first:
                result.append(cut(piece, piece.first, new.first - 1))
            if piece.last > new.last:
                if at <= new.last:
                    result.append(cut(new, at, new.last))
                    at = new.last + 1
                result.append(cut(piece, new.last + 1, piece.last))
        if at <= new.last:
            result.append(cut(new, at, new.last))
        self._pieces[start : start + len(old)] = result
        self._lasts[start : start + len(old)] = [piece.last for piece in result]


def cut(piece: Piece[T], first: int, last: int) -> Piece[T]:
    """Return the part of a piece from `first` to `last`, inclusive."""
    return Piece(first, last, piece.origin, piece.target, piece.place + first - piece.first)
