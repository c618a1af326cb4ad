"""The values of a bookie that the admin routes show, and the changes that the routes make.

The routes run in threads of the HTTP server, and these threads only read. A change runs in the
event loop, and the route waits for it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.registry import Collector as Metrics

from bookie_server.config import BookieSettings
from bookie_server.core.disk_use import DiskSpace
from bookie_server.service.collector import Collected, Collector
from bookie_server.service.devices import Devices
from bookie_server.service.logging import black_out_secrets
from bookie_server.service.read_only import ReadOnlyReason, ReadOnlySwitch
from bookie_server.service.repair.progress import RepairProgress
from bookie_server.storage.compaction.cycle import Compacted
from bookie_server.storage.directories.opening import BookieStorage

CHANGE_SECONDS_MAX: Final = 3.0


class NotServingError(Exception):
    """Raised if the bookie has not started or is stopping, or its event loop does not answer."""


@dataclass(frozen=True, slots=True)
class Serving:
    """The parts of a bookie that exist only after its storage was opened."""

    storage: BookieStorage
    collector: Collector
    registry: CollectorRegistry
    repair: RepairProgress
    read_only: ReadOnlySwitch


class BookieView:
    """The values and changes of one bookie that administrators can request."""

    def __init__(self, settings: BookieSettings, bookie_id: str) -> None:
        self.settings = settings
        self.bookie_id = bookie_id
        self.is_running = False  # whether the bookie is registered, and not stopping
        self.is_stopping = False
        self._began = time.monotonic()
        self._loop = asyncio.get_running_loop()
        self._serving: Serving | None = None
        self._devices: Devices | None = None
        self._passes = 0
        self._last_pass: Collected | None = None
        self._last_pass_ms = 0
        self._compactions = {"major": 0, "minor": 0}
        self._last_compaction_ms = {"major": 0, "minor": 0}

    # Called by the bookie.

    def serve(
        self,
        storage: BookieStorage,
        collector: Collector,
        metrics: Metrics,
        repair: RepairProgress,
        read_only: ReadOnlySwitch,
    ) -> None:
        """From now on, show the parts that exist after the storage was opened."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(metrics)
        self._devices = Devices(storage)
        self._serving = Serving(storage, collector, registry, repair, read_only)

    def note_pass(self, collected: Collected) -> None:
        """Record the result of a pass of garbage collection."""
        self._passes += 1
        self._last_pass = collected
        self._last_pass_ms = _now_ms()

    def note_compaction(self, compacted: Compacted) -> None:
        """Record the end of a compaction."""
        kind = self._kind_of(compacted.live_percent)
        self._compactions[kind] += 1
        self._last_compaction_ms[kind] = _now_ms()

    def _kind_of(self, live_percent: int) -> str:
        is_major = 0 < self.settings.compaction_major_percent <= live_percent
        return "major" if is_major else "minor"

    def stop(self) -> None:
        """From now on, show that the bookie is stopping, and refuse all changes."""
        self.is_running, self.is_stopping = False, True

    def status_number(self) -> int:
        """Return 1 if the bookie is registered as writable, 0 as read-only, otherwise -1."""
        return int(not self.is_read_only) if self.is_running else -1

    # Called by the routes.

    @property
    def serving(self) -> Serving:
        """The parts that exist after the storage was opened.

        Raises:
            NotServingError: The storage is not open yet.
        """
        if self._serving is None:
            raise NotServingError("Bookie is not fully started yet")
        return self._serving

    @property
    def is_read_only(self) -> bool:
        """Whether regular adds are refused. Before the storage is open, all adds are refused."""
        return self._serving is None or not self._serving.storage.is_writable

    def set_read_only(self, *, is_read_only: bool) -> None:
        """Refuse regular adds, or accept them again unless the bookie is full or on vacation."""
        switch, reason = self.serving.read_only, ReadOnlyReason.ADMINISTRATOR
        self._change(lambda: switch.set(reason, is_read_only=is_read_only))

    def collect_garbage(self, *, is_major: bool, is_minor: bool) -> None:
        """Request a pass of garbage collection, and a major or minor compaction at its end."""
        major, minor = (
            self.settings.compaction_major_percent,
            self.settings.compaction_minor_percent,
        )
        percent = major if is_major else minor if is_minor else 0
        collector = self.serving.collector
        self._change(lambda: collector.request(percent))

    def _change(self, change: Callable[[], None]) -> None:
        """Run `change` in the event loop, and wait for its end.

        Raises:
            NotServingError: The change was not made, and will not be made.
        """
        if not self.is_running:
            raise NotServingError("Bookie is not fully started yet, or is stopping")
        waiting = _Change(change)
        self._loop.call_soon_threadsafe(waiting.run)
        if not waiting.is_done_within(CHANGE_SECONDS_MAX):
            raise NotServingError("Bookie did not answer in time")

    def state(self) -> dict[str, bool]:
        """Return the state of the bookie, under BookKeeper's names."""
        serving = self._serving
        return {
            "running": self.is_running,
            "readOnly": self.is_read_only,
            "shuttingDown": self.is_stopping,
            "availableForHighPriorityWrites": serving is not None and serving.storage.has_room,
        }

    def garbage_collection(self) -> dict[str, Any]:
        """Return the numbers of passes and compactions, and the last results.

        Fields about compaction have the same names as in BookKeeper.
        """
        last = self._last_pass or Collected(is_whole=False)
        running_percent = self.serving.storage.compactor.running_percent
        running = self._kind_of(running_percent) if running_percent else ""
        return {
            "forceCompacting": self.serving.collector.is_forced,
            "majorCompacting": running == "major",
            "minorCompacting": running == "minor",
            "lastMajorCompactionTime": self._last_compaction_ms["major"],
            "lastMinorCompactionTime": self._last_compaction_ms["minor"],
            "majorCompactionCounter": self._compactions["major"],
            "minorCompactionCounter": self._compactions["minor"],
            "collectionCounter": self._passes,
            "lastCollectionTime": self._last_pass_ms,
            "lastCollectionIsWhole": last.is_whole,
            "lastLedgersHeld": last.ledgers_held,
            "lastLedgersDeleted": last.ledgers_dropped,
            "lastLedgersReleased": last.ledgers_released,
        }

    @property
    def disk_space(self) -> DiskSpace:
        """The bytes of the devices of all directories. Each device counts once."""
        if self._devices is None:
            raise NotServingError("Bookie is not fully started yet")
        return self._devices.space

    def scrub(self) -> None:
        """Continue the scrub that has not ended, or begin a new scrub."""
        self._change(self.serving.storage.scrubber.request)

    def scrub_details(self) -> dict[str, Any]:
        """Return the progress of the scrub, and the findings of the scrubs of this process."""
        scrubber = self.serving.storage.scrubber
        counters = self.serving.storage.counters.by_metric()
        position = scrubber.position
        return {
            "scrubbing": scrubber.is_running,
            "lastScrubBeginTime": position.began_ms,
            "lastScrubEndTime": position.ended_ms,
            "filesLeft": scrubber.files_left,
            "filesRead": counters["scrub_files"],
            "bytesRead": counters["scrub_bytes"],
            "damagedRecords": counters["scrub_damaged_records"],
            "damagedEntries": counters["scrub_damaged_entries"],
            "damagedIndexes": counters["scrub_damaged_indexes"],
            "entriesToRepair": scrubber.damaged_count,
        }

    def repair(self) -> dict[str, Any]:
        """Return the progress of the repair."""
        return self.serving.repair.as_fields()

    def disk_info(self) -> dict[str, int]:
        """Return the free bytes and the size of the devices, under the names of BookKeeper."""
        space = self.disk_space
        return {"freeSpace": space.free, "totalSpace": space.total}

    def directories(self) -> list[dict[str, Any]]:
        """Return the state of each directory."""
        return [
            {
                "path": each.path,
                "freeSpace": each.disk.space.free,
                "totalSpace": each.disk.space.total,
                "diskLevel": each.disk.level.value,
                "ledgers": each.ledgers_count,
                "writable": each.is_writable,
                "failure": None if each.failure is None else str(each.failure),
            }
            for each in self.serving.storage.directories
        ]

    def doubt(self) -> dict[str, int | bool]:
        """Return the fields of the bookie's doubt, and the number of ledgers in limbo."""
        storage = self.serving.storage
        doubt = storage.doubt
        return {
            "epoch": doubt.epoch,
            "isOver": doubt.is_over,
            "isDated": doubt.epoch == 0 or doubt.transaction > 0,
            "ledgersInLimbo": storage.ledgers_in_limbo,
        }

    def journal_mark(self) -> dict[str, str]:
        """Return the marks of the journals in BookKeeper's form, or {} if there is no journal."""
        marks = [each.journal_mark for each in self.serving.storage.directories]
        return {
            f"LastLogMark: Journal Id - {mark.number}({mark.name})": f"Pos - {mark.offset}"
            for mark in marks
            if mark is not None
        }

    def configuration(self) -> dict[str, Any]:
        """Return all settings without secrets."""
        return dict(black_out_secrets(None, "", self.settings.model_dump(mode="json")))

    def metrics(self) -> dict[str, float | None]:
        """Return the samples of all metrics, by name and labels. NaN and infinity become None."""
        return {
            _key(sample.name, sample.labels): _finite(sample.value)
            for family in self.serving.registry.collect()
            for sample in family.samples
        }

    def status(self) -> dict[str, Any]:
        """Return everything that the status page shows."""
        return {
            "bookieId": self.bookie_id,
            "writeMode": self.settings.write_mode.value,
            "uptimeSeconds": round(time.monotonic() - self._began, 3),
            "state": self.state(),
            "disk": self.disk_info(),
            "directories": self.directories(),
            "repair": self.repair(),
            "doubt": self.doubt(),
            "garbageCollection": self.garbage_collection(),
            "scrub": self.scrub_details(),
            "metrics": self.metrics(),
        }


class _Change:
    """A change in the event loop, which is made only while its route waits."""

    def __init__(self, change: Callable[[], None]) -> None:
        self._change = change
        self._lock = threading.Lock()
        self._has_run = threading.Event()
        self._is_withdrawn = False

    def run(self) -> None:
        """Make the change, unless its route has stopped waiting."""
        with self._lock:
            if not self._is_withdrawn:
                self._change()
                self._has_run.set()

    def is_done_within(self, seconds: float) -> bool:
        """Wait for the change, and return whether it was made. If not, it is never made."""
        self._has_run.wait(seconds)
        with self._lock:
            self._is_withdrawn = True
            return self._has_run.is_set()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _key(name: str, labels: Mapping[str, str]) -> str:
    shown = ",".join(f'{label}="{value}"' for label, value in sorted(labels.items()))
    return f"{name}{{{shown}}}" if shown else name


def _finite(value: float) -> float | None:
    return value if -float("inf") < value < float("inf") else None
