"""Searches for the first ensemble that is spread over enough hosts, racks and regions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

from ledgerlog_spark.model import Quorum
from ledgerlog_spark.protocol.placement.adherence import Wanted, windows
from ledgerlog_spark.protocol.placement.places import BookieMap

STEPS_MAX = 2_000
"""Maximum number of candidates that one search tries.

If all of them fail, the search ends without a result.
"""


class _Spot(NamedTuple):
    """The host, rack and region of a bookie. Two bookies share a place if the values are equal."""

    host: Hashable
    rack: Hashable
    region: Hashable


class _Shapes:
    """Describes the places of candidates. Candidates with equal descriptions are interchangeable.

    A host is described by the number of its candidates, a rack by its hosts, and a region by its
    racks. A host with bookies in several racks is described by its name.
    """

    def __init__(self, spots: Sequence[_Spot], kept: Sequence[_Spot]) -> None:
        racks: dict[Hashable, set[Hashable]] = {}
        for spot in (*spots, *kept):
            racks.setdefault(spot.host, set()).add(spot.rack)
        sizes = Counter(spot.host for spot in spots)
        self.host: dict[Hashable, str] = {
            host: f"{sizes[host]}" if len(racks[host]) == 1 else repr(host) for host in sizes
        }
        self.rack = self._joined({(spot.rack, spot.host) for spot in spots}, self.host)
        self.region = self._joined({(spot.region, spot.rack) for spot in spots}, self.rack)

    @staticmethod
    def _joined(
        pairs: set[tuple[Hashable, Hashable]], shapes: dict[Hashable, str]
    ) -> dict[Hashable, str]:
        parts: dict[Hashable, list[str]] = {}
        for whole, part in pairs:
            parts.setdefault(whole, []).append(shapes[part])
        return {whole: f"[{' '.join(sorted(found))}]" for whole, found in parts.items()}


class Search:
    """Searches for ensembles with the same kept bookies, at different levels."""

    def __init__(
        self,
        quorum: Quorum,
        keep: Sequence[str | None],
        candidates: Sequence[str],
        bookies: BookieMap,
    ) -> None:
        assert len(keep) == quorum.ensemble_size, "each index is kept or empty"
        self.kept = tuple(name for name in keep if name is not None)
        self._keep = keep
        self._open = [index for index, name in enumerate(keep) if name is None]
        self._spots = {
            name: _Spot(bookies.host_of(name), bookies.rack_of(name), bookies.region_of(name))
            for name in (*self.kept, *candidates)
        }
        # a write set without an empty index stays as it is
        self._windows = [w for w in windows(quorum) if any(keep[index] is None for index in w)]

    def first(self, candidates: Sequence[str], goal: Wanted) -> tuple[str, ...] | None:
        """Return the first ensemble in the order of `candidates`; None if none reaches `goal`."""
        if len(candidates) < len(self._open):
            return None
        attempt = _Attempt(self._keep, self._open, self._windows, self._spots, candidates, goal)
        return tuple(attempt.members) if attempt.is_possible() and attempt.fill(0) else None


class _Attempt:
    """Does one search by backtracking."""

    def __init__(
        self,
        keep: Sequence[str | None],
        empty: Sequence[int],
        sets: Sequence[tuple[int, ...]],
        spots: dict[str, _Spot],
        candidates: Sequence[str],
        goal: Wanted,
    ) -> None:
        self.members: list[Any] = list(keep)
        self._open = empty
        self._sets_at = {i: [each for each in sets if i in each] for i in empty}
        self._sets = sets
        self._spots = spots
        self._candidates = candidates
        self._goals = (goal.hosts, goal.racks, goal.regions)
        self._shapes: _Shapes | None = None
        self._steps = 0

    def is_possible(self) -> bool:
        """Whether each write set alone could be spread over enough places.

        This test is fast, and avoids many searches without a result.
        """
        for part, goal in enumerate(self._goals):
            offered = {self._spots[name][part] for name in self._candidates}
            for indexes in self._sets:
                used = self._used(indexes, part)
                empty = sum(self.members[index] is None for index in indexes)
                if len(offered - used) < min(goal - len(used), empty):
                    return False
        return True

    def fill(self, depth: int) -> bool:
        """Fill the empty indexes, beginning with number `depth`.

        Return whether all indexes were filled.
        """
        if depth == len(self._open):
            return True
        index = self._open[depth]
        failed: set[Hashable] = set()
        for name in self._candidates:
            if name in self.members or (failed and self._signature(name) in failed):
                continue
            self._steps += 1
            if self._steps > STEPS_MAX:
                return False
            signature = None
            self.members[index] = name
            if self._is_spread(index) and self.fill(depth + 1):
                return True
            self.members[index] = None
            signature = self._signature(name)
            failed.add(signature)
        return False

    def _used(self, indexes: Sequence[int], part: int) -> set[Hashable]:
        names = (self.members[index] for index in indexes)
        return {self._spots[name][part] for name in names if name is not None}

    def _is_spread(self, index: int) -> bool:
        """Whether the write sets of `index` can still be spread over enough places.

        If the kept bookies of a write set share a place, the goal of this set is smaller.
        """
        for indexes in self._sets_at[index]:
            empty = sum(self.members[each] is None for each in indexes)
            for part, goal in enumerate(self._goals):
                if len(self._used(indexes, part)) + empty < self._reachable(indexes, part, goal):
                    return False
        return True

    def _reachable(self, indexes: Sequence[int], part: int, goal: int) -> int:
        kept = [index for index in indexes if index not in self._sets_at]
        return min(goal, len(self._used(kept, part)) + len(indexes) - len(kept))

    def _signature(self, name: str) -> Hashable:
        """Return the description of a candidate.

        With the present members, candidates with equal descriptions are interchangeable.
        """
        if self._shapes is None:
            members = [self._spots[one] for one in self.members if one is not None]
            self._shapes = _Shapes([self._spots[one] for one in self._candidates], members)
        taken = [self._spots[one] for one in self.members if one is not None]
        spot = self._spots[name]
        shapes = (self._shapes.host, self._shapes.rack, self._shapes.region)
        return tuple(
            ("used", spot[part])
            if any(other[part] == spot[part] for other in taken)
            else ("new", shapes[part][spot[part]])
            for part in range(3)
        )
