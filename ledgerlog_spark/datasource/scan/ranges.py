"""The part of a listed range that a task reads, and the entries of it that a scan needs.

A range of a transactional log has an index entry (`RangeIndex`). A ledger of a leader log has none,
but each of its entries contains the offsets of its rows: the headers of a few entries, found by
interpolation and bisection in turn, show where a scan begins and ends (`entries_between`). An entry
is omitted only when none of its rows is within the scan's offsets. Pure except for reading headers.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate

from ledgerlog_spark.arrow.stream_codec import IndexedEntry
from ledgerlog_spark.errors import WireFormatError
from ledgerlog_spark.log.reading.listed_rows import EntryForm
from ledgerlog_spark.model import NO_ENTRY
from ledgerlog_spark.protocol.leader.entry import LeaderEntryHeader

HeaderOf = Callable[[int], LeaderEntryHeader]

OPEN_COST_BYTES = 64 << 10
"""Cost of one more range for a task, as bytes that it could read in that time."""


@dataclass(frozen=True, slots=True)
class ScanRange:
    """Consecutive entries with rows of one listed range, for one task.

    Attributes:
        last_entry_id: Inclusive; never the index entry.
        rows: Estimated number of rows: exact when the range was not split, or by its index.
        size_bytes: Estimated payload bytes: exact when the range is read whole, or by its index.
        range_offset: Offset of the listed range's first row. The first row of an entry counts from
            there. The offsets after it are those of the scan.
        commit_times: For each commit with rows in the range, rising: the offset after the commit's
            last row (the last one at or after `end_offset`), and the time in ms since the epoch,
            None when the history no longer has it. Empty without a history, and when each entry has
            its own time.
        index_entry_id: The entry that shows which entries are needed, and is read first; NO_ENTRY
            when all are needed.
        entry_rows: Rows of the listed range that the entries hold, half-open; the task checks it.
            None when they are unknown before the entries are read.
        is_searched: In a leader log: first find the entries that hold the rows, by reading a few of
            their headers.
    """

    log: str
    ledger_id: int
    first_entry_id: int
    last_entry_id: int
    rows: int
    size_bytes: int
    schema_id: int
    range_offset: int
    start_offset: int
    end_offset: int
    commit_times: tuple[tuple[int, int | None], ...]
    index_entry_id: int = NO_ENTRY
    entry_rows: tuple[int, int] | None = None
    form: EntryForm = EntryForm.ARROW_STREAM
    is_searched: bool = False


@dataclass(frozen=True, slots=True)
class RangeIndex:
    """The index of one listed range.

    Attributes:
        row_edges: First row of each entry, counted from the start of the range, and finally the
            number of rows.
        byte_edges: Payload bytes before each entry, then of all of them.
    """

    first_entry_id: int
    row_edges: tuple[int, ...]
    byte_edges: tuple[int, ...]

    @classmethod
    def of(cls, index_entry_id: int, entries: Sequence[IndexedEntry]) -> RangeIndex:
        """The index of a range, with one value for each of the range's other entries."""
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
        """The part of `scanned` that holds all its rows; None when it has none."""
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
        start_row, end_row = _wanted_rows(scanned)
        first = max(first, bisect_right(self.row_edges, start_row) - 1)
        end = min(end, bisect_left(self.row_edges, end_row))
        return self.part(scanned, first, end) if first < end else None

    def part(self, scanned: ScanRange, first: int, end: int) -> ScanRange:
        """The entries at the places [first, end) of the listed range, as a part of `scanned`."""
        rows = self.row_edges[first], self.row_edges[end]
        start_row, end_row = _wanted_rows(scanned)
        return replace(
            scanned,
            first_entry_id=self.first_entry_id + first,
            last_entry_id=self.first_entry_id + end - 1,
            rows=max(0, min(rows[1], end_row) - max(rows[0], start_row)),
            size_bytes=self.byte_edges[end] - self.byte_edges[first],
            index_entry_id=NO_ENTRY,
            entry_rows=rows,
        )


def _wanted_rows(scanned: ScanRange) -> tuple[int, int]:
    """The rows of the listed range that are part of the scan, half-open."""
    first = scanned.range_offset
    return scanned.start_offset - first, scanned.end_offset - first


@dataclass(frozen=True, slots=True)
class EntrySpan:
    """Consecutive entries of a listed range.

    Attributes:
        last_entry_id: Inclusive; smaller than the first entry if there is no entry.
        rows: Their rows in the range, half-open; None if not all borders are known.
    """

    first_entry_id: int
    last_entry_id: int
    rows: tuple[int, int] | None


def needed_part(
    scanned: ScanRange, index: RangeIndex | None, span: EntrySpan | None
) -> ScanRange | None:
    """The part of a range that a scan needs, as far as known; None when it needs nothing."""
    if scanned.is_searched:
        if span is None:
            return scanned
        first, last = span.first_entry_id, span.last_entry_id
        found = replace(
            scanned, first_entry_id=first, last_entry_id=last, entry_rows=span.rows,
            is_searched=False,
        )  # fmt: skip
        return found if last >= first else None
    if index is None or scanned.index_entry_id == NO_ENTRY:
        return scanned
    return index.needed(scanned)


def entries_between(scanned: ScanRange, header_of: HeaderOf) -> EntrySpan:
    """The entries of a range, or of a piece of one, that hold the rows between its offsets.

    `header_of` is not called twice for one entry.
    """
    header = cache(header_of)
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
    """The entry that holds the row, else the first entry after the row, without its header."""
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
