"""Pure functions that choose the bookies of an ensemble.

The functions take the candidates in the given order. The host has already shuffled the candidates,
so these functions draw no random numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ledgerlog_spark.errors import NotEnoughBookiesError
from ledgerlog_spark.model import Quorum
from ledgerlog_spark.protocol.ledger.absent_members import absent_indexes


def choose_ensemble(
    quorum: Quorum, candidates: Sequence[str], absent: Sequence[str] = ()
) -> tuple[str, ...]:
    """The first ensemble of a new ledger: the first E different candidates.

    If there are fewer candidates, bookies of `absent` take the other places, as far as each write
    set keeps Qa candidates (PROTOCOL.md#B21).

    Raises:
        NotEnoughBookiesError: There are too few candidates. The error contains both numbers.
    """
    distinct = tuple(dict.fromkeys(candidates))
    wanted = quorum.ensemble_size
    if len(distinct) < wanted:
        missing = wanted - len(distinct)
        places = absent_indexes(quorum, missing) if missing <= len(absent) else None
        if places is not None:
            members = list(distinct)
            for place, bookie_id in zip(places, absent, strict=False):
                members.insert(place, bookie_id)
            return tuple(members)
        raise NotEnoughBookiesError(
            f"a ledger with ensemble_size {wanted} needs {wanted} writable bookies, but there are "
            f"{len(distinct)}: start more bookies, or use a smaller ensemble_size",
            wanted=wanted,
            available=len(distinct),
        )
    return distinct[:wanted]


@dataclass(frozen=True, slots=True)
class Replacements:
    """The result of `replace_failed`."""

    ensemble: tuple[str, ...]  # other bookies keep their indexes (PROTOCOL.md#B5)
    replaced: tuple[int, ...]  # indexes with a new bookie, in ascending order
    unreplaced: tuple[int, ...]  # failed indexes without a replacement, in ascending order


def replace_failed(
    ensemble: Sequence[str],
    failed_indexes: Iterable[int],
    candidates: Sequence[str],
    failures: Mapping[str, int],  # number of failures of each bookie in this ledger
) -> Replacements:
    """Replace the bookie at each failed index, as long as there are candidates.

    Candidates with the fewest failures in this ledger are chosen first. A bookie of the ensemble,
    failed or not, is never chosen for another index.
    """
    members = list(ensemble)
    fresh = [name for name in dict.fromkeys(candidates) if name not in members]
    fresh.sort(key=lambda name: failures.get(name, 0))
    replaced: list[int] = []
    unreplaced: list[int] = []
    for index in sorted(failed_indexes):
        if fresh:
            members[index] = fresh.pop(0)
            replaced.append(index)
        else:
            unreplaced.append(index)
    return Replacements(tuple(members), tuple(replaced), tuple(unreplaced))
