"""Chooses the first ensemble of a ledger, which may name bookies that are not registered.

A cluster may have exactly as many bookies as an ensemble needs. If one of these bookies is absent,
new ledgers name this bookie nevertheless. When the bookie has returned, the writers of these
ledgers send it entries (PROTOCOL.md#B21).
"""

from __future__ import annotations

from collections.abc import Sequence

from ledgerlog_spark.model import Quorum
from ledgerlog_spark.protocol.ledger.quorum import write_set_masks
from ledgerlog_spark.protocol.placement.place import Placed, Unplaceable, place
from ledgerlog_spark.protocol.placement.places import BookieMap
from ledgerlog_spark.protocol.placement.policy import PlacementPolicy


def place_new(
    quorum: Quorum,
    candidates: Sequence[str],
    absent: Sequence[str],
    bookies: BookieMap,
    policy: PlacementPolicy,
) -> Placed | Unplaceable:
    """Choose the bookies of a new ledger.

    If there are too few candidates, the ledger also names bookies of `absent`, in the given order.
    But at least Qa bookies of each write set are candidates.
    """
    found = place(quorum, (None,) * quorum.ensemble_size, candidates, bookies, policy)
    if isinstance(found, Placed) or found.missing != "bookies":
        return found
    missing = quorum.ensemble_size - len(set(candidates))
    places = absent_indexes(quorum, missing) if missing <= len(absent) else None
    if places is None:
        return found
    named = dict(zip(places, absent, strict=False))
    keep = [named.get(index) for index in range(quorum.ensemble_size)]
    return place(quorum, keep, candidates, bookies, policy)


def absent_indexes(quorum: Quorum, count: int) -> tuple[int, ...] | None:
    """Return the indexes for `count` absent bookies of a new ledger, in ascending order.

    In each write set, at most Qw - Qa bookies may be absent. The indexes are spread evenly, so that
    the largest number of absent bookies in a write set is as small as possible. The result is None
    if `count` bookies are too many.
    """
    size = quorum.ensemble_size
    chosen = tuple(number * size // count for number in range(count))
    absent = sum(1 << index for index in chosen)
    allowed = quorum.write_quorum - quorum.ack_quorum
    is_allowed = all((mask & absent).bit_count() <= allowed for mask in write_set_masks(quorum))
    return chosen if is_allowed else None
