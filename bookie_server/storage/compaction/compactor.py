"""Starts compactions, one at a time: when they are due or requested, or when the disk is full."""

from __future__ import annotations

from collections.abc import Callable

from bookie_server.core.background.compaction import ALL_PERCENT, Schedule, Withdrawals
from bookie_server.errors import StorageError
from bookie_server.ports import Future, Priority
from bookie_server.storage.compaction.cycle import Compacted, Cycle
from bookie_server.storage.compaction.pace import Pace
from bookie_server.storage.files.keeper import FileKeeper
from bookie_server.storage.shared import Shared
from bookie_server.storage.wake_ups import settle


class Compactor:
    """Runs compactions, one after the other."""

    def __init__(
        self, shared: Shared, keeper: FileKeeper, on_failed: Callable[[StorageError], None]
    ) -> None:
        self._shared = shared
        self._keeper = keeper
        self._on_failed = on_failed
        bytes_per_s = shared.settings.compaction_bytes_per_s
        self._pace = Pace(shared, bytes_per_s, frees_room=True)
        now_ms = shared.clock.monotonic_ms()
        self._schedule = Schedule(shared.settings, now_ms, now_ms)
        self._wanted = 0  # largest threshold of the requested compactions that have not begun
        self._waiting: list[Future[None]] = []
        self._is_running = False
        self.running_percent = 0  # threshold of the compaction that runs, or 0
        self._short_ms = now_ms - shared.settings.allocation_retry_ms
        self._withdrawals = Withdrawals()
        self.on_compacted: Callable[[Compacted], None] = lambda _compacted: None

    async def compact(self, live_percent: int = ALL_PERCENT) -> None:
        """Compact the files of which less than `live_percent` % is live, and wait for the end."""
        done: Future[None] = self._shared.tasks.future()
        self._waiting.append(done)
        self.request(live_percent)
        await done

    def compact_when_due(self) -> None:
        """If the interval of a compaction has passed, start this compaction."""
        live_percent = self._schedule.due(self._shared.clock.monotonic_ms())
        if live_percent:
            self.request(live_percent)

    def compact_when_short(self) -> None:
        """Start a compaction because the disk has no room, unless one runs or has just begun."""
        now_ms, settings = self._shared.clock.monotonic_ms(), self._shared.settings
        is_early = now_ms - self._short_ms < settings.allocation_retry_ms
        if settings.short_percent and not is_early and not self._is_running:
            self._short_ms = now_ms
            self.request(settings.short_percent)

    async def stop(self) -> None:
        """End a running compaction at its next step, and begin no other compaction."""
        self._pace.is_stopped = True
        while self._is_running:
            await self.compact(0)

    def request(self, live_percent: int = ALL_PERCENT) -> None:
        """Start to compact the files of which less than `live_percent` % is live."""
        self._wanted = max(self._wanted, live_percent)
        if not self._is_running:
            self._is_running = True
            self._shared.tasks.spawn("compaction", self._run(), Priority.BACKGROUND)

    async def _run(self) -> None:
        try:
            while self._waiting or (self._wanted and not self._pace.must_end):
                wanted, self._wanted = self._wanted, 0
                waiting, self._waiting = self._waiting, []
                try:
                    if wanted and not self._pace.must_end:
                        self.running_percent = wanted
                        cycle = Cycle(self._shared, self._keeper, self._pace, self._withdrawals)
                        self.on_compacted(await cycle.run(wanted))
                finally:
                    self.running_percent = 0
                    settle(waiting)
        except StorageError as error:
            self._on_failed(error)
        finally:
            self._is_running = False
            settle(self._waiting)
