"""Compares an ensemble with the policy of placement."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from ledgerlog_spark.model import Quorum
from ledgerlog_spark.protocol.placement.places import BookieMap
from ledgerlog_spark.protocol.placement.policy import PlacementPolicy


@dataclass(frozen=True, slots=True)
class Spread:
    """The number of hosts, racks or regions over which the copies of an entry are spread.

    `found` is the smallest of these numbers among all entries. `wanted` is 1 if no rule applies.
    """

    found: int
    wanted: int

    @property
    def is_kept(self) -> bool:
        """Whether each entry is spread over as many places as the policy requires."""
        return self.found >= self.wanted


@dataclass(frozen=True, slots=True)
class Adherence:
    """How an ensemble compares with a policy.

    `misplaced` and `broken` contain the names of broken rules, the most important rule first.
    """

    hosts: Spread
    racks: Spread
    regions: Spread
    without_room: tuple[str, ...] = ()  # members that reported no free bytes
    quarantined: tuple[str, ...] = ()  # members that are in quarantine

    @property
    def misplaced(self) -> tuple[str, ...]:
        """The broken rules about hosts, regions and racks.

        The ensemble can keep these rules again only if copies are moved. The other rules matter
        only when a bookie is chosen.
        """
        spreads = {"hosts": self.hosts, "regions": self.regions, "racks": self.racks}
        return tuple(name for name, spread in spreads.items() if not spread.is_kept)

    @property
    def broken(self) -> tuple[str, ...]:
        """All rules that the ensemble breaks."""
        room, quarantine = ("free bytes",), ("quarantine",)
        return (
            *self.misplaced,
            *(room if self.without_room else ()),
            *(quarantine if self.quarantined else ()),
        )

    def __str__(self) -> str:
        spreads = {"hosts": self.hosts, "racks": self.racks, "regions": self.regions}
        shown = [
            f"{spread.found} of {spread.wanted} {name}"
            for name, spread in spreads.items()
            if not spread.is_kept
        ]
        if self.without_room:
            shown.append(f"no free bytes on {', '.join(self.without_room)}")
        if self.quarantined:
            shown.append(f"failed a moment ago: {', '.join(self.quarantined)}")
        return "; ".join(shown) or "every rule is kept"


@dataclass(frozen=True, slots=True)
class Wanted:
    """The numbers of hosts, racks and regions over which an entry's copies should be spread."""

    hosts: int
    racks: int
    regions: int


def wanted(quorum: Quorum, bookies: BookieMap, policy: PlacementPolicy) -> Wanted:
    """Return the numbers of places that the policy requires for a ledger (AUTORECOVERY.md#Z3)."""
    copies = quorum.write_quorum
    racks = policy.min_racks_per_write_quorum if bookies.has_racks else 1
    regions = policy.min_regions_per_write_quorum if bookies.has_regions else 1
    return Wanted(copies, min(copies, racks), min(copies, regions))


def windows(quorum: Quorum) -> list[tuple[int, ...]]:
    """Return the indexes of each write set of an ensemble, without repetitions (PROTOCOL.md#A2)."""
    size, copies = quorum.ensemble_size, quorum.write_quorum
    starts = range(size) if size > copies else range(1)
    return [tuple((start + offset) % size for offset in range(copies)) for start in starts]


def adherence(
    ensemble: Sequence[str], quorum: Quorum, bookies: BookieMap, policy: PlacementPolicy
) -> Adherence:
    """Compare an ensemble of E bookies with a policy (AUTORECOVERY.md#Z7)."""
    goal = wanted(quorum, bookies, policy)
    sets = [tuple(ensemble[index] for index in window) for window in windows(quorum)]

    def spread(place_of: Callable[[str], Hashable], number: int) -> Spread:
        return Spread(min(len({place_of(name) for name in names}) for names in sets), number)

    return Adherence(
        hosts=spread(bookies.host_of, goal.hosts),
        racks=spread(bookies.rack_of, goal.racks),
        regions=spread(bookies.region_of, goal.regions),
        without_room=tuple(name for name in ensemble if name in bookies.without_room),
        quarantined=tuple(name for name in ensemble if name in bookies.quarantined),
    )
