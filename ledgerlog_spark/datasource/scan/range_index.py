"""Which entries of a listed range a scan needs, told by the range's index entry.

Pure. An entry is left out only when no row of it lies between the scan's offsets.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING

from ledgerlog_spark.errors import WireFormatError
from ledgerlog_spark.model import NO_ENTRY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledgerlog_spark.arrow.stream_codec import IndexedEntry
    from ledgerlog_spark.datasource.scan.scan_range import ScanRange

OPEN_COST_BYTES = 64 << 10
"""What one more range costs a task, in bytes it could have read meanwhile."""


@dataclass(frozen=True, slots=True)
class RangeIndex:
    """The index of one listed range.

    Attributes:
        first_entry_id: The range's first record batch.
        row_edges: Row of the range that each entry begins with, then how many rows there are.
        byte_edges: Payload bytes before each entry, then of all of them.
    """

    first_entry_id: int
    row_edges: tuple[int, ...]
    byte_edges: tuple[int, ...]

    @classmethod
    def of(cls, index_entry_id: int, entries: Sequence[IndexedEntry]) -> RangeIndex:
        """The index that ends a range: it has one value for each of the range's other entries.

        Raises:
            WireFormatError: It describes more entries than there can be, or entries without rows.
        """
        if not 0 < len(entries) <= index_entry_id or any(entry.rows < 1 for entry in entries):
            raise WireFormatError(
                f"index entry {index_entry_id} is not that of a range: it describes "
                f"{len(entries)} entries of {sum(entry.rows for entry in entries)} rows"
            )
        return cls(
            first_entry_id=index_entry_id - len(entries),
            row_edges=tuple(accumulate((entry.rows for entry in entries), initial=0)),
            byte_edges=tuple(accumulate((entry.size_bytes for entry in entries), initial=0)),
        )

    def needed(self, scanned: ScanRange) -> ScanRange | None:
        """The part of `scanned` that holds all its rows; None when it has none.

        Args:
            scanned: A range, or a piece of one, whose index this is.

        Raises:
            WireFormatError: The index is not that of the range.
        """
        first = scanned.first_entry_id - self.first_entry_id
        end = scanned.last_entry_id + 1 - self.first_entry_id
        entries = len(self.row_edges) - 1
        if not 0 <= first < end <= entries:
            raise WireFormatError(
                f"the index of entries {self.first_entry_id} to "
                f"{self.first_entry_id + entries - 1} of ledger {scanned.ledger_id} "
                f"does not cover entries {scanned.first_entry_id} to {scanned.last_entry_id}, "
                f"which log {scanned.log!r} lists"
            )
        start_row, end_row = _rows_wanted(scanned)
        first = max(first, bisect_right(self.row_edges, start_row) - 1)
        end = min(end, bisect_left(self.row_edges, end_row))
        return self.part(scanned, first, end) if first < end else None

    def part(self, scanned: ScanRange, first: int, end: int) -> ScanRange:
        """The entries at the places [first, end) of the listed range, as a part of `scanned`."""
        rows = self.row_edges[first], self.row_edges[end]
        start_row, end_row = _rows_wanted(scanned)
        return replace(
            scanned,
            first_entry_id=self.first_entry_id + first,
            last_entry_id=self.first_entry_id + end - 1,
            rows=max(0, min(rows[1], end_row) - max(rows[0], start_row)),
            size_bytes=self.byte_edges[end] - self.byte_edges[first],
            index_entry_id=NO_ENTRY,
            entry_rows=rows,
        )


def _rows_wanted(scanned: ScanRange) -> tuple[int, int]:
    """The rows of the listed range that are part of the scan, half-open."""
    return (
        scanned.start_offset - scanned.range_offset,
        scanned.end_offset - scanned.range_offset,
    )
