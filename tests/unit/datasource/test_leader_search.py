"""Finding rows in a ledger of a leader log (ledgerlog_spark.datasource.scan.ranges)."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from ledgerlog_spark.datasource.scan.ranges import EntrySpan, ScanRange, entries_between
from ledgerlog_spark.log.reading.listed_rows import EntryForm
from ledgerlog_spark.protocol.leader.entry import LeaderCodec, LeaderEntryHeader

OFFSET = 5_000


class Ledger:
    """Entries with the given numbers of records. It records which entries were read."""

    def __init__(self, counts: list[int]) -> None:
        self.edges = [OFFSET]
        for count in counts:
            self.edges.append(self.edges[-1] + count)
        self.looked_at: list[int] = []

    def header_of(self, entry_id: int) -> LeaderEntryHeader:
        self.looked_at.append(entry_id)
        first, end = self.edges[entry_id], self.edges[entry_id + 1]
        return LeaderEntryHeader(LeaderCodec.PLAIN, first, 0, end - first, 4 * (end - first))

    def range(self, start: int, end: int) -> ScanRange:
        rows = self.edges[-1] - OFFSET
        return ScanRange(
            "events", 7, 0, len(self.edges) - 2, end - start, 0, -1, OFFSET, start, end, (),
            entry_rows=(0, rows), form=EntryForm.LEADER_RECORDS, is_searched=True,
        )  # fmt: skip


@given(
    counts=st.lists(st.integers(1, 40), min_size=1, max_size=60),
    shares=st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
def test_the_entries_found_are_those_that_hold_the_rows(
    counts: list[int], shares: tuple[float, float]
) -> None:
    ledger = Ledger(counts)
    rows = ledger.edges[-1] - OFFSET
    start, end = sorted(OFFSET + int(share * rows) for share in shares)
    end = max(end, start + 1) if start < ledger.edges[-1] else end
    if start >= end:
        return
    found = entries_between(ledger.range(start, end), ledger.header_of)
    needed = [
        entry_id
        for entry_id in range(len(counts))
        if ledger.edges[entry_id] < end and ledger.edges[entry_id + 1] > start
    ]
    edges = ledger.edges[needed[0]] - OFFSET, ledger.edges[needed[-1] + 1] - OFFSET
    assert found == EntrySpan(needed[0], needed[-1], edges)
    assert len(set(ledger.looked_at)) == len(ledger.looked_at)


@given(
    counts=st.lists(st.integers(1, 40), min_size=2, max_size=60),
    cut=st.floats(0, 1),
    shares=st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
def test_in_the_pieces_of_a_range_each_entry_is_found_once(
    counts: list[int], cut: float, shares: tuple[float, float]
) -> None:
    ledger = Ledger(counts)
    rows = ledger.edges[-1] - OFFSET
    start, end = sorted(OFFSET + int(share * (rows - 1)) for share in shares)
    whole = replace(ledger.range(start, end + 1), entry_rows=None)
    middle = min(int(cut * len(counts)), len(counts) - 2)
    pieces = (
        replace(whole, last_entry_id=middle),
        replace(whole, first_entry_id=middle + 1),
    )
    found = [
        entry_id
        for piece in pieces
        for span in [entries_between(piece, ledger.header_of)]
        for entry_id in range(span.first_entry_id, span.last_entry_id + 1)
    ]
    assert found == [
        entry_id
        for entry_id in range(len(counts))
        if ledger.edges[entry_id] <= end and ledger.edges[entry_id + 1] > start
    ]


def test_of_ten_thousand_even_entries_three_are_looked_at() -> None:
    ledger = Ledger([100] * 10_000)
    scanned = ledger.range(OFFSET + 734_567, OFFSET + 734_890)
    assert entries_between(scanned, ledger.header_of) == EntrySpan(7345, 7348, (734_500, 734_900))
    assert len(ledger.looked_at) <= 3


def test_of_ten_thousand_uneven_entries_few_are_looked_at() -> None:
    ledger = Ledger([1] * 5_000 + [1_000] * 5_000)
    entries_between(ledger.range(OFFSET + 4_999, OFFSET + 2_005_000), ledger.header_of)
    assert len(ledger.looked_at) <= 2 * 2 * 14
