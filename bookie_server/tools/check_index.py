"""Compares the index of a finished file with the records of the file."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from bookie_server.core.index_format import LedgerTotal
from bookie_server.core.pieces import Piece
from bookie_server.core.record import JournalRecord
from bookie_server.storage.files.active_index import ActiveIndex
from bookie_server.storage.files.entry_log_file import FinishedFile, by_offset, read_block
from bookie_server.storage.files.finished_scan import FinishedScan
from bookie_server.storage.reading.readings import finish
from bookie_server.storage.slices import run_in_slices

GiveWay = Callable[[], Awaitable[None]]

WRONG_MAX = 1_000
"""Maximum number of differences that are described for one file."""


@dataclass(slots=True)
class Comparison:
    """The result of a comparison.

    Attributes:
        pieces: Number of pieces that were compared.
        live_bytes: Bytes of the entries of ledgers that are not dropped.
        wrong: Descriptions of the first differences.
    """

    pieces: int = 0
    live_bytes: int = 0
    wrong: list[str] = field(default_factory=list)

    def add(self, what: str) -> None:
        """Add the description of a difference if there is room."""
        if len(self.wrong) < WRONG_MAX:
            self.wrong.append(what)


async def compare_index(
    file: FinishedFile, scan: FinishedScan, tombstones: Mapping[int, int], give_way: GiveWay
) -> Comparison:
    """Compare each pointer of the index with its record, and each record with the index.

    `tombstones` are the tombstones in the ledger-state file that the MANIFEST names.

    Raises:
        CorruptRecordError: A part of the index is damaged.
    """
    assert file.head is not None
    result = Comparison()
    runs = {record.offset: record for record in scan.known if scan.is_run(record)}
    stored: dict[int, list[Piece[int]]] = {}
    for number, key in enumerate(file.head.keys):
        block = await finish(read_block(file, number))
        file.blocks.clear()
        for place in range(len(block)):
            ledger_id, piece = block.piece_at(place)
            stored.setdefault(ledger_id, []).append(piece)
            result.pieces += 1
            if not _points_at(runs.get(piece.target), ledger_id, piece):
                result.add(
                    f"the index has entries {piece.first} to {piece.last} of ledger {ledger_id} at "
                    f"byte {piece.target}, but no record there has them"
                )
        if not len(block) or block.piece_at(len(block) - 1)[1].last != key[1]:
            result.add(f"the directory of the index does not fit block {number}")
    if result.pieces != file.head.pieces:
        result.add(f"the index has {result.pieces} pieces, but lists {file.head.pieces}")
    _compare_totals(file, stored, runs, tombstones, result)
    rebuilt = await run_in_slices(scan.index(lambda each: tombstones.get(each, 0)), give_way)
    _compare_pieces(stored, rebuilt, tombstones, result)
    return result


def _points_at(record: JournalRecord | None, ledger_id: int, piece: Piece[int]) -> bool:
    if record is None or (record.ledger_id, record.origin_sequence) != (ledger_id, piece.origin):
        return False
    size = piece.last - piece.first + 1
    ids = record.entry_ids[piece.place : piece.place + size]
    return len(ids) == size and (ids[0], ids[-1]) == (piece.first, piece.last)


def _compare_totals(
    file: FinishedFile,
    stored: Mapping[int, list[Piece[int]]],
    runs: Mapping[int, JournalRecord],
    tombstones: Mapping[int, int],
    result: Comparison,
) -> None:
    listed: set[int] = set()
    for total in file.totals():
        listed.add(total.ledger_id)
        pieces = stored.get(total.ledger_id, [])
        if total != _total_of(total.ledger_id, pieces, runs):
            result.add(f"the total of ledger {total.ledger_id} does not fit its pieces")
        if total.origin_newest > tombstones.get(total.ledger_id, 0):
            result.live_bytes += total.size_bytes
    for ledger_id in ({record.ledger_id for record in runs.values()} | stored.keys()) - listed:
        result.add(f"the index has no total of ledger {ledger_id}, which has records in the file")


def _total_of(
    ledger_id: int, pieces: list[Piece[int]], runs: Mapping[int, JournalRecord]
) -> LedgerTotal:
    size = 0
    for piece in pieces:
        record = runs.get(piece.target)
        if record is not None:
            end = piece.place + piece.last - piece.first + 1
            size += sum(record.lengths[piece.place : end])
    first, last = (pieces[0].first, pieces[-1].last) if pieces else (-1, -1)
    origin = max((piece.origin for piece in pieces), default=0)
    return LedgerTotal(ledger_id, first, last, size, origin, len(pieces))


def _compare_pieces(
    stored: Mapping[int, list[Piece[int]]],
    rebuilt: ActiveIndex,
    tombstones: Mapping[int, int],
    result: Comparison,
) -> None:
    """Check that the index has the newest copy of each entry that is not dropped."""
    for ledger_id in rebuilt.ledger_ids:
        tombstone = tombstones.get(ledger_id, 0)
        wanted = [by_offset(piece) for piece in rebuilt.pieces_of(ledger_id)]
        found = [piece for piece in stored.get(ledger_id, []) if piece.origin > tombstone]
        if found != wanted:
            result.add(
                f"the {len(found)} pieces of ledger {ledger_id} in the index differ from the "
                f"{len(wanted)} pieces in the records"
            )
