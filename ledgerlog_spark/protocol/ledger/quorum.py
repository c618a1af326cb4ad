"""Computes which bookies of an ensemble store an entry, and which answers of bookies are enough.

A set of indexes of an ensemble is a bit mask: bit i is for index i. Entry ids of 2**31 and more
need no special care, because Python integers do not overflow. (Apache BookKeeper casts the id to 32
bits.)
"""

from __future__ import annotations

from functools import lru_cache

from ledgerlog_spark.model import Quorum


def write_set(quorum: Quorum, entry_id: int) -> tuple[int, ...]:
    """Return the indexes of the bookies that store `entry_id`, preferred first (PROTOCOL.md#A2)."""
    size = quorum.ensemble_size
    return tuple((entry_id + step) % size for step in range(quorum.write_quorum))


@lru_cache(maxsize=256)
def write_set_masks(quorum: Quorum) -> tuple[int, ...]:
    """Return the bit mask of every write set. An entry's mask is at position `entry_id % E`."""
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
    """Return the ids in the range (both ends inclusive) that the bookie at `index` stores."""
    return tuple(
        entry_id
        for entry_id in range(first_entry_id, last_entry_id + 1)
        if owns(quorum, index, entry_id)
    )


def is_acknowledged(quorum: Quorum, acked_mask: int, first_entry_id: int, entries: int) -> bool:
    """Whether every entry of a run has Qa acknowledgements within its own write set.

    `acked_mask` contains the bits of the bookies that acknowledged their part of the run.
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
    """Whether every possible ack quorum contains a bookie of `known_mask`.

    The result is True if each write set has fewer than Qa bookies outside the mask
    (PROTOCOL.md#C3). If the bookies of the mask are fenced, the old writer cannot complete another
    add.
    """
    return all(
        (mask & ~known_mask).bit_count() < quorum.ack_quorum for mask in write_set_masks(quorum)
    )


def negative_quorum(quorum: Quorum) -> int:
    """Return the number of bookies that must report an entry as absent in recovery: Qw - Qa + 1."""
    return quorum.write_quorum - quorum.ack_quorum + 1
