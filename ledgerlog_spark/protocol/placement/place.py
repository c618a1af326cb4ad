"""Fills the empty indexes of an ensemble.

A level is a set of rules. The first level has all rules, the second level has all rules except the
quarantine, and so on. The first level in which an ensemble is possible is used
(AUTORECOVERY.md#Z4). Within a level, ensembles are compared at the first index at which they
differ. The ensemble with the preferred candidate at this index is chosen, so the search tries
candidates in the order of preference. If a candidate fails, the search skips all candidates that
are interchangeable with it. So the search is short even if no ensemble keeps the rules of the
level.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from ledgerlog_spark.model import Quorum
from ledgerlog_spark.protocol.placement.adherence import Adherence, Wanted, adherence, wanted
from ledgerlog_spark.protocol.placement.places import BookieMap
from ledgerlog_spark.protocol.placement.policy import PlacementPolicy
from ledgerlog_spark.protocol.placement.search import Search


@dataclass(frozen=True, slots=True)
class Placed:
    """An ensemble, and how it compares with the policy."""

    ensemble: tuple[str, ...]
    adherence: Adherence


@dataclass(frozen=True, slots=True)
class Unplaceable:
    """No ensemble keeps the rules that must be kept.

    Attributes:
        missing: The resource of which there is too little: `bookies`, `hosts`, `racks`, `regions`,
            bookies with `free bytes`, or bookies outside of the `quarantine`.
        wanted: The number of bookies that an ensemble needs, or the number of hosts, racks or
            regions that the copies of an entry need.
        available: The number that is available, including the bookies that stay in the ensemble.
    """

    missing: str
    wanted: int
    available: int


@dataclass(frozen=True, slots=True)
class Level:
    """A set of rules: the required numbers of places, and whether some candidates are avoided."""

    goal: Wanted
    needs_room: bool
    keeps_quarantine: bool


def place(
    quorum: Quorum,
    keep: Sequence[str | None],
    candidates: Sequence[str],
    bookies: BookieMap,
    policy: PlacementPolicy,
) -> Placed | Unplaceable:
    """Choose a bookie for each index of `keep` that is None.

    Args:
        quorum: The quorum of the ledger.
        keep: For each of the E indexes, the bookie that stays, or None. If the kept bookies alone
            break a rule, the rule stays broken, and the new bookies break it no further
            (AUTORECOVERY.md#Z8).
        candidates: The bookies to choose from, in the order of preference. Bookies of `keep` are
            never chosen.
        bookies: Places of all bookies, and the candidates that are avoided if possible.
        policy: The rules.

    Returns:
        The ensemble, or the shortage that prevents it (AUTORECOVERY.md#Z9).
    """
    fresh = [name for name in dict.fromkeys(candidates) if name not in keep]
    search = Search(quorum, keep, fresh, bookies)
    for level in _levels(wanted(quorum, bookies, policy), fresh, bookies, policy):
        found = search.first(_allowed(fresh, level, bookies), level.goal)
        if found is not None:
            return Placed(found, adherence(found, quorum, bookies, policy))
    return _shortage(search, quorum, fresh, bookies, policy)


def _levels(
    goal: Wanted, fresh: Sequence[str], bookies: BookieMap, policy: PlacementPolicy
) -> Iterator[Level]:
    """Yield the levels, from all rules down to only the hard rules (AUTORECOVERY.md#Z4)."""

    def down_to(number: int, *, is_hard: bool) -> Sequence[int]:
        return (number,) if is_hard else range(number, 0, -1)

    def soft(names: frozenset[str], *, is_hard: bool) -> Sequence[bool]:
        return (True,) if is_hard or names.isdisjoint(fresh) else (True, False)

    for hosts, regions, racks, room, quarantine in product(
        down_to(goal.hosts, is_hard=not policy.allow_same_host),
        down_to(goal.regions, is_hard=policy.enforce_regions),
        down_to(goal.racks, is_hard=policy.enforce_racks),
        soft(bookies.without_room, is_hard=policy.enforce_free_bytes),
        soft(bookies.quarantined, is_hard=policy.enforce_quarantine),
    ):
        yield Level(Wanted(hosts, racks, regions), room, quarantine)


def _allowed(fresh: Sequence[str], level: Level, bookies: BookieMap) -> list[str]:
    return [
        name
        for name in fresh
        if not (level.needs_room and name in bookies.without_room)
        and not (level.keeps_quarantine and name in bookies.quarantined)
    ]


def _shortage(
    search: Search,
    quorum: Quorum,
    fresh: Sequence[str],
    bookies: BookieMap,
    policy: PlacementPolicy,
) -> Unplaceable:
    """Add the hard rules one by one. Return the first rule that makes an ensemble impossible."""
    kept = search.kept
    if len(kept) + len(fresh) < quorum.ensemble_size:
        return Unplaceable("bookies", quorum.ensemble_size, len(kept) + len(fresh))
    goal = wanted(quorum, bookies, policy)
    loose = Wanted(1 if policy.allow_same_host else goal.hosts, 1, 1)
    if search.first(fresh, loose) is None:
        hosts = {bookies.host_of(name) for name in (*kept, *fresh)}
        return Unplaceable("hosts", goal.hosts, len(hosts))
    for missing, is_hard, avoided in (
        ("quarantine", policy.enforce_quarantine, bookies.quarantined),
        ("free bytes", policy.enforce_free_bytes, bookies.without_room),
    ):
        if is_hard:
            fresh = [name for name in fresh if name not in avoided]
            if search.first(fresh, loose) is None:
                return Unplaceable(missing, quorum.ensemble_size, len(kept) + len(fresh))
    if policy.enforce_racks:
        loose = Wanted(loose.hosts, goal.racks, 1)
        if search.first(fresh, loose) is None:
            racks = {bookies.rack_of(name) for name in (*kept, *fresh)}
            return Unplaceable("racks", goal.racks, len(racks))
    regions = {bookies.region_of(name) for name in (*kept, *fresh)}
    return Unplaceable("regions", goal.regions, len(regions))
