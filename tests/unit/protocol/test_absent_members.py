"""Where a new ledger names absent bookies, compared with all possible places."""

from __future__ import annotations

from itertools import combinations

import pytest

from ledgerlog_spark.model import Quorum
from ledgerlog_spark.protocol.placement.absent_members import absent_indexes, place_new
from ledgerlog_spark.protocol.placement.place import Placed, Unplaceable
from ledgerlog_spark.protocol.placement.places import BookieMap, BookiePlace
from ledgerlog_spark.protocol.placement.policy import PlacementPolicy

QUORUMS = [
    Quorum(size, copies, acks)
    for size in range(1, 8)
    for copies in range(1, size + 1)
    for acks in range(1, copies + 1)
]


def is_allowed(quorum: Quorum, absent: tuple[int, ...]) -> bool:
    """Whether Qa bookies of each write set are present, by the definition of the write set."""
    size = quorum.ensemble_size
    return all(
        sum((entry + step) % size not in absent for step in range(quorum.write_quorum))
        >= quorum.ack_quorum
        for entry in range(size)
    )


@pytest.mark.parametrize("quorum", QUORUMS, ids=str)
def test_absent_bookies_are_named_where_all_write_sets_keep_an_ack_quorum(quorum: Quorum) -> None:
    for count in range(quorum.ensemble_size + 1):
        found = absent_indexes(quorum, count)
        possible = [
            places
            for places in combinations(range(quorum.ensemble_size), count)
            if is_allowed(quorum, places)
        ]
        assert (found in possible) if found is not None else not possible


def placed(*candidates: str, absent: tuple[str, ...] = ()) -> tuple[str, ...] | None:
    found = place_new(Quorum(3, 3, 2), candidates, absent, BookieMap(), PlacementPolicy())
    return found.ensemble if isinstance(found, Placed) else None


def test_absent_bookies_are_named_only_if_there_are_too_few_others() -> None:
    assert set(placed("b0", "b1", "b2", absent=("b3",)) or ()) == {"b0", "b1", "b2"}
    assert set(placed("b0", "b1", absent=("b3", "b4")) or ()) == {"b0", "b1", "b3"}
    assert placed("b0", "b1") is None
    assert placed("b0", absent=("b3", "b4")) is None


def test_a_rule_of_placement_is_not_broken_by_an_absent_bookie() -> None:
    """The hosts are the reason, and another bookie on a third host would not be named instead."""
    same = BookieMap({name: BookiePlace(host="h") for name in ("b0", "b1", "b2")})
    found = place_new(
        Quorum(3, 3, 2), ("b0", "b1", "b2"), ("b3",), same, PlacementPolicy(allow_same_host=False)
    )
    assert isinstance(found, Unplaceable)
    assert found.missing == "hosts"


def test_a_bookie_that_is_listed_twice_is_one_bookie() -> None:
    assert set(placed("b0", "b0", "b1", absent=("b3",)) or ()) == {"b0", "b1", "b3"}


def test_too_few_absent_bookies_do_not_count_as_available() -> None:
    found = place_new(Quorum(5, 3, 1), ("b0", "b1"), ("b3",), BookieMap(), PlacementPolicy())
    assert found == Unplaceable("bookies", 5, 2)
