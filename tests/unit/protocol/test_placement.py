"""Places, preference, quarantine and what is missing: the parts of placement, case by case."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from ledgerlog_spark.errors import ConfigurationError
from ledgerlog_spark.model import BookieInfo, Quorum, checked_place_name
from ledgerlog_spark.protocol.placement.adherence import adherence
from ledgerlog_spark.protocol.placement.place import Placed, Unplaceable, place
from ledgerlog_spark.protocol.placement.places import (
    BookieMap,
    BookiePlace,
)
from ledgerlog_spark.protocol.placement.policy import PlacementPolicy
from ledgerlog_spark.protocol.placement.preference import in_preference
from ledgerlog_spark.protocol.placement.quarantine import BOOKIES_MAX, Quarantine
from ledgerlog_spark.protocol.placement.replacement import replace_failed

THREE = Quorum(3, 3, 2)
NEW = (None, None, None)
DEFAULT = PlacementPolicy()


def on(*hosts: str | None, racks: str = "") -> BookieMap:
    """Bookies b0, b1, .. on these hosts, and in racks of one letter each."""
    places = {
        f"b{number}": BookiePlace(host, racks[number] if number < len(racks) else None)
        for number, host in enumerate(hosts)
    }
    return BookieMap(places)


def names(bookies: BookieMap) -> list[str]:
    return sorted(bookies.places)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost", None])
def test_each_bookie_of_a_loopback_or_unknown_host_counts_as_one_host(host: str | None) -> None:
    """AUTORECOVERY.md#Z1: a local cluster works as before."""
    bookies = on(host, host, host)
    found = place(THREE, NEW, names(bookies), bookies, DEFAULT)
    assert isinstance(found, Placed)
    assert found.adherence.broken == ()


@pytest.mark.parametrize("same", [("h1", "h1"), ("h1", "H1"), ("10.0.0.1", "10.0.0.1")])
def test_two_copies_are_not_on_one_host(same: tuple[str, str]) -> None:
    """AUTORECOVERY.md#Z1."""
    bookies = on(*same, "h2")
    found = place(THREE, NEW, names(bookies), bookies, DEFAULT)
    assert found == Unplaceable("hosts", 3, 2)
    allowed = place(THREE, NEW, names(bookies), bookies, PlacementPolicy(allow_same_host=True))
    assert isinstance(allowed, Placed)
    assert allowed.adherence.broken == ("hosts",)
    assert str(allowed.adherence) == "2 of 3 hosts"


def test_an_unregistered_bookie_with_an_address_as_its_name_is_on_that_host() -> None:
    bookies = on("10.0.0.9", "h1", "h2")
    keep = ("10.0.0.9:3181", None, None)
    found = place(THREE, keep, names(bookies), bookies, DEFAULT)
    assert isinstance(found, Placed)
    assert "b0" not in found.ensemble


@pytest.mark.parametrize(
    ("policy", "missing"),
    [
        (PlacementPolicy(enforce_racks=True), Unplaceable("racks", 2, 1)),
        (PlacementPolicy(enforce_quarantine=True), Unplaceable("quarantine", 3, 2)),
        (PlacementPolicy(enforce_free_bytes=True), Unplaceable("free bytes", 3, 2)),
    ],
)
def test_an_enforced_rule_is_named_with_its_figures(
    policy: PlacementPolicy, missing: Unplaceable
) -> None:
    places = on("h0", "h1", "h2", racks="xxx").places
    bookies = BookieMap(places, quarantined=frozenset({"b0"}), without_room=frozenset({"b1"}))
    assert isinstance(place(THREE, NEW, names(bookies), bookies, DEFAULT), Placed)
    assert place(THREE, NEW, names(bookies), bookies, policy) == missing


def test_an_enforced_rule_of_regions_is_named_last() -> None:
    places = {f"b{i}": BookiePlace(f"h{i}", f"r{i}", "only") for i in range(3)}
    bookies = BookieMap(places)
    found = place(THREE, NEW, names(bookies), bookies, PlacementPolicy(enforce_regions=True))
    assert found == Unplaceable("regions", 2, 1)


def test_too_few_bookies_are_counted_with_those_that_stay() -> None:
    found = place(THREE, ("k0", None, None), ["b0", "b0", "k0"], BookieMap(), DEFAULT)
    assert found == Unplaceable("bookies", 3, 2)


def test_a_rack_is_spread_as_far_as_it_can_be() -> None:
    """AUTORECOVERY.md#Z4: a rule of three racks that cannot be kept is a rule of two."""
    bookies = on("h0", "h1", "h2", "h3", racks="xxxy")
    policy = PlacementPolicy(min_racks_per_write_quorum=3)
    found = place(THREE, NEW, names(bookies), bookies, policy)
    assert isinstance(found, Placed)
    assert found.ensemble == ("b0", "b1", "b3")
    assert str(found.adherence) == "2 of 3 racks"


def test_racks_of_the_same_name_in_two_regions_differ() -> None:
    places = {
        "b0": BookiePlace("h0", "r", "east"),
        "b1": BookiePlace("h1", "r", "west"),
        "b2": BookiePlace("h2", None, "west"),
    }
    found = adherence(("b0", "b1", "b2"), THREE, BookieMap(places), DEFAULT)
    assert (found.racks.found, found.regions.found) == (3, 2)


def test_a_rule_without_known_racks_does_not_apply() -> None:
    found = adherence(("b0", "b1", "b2"), THREE, on("h0", "h1", "h2"), DEFAULT)
    assert (found.racks.wanted, found.misplaced, str(found)) == (1, (), "every rule is kept")


def test_a_replacement_takes_the_index_of_the_failed_bookie() -> None:
    """PROTOCOL.md#B5."""
    found = replace_failed(THREE, ("b0", "b1", "b2"), [1], ["b0", "b3"], {}, BookieMap(), DEFAULT)
    assert found.ensemble == ("b0", "b3", "b2")
    assert (found.replaced, found.unreplaced) == ((1,), ())


def test_a_failed_bookie_that_stays_still_has_its_host() -> None:
    """PROTOCOL.md#B9: without another host, the writer continues with the others."""
    bookies = on("h0", "h1", "h2", "h1", "h2")
    found = replace_failed(THREE, ("b0", "b1", "b2"), [0], ["b3", "b4"], {}, bookies, DEFAULT)
    assert (found.ensemble, found.unreplaced) == (("b0", "b1", "b2"), (0,))
    found = replace_failed(THREE, ("b0", "b1", "b2"), [0, 1], ["b3", "b4"], {}, bookies, DEFAULT)
    assert (found.ensemble, found.replaced) == (("b0", "b3", "b2"), (1,))


def test_bookies_are_drawn_by_their_free_bytes_up_to_three_medians() -> None:
    """AUTORECOVERY.md#Z5."""
    draw = random.Random(1)
    free = {"a": 10, "b": 10, "c": 20, "d": None, "e": 10_000}
    first = Counter(
        in_preference(free, {name: draw.random() for name in free})[0] for _ in range(20_000)
    )
    # the median of 10, 10, 20, 10_000 is 15: the weights are 10, 10, 20, 15 and 45
    for name, weight in {"a": 10, "b": 10, "c": 20, "d": 15, "e": 45}.items():
        assert abs(first[name] / 20_000 - weight / 100) < 0.01, name


def test_bookies_without_free_bytes_are_last_and_before_them_those_in_quarantine() -> None:
    free = {"full": 0, "bad": 9, "good": 1, "bad and full": 0}
    for number in range(20):
        draws = {name: random.Random(f"{name}{number}").random() for name in free}
        order = in_preference(free, draws, frozenset({"bad", "bad and full"}))
        assert order == ("good", "bad", "full", "bad and full")


def test_draws_of_zero_and_unknown_free_bytes_have_an_order() -> None:
    assert set(in_preference({"a": None, "b": None}, {"a": 0.0, "b": 0.0})) == {"a", "b"}
    assert in_preference({"a": 0, "b": 0}, {"a": 0.5, "b": 0.0}) == ("b", "a")


def test_three_failures_in_a_minute_are_a_quarantine_of_five() -> None:
    """AUTORECOVERY.md#Z6."""
    quarantine = Quarantine()
    for now_ms in (0, 10_000, 61_000):
        quarantine.failed("slow", now_ms)
    assert quarantine.bookies(61_000) == frozenset()
    quarantine.failed("slow", 70_000)
    assert quarantine.bookies(70_000) == {"slow"}
    assert quarantine.bookies(369_999) == {"slow"}
    assert quarantine.bookies(370_000) == frozenset()
    quarantine.failed("slow", 371_000)
    assert quarantine.bookies(371_000) == frozenset(), "one failure is not enough again"


def test_a_failure_in_quarantine_begins_it_again() -> None:
    quarantine = Quarantine()
    for now_ms in (0, 1, 2, 50_000):
        quarantine.failed("b", now_ms)
    assert quarantine.bookies(349_999) == {"b"}


def test_the_failures_of_many_bookies_are_bounded() -> None:
    quarantine = Quarantine()
    for number in range(2 * BOOKIES_MAX):
        for _ in range(3):
            quarantine.failed(f"b{number}", 0)
    assert len(quarantine.bookies(0)) == BOOKIES_MAX
    assert len(quarantine._failures) == BOOKIES_MAX
    assert f"b{2 * BOOKIES_MAX - 1}" in quarantine.bookies(0)


@pytest.mark.parametrize("name", ["", " r", "r ", "a\nb", "x" * 256])
def test_names_of_places_are_checked(name: str) -> None:
    with pytest.raises(ConfigurationError, match="rack or region"):
        checked_place_name(name)


@pytest.mark.parametrize(
    "values",
    [
        {"min_racks_per_write_quorum": 0},
        {"min_regions_per_write_quorum": True},
        {"enforce_racks": 1},
        {"allow_same_host": "yes"},
    ],
)
def test_a_wrong_policy_is_refused(values: dict[str, object]) -> None:
    (name,) = values
    with pytest.raises(ConfigurationError, match=name):
        PlacementPolicy(**values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "free"),
    [("7", 7), ("0", 0), ("", None), ("-1", None), ("7.5", None), ("9" * 20, None)],
)
def test_free_bytes_of_a_registration(text: str, free: int | None) -> None:
    info = BookieInfo("b", "h", 1, None, {"ledgerlog.free_bytes": text})
    assert info.free_bytes == free


def test_a_host_may_have_entries_of_different_write_sets() -> None:
    """The neighbours of index 3 are 2 and 0, so the host of index 1 is free there."""
    bookies = on("h0", "h1", "h2", "h0", "h1")
    found = place(Quorum(4, 2, 1), ("b0", "b1", "b2", None), ["b3", "b4"], bookies, DEFAULT)
    assert isinstance(found, Placed)
    assert found.ensemble == ("b0", "b1", "b2", "b4")


def test_candidates_that_are_interchangeable_are_tried_once() -> None:
    """Three racks are needed around a ring of five. The only bookie in z has the host of b0.

    If the search tried all bookies of x and y in each other's place, it would reach its limit.
    """
    places = {f"b{n}": BookiePlace(f"h{n}", "x" if n < 50 else "y") for n in range(100)}
    places["b100"] = BookiePlace("h0", "z")
    bookies = BookieMap(places)
    order = [f"b{number}" for number in range(101)]
    policy = PlacementPolicy(enforce_racks=True)
    found = place(Quorum(5, 2, 1), (None,) * 5, order, bookies, policy)
    assert isinstance(found, Placed)
    assert found.ensemble == ("b0", "b50", "b1", "b100", "b51")


def test_no_more_racks_are_wanted_than_there_are_copies() -> None:
    found = adherence(("b0", "b1"), Quorum(2, 1, 1), on("h0", "h1", racks="xx"), DEFAULT)
    assert (found.racks.wanted, found.hosts.wanted, found.broken) == (1, 1, ())
