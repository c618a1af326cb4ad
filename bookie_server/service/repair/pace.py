"""Limits the bytes that a repair fetches in a second, and the bytes that it stores at a time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from bookie_server.core.background.compaction import Rate
from bookie_server.errors import StorageError
from bookie_server.ports import Clock, Future, Priority, Tasks
from bookie_server.storage.wake_ups import resolve
from ledgerlog_spark.model import Code
from ledgerlog_spark.retry import RetryPolicy

PAUSE_MS_MAX = 1_000
"""Maximum time until a pause notices a stop, in milliseconds. Longer pauses are divided."""
STORED_BYTES_MAX = 4 << 20
STORED_ENTRIES_MAX = 256
BUSY = RetryPolicy(first_delay_ms=50, delay_max_ms=1_000, attempts_max=16)


class RepairPace:
    """Pauses after bytes are fetched, to keep the rate below a limit.

    The limit 0 means no limit.
    """

    def __init__(self, tasks: Tasks, clock: Clock, bytes_per_s: int) -> None:
        self._tasks = tasks
        self._clock = clock
        self._rate = Rate(bytes_per_s)
        self.is_stopped = False

    async def spend(self, size_bytes: int) -> None:
        """Count fetched bytes, and wait until more may be fetched."""
        pause_ms = self._rate.pause_ms(size_bytes, self._clock.monotonic_ms())
        while pause_ms > 0 and not self.is_stopped:
            await self._tasks.sleep(min(pause_ms, PAUSE_MS_MAX))
            pause_ms -= PAUSE_MS_MAX


class Stores:
    """The entries of one ledger that are being stored. Several entries share a sync."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._count = 0
        self._size_bytes = 0
        self._ended: Future[None] | None = None
        self.has_failed = False

    async def begin(self, size_bytes: int, store: Callable[[], Awaitable[Code]]) -> None:
        """Start to store an entry as soon as there is room for it."""
        while self._count and (
            self._size_bytes + size_bytes > STORED_BYTES_MAX or self._count >= STORED_ENTRIES_MAX
        ):
            await self._next_end()
        self._count += 1
        self._size_bytes += size_bytes
        self._tasks.spawn("copy of an entry", self._store(size_bytes, store), Priority.BACKGROUND)

    async def finish(self) -> None:
        """Wait until the attempts to store all entries have ended."""
        while self._count:
            await self._next_end()

    async def _next_end(self) -> None:
        self._ended = self._tasks.future()
        await self._ended

    async def _store(self, size_bytes: int, store: Callable[[], Awaitable[Code]]) -> None:
        try:
            code = await self._patiently(store)
        except StorageError:
            code = Code.IO_ERROR
        self.has_failed |= code is not Code.OK
        self._count -= 1
        self._size_bytes -= size_bytes
        if self._ended is not None:
            ended, self._ended = self._ended, None
            resolve(ended, None)

    async def _patiently(self, store: Callable[[], Awaitable[Code]]) -> Code:
        failures = 0
        while True:
            code = await store()
            failures += 1
            pause_ms = BUSY.delay_ms(failures)
            if code is not Code.BUSY or pause_ms is None:
                return code
            await self._tasks.sleep(pause_ms)
