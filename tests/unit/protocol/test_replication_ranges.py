"""Runs of entry ids, against sets of ids."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from ledgerlog_spark.model import Fragment, LedgerMetadata, LedgerState, Quorum
from ledgerlog_spark.protocol.autorecovery.replicate.ranges import (
    covers,
    gaps,
    healable_fragments,
    joined,
    lacking_runs,
    replaced,
)
from ledgerlog_spark.protocol.ledger.quorum import owns

IDS = st.integers(0, 40)
RANGES = st.lists(st.tuples(IDS, IDS).map(lambda pair: (min(pair), max(pair))), max_size=6)
QUORUMS = st.sampled_from([Quorum(3, 3, 2), Quorum(3, 2, 2), Quorum(5, 3, 2), Quorum(1, 1, 1)])


def ids_of(ranges: object) -> set[int]:
    return {one for low, high in ranges for one in range(low, high + 1)}  # type: ignore[attr-defined]


@given(RANGES, IDS, IDS)
def test_gaps_are_the_ids_that_no_range_has(
    ranges: list[tuple[int, int]], first: int, end: int
) -> None:
    found = list(gaps(first, end, sorted(ranges)))
    assert ids_of(found) == set(range(first, end)) - ids_of(ranges)
    assert sorted(found) == found


@given(QUORUMS, RANGES, IDS, IDS, st.data())
def test_lacking_runs_are_the_owned_ids_that_no_range_has(
    quorum: Quorum, ranges: list[tuple[int, int]], first: int, end: int, data: st.DataObject
) -> None:
    index = data.draw(st.integers(0, quorum.ensemble_size - 1))
    found = list(lacking_runs(quorum, index, first, end, sorted(ranges)))
    owed = {one for one in range(first, end) if owns(quorum, index, one)}
    assert ids_of(found) == owed - ids_of(ranges)


@given(RANGES)
def test_joined_ranges_have_the_same_ids_and_gaps_between_them(
    ranges: list[tuple[int, int]],
) -> None:
    found = joined(ranges)
    assert ids_of(found) == ids_of(ranges)
    assert all(left[1] + 1 < right[0] for left, right in pairwise(found))
    assert all(covers(found, one) == (one in ids_of(ranges)) for one in range(42))


@given(RANGES, st.integers(1, 30), st.booleans())
def test_a_replaced_member_keeps_exactly_the_holes(
    ranges: list[tuple[int, int]], size: int, has_next: bool
) -> None:
    first = 5
    end = first + size
    holes = joined(
        (max(low, first), min(high, end - 1)) for low, high in ranges if low < end and high >= first
    )
    fragments = [Fragment(0, ("a", "b")), Fragment(first, ("a", "c"))]
    if has_next:
        fragments.append(Fragment(end, ("x", "y")))
    last = end + 3 if has_next else end - 1
    metadata = LedgerMetadata(
        Quorum(2, 2, 1), tuple(fragments), state=LedgerState.CLOSED, last_entry_id=last
    )
    found = replaced(metadata, fragments[1], end, 1, "t", holes)
    for entry_id in range(last + 1):
        before, after = metadata.fragment_of(entry_id), found.fragment_of(entry_id)
        is_moved = first <= entry_id < end and entry_id not in ids_of(holes)
        assert after.ensemble == (("a", "t") if is_moved else before.ensemble)
    starts = [one.first_entry_id for one in found.fragments]
    assert starts == sorted(set(starts))


def test_an_open_ledger_keeps_its_last_fragment() -> None:
    fragments = (Fragment(0, ("a",)), Fragment(4, ("b",)))
    metadata = LedgerMetadata(Quorum(1, 1, 1), fragments)
    assert healable_fragments(metadata) == [(fragments[0], 4)]
    closed = metadata.closed(last_entry_id=1, length=2)
    assert healable_fragments(closed) == [(fragments[0], 2), (fragments[1], 2)]
