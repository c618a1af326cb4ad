"""Chooses the directory of a new ledger among the directories of a bookie.

A ledger stays in the directory of its first record. The choice depends only on the id of the ledger
and on the free bytes of the directories that accept the record. Each directory gets new ledgers in
proportion to its free bytes. So directories of one device get equal numbers of ledgers. If the
directory with the most free bytes got all new ledgers, all writers would wait for the syncs of one
device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_MASK: Final = (1 << 64) - 1


def chosen_home(ledger_id: int, free_bytes: Sequence[int | None]) -> int | None:
    """Return the number of the directory for a new ledger.

    `free_bytes` has the free bytes of each directory, or None for a directory that does not accept
    the first record. The result is None if no directory accepts the record.
    """
    # A directory without free bytes may still have room in its files.
    weights = [0 if free is None else max(1, free) for free in free_bytes]
    total = sum(weights)
    if total == 0:
        return None
    place = _mixed(ledger_id) * total >> 64
    for number, weight in enumerate(weights):
        if place < weight:
            return number
        place -= weight
    raise AssertionError("the place is smaller than the sum of the weights")


def _mixed(number: int) -> int:
    """Return 64 bits that look random, also for consecutive numbers (the function splitmix64)."""
    mixed = (number + 1) * 0x9E3779B97F4A7C15 & _MASK
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & _MASK
    return mixed ^ mixed >> 31
