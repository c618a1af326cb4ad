"""The reasons for which a vacation must not begin (AUTORECOVERY.md#Y3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ledgerlog_spark.model import LedgerMetadata, Quorum
from ledgerlog_spark.protocol.autorecovery.vacate.share import bytes_on, is_named
from ledgerlog_spark.protocol.placement.place import Placed, place
from ledgerlog_spark.protocol.placement.places import BookieMap
from ledgerlog_spark.protocol.placement.policy import PlacementPolicy

FREE_PART_MAX = 0.8
"""Maximum part of the free bytes of the other bookies that the copies may need."""
ENSEMBLES_MAX = 10_000
"""Maximum number of different ensembles for which targets are searched."""

Shape = tuple[Quorum, tuple[str, ...]]
"""A quorum and an ensemble that names the bookie."""


@dataclass(slots=True)
class Holdings:
    """The ledgers of a cluster that name one bookie, and their bytes on this bookie.

    Attributes:
        bookie_id: The bookie.
        ledgers: Number of ledgers that name the bookie.
        size_bytes: Approximate payload bytes of the copies on the bookie.
        open_ledgers: Number of ledgers that name the bookie and are not closed. The number of their
            bytes is unknown.
        shapes: The ensembles that name the bookie, each with the number of its fragments. If there
            are more than `ENSEMBLES_MAX` ensembles, the further ensembles are omitted.
    """

    bookie_id: str
    ledgers: int = 0
    size_bytes: int = 0
    open_ledgers: int = 0
    shapes: dict[Shape, int] = field(default_factory=dict)

    def add(self, metadata: LedgerMetadata) -> None:
        """Add a ledger, if it names the bookie."""
        if not is_named(metadata, self.bookie_id):
            return
        self.ledgers += 1
        self.size_bytes += bytes_on(metadata, self.bookie_id)
        self.open_ledgers += not metadata.is_closed
        for fragment in metadata.fragments:
            shape = metadata.quorum, fragment.ensemble
            is_kept = shape in self.shapes or len(self.shapes) < ENSEMBLES_MAX
            if self.bookie_id in fragment.ensemble and is_kept:
                self.shapes[shape] = self.shapes.get(shape, 0) + 1


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The state of the cluster before a bookie is taken out of service.

    Attributes:
        is_enabled: Whether auto-recovery is enabled.
        known: Ids of all bookies that have a cookie.
        registered: Ids of the registered bookies.
        writable: Ids of the bookies that accept new entries.
        free_bytes: Free bytes of each writable bookie; None if they are unknown.
        others: Ids of other bookies that have a vacation which has not ended.
        bookies: Places of all bookies.
        policy: The rules of placement.
    """

    is_enabled: bool
    known: frozenset[str]
    registered: frozenset[str]
    writable: tuple[str, ...]
    free_bytes: Mapping[str, int | None]
    others: tuple[str, ...]
    bookies: BookieMap
    policy: PlacementPolicy

    def targets(self, bookie_id: str) -> tuple[str, ...]:
        """Return the bookies that may get the copies of this bookie."""
        return tuple(name for name in self.writable if name != bookie_id)

    def free_elsewhere(self, bookie_id: str) -> int | None:
        """Return the free bytes of all targets together; None if those of a target are unknown."""
        free = [self.free_bytes.get(name) for name in self.targets(bookie_id)]
        known = [one for one in free if one is not None]
        return sum(known) if len(known) == len(free) else None


def refusals(held: Holdings, around: Surroundings, *, is_recovery: bool) -> list[str]:
    """Return a sentence for each reason not to begin the vacation; empty if there is no reason.

    `is_recovery` is true if the bookie is down, so that its entries are copied from other bookies.
    """
    bookie_id = held.bookie_id
    found = []
    if not around.is_enabled:
        found.append(
            "auto-recovery is disabled, so no copy would be moved: run `ledgerlog autorecovery "
            "enable` first"
        )
    if bookie_id not in around.known | around.registered and not held.ledgers:
        found.append(
            f"bookie {bookie_id} is not known, and no ledger names it: `ledgerlog bookies list` "
            "shows all bookies"
        )
    if around.others:
        found.append(
            f"bookie {', '.join(around.others)} is being taken out of service: wait for its end, "
            "or cancel it"
        )
    if is_recovery and bookie_id in around.registered:
        found.append(
            f"bookie {bookie_id} is registered, so its copies can be read: use `ledgerlog bookies "
            "drain` or `decommission`"
        )
    found += _without_targets(held, around)
    free = around.free_elsewhere(bookie_id)
    if free is not None and held.size_bytes > FREE_PART_MAX * free:
        found.append(
            f"the copies on bookie {bookie_id} have about {held.size_bytes:,} bytes, and the other "
            f"bookies have {free:,} free bytes: free disk space, or add bookies, until the copies "
            f"need at most {FREE_PART_MAX:.0%} of it"
        )
    return found


def _without_targets(held: Holdings, around: Surroundings) -> list[str]:
    """Return a sentence for each kind of ensembles for which a worker would find no target."""
    targets = around.targets(held.bookie_id)
    missing: dict[tuple[int, str], int] = {}
    for (quorum, ensemble), count in held.shapes.items():
        keep: Sequence[str | None] = [None if n == held.bookie_id else n for n in ensemble]
        found = place(quorum, keep, targets, around.bookies, around.policy)
        if not isinstance(found, Placed):
            key = quorum.ensemble_size, found.missing
            missing[key] = missing.get(key, 0) + count
    return [
        f"{count:,} fragments with ensemble_size {size} have no target for their copies, because "
        f"there are too few {what} among the {len(targets)} other writable bookies: start another "
        "bookie"
        for (size, what), count in sorted(missing.items())
    ]
