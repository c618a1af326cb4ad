"""Counts the ledgers in limbo."""

from __future__ import annotations

from bookie_server.storage.limbo.repaired import needs_repair
from bookie_server.storage.shared import Shared
from bookie_server.storage.slices import parts

PAUSE_MS = 1_000
"""Pause between two counts, because a repair clears many ledgers one after the other."""


class LimboCount:
    """The number of ledgers in limbo. After a change, the ledgers are recounted in slices."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._is_due = False
        self._is_counting = False
        self.count = 0

    def note(self) -> None:
        """Count again soon, because the doubt or a ledger has changed."""
        self._is_due = True
        if not self._is_counting:
            self._is_counting = True
            self._shared.tasks.spawn("count of ledgers in limbo", self._count())

    async def _count(self) -> None:
        health = self._shared.health
        while self._is_due and not health.is_closing:
            self._is_due, count = False, 0
            for part in parts(list(self._shared.states.values())):
                count += sum(needs_repair(state, health.doubt) for state in part)
                await self._shared.give_way()
            self.count = count
            await self._shared.tasks.sleep(PAUSE_MS)
        self._is_counting = False
