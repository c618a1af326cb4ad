"""Entries with too few copies, from the lists of bookies."""

from __future__ import annotations

from itertools import groupby

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledgerlog_spark.model import Fragment, LedgerMetadata, LedgerState, Quorum
from ledgerlog_spark.protocol.ledger.quorum import write_set
from ledgerlog_spark.tools.held_copies import ShortRange, fragments_to_check, short_ranges
from tests.fixtures.examples import examples

THREE = Quorum(3, 3, 2)
ABC = ("a", "b", "c")


def ledger(
    quorum: Quorum, last: int | None, *fragments: tuple[int, tuple[str, ...]]
) -> LedgerMetadata:
    """A ledger that is closed at `last`, or open."""
    metadata = LedgerMetadata(quorum, tuple(Fragment(*each) for each in fragments))
    return metadata if last is None else metadata.closed(last_entry_id=last, length=0)


def test_whole_lists_have_no_short_range() -> None:
    closed = ledger(THREE, 9, (0, ABC))
    assert list(short_ranges(closed, {name: [(0, 9)] for name in ABC})) == []


def test_a_hole_is_a_range() -> None:
    closed = ledger(THREE, 9, (0, ABC))
    lists = {"a": [(0, 9)], "b": [(0, 3), (6, 9)], "c": [(0, 9)]}
    (found,) = short_ranges(closed, lists)
    assert found == ShortRange(4, 5, 2, 0, ("b",), ())
    assert not found.is_lost(THREE)


def test_two_holes_at_one_entry_are_a_loss_and_an_unknown_copy_is_none() -> None:
    closed = ledger(THREE, 9, (0, ABC))
    lists = {"a": [(0, 9)], "b": [(0, 3), (6, 9)], "c": [(0, 4), (6, 9)]}
    found = list(short_ranges(closed, lists))
    assert [(each.first_entry_id, each.last_entry_id, each.lacking) for each in found] == [
        (4, 4, ("b",)),
        (5, 5, ("b", "c")),
    ]
    assert [each.is_lost(THREE) for each in found] == [False, True]
    unknown = list(short_ranges(closed, {**lists, "c": None}))
    assert not any(each.is_lost(THREE) for each in unknown)
    assert unknown[1] == ShortRange(4, 5, 1, 1, ("b",), ("c",))


def test_a_bookie_without_an_entry_of_the_ledger_lacks_all() -> None:
    closed = ledger(THREE, 4, (0, ABC))
    (found,) = short_ranges(closed, {"a": [(0, 4)], "b": [(0, 4)], "c": []})
    assert (found.first_entry_id, found.last_entry_id, found.lacking) == (0, 4, ("c",))


@pytest.mark.parametrize(
    ("last", "checked"),
    [(None, [(0, 4)]), (20, [(0, 4), (5, 20)]), (4, [(0, 4)]), (2, [(0, 2)]), (-1, [])],
)
def test_the_last_fragment_counts_once_the_ledger_is_closed(
    last: int | None, checked: list[tuple[int, int]]
) -> None:
    metadata = ledger(THREE, last, (0, ABC), (5, ("a", "b", "d")))
    found = [(fragment.first_entry_id, end) for fragment, end in fragments_to_check(metadata)]
    assert found == checked


def test_a_ledger_in_recovery_counts_as_open() -> None:
    metadata = LedgerMetadata(THREE, (Fragment(0, ABC),), LedgerState.IN_RECOVERY)
    assert list(short_ranges(metadata, dict.fromkeys(ABC, ()))) == []


def test_the_entries_of_a_striped_bookie_that_is_empty_are_one_range() -> None:
    quorum = Quorum(4, 2, 2)
    closed = ledger(quorum, 99, (0, ("a", "b", "c", "d")))
    lists = {name: _striped(quorum, index, 100) for index, name in enumerate("bcd", 1)}
    found = list(short_ranges(closed, {**lists, "a": []}))
    assert [(each.lacking, each.first_entry_id, each.last_entry_id) for each in found] == [
        (("a",), 0, 99)
    ]


@st.composite
def lists_of_bookies(
    draw: st.DrawFn,
) -> tuple[LedgerMetadata, dict[str, list[tuple[int, int]] | None]]:
    size = draw(st.integers(1, 5))
    write = draw(st.integers(1, size))
    quorum = Quorum(size, write, draw(st.integers(1, write)))
    last = draw(st.integers(0, 30))
    second = draw(st.none() | st.integers(1, 30))
    names = [f"b{number}" for number in range(size + 1)]
    fragments = [(0, tuple(names[:size]))]
    if second is not None:
        fragments.append((second, tuple(names[1:])))
    lists = {}
    for name in names:
        held = draw(st.sets(st.integers(0, 35)) | st.just(set(range(36))))
        lists[name] = draw(st.just(_ranges(held)) | st.none())
    return ledger(quorum, last, *fragments), lists


@settings(max_examples=examples(50))
@given(lists_of_bookies())
def test_ranges_are_those_of_each_entry_alone(
    case: tuple[LedgerMetadata, dict[str, list[tuple[int, int]] | None]],
) -> None:
    metadata, lists = case
    quorum = metadata.quorum
    found = list(short_ranges(metadata, lists))
    covered = [each for r in found for each in range(r.first_entry_id, r.last_entry_id + 1)]
    assert covered == sorted(set(covered))
    for entry_id in range(metadata.last_entry_id + 1):
        ensemble = metadata.fragment_of(entry_id).ensemble
        names = [ensemble[index] for index in write_set(quorum, entry_id)]
        unknown = {name for name in names if lists[name] is None}
        held = {name for name in names if entry_id in _ids(lists[name] or [])}
        mine = [r for r in found if r.first_entry_id <= entry_id <= r.last_entry_id]
        if len(held) == quorum.write_quorum:
            assert not mine or quorum.is_striped
            continue
        (own,) = mine
        assert set(names) - held - unknown <= set(own.lacking)
        assert unknown <= set(own.unknown)
        assert own.copies + own.copies_unknown <= len(held) + len(unknown)
        if len(held) + len(unknown) < quorum.ack_quorum:
            assert own.is_lost(quorum)
    for each in found:
        is_lost = any(
            _best(metadata, lists, entry_id) < quorum.ack_quorum
            for entry_id in range(each.first_entry_id, each.last_entry_id + 1)
        )
        assert each.is_lost(quorum) == is_lost


def _best(
    metadata: LedgerMetadata, lists: dict[str, list[tuple[int, int]] | None], entry_id: int
) -> int:
    """The number of copies of an entry, if all unknown copies exist."""
    ensemble = metadata.fragment_of(entry_id).ensemble
    names = [ensemble[index] for index in write_set(metadata.quorum, entry_id)]
    return sum(lists[name] is None or entry_id in _ids(lists[name] or []) for name in names)


def _ids(ranges: list[tuple[int, int]]) -> set[int]:
    return {entry_id for first, last in ranges for entry_id in range(first, last + 1)}


def _ranges(ids: set[int]) -> list[tuple[int, int]]:
    """The ranges of a set of ids, as a bookie lists them."""
    runs = groupby(enumerate(sorted(ids)), key=lambda each: each[1] - each[0])
    found = [[entry_id for _, entry_id in run] for _, run in runs]
    return [(run[0], run[-1]) for run in found]


def _striped(quorum: Quorum, index: int, count: int) -> list[tuple[int, int]]:
    return _ranges({each for each in range(count) if index in write_set(quorum, each)})
