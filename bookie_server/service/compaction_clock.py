"""Starts the compactions that are due by their intervals."""

from __future__ import annotations

from bookie_server.ports import Tasks
from bookie_server.storage.compaction.compactor import Compactor
from bookie_server.storage.directories.router import Compactors

CHECK_INTERVAL_MS = 60_000


class CompactionClock:
    """Checks each minute whether a compaction is due, even without the metadata store."""

    def __init__(self, compactor: Compactor | Compactors, tasks: Tasks) -> None:
        self._compactor = compactor
        self._tasks = tasks
        self._is_stopped = False

    def start(self) -> None:
        """Start the clock."""
        self._tasks.spawn("clock of compaction", self._tick())

    def stop(self) -> None:
        """Start no further compaction."""
        self._is_stopped = True

    async def _tick(self) -> None:
        while not self._is_stopped:
            await self._tasks.sleep(CHECK_INTERVAL_MS)
            if not self._is_stopped:
                self._compactor.compact_when_due()
