"""Reports the holes that writers and recoveries leave, in the background.

A report makes auto-recovery look at the ledger soon. Without it, the replica check finds the hole
later. So a report that fails after its retries is only logged, and no caller waits for a report.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

from ledgerlog_spark.errors import LedgerLogError
from ledgerlog_spark.protocol.ledger.messages import Hole
from ledgerlog_spark.retry import RetryPolicy

LEDGERS_MAX = 10_000
"""Maximum number of ledgers whose reports wait. Of a further ledger, nothing is reported."""

HOLES_MAX = 64
"""Maximum number of holes of one ledger that wait. Later holes of a bookie are merged with the
first one, and the report says more than is missing."""

REPORT_RETRY = RetryPolicy(first_delay_ms=100, delay_max_ms=10_000, attempts_max=12)
"""Retries of one report, for about a minute."""

_logger = logging.getLogger(__name__)


class HoleReports(Protocol):
    """The store of reported holes (`holes` of the repair tree)."""

    async def report(self, ledger_id: int, holes: Sequence[Hole]) -> None:
        """Add holes to the note of a ledger. Idempotent.

        Raises:
            MetadataError: The holes may not be in the store.
        """
        ...


class HoleQueue:
    """Reports that wait, in the order of their ledgers. All methods run in the event loop.

    Attributes:
        reported: Number of holes that are in the store.
        dropped: Number of holes that were not reported, because the store failed or too many
            ledgers waited.
    """

    def __init__(self, store: HoleReports | None, retry: RetryPolicy = REPORT_RETRY) -> None:
        """Create an empty queue. Without a `store`, holes are only logged and counted."""
        self.reported = 0
        self.dropped = 0
        self._store = store
        self._retry = retry
        self._waiting: dict[int, list[Hole]] = {}
        self._task: asyncio.Task[None] | None = None

    def add(self, ledger_id: int, holes: Sequence[Hole]) -> None:
        """Report holes soon."""
        for hole in holes:
            _logger.info(
                "ledger %d: bookie %s lacks entries %d to %d, which have fewer copies until they "
                "are repaired",
                ledger_id,
                hole.bookie_id,
                hole.first_entry_id,
                hole.last_entry_id,
            )
        if self._store is None or (
            ledger_id not in self._waiting and len(self._waiting) >= LEDGERS_MAX
        ):
            self.dropped += len(holes)
            return
        waiting = self._waiting.setdefault(ledger_id, [])
        for hole in holes:
            _add(waiting, hole)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._report_all())

    async def drained(self) -> None:
        """Wait until no report waits. Each report ends, because its retries are limited."""
        while self._task is not None and not self._task.done():
            await asyncio.wait([self._task])

    def stop(self) -> None:
        """Stop reporting. What waits is dropped."""
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
                await self._store.report(ledger_id, holes)
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


def _add(waiting: list[Hole], hole: Hole) -> None:
    """Add a hole, or merge it with an earlier hole of its bookie if there are too many."""
    if len(waiting) < HOLES_MAX:
        waiting.append(hole)
        return
    for place, earlier in enumerate(waiting):
        if earlier.bookie_id == hole.bookie_id:
            first = min(earlier.first_entry_id, hole.first_entry_id)
            last = max(earlier.last_entry_id, hole.last_entry_id)
            waiting[place] = Hole(first, last, hole.bookie_id)
            return
    waiting.append(hole)  # a ledger has fewer bookies than a report may have holes
