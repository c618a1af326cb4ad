"""Limits the speed of compaction and of the scrub, and lets other tasks run."""

from __future__ import annotations

from collections.abc import Sequence

from bookie_server.core.background.compaction import Rate
from bookie_server.core.settings import MEBIBYTE
from bookie_server.ports import Buffer, File, Priority
from bookie_server.storage.shared import Shared

RECORD_COST_BYTES = 8_192
"""Each copied record counts as at least this many bytes, because copying it takes 20 us of CPU
time."""
TURN_SIZE_BYTES = 65_536
UNSYNCED_BYTES_MAX = 8 * MEBIBYTE
"""Maximum number of bytes that are written between two syncs, so that no sync takes long."""
PAUSE_MS_MAX = 1_000
"""Maximum length of one sleep. A longer pause has several sleeps, so that the work notices a stop
within this time."""


class Pace:
    """Counts the bytes of background work, and makes pauses.

    If `frees_room` is true, the work makes no pauses while the disk is full. When the storage stops
    or has failed, the work ends early.
    """

    def __init__(self, shared: Shared, bytes_per_s: int, *, frees_room: bool = False) -> None:
        self._shared = shared
        self._rate = Rate(bytes_per_s)
        self._frees_room = frees_room
        self._unpaid = 0
        self._unsynced_bytes = 0
        self.is_stopped = False

    @property
    def must_end(self) -> bool:
        """Whether the work must end without further changes."""
        health = self._shared.health
        return self.is_stopped or health.has_failed or health.is_closing

    async def spend(self, size_bytes: int) -> None:
        """Count bytes that were read or written, and pause after each `TURN_SIZE_BYTES` bytes."""
        self._unpaid += size_bytes
        if self._unpaid < TURN_SIZE_BYTES:
            return
        size_bytes, self._unpaid = self._unpaid, 0
        pause_ms = self._rate.pause_ms(size_bytes, self._shared.clock.monotonic_ms())
        while pause_ms > 0 and not self._is_urgent and not self.must_end:
            await self._shared.tasks.sleep(min(pause_ms, PAUSE_MS_MAX))
            pause_ms -= PAUSE_MS_MAX
        await self._shared.give_way()

    @property
    def _is_urgent(self) -> bool:
        return self._frees_room and self._shared.health.is_short_of_room

    async def read(self, handle: File, offset: int, size: int) -> bytes:
        """Read bytes of a file, with the priority of background work."""
        data = await handle.read(offset, size, Priority.BACKGROUND)
        await self.spend(len(data))
        return data

    async def write(self, handle: File, offset: int, buffers: Sequence[Buffer]) -> None:
        """Write bytes, which are not durable on return, with the priority of background work.

        Before more than `UNSYNCED_BYTES_MAX` bytes are written, the file is synced.
        """
        size_bytes = sum(map(len, buffers))
        if self._unsynced_bytes + size_bytes > UNSYNCED_BYTES_MAX:
            await self.sync(handle)
        self._unsynced_bytes += size_bytes
        await handle.write(offset, buffers, Priority.BACKGROUND)
        await self.spend(size_bytes)

    async def sync(self, handle: File) -> None:
        """Make the written bytes durable."""
        self._unsynced_bytes = 0
        await handle.datasync(Priority.BACKGROUND)
