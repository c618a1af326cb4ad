"""Placement finds what a search through all ensembles finds, for random small clusters."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from itertools import permutations, product

from hypothesis import example, given, settings
from hypothesis import strategies as st

from ledgerlog_spark.model import Quorum
from ledgerlog_spark.protocol.placement.adherence import adherence
from ledgerlog_spark.protocol.placement.place import Placed, Unplaceable, place
from ledgerlog_spark.protocol.placement.places import BookieMap, BookiePlace
from ledgerlog_spark.protocol.placement.policy import PlacementPolicy
from ledgerlog_spark.protocol.placement.replacement import replace_failed

Ensemble = tuple[str, ...]
Part = Callable[[BookieMap, str], Hashable]

HOSTS = st.sampled_from([None, "127.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"])
PLACES = st.builds(
    BookiePlace,
    host=HOSTS,
    rack=st.sampled_from([None, "r0", "r1", "r2"]),
    region=st.sampled_from([None, "east", "west"]),
)
POLICIES = st.builds(
    PlacementPolicy,
    min_racks_per_write_quorum=st.integers(1, 3),
    min_regions_per_write_quorum=st.integers(1, 3),
    enforce_racks=st.booleans(),
    enforce_regions=st.booleans(),
    enforce_free_bytes=st.booleans(),
    enforce_quarantine=st.booleans(),
    allow_same_host=st.booleans(),
)


@st.composite
def clusters(draw: st.DrawFn, bookies_max: int = 7) -> tuple[list[str], BookieMap]:
    names = [f"b{number}" for number in range(draw(st.integers(1, bookies_max)))]
    places = {name: draw(PLACES) for name in names if draw(st.integers(0, 9))}
    some = st.frozensets(st.sampled_from(names), max_size=3)
    return names, BookieMap(places, quarantined=draw(some), without_room=draw(some))


@st.composite
def quorums(draw: st.DrawFn) -> Quorum:
    size = draw(st.integers(1, 4))
    return Quorum(size, draw(st.integers(1, size)), 1)


def host(bookies: BookieMap, name: str) -> Hashable:
    known = bookies.places.get(name, BookiePlace()).host
    return (name,) if known is None or known == "127.0.0.1" else known


def rack(bookies: BookieMap, name: str) -> Hashable:
    at = bookies.places.get(name, BookiePlace())
    return (at.region, at.rack)


def region(bookies: BookieMap, name: str) -> Hashable:
    return bookies.places.get(name, BookiePlace()).region


def sets_of(quorum: Quorum) -> list[list[int]]:
    """The write set of each of the first E entries (PROTOCOL.md#A2)."""
    size = quorum.ensemble_size
    return [[(e + i) % size for i in range(quorum.write_quorum)] for e in range(size)]


def is_spread(
    bookies: BookieMap,
    quorum: Quorum,
    keep: Sequence[str | None],
    ensemble: Ensemble,
    numbers: dict[Part, int],
) -> bool:
    """Whether each write set with a new bookie is spread as far as its kept bookies allow."""
    for indexes in sets_of(quorum):
        kept = [keep[index] for index in indexes if keep[index] is not None]
        new = len(indexes) - len(kept)
        for part, number in numbers.items():
            goal = min(number, len({part(bookies, name) for name in kept if name}) + new)
            if new and len({part(bookies, ensemble[index]) for index in indexes}) < goal:
                return False
    return True


def by_brute_force(
    quorum: Quorum,
    keep: Sequence[str | None],
    candidates: Sequence[str],
    bookies: BookieMap,
    policy: PlacementPolicy,
) -> Ensemble | None:
    """The first ensemble of the first level that has one (AUTORECOVERY.md#Z4)."""
    copies = quorum.write_quorum
    has_racks = any(at.rack is not None for at in bookies.places.values())
    has_regions = any(at.region is not None for at in bookies.places.values())
    racks = min(copies, policy.min_racks_per_write_quorum) if has_racks else 1
    regions = min(copies, policy.min_regions_per_write_quorum) if has_regions else 1
    fresh = [name for name in candidates if name not in keep]
    empty = [index for index, name in enumerate(keep) if name is None]
    for level in product(
        range(copies, 0, -1) if policy.allow_same_host else [copies],
        [regions] if policy.enforce_regions else range(regions, 0, -1),
        [racks] if policy.enforce_racks else range(racks, 0, -1),
        [True] if policy.enforce_free_bytes else [True, False],
        [True] if policy.enforce_quarantine else [True, False],
    ):
        hosts, wanted_regions, wanted_racks, needs_room, keeps_quarantine = level
        allowed = [
            name
            for name in fresh
            if not (needs_room and name in bookies.without_room)
            and not (keeps_quarantine and name in bookies.quarantined)
        ]
        numbers: dict[Part, int] = {host: hosts, rack: wanted_racks, region: wanted_regions}
        for chosen in permutations(allowed, len(empty)):  # in the order of preference
            members = list(keep)
            for index, name in zip(empty, chosen, strict=True):
                members[index] = name
            ensemble = tuple(name for name in members if name is not None)
            if is_spread(bookies, quorum, keep, ensemble, numbers):
                return ensemble
    return None


@st.composite
def placements(
    draw: st.DrawFn,
) -> tuple[Quorum, list[str | None], list[str], BookieMap, PlacementPolicy]:
    quorum = draw(quorums())
    names, bookies = draw(clusters())
    order = draw(st.permutations(names))
    kept = [f"k{index}" if draw(st.booleans()) else None for index in range(quorum.ensemble_size)]
    places = {name: draw(PLACES) for name in kept if name is not None and draw(st.booleans())}
    known = BookieMap({**bookies.places, **places}, bookies.quarantined, bookies.without_room)
    return quorum, kept, order, known, draw(POLICIES)


@settings(max_examples=1_500, deadline=None)
@given(placements())
def test_the_ensemble_is_the_first_of_all_that_break_the_cheapest_rules(
    case: tuple[Quorum, list[str | None], list[str], BookieMap, PlacementPolicy],
) -> None:
    """AUTORECOVERY.md#Z1-Z4: hard rules hold, and soft ones are given up in the stated order."""
    found = place(*case)
    wanted = by_brute_force(*case)
    assert (found.ensemble if isinstance(found, Placed) else None) == wanted
    if isinstance(found, Unplaceable):
        assert found.available >= 0
        if found.missing == "bookies":
            assert found.available < found.wanted == case[0].ensemble_size


@settings(max_examples=500, deadline=None)
@given(placements())
def test_adherence_is_what_each_write_set_shows(
    case: tuple[Quorum, list[str | None], list[str], BookieMap, PlacementPolicy],
) -> None:
    quorum, _, names, bookies, policy = case
    ensemble = (names * 4)[: quorum.ensemble_size]  # a member may be there twice
    found = adherence(ensemble, quorum, bookies, policy)
    for spread, part in ((found.hosts, host), (found.racks, rack), (found.regions, region)):
        per_set = [len({part(bookies, ensemble[i]) for i in one}) for one in sets_of(quorum)]
        assert spread.found == min(per_set)
    assert found.hosts.wanted == quorum.write_quorum
    assert set(found.quarantined) == bookies.quarantined & set(ensemble)
    assert set(found.without_room) == bookies.without_room & set(ensemble)
    assert ("hosts" in found.misplaced) == (found.hosts.found < quorum.write_quorum)


@settings(max_examples=500, deadline=None)
@given(placements(), st.sets(st.integers(0, 3), min_size=1), st.data())
def test_as_many_failed_bookies_are_replaced_as_the_rules_allow(
    case: tuple[Quorum, list[str | None], list[str], BookieMap, PlacementPolicy],
    indexes: set[int],
    data: st.DataObject,
) -> None:
    """PROTOCOL.md#B5: indexes stay, and no further index could be replaced."""
    quorum, _, names, bookies, policy = case
    ensemble = tuple(f"k{index}" for index in range(quorum.ensemble_size))
    failed = sorted(index for index in indexes if index < quorum.ensemble_size)
    failures = {name: data.draw(st.integers(0, 2)) for name in names}
    found = replace_failed(quorum, ensemble, failed, names, failures, bookies, policy)
    assert sorted((*found.replaced, *found.unreplaced)) == failed
    for index, (before, after) in enumerate(zip(ensemble, found.ensemble, strict=True)):
        assert (before != after) == (index in found.replaced)
    order = sorted(names, key=lambda name: failures[name])
    for further in found.unreplaced:
        tried = {*found.replaced, further}
        keep = [None if i in tried else name for i, name in enumerate(ensemble)]
        assert by_brute_force(quorum, keep, order, bookies, policy) is None
    keep = [None if i in found.replaced else name for i, name in enumerate(ensemble)]
    assert found.ensemble == by_brute_force(quorum, keep, order, bookies, policy)


@settings(max_examples=20, deadline=None)
@example(racks=20, hosts=100, size=5)
@example(racks=1, hosts=300, size=9)
@given(racks=st.integers(1, 20), hosts=st.integers(9, 100), size=st.integers(2, 9))
def test_large_clusters_are_searched_in_few_steps(racks: int, hosts: int, size: int) -> None:
    """A rule that cannot be kept is given up after a short search."""
    names = [f"b{number}" for number in range(hosts)]
    places = {
        name: BookiePlace(f"10.0.0.{number}", f"r{number % racks}", "only")
        for number, name in enumerate(names)
    }
    quorum = Quorum(size, min(size, 3), 1)
    found = place(quorum, [None] * size, names, BookieMap(places), PlacementPolicy())
    assert isinstance(found, Placed)
    assert found.adherence.hosts.is_kept
    assert found.adherence.racks.is_kept == (racks > 1 or quorum.write_quorum == 1)
    assert not found.adherence.regions.is_kept
