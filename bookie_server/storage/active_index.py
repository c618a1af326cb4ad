"""The index of a file that is still written, in memory: the pieces of each ledger."""

from __future__ import annotations

from bookie_server.core.index_format import LedgerTotal, encode_index
from bookie_server.core.pieces import Piece, Pieces
from bookie_server.core.record import FileIdentity, LogRecord


class ActiveIndex:
    """Pieces that point at records; holds only what is durable.

    A ledger whose pieces were dropped stays named: as long as the file has records of it, its
    tombstone is needed.

    Attributes:
        pieces: Count over all ledgers; one for a ledger whose pieces were dropped.
    """

    def __init__(self) -> None:
        self._ledgers: dict[int, Pieces[LogRecord]] = {}
        self.pieces = 0

    def insert(self, record: LogRecord) -> None:
        """Add a run; the newest by origin sequence wins where it overlaps."""
        pieces = self._ledgers.get(record.ledger_id)
        if pieces is None:
            pieces = self._ledgers[record.ledger_id] = Pieces()
        self.pieces += pieces.insert(record.entry_ids, record.origin_sequence, record)

    def drop(self, ledger_id: int) -> None:
        """Forget where a ledger's entries are, and remember that there were any."""
        pieces = self._ledgers.get(ledger_id)
        if pieces is not None:
            self.name_only(ledger_id)
            self.pieces -= len(pieces)

    def name_only(self, ledger_id: int) -> None:
        """Take note of a ledger whose records here are all dropped."""
        self._ledgers[ledger_id] = Pieces()
        self.pieces += 1

    def find(self, ledger_id: int, entry_id: int) -> Piece[LogRecord] | None:
        """The piece that holds an entry."""
        pieces = self._ledgers.get(ledger_id)
        return None if pieces is None else pieces.find(entry_id)

    def pieces_of(self, ledger_id: int) -> list[Piece[LogRecord]]:
        """All pieces of a ledger in rising order."""
        return list(self._ledgers.get(ledger_id, ()))

    def ledger_ids(self) -> list[int]:
        """Ledgers with records here, live or dropped, sorted."""
        return sorted(self._ledgers)

    def totals(self) -> list[LedgerTotal]:
        """What is held of each ledger, sorted by id."""
        return [self._total_of(ledger_id) for ledger_id in sorted(self._ledgers)]

    def _total_of(self, ledger_id: int) -> LedgerTotal:
        pieces = self._ledgers[ledger_id]
        size = origin = 0
        first = -1
        for piece in pieces:
            start, end = piece.target.span_of(piece.place, piece.last - piece.first + 1)
            size += end - start
            origin = max(origin, piece.origin)
            first = piece.first if first < 0 else first
        return LedgerTotal(ledger_id, first, pieces.last_entry_id, size, origin, len(pieces))

    def encode(self, identity: FileIdentity) -> tuple[bytes, int]:
        """Body of the finish record, and the live bytes of the file."""
        rows = [
            (ledger_id, Piece(p.first, p.last, p.origin, p.target.offset, p.place))
            for ledger_id in sorted(self._ledgers)
            for p in self._ledgers[ledger_id]
        ]
        totals = self.totals()
        return encode_index(rows, totals, identity), sum(total.size_bytes for total in totals)
