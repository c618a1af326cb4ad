"""Finds the entries of a leader log's ledger that hold given rows.

Such a ledger has no index, and each of its entries says which rows it holds: a few looked at, by
interpolation and bisection in turn, show where a scan begins and ends. Pure but for the look.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledgerlog_spark.datasource.scan.scan_range import ScanRange
    from ledgerlog_spark.protocol.leader.entry import LeaderEntryHeader

    HeaderOf = Callable[[int], LeaderEntryHeader]


@dataclass(frozen=True, slots=True)
class EntrySpan:
    """Consecutive entries of a listed range.

    Attributes:
        first_entry_id: Inclusive.
        last_entry_id: Inclusive; below the first when there is none.
        rows: Rows of the range that they hold, half-open; None when not all edges were seen.
    """

    first_entry_id: int
    last_entry_id: int
    rows: tuple[int, int] | None

    def of(self, scanned: ScanRange) -> ScanRange:
        """The range with these entries alone; about as many rows and bytes, told by their share."""
        return replace(
            scanned,
            first_entry_id=self.first_entry_id,
            last_entry_id=self.last_entry_id,
            entry_rows=self.rows,
            is_searched=False,
        )


def entries_between(scanned: ScanRange, header_of: HeaderOf) -> EntrySpan:
    """The entries of a range, or of a piece of one, that hold the rows between its offsets.

    Args:
        scanned: The range.
        header_of: Reads an entry's header; not called twice for one entry.
    """
    seen: dict[int, LeaderEntryHeader] = {}

    def header(entry_id: int) -> LeaderEntryHeader:
        if entry_id not in seen:
            seen[entry_id] = header_of(entry_id)
        return seen[entry_id]

    first, first_header = _find(scanned, scanned.start_offset, header)
    last, last_header = _find(scanned, scanned.end_offset - 1, header)
    if last_header is None:
        last -= 1
    rows = None
    if first_header is not None and last_header is not None:
        rows = (
            first_header.first_offset - scanned.range_offset,
            last_header.end_offset - scanned.range_offset,
        )
    return EntrySpan(first, last, rows)


def _find(
    scanned: ScanRange, offset: int, header_of: HeaderOf
) -> tuple[int, LeaderEntryHeader | None]:
    """The entry that holds the row, else the first one behind the row, without its header."""
    low, end = scanned.first_entry_id, scanned.last_entry_id + 1
    low_offset, end_offset = None, None
    if scanned.entry_rows is not None:
        low_offset, end_offset = (scanned.range_offset + row for row in scanned.entry_rows)
    guesses = True
    while low < end:
        entry_id = (low + end) // 2
        if guesses and low_offset is not None and end_offset is not None:
            share = (offset - low_offset) * (end - low) // max(1, end_offset - low_offset)
            entry_id = min(max(low + share, low), end - 1)
        guesses = not guesses
        found = header_of(entry_id)
        if found.first_offset > offset:
            end, end_offset = entry_id, found.first_offset
        elif found.end_offset <= offset:
            low, low_offset = entry_id + 1, found.end_offset
        else:
            return entry_id, found
    return low, None
