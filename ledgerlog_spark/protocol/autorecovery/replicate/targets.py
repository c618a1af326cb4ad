"""Chooses the bookie that gets the copies of an index."""

from __future__ import annotations

from hashlib import blake2b

from ledgerlog_spark.model import Fragment, Quorum
from ledgerlog_spark.protocol.autorecovery.replicate.messages import RegisteredListed
from ledgerlog_spark.protocol.placement.place import Placed, place


def choose_target(
    ledger_id: int,
    quorum: Quorum,
    fragment: Fragment,
    index: int,
    registered: RegisteredListed,
    excluded: frozenset[str],
) -> str | None:
    """Return the bookie that should take an index of a fragment; None if no bookie may take it.

    The order of preference depends only on the ledger, the fragment, the index and the bookie. So
    if a worker dies, its successor chooses the same target, which already has the copies that the
    dead worker made.
    """
    free = [
        name
        for name in registered.writable
        if name not in fragment.ensemble and name not in excluded
    ]
    about = f"{ledger_id} {fragment.first_entry_id} {index} ".encode()
    free.sort(key=lambda name: (blake2b(about + name.encode(), digest_size=8).digest(), name))
    keep: list[str | None] = list(fragment.ensemble)
    keep[index] = None
    placed = place(quorum, keep, free, registered.places, registered.policy)
    return placed.ensemble[index] if isinstance(placed, Placed) else None
