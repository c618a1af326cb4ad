"""Where a new ledger may name bookies that are not registered (PROTOCOL.md#B21)."""

from __future__ import annotations

from ledgerlog_spark.model import Quorum
from ledgerlog_spark.protocol.ledger.quorum import write_set_masks


def absent_indexes(quorum: Quorum, count: int) -> tuple[int, ...] | None:
    """Indexes for `count` absent bookies of a new ledger, in ascending order.

    In each write set, Qa bookies must be present, so at most Qw - Qa may be absent. The result is
    None if `count` bookies are too many.
    """
    masks = write_set_masks(quorum)
    allowed = quorum.write_quorum - quorum.ack_quorum
    chosen: list[int] = []
    taken = 0
    for index in range(quorum.ensemble_size):
        if len(chosen) == count:
            break
        with_it = taken | 1 << index
        if all((mask & with_it).bit_count() <= allowed for mask in masks):
            taken = with_it
            chosen.append(index)
    return tuple(chosen) if len(chosen) == count else None
