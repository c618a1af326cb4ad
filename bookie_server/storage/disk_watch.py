"""Measures the disk usage, and refuses regular adds while the usage is too high.

The device is measured when the bookie starts, at an interval, and after each new file. Freed files
that are kept for reuse count as free space. The room that compaction has borrowed counts as free
too. Fences, recovery adds and reads are not refused. They use the files that are already allocated,
and further files as long as `free_bytes_min` stays free.
"""

from __future__ import annotations

from collections.abc import Callable

from bookie_server.core.disk_use import DiskLevel, DiskSpace, level_of
from bookie_server.errors import MissingFileError, StorageError
from bookie_server.ports import Future
from bookie_server.storage.files.handover import Handover
from bookie_server.storage.shared import Shared
from bookie_server.storage.wake_ups import resolve


class DiskWatch:
    """The last measurement of a directory's device, and the level of the device.

    `on_level` is called after a change of the level, `on_failed` after a failed measurement.
    """

    def __init__(
        self,
        shared: Shared,
        handover: Handover,
        on_level: Callable[[], None],
        on_failed: Callable[[StorageError], None],
    ) -> None:
        self._shared = shared
        self._handover = handover
        self._on_level = on_level
        self._on_failed = on_failed
        self._is_closing = False
        self._is_measuring = False
        self._is_due = False
        self._idle: Future[None] | None = None
        # This function is called after each measurement that finds a full device.
        self.on_full: Callable[[], None] = lambda: None
        self.space = DiskSpace()
        self.level = DiskLevel.NORMAL

    def start(self) -> None:
        """Start to measure at an interval. The caller has already made the first measurement."""
        self._shared.tasks.spawn("disk watch", self._tick())

    async def _tick(self) -> None:
        settings = self._shared.settings.disk
        while not self._is_closing:
            await self._shared.tasks.sleep(settings.check_interval_ms)
            self.measure_soon()

    def measure_soon(self) -> None:
        """Measure in the background. A call during a measurement requests another measurement."""
        self._is_due = True
        if not self._is_measuring and not self._is_closing:
            self._is_measuring = True
            self._shared.tasks.spawn("disk measurement", self._measure_while_due())

    async def _measure_while_due(self) -> None:
        try:
            while self._is_due and not self._is_closing:
                self._is_due = False
                await self.measure()
        except StorageError as error:
            self._on_failed(error)
        finally:
            self._is_measuring = False
            if self._idle is not None:
                resolve(self._idle, None)

    async def measure(self) -> None:
        """Measure the device, and set `space` and `level`.

        Raises:
            StorageError: The file system does not answer.
        """
        files = self._shared.files
        kept = 0
        slots = list(self._shared.store.current.free_slots)
        borrowed = self._handover.borrowed
        if borrowed is not None and borrowed.slot not in slots:
            slots.append(borrowed.slot)
        for slot in slots:
            try:
                kept += await files.taken_space(slot)
            except MissingFileError:
                continue  # the file was just removed, so `free_space` includes it
        self.space = DiskSpace(await files.total_space(), await files.free_space() + kept)
        before = self.level
        self.level = level_of(self.space, before, self._shared.settings.disk)
        self._shared.health.is_disk_full = self.level is DiskLevel.FULL
        if self.level is not before:
            self._on_level()
        if self.level is DiskLevel.FULL:
            self.on_full()

    async def close(self) -> None:
        """Wait for a running measurement, and start no further measurement."""
        self._is_closing = True
        if self._is_measuring:
            self._idle = self._shared.tasks.future()
            await self._idle
