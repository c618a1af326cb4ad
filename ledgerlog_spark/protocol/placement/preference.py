"""Orders bookies, so that bookies with more free bytes are usually first."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import median

WEIGHT_TO_MEDIAN_MAX = 3
"""Maximum weight of a bookie, as a multiple of the median of all free bytes. So a new and empty
bookie gets at most three times as many ledgers as the median bookie."""


def in_preference(
    free_bytes: Mapping[str, int | None],
    draws: Mapping[str, float],
    avoided: frozenset[str] = frozenset(),
) -> tuple[str, ...]:
    """Order the bookies of `free_bytes` at random, but by their weights (AUTORECOVERY.md#Z5).

    The bookies in `avoided` come after the other bookies, and bookies without free bytes are last.

    Args:
        free_bytes: The free bytes of each bookie, which determine its weight; None if they are not
            known. In this case, the weight is the median of the known values.
        draws: A random number from the caller for each bookie, with 0 <= number < 1.
        avoided: Bookies in quarantine.
    """
    known = [free for free in free_bytes.values() if free is not None]
    usual = max(median(known), 1) if known else 1

    def order(name: str) -> tuple[bool, bool, float]:
        free = free_bytes[name]
        weight = usual if free is None else min(free, WEIGHT_TO_MEDIAN_MAX * usual)
        # With u = 1 - draw and w = weight, the bookie with the largest u^(1/w) is first. The key is
        # the negative logarithm of u^(1/w), because a logarithm cannot underflow.
        key = -math.log(1 - draws[name]) / weight if weight > 0 else draws[name]
        return weight <= 0, name in avoided, key

    return tuple(sorted(free_bytes, key=order))
