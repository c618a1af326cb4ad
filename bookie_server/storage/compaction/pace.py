"""Limits the speed of compaction, and lets other tasks run."""

from __future__ import annotations

from bookie_server.core.compaction import Rate
from bookie_server.ports import Buffer, File, Lane
from bookie_server.storage.shared import Shared

RECORD_COST_BYTES = 8_192
"""Each copied record counts as at least this many bytes, because it takes 20 us of computing."""
TURN_SIZE_BYTES = 65_536
PAUSE_MS_MAX = 1_000
"""A longer pause is divided, so that a stop is noticed within this time."""


class Pace:
    """Counts what compaction reads and writes, and pauses. A full disk is emptied without pauses.

    Compaction ends early while the storage stops or has failed.
    """

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._rate = Rate(shared.settings.compaction_bytes_per_s)
        self._unpaid = 0
        self.is_stopped = False

    @property
    def must_end(self) -> bool:
        """Whether compaction must leave everything as it is."""
        health = self._shared.health
        return self.is_stopped or health.has_failed or health.is_closing

    async def spend(self, size_bytes: int) -> None:
        """Count `size_bytes` that were read or written, and wait after each `TURN_SIZE_BYTES`."""
        self._unpaid += size_bytes
        if self._unpaid < TURN_SIZE_BYTES:
            return
        size_bytes, self._unpaid = self._unpaid, 0
        pause_ms = self._rate.pause_ms(size_bytes, self._shared.clock.monotonic_ms())
        while pause_ms > 0 and self._shared.health.is_writable and not self.must_end:
            await self._shared.tasks.sleep(min(pause_ms, PAUSE_MS_MAX))
            pause_ms -= PAUSE_MS_MAX
        await self._shared.tasks.sleep(0)

    async def read(self, handle: File, offset: int, size: int) -> bytes:
        """Read bytes of a file in the lane of background work."""
        data = await handle.read(offset, size, Lane.BACKGROUND)
        await self.spend(len(data))
        return data

    async def write(self, handle: File, offset: int, buffers: list[Buffer]) -> None:
        """Write bytes, which are not durable on return."""
        await handle.write(offset, buffers)
        await self.spend(sum(map(len, buffers)))
