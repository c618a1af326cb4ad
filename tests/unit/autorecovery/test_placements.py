"""The placement check reports copies that another bookie would spread better."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ledgerlog_spark.model import Fragment, LedgerMetadata, LedgerState, Quorum
from ledgerlog_spark.protocol.autorecovery.audit.messages import (
    CheckEnded,
    CheckKind,
    LedgerRecord,
    PlacesRead,
    ReadPlaces,
    StoreCheckTime,
    WriteMove,
)
from ledgerlog_spark.protocol.autorecovery.audit.placements import (
    ANSWERS_MAX,
    PlacementCheck,
    PlacementSettings,
    misplaced_in,
    misplaced_of,
)
from ledgerlog_spark.protocol.ledger.messages import StartTimer
from ledgerlog_spark.protocol.placement.places import BookieMap, BookiePlace
from ledgerlog_spark.protocol.placement.policy import PlacementPolicy
from tests.unit.autorecovery.check_player import Played, record

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


def test_more_racks_than_the_policy_requires_are_no_gain() -> None:
    """Two copies are on one host, and so would be two copies after each move."""
    spread = places("1", "1", "2", "2", racks="xxyz")
    soft = replace(spread, policy=PlacementPolicy(allow_same_host=True))
    assert misplaced_of(THREE, ("a", "b", "c"), soft) is None


def check_of(*ledgers: LedgerRecord, **values: Any) -> Played:
    played = Played(PlacementCheck(), *ledgers)
    spread = places("1", "1", "2", "3")
    played.places = lambda request: replace(spread, request=request)
    for name, value in values.items():
        setattr(played, name, value)
    return played


def test_a_check_queues_a_move_and_stores_its_time() -> None:
    played = check_of(record(1), record(2, names="acd"))
    ended = played.run(CheckEnded)
    assert (ended.ledgers, ended.holes) == (2, 1)
    ((ledger_id, names),) = [(one.ledger_id, one.bookie_ids) for one in played.seen_of(WriteMove)]
    assert (ledger_id, names) == (1, ("b",))
    assert played.seen_of(StoreCheckTime) == [StoreCheckTime(CheckKind.PLACEMENT, 2, True)]


def test_a_check_is_due_only_after_its_interval() -> None:
    played = check_of(record(1), elapsed_ms=PlacementSettings().interval_ms - 1)
    played.run(StartTimer, times=3)
    assert not played.seen_of(ReadPlaces)
    played.elapsed_ms = PlacementSettings().interval_ms
    assert played.run(CheckEnded).ledgers == 1


def test_a_check_that_cannot_read_the_places_is_not_done() -> None:
    played = check_of(record(1), places=lambda request: PlacesRead(request, is_read=False))
    played.run(StartTimer, times=3)
    assert played.seen_of(ReadPlaces)
    assert not [*played.seen_of(StoreCheckTime), *played.seen_of(CheckEnded)]


def test_the_answers_that_a_check_keeps_are_bounded() -> None:
    spread = places("1", "1", "2", "3")
    answers = {(THREE, (str(number),)): None for number in range(ANSWERS_MAX)}
    assert misplaced_in(record(1).metadata, spread, answers) == ("b",)  # type: ignore[arg-type]
    assert len(answers) == 1
