"""The placement check reports copies that another bookie would spread better."""

from __future__ import annotations

from ledgerlog_spark.model import Fragment, LedgerMetadata, LedgerState, Quorum
from ledgerlog_spark.protocol.autorecovery.audit.messages import PlacesRead
from ledgerlog_spark.protocol.autorecovery.audit.placements import misplaced_in, misplaced_of
from ledgerlog_spark.protocol.placement.places import BookieMap, BookiePlace
from ledgerlog_spark.protocol.placement.policy import PlacementPolicy

THREE = Quorum(3, 3, 2)


def places(*hosts: str, writable: str = "", racks: str = "") -> PlacesRead:
    """Bookies a, b, c and so on, on these hosts."""
    names = [chr(ord("a") + number) for number in range(len(hosts))]
    each = {
        name: BookiePlace(f"10.0.0.{host}", racks[number] if racks else None)
        for number, (name, host) in enumerate(zip(names, hosts, strict=True))
    }
    return PlacesRead(1, True, BookieMap(each), PlacementPolicy(), tuple(writable or names))


def test_two_copies_on_one_host_are_spread_if_another_host_is_there() -> None:
    assert misplaced_of(THREE, ("a", "b", "c"), places("1", "1", "2", "3")) == "b"


def test_nothing_moves_if_no_other_host_is_there() -> None:
    assert misplaced_of(THREE, ("a", "b", "c"), places("1", "1", "2", "2")) is None
    assert misplaced_of(THREE, ("a", "b", "c"), places("1", "1", "2", "3", writable="abc")) is None


def test_an_ensemble_that_keeps_all_rules_is_left_alone() -> None:
    assert misplaced_of(THREE, ("a", "b", "c"), places("1", "2", "3", "4")) is None


def test_a_rack_with_all_copies_loses_one() -> None:
    found = misplaced_of(THREE, ("a", "b", "c"), places("1", "2", "3", "4", racks="xxxy"))
    assert found == "c"


def test_a_striped_ensemble_improves_one_write_set_at_a_time() -> None:
    striped = Quorum(4, 2, 2)
    spread = places("1", "1", "2", "2", "3", "4")
    first = misplaced_of(striped, ("a", "b", "c", "d"), spread)
    assert first is not None
    ensemble = tuple("e" if one == first else one for one in ("a", "b", "c", "d"))
    second = misplaced_of(striped, ensemble, spread)
    assert second is not None
    final = tuple("f" if one == second else one for one in ensemble)
    assert misplaced_of(striped, final, spread) is None


def test_only_fragments_with_confirmed_entries_count_and_answers_are_kept() -> None:
    fragments = (Fragment(0, ("a", "b", "c")), Fragment(5, ("a", "b", "d")))
    answers: dict[tuple[Quorum, tuple[str, ...]], str | None] = {}
    spread = places("1", "1", "2", "3")
    opened = LedgerMetadata(THREE, fragments)
    assert misplaced_in(opened, spread, answers) == ("b",)
    assert list(answers) == [(THREE, ("a", "b", "c"))]
    closed = LedgerMetadata(THREE, fragments, LedgerState.CLOSED, 9, 1)
    assert misplaced_in(closed, spread, answers) == ("b",)
    empty = LedgerMetadata(THREE, fragments[:1], LedgerState.CLOSED)
    assert misplaced_in(empty, spread, answers) == ()
