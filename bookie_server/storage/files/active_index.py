"""The index of a file that is not finished: the pieces of each ledger, in memory."""

from __future__ import annotations

from collections.abc import Generator

from bookie_server.core.index_format import IndexEncoder, LedgerTotal
from bookie_server.core.pieces import Piece, Pieces
from bookie_server.core.record import FileIdentity, JournalRecord
from bookie_server.storage.slices import UNITS_PER_TURN

ITEM_BYTES = 8
NUMBER_BYTES = 32
SHARED_NUMBER_MAX = 256  # Python keeps one shared object for each number up to this value


def lists_bytes_at_most(record: JournalRecord) -> int:
    """Return an upper bound of the memory of a run's ids and lengths, in constant time."""
    ids = record.entry_ids
    count = len(ids)
    if count == 1:
        return 0  # the limit of pieces also limits records of one entry
    large = min(count, record.body_size // SHARED_NUMBER_MAX)
    size_bytes = ITEM_BYTES * count + NUMBER_BYTES * large
    return size_bytes if type(ids) is range else size_bytes + (ITEM_BYTES + NUMBER_BYTES) * count


class ActiveIndex:
    """Pieces that point at durable records of one file.

    When the pieces of a ledger are dropped, the index keeps the ledger's id. The id shows that the
    file still has records of the ledger. As long as a file has such records, the bookie keeps the
    tombstone of the ledger. Without the tombstone, the deleted entries could be read again.
    """

    def __init__(self) -> None:
        self._ledgers: dict[int, Pieces[JournalRecord]] = {}
        self.pieces = 0  # number of pieces; a ledger with dropped pieces counts as 1
        self.lists_bytes = 0  # upper bound for the lists of all inserted runs, even dropped runs

    def insert(self, record: JournalRecord) -> None:
        """Add a run. If runs overlap, the run with the largest origin sequence counts."""
        pieces = self._ledgers.get(record.ledger_id)
        if pieces is None:
            pieces = self._ledgers[record.ledger_id] = Pieces()
        elif not len(pieces):
            self.pieces -= 1
        self.pieces += pieces.insert(record.entry_ids, record.origin_sequence, record)
        self.lists_bytes += lists_bytes_at_most(record)

    def drop(self, ledger_id: int) -> None:
        """Drop the pieces of a ledger, but keep the ledger's id."""
        pieces = self._ledgers.get(ledger_id)
        if pieces is not None and len(pieces):
            self.pieces -= len(pieces)
            self.name_only(ledger_id)

    def name_only(self, ledger_id: int) -> None:
        """Keep only the id of a ledger, because all its records in this file are dropped."""
        self._ledgers[ledger_id] = Pieces()
        self.pieces += 1

    def find(self, ledger_id: int, entry_id: int) -> Piece[JournalRecord] | None:
        """Return the piece that holds an entry, or None."""
        pieces = self._ledgers.get(ledger_id)
        return None if pieces is None else pieces.find(entry_id)

    def first_newer(self, ledger_id: int, ids: range, origin: int) -> int:
        """Return the first of consecutive `ids` that has a copy newer than `origin`.

        If there is no such copy, return the end of `ids`.
        """
        pieces = self._ledgers.get(ledger_id)
        if pieces is not None and ids:
            for piece in pieces.overlapping(ids.start, ids[-1]):
                if piece.origin > origin:
                    return max(piece.first, ids.start)
        return ids.stop

    def pieces_of(self, ledger_id: int) -> list[Piece[JournalRecord]]:
        """Return all pieces of a ledger in ascending order."""
        return list(self._ledgers.get(ledger_id, ()))

    def bytes_after(self, ledger_id: int, tombstone: int) -> int:
        """Return the size of a ledger's entries that a tombstone does not delete."""
        total = _Sum()
        for piece in self._ledgers.get(ledger_id, ()):
            if piece.origin > tombstone:
                total.add(piece)
        return total.size_bytes

    @property
    def ledger_ids(self) -> list[int]:
        """The ids of all ledgers, ascending, including ledgers whose pieces were dropped."""
        return sorted(self._ledgers)

    @property
    def ledgers(self) -> int:
        """Number of ledgers, including ledgers whose pieces are dropped."""
        return len(self._ledgers)

    def __contains__(self, ledger_id: int) -> bool:
        """Return whether the file contains records of a ledger, live or dropped."""
        return ledger_id in self._ledgers

    def totals(self) -> list[LedgerTotal]:
        """Return the total of each ledger, sorted by id."""
        return [self._total_of(ledger_id) for ledger_id in sorted(self._ledgers)]

    def _total_of(self, ledger_id: int) -> LedgerTotal:
        pieces = self._ledgers[ledger_id]
        total = _Sum()
        for piece in pieces:
            total.add(piece)
        return total.of(ledger_id, pieces)

    def encoding(self, identity: FileIdentity) -> Generator[None, None, tuple[bytes, int]]:
        """Encode the body of the finish record, and return it with the live bytes of the file.

        No run may be inserted before the generator ends. The generator yields after each
        `UNITS_PER_TURN` pieces or ledgers.
        """
        encoder = IndexEncoder(identity)
        live_bytes = units = 0
        for ledger_id in sorted(self._ledgers):
            pieces = self._ledgers[ledger_id]
            total = _Sum()
            for piece in pieces:
                encoder.add(ledger_id, piece, piece.target.offset)
                total.add(piece)
                units += 1
                if units % UNITS_PER_TURN == 0:
                    yield
            encoder.end_ledger(total.of(ledger_id, pieces))
            live_bytes += total.size_bytes
            units += not pieces
            if not pieces and units % UNITS_PER_TURN == 0:
                yield
        return encoder.finish(), live_bytes


class _Sum:
    """The totals of the pieces of a ledger."""

    __slots__ = ("first", "origin", "size_bytes")

    def __init__(self) -> None:
        self.first = -1
        self.origin = self.size_bytes = 0

    def add(self, piece: Piece[JournalRecord]) -> None:
        """Count the next piece. Pieces must be counted in ascending order."""
        end = piece.place + piece.last - piece.first + 1
        self.size_bytes += sum(piece.target.lengths[piece.place : end])
        self.origin = max(self.origin, piece.origin)
        if self.first < 0:
            self.first = piece.first

    def of(self, ledger_id: int, pieces: Pieces[JournalRecord]) -> LedgerTotal:
        """Return the total of a ledger, after all its pieces were counted."""
        last = pieces.last_entry_id
        return LedgerTotal(ledger_id, self.first, last, self.size_bytes, self.origin, len(pieces))
