"""The entries that an operator gave up for the whole cluster (AUTORECOVERY.md#X13).

Auto-recovery treats these entries as if every bookie listed them. So it reports no holes of these
entries, and searches no copies of them. A worker names a target in the metadata even if the target
lacks these entries.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

from ledgerlog_spark.metadata.accepted_losses import AcceptedLosses
from ledgerlog_spark.protocol.autorecovery.replicate.ranges import joined

EntryRange = tuple[int, int]
REFRESH_SECONDS = 10.0
"""Time within which a new acceptance takes effect."""


class AcceptedEntries:
    """The entries that were given up, for each ledger. Most clusters have no such entries."""

    def __init__(self, losses: AcceptedLosses) -> None:
        """Create an object that sends no request before its first use."""
        self._losses = losses
        self._ledgers: Collection[int] = frozenset()
        self._read_at: float | None = None

    async def added_to(
        self, ledger_id: int, ranges: Sequence[EntryRange]
    ) -> tuple[EntryRange, ...]:
        """Return the ranges that a bookie listed, together with the entries that were given up.

        Raises:
            MetadataError: The store did not answer, or a record is damaged.
        """
        given_up = await self.of_ledger(ledger_id)
        return tuple(joined([*ranges, *given_up])) if given_up else tuple(ranges)

    async def of_ledger(self, ledger_id: int) -> tuple[EntryRange, ...]:
        """Return the entries of a ledger that were given up, as ascending ranges.

        Raises:
            MetadataError: The store did not answer, or a record is damaged.
        """
        now = time.monotonic()
        if self._read_at is None or now - self._read_at >= REFRESH_SECONDS:
            self._ledgers = await self._losses.ledger_ids()
            self._read_at = now
        if ledger_id not in self._ledgers:
            return ()
        losses = await self._losses.of_ledger(ledger_id)
        return () if losses is None else tuple(joined(losses.ranges))
