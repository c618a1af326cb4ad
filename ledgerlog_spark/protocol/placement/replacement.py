"""Replaces failed bookies of an ensemble."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ledgerlog_spark.model import Quorum
from ledgerlog_spark.protocol.placement.place import Placed, place
from ledgerlog_spark.protocol.placement.places import BookieMap
from ledgerlog_spark.protocol.placement.policy import PlacementPolicy


@dataclass(frozen=True, slots=True)
class Replacements:
    """The result of `replace_failed`."""

    ensemble: tuple[str, ...]  # other bookies keep their indexes (PROTOCOL.md#B5)
    replaced: tuple[int, ...]  # indexes with a new bookie, in ascending order
    unreplaced: tuple[int, ...]  # failed indexes without a replacement, in ascending order


def replace_failed(
    quorum: Quorum,
    ensemble: Sequence[str],
    failed_indexes: Iterable[int],
    candidates: Sequence[str],
    failures: Mapping[str, int],  # number of failures of each bookie in this ledger
    bookies: BookieMap,
    policy: PlacementPolicy,
) -> Replacements:
    """Replace the bookie at each failed index for which the rules allow a candidate.

    Candidates with the fewest failures in this ledger are preferred. A bookie of the ensemble,
    failed or not, is never chosen for another index (PROTOCOL.md#B5). An index without a
    replacement keeps its bookie. The host, rack and region of this bookie are still counted.
    """
    fresh = [name for name in dict.fromkeys(candidates) if name not in ensemble]
    fresh.sort(key=lambda name: failures.get(name, 0))
    failed = sorted(failed_indexes)
    members, replaced = tuple(ensemble), list[int]()
    for indexes in (failed, *([index] for index in failed)):
        # First, bookies for all failed indexes are searched together. If this fails, the indexes
        # are added one by one.
        tried = [*replaced, *indexes]
        if len(replaced) == len(failed) or len(tried) > len(fresh):
            continue
        keep = [None if index in tried else name for index, name in enumerate(ensemble)]
        found = place(quorum, keep, fresh, bookies, policy)
        if isinstance(found, Placed):
            members, replaced = found.ensemble, tried
    unreplaced = tuple(index for index in failed if index not in replaced)
    return Replacements(members, tuple(replaced), unreplaced)
