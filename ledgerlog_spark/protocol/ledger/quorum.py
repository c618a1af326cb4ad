"""The bookies of an ensemble that have an entry, and the number of answers that decide.

Sets of indexes of an ensemble are bit masks: bit i is index i. Python integers do not
overflow, so entry ids of 2**31 and more need no care here (Apache casts to int before the modulo).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ledgerlog_spark.model import Quorum


def write_set(quorum: Quorum, entry_id: int) -> tuple[int, ...]:
    """Indexes of the bookies that hold `entry_id` (PROTOCOL.md#A2), first the preferred one."""
    size = quorum.ensemble_size
    return tuple((entry_id + step) % size for step in range(quorum.write_quorum))


@lru_cache(maxsize=256)
def write_set_masks(quorum: Quorum) -> tuple[int, ...]:
    """For each residue class `entry_id % E` the bit mask of its write set."""
    return tuple(
        sum(1 << index for index in write_set(quorum, residue))
        for residue in range(quorum.ensemble_size)
    )


def owns(quorum: Quorum, index: int, entry_id: int) -> bool:
    """Whether the bookie at `index` is in the write set of `entry_id`."""
    return (index - entry_id) % quorum.ensemble_size < quorum.write_quorum


def owned_entries(
    quorum: Quorum, index: int, first_entry_id: int, last_entry_id: int
) -> tuple[int, ...]:
    """The ids from first to last (both inclusive) that the bookie at `index` owns, rising."""
    return tuple(
        entry_id
        for entry_id in range(first_entry_id, last_entry_id + 1)
        if owns(quorum, index, entry_id)
    )


def is_acknowledged(quorum: Quorum, acked_mask: int, first_entry_id: int, entries: int) -> bool:
    """Whether every entry of a run has Qa acknowledgements within its own write set.

    The mask has the indexes that acknowledged the part of the run that they own.
    """
    if not quorum.is_striped:
        return acked_mask.bit_count() >= quorum.ack_quorum
    masks = write_set_masks(quorum)
    size = quorum.ensemble_size
    return all(
        (acked_mask & masks[(first_entry_id + step) % size]).bit_count() >= quorum.ack_quorum
        for step in range(min(entries, size))
    )


def is_covered(quorum: Quorum, known_mask: int) -> bool:
    """Whether no entry can have an ack quorum without a bookie of `known_mask`.

    True when each window of Qw neighbours has fewer than Qa unknown bookies (PROTOCOL.md#C3): from
    then on no writer can complete an add without one of the known (fenced) bookies.
    """
    return all(
        (mask & ~known_mask).bit_count() < quorum.ack_quorum for mask in write_set_masks(quorum)
    )


def negative_quorum(quorum: Quorum) -> int:
    """Number of members of a write set that must report an entry absent: Qw - Qa + 1."""
    return quorum.write_quorum - quorum.ack_quorum + 1
