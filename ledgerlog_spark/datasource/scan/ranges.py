"""The part of a listed range that a task reads, and the entries that a scan needs from it.

A range of a transactional log has an index entry (`RangeIndex`). A ledger of a leader log has no
index entry, but each of its entries contains the offsets of its rows. `entries_between` reads the
headers of a few entries to find the first and the last entry of a scan. It chooses these entries by
interpolation and bisection. An entry is omitted only if no row of the entry is in the scan.
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
"""The cost of opening one more range: the number of bytes that a task reads in the same time."""


@dataclass(frozen=True, slots=True)
class ScanRange:
    """Consecutive entries of one listed range, for one task. Each entry has at least one row.

    Attributes:
        last_entry_id: Id of the last entry, which is included, and is never the index entry.
        rows: Number of rows. It is exact if the range is not split, or is split by its index.
            Otherwise it is an estimate.
        size_bytes: Number of payload bytes. It is exact if the range is read completely, or is
            split by its index. Otherwise it is an estimate.
        range_offset: Offset of the first row of the listed range. Row numbers in entries are
            relative to this offset.
        start_offset: Offset of the first wanted row. These entries may also have rows before this
            row.
        end_offset: Offset after the last wanted row. These entries may also have rows after it.
        commit_times: A pair for each commit with rows in the range, in rising order: the offset
            after the commit's last row, and the time in ms since 1970. The last offset is at least
            `end_offset`. A time is None if the history no longer contains it. There are no pairs
            if there is no history, or if each entry has its own time.
        index_entry_id: Id of the index entry. The task reads this entry first, to find out which
            entries it needs. The id is NO_ENTRY if all entries are needed.
        slices_entry_id: Id of the index entry, if the task reads this entry first to get the slices
            of the other entries. The id is NO_ENTRY if the range is small, has no index, or if
            slices would not save bytes (`slice_choice`).
        index_entries: Number of entries that the entry `slices_entry_id` describes.
        entry_rows: The half-open interval of these entries' rows, numbered from the first row of
            the listed range. The task checks both numbers. The interval is None if it is unknown
            before the entries are read.
        is_searched: Whether the task first reads the headers of a few entries to find the entries
            with the wanted rows. It is true only for leader logs.
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
    slices_entry_id: int = NO_ENTRY
    index_entries: int = 0
    entry_rows: tuple[int, int] | None = None
    form: EntryForm = EntryForm.ARROW_STREAM
    is_searched: bool = False


@dataclass(frozen=True, slots=True)
class RangeIndex:
    """The index of one listed range: the numbers of rows and payload bytes before each entry.

    The last element of `row_edges` and `byte_edges` is the total of all entries. `statistics` are
    the encoded bounds of each entry.
    """

    first_entry_id: int
    row_edges: tuple[int, ...]
    byte_edges: tuple[int, ...]
    statistics: tuple[bytes, ...] = ()
    slices: tuple[bytes, ...] = ()  # the slices of each entry; empty if the index lists no slices

    @classmethod
    def of(cls, index_entry_id: int, entries: Sequence[IndexedEntry]) -> RangeIndex:
        """Return the index of a range. `entries` describes all other entries of the range."""
        if not 0 < len(entries) <= index_entry_id or any(entry.rows < 1 for entry in entries):
            raise WireFormatError(
                f"entry {index_entry_id} is not the index entry of a range: it describes "
                f"{len(entries)} entries of {sum(entry.rows for entry in entries)} rows"
            )
        return cls(
            first_entry_id=index_entry_id - len(entries),
            row_edges=tuple(accumulate((entry.rows for entry in entries), initial=0)),
            byte_edges=tuple(accumulate((entry.size_bytes for entry in entries), initial=0)),
            statistics=tuple(entry.statistics for entry in entries),
            slices=tuple(entry.slices for entry in entries if entry.slices),
        )

    def needed(self, scanned: ScanRange) -> ScanRange | None:
        """Return the part of `scanned` that contains all its wanted rows.

        The result is None if no row is wanted.
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
        start_row, end_row = _wanted_rows(scanned)
        first = max(first, bisect_right(self.row_edges, start_row) - 1)
        end = min(end, bisect_left(self.row_edges, end_row))
        return self.part(scanned, first, end) if first < end else None

    def part(self, scanned: ScanRange, first: int, end: int) -> ScanRange:
        """Return the part of `scanned` with the entries at [first, end) of the listed range."""
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
    """Return the half-open interval of the wanted rows, by their numbers in the listed range."""
    first = scanned.range_offset
    return scanned.start_offset - first, scanned.end_offset - first


@dataclass(frozen=True, slots=True)
class EntrySpan:
    """Consecutive entries of a listed range, with the numbers of their rows."""

    first_entry_id: int
    last_entry_id: int  # inclusive; smaller than `first_entry_id` if there is no entry
    rows: tuple[int, int] | None  # half-open interval of row numbers; None if an end is unknown


def needed_part(
    scanned: ScanRange, index: RangeIndex | None, span: EntrySpan | None
) -> ScanRange | None:
    """Return the part of a range that a scan needs, by `index` or `span`.

    The result is None if the part is empty. Without an index or a span, the part is the whole
    range.
    """
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
    """Find the entries of `scanned` that contain rows from `start_offset` to before `end_offset`.

    `header_of` is called at most once for each entry.
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
    """Return the id and the header of the entry that contains the row at `offset`.

    If no entry contains the row, return the id of the first entry after the row, and None.
    """
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
