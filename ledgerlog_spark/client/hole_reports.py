"""Reports the holes that writers and recoveries leave, in the background.

After a report, auto-recovery checks the ledger soon. Without a report, the replica check finds the
hole later. Therefore no caller waits for a report, and a report that fails after its retries is
only logged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from ledgerlog_spark.errors import LedgerLogError
from ledgerlog_spark.metadata.replication.ports import LedgerNotes
from ledgerlog_spark.model import LedgerMetadata
from ledgerlog_spark.protocol.ledger.messages import HoleLeft
from ledgerlog_spark.retry import RetryPolicy
from ledgerlog_spark.waits import forever
from ledgerlog_spark.wire.repair_notes import Hole, Holes

LEDGERS_MAX = 10_000
"""Maximum number of ledgers with waiting reports. The holes of further ledgers are not reported."""

HOLES_MAX = 1_000
"""Maximum number of waiting holes of one ledger. Further holes are dropped."""

REPORT_RETRY = RetryPolicy(first_delay_ms=100, delay_max_ms=10_000, attempts_max=12)
"""Number and delays of the retries of one report. All retries together take about a minute."""

_logger = logging.getLogger(__name__)


class HoleQueue:
    """The reports that are not written yet. All methods run in the event loop.

    Attributes:
        reported: Number of holes that were written to the store.
        dropped: Number of holes that were not reported, because the store failed or too many
            ledgers waited.
    """

    def __init__(self, store: LedgerNotes[Holes] | None, retry: RetryPolicy = REPORT_RETRY) -> None:
        """Create an empty queue. If `store` is None, holes are only logged and counted."""
        self.reported = 0
        self.dropped = 0
        self._store = store
        self._retry = retry
        self._waiting: dict[int, list[Hole]] = {}
        self._task: asyncio.Task[None] | None = None

    def add(self, ledger_id: int, metadata: LedgerMetadata, holes: Sequence[HoleLeft]) -> None:
        """Report holes in the background. `metadata` contains the fragments of the holes."""
        for hole in holes:
            _logger.info(
                "ledger %d: bookie %s lacks entries %d to %d, which have fewer copies until they "
                "are repaired",
                ledger_id,
                hole.bookie_id,
                hole.first_entry_id,
                hole.last_entry_id,
            )
        found = notes_of(metadata, holes)
        if self._store is None or (
            ledger_id not in self._waiting and len(self._waiting) >= LEDGERS_MAX
        ):
            self.dropped += len(found)
            return
        waiting = self._waiting.setdefault(ledger_id, [])
        room = HOLES_MAX - len(waiting)
        waiting += found[:room]
        self.dropped += len(found[room:])
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._report_all())

    async def drained(self) -> None:
        """Wait until all reports have been written or dropped.

        The retries of a report are limited.
        """
        while self._task is not None and not self._task.done():
            await forever(asyncio.wait([self._task]), "the retries of each report are limited")

    def stop(self) -> None:
        """Write no more reports, and drop all reports that wait."""
        if self._task is not None:
            self._task.cancel()
        self.dropped += sum(map(len, self._waiting.values()))
        self._waiting.clear()

    async def _report_all(self) -> None:
        while self._waiting:
            ledger_id = next(iter(self._waiting))
            await self._report(ledger_id, self._waiting.pop(ledger_id))

    async def _report(self, ledger_id: int, holes: Sequence[Hole]) -> None:
        assert self._store is not None
        failures = 0
        while True:
            try:
                await self._store.add(ledger_id, Holes(tuple(holes)))
            except LedgerLogError as error:
                failures += 1
                delay_ms = self._retry.delay_ms(failures)
                if delay_ms is None or not error.retriable:
                    self.dropped += len(holes)
                    _logger.warning(
                        "the holes of ledger %d are not reported, so only the weekly replica check "
                        "finds them: %s",
                        ledger_id,
                        error,
                    )
                    return
                await asyncio.sleep(delay_ms / 1e3)
            else:
                self.reported += len(holes)
                return


def notes_of(metadata: LedgerMetadata, holes: Sequence[HoleLeft]) -> list[Hole]:
    """Return the holes, divided among the fragments that name their bookies."""
    ends = [fragment.first_entry_id - 1 for fragment in metadata.fragments[1:]]
    notes: list[Hole] = []
    for hole in holes:
        for fragment, end in zip(metadata.fragments, [*ends, hole.last_entry_id], strict=True):
            first = max(fragment.first_entry_id, hole.first_entry_id)
            last = min(end, hole.last_entry_id)
            if hole.bookie_id in fragment.ensemble and first <= last:
                notes.append(Hole(hole.bookie_id, fragment.first_entry_id, ranges=((first, last),)))
    return notes
