"""The copies of a stripe that a list lacks, compared with a search through all entries."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from ledgerlog_spark.model import Fragment, LedgerMetadata, LedgerState, Quorum
from ledgerlog_spark.protocol.autorecovery.audit.stripes import (
    confirmed_fragments,
    lacking,
    owned_count,
)
from ledgerlog_spark.protocol.ledger.quorum import owns

QUORUMS = st.sampled_from([Quorum(3, 3, 2), Quorum(3, 2, 2), Quorum(5, 3, 2), Quorum(1, 1, 1)])
IDS = st.sets(st.integers(0, 40))


def ranges_of(held: set[int]) -> list[tuple[int, int]]:
    ids = sorted(held)
    cuts = [0, *(n + 1 for n, (one, other) in enumerate(pairwise(ids)) if other != one + 1)]
    return [(ids[a], ids[b - 1]) for a, b in pairwise([*cuts, len(ids)]) if b > a]


@given(QUORUMS, st.integers(0, 4), st.integers(0, 20), st.integers(0, 20), IDS)
def test_lacking_finds_what_a_search_through_all_entries_finds(
    quorum: Quorum, index: int, first: int, count: int, held: set[int]
) -> None:
    index %= quorum.ensemble_size
    owed = [one for one in range(first, first + count) if owns(quorum, index, one)]
    missing = [one for one in owed if one not in held]
    expected = (missing[0], missing[-1]) if missing else None
    assert lacking(quorum, index, first, first + count, ranges_of(held)) == expected
    assert owned_count(quorum, index, first, first + count) == len(owed)


def test_a_hole_between_the_first_and_the_last_entry_is_found() -> None:
    assert lacking(Quorum(3, 3, 2), 1, 0, 10, [(0, 4), (6, 9)]) == (5, 5)


def test_a_list_that_begins_before_the_fragment_counts_only_inside_it() -> None:
    assert lacking(Quorum(3, 3, 2), 0, 5, 8, [(0, 5), (7, 100)]) == (6, 6)
    assert lacking(Quorum(3, 3, 2), 0, 5, 8, [(0, 100)]) is None


A, B = ("a", "b", "c"), ("a", "b", "d")


def metadata(
    state: LedgerState, last: int = -1, starts: tuple[int, ...] = (0, 5)
) -> LedgerMetadata:
    fragments = tuple(Fragment(*each) for each in zip(starts, (A, B), strict=False))
    return LedgerMetadata(Quorum(3, 3, 2), fragments, state, last)


def test_the_last_fragment_counts_only_when_the_ledger_is_closed() -> None:
    first, second = metadata(LedgerState.OPEN).fragments
    for state in (LedgerState.OPEN, LedgerState.IN_RECOVERY):
        assert list(confirmed_fragments(metadata(state))) == [(first, 5)]
    assert list(confirmed_fragments(metadata(LedgerState.CLOSED, 7))) == [(first, 5), (second, 8)]


def test_copies_behind_the_last_entry_and_empty_fragments_are_left_out() -> None:
    first, _ = metadata(LedgerState.OPEN).fragments
    assert list(confirmed_fragments(metadata(LedgerState.CLOSED, 3))) == [(first, 4)]
    assert list(confirmed_fragments(metadata(LedgerState.CLOSED, 4))) == [(first, 5)]
    assert list(confirmed_fragments(metadata(LedgerState.CLOSED))) == []
