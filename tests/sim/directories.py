"""The directories of one bookie of the simulator. Each is on a simulated disk of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from random import Random
from typing import Any

from bookie_server.core.directory_identity import FoundOutside
from bookie_server.core.manifest_codec import Manifest, decode_manifest
from bookie_server.core.settings import StorageSettings
from bookie_server.errors import StorageError
from bookie_server.ports import MetadataCheck
from bookie_server.storage.directories.opening import BookieStorage, open_directories
from bookie_server.storage.files.manifest import initialize_directory
from bookie_server.storage.shared import Shared
from tests.sim.disk import Faults, SimDisk, SimFileSystem
from tests.sim.runtime import Host

DISK_SEEDS = 32
"""Distance between the seeds of two disks of a bookie."""


class SimDirectories:
    """The disks of a bookie, through all its restarts.

    Attributes:
        disks: One for each directory.
        files: The file system of each directory, of the process that started last.
    """

    def __init__(self, seed: int, count: int) -> None:
        self.disks = [SimDisk(Random(seed + DISK_SEEDS * number)) for number in range(count)]
        self.files: list[SimFileSystem] = []
        # No start has made their first MANIFEST durable yet.
        self._first: dict[int, Manifest | None] = dict.fromkeys(range(count))

    async def open(
        self,
        host: Host,
        latency_us: tuple[int, int],
        settings: StorageSettings,
        metadata: MetadataCheck,
    ) -> BookieStorage:
        """Open the storage, as the start of a process does."""
        self.files = [SimFileSystem(disk, host, latency_us=latency_us) for disk in self.disks]
        for number, files in enumerate(self.files[1:], 1):
            files.path = f"/data{number}"
        found = FoundOutside(doubt_epoch=self._newest_doubt() if len(self.disks) > 1 else 0)
        parts: list[Shared] = []
        for number, files in enumerate(self.files):
            if number in self._first:
                await initialize_directory(files, self._first[number])
                del self._first[number]
            parts.append(Shared(files, host, host, settings, metadata))
            parts[-1].found = found
        return await open_directories(parts)

    def stop(self, *, power: bool) -> None:
        """Kill the process. With `power`, also lose the data that was not synced."""
        for disk in self.disks:
            if power:
                disk.lose_power()
            else:
                disk.crash_process()

    def empty(self, number: int, disk: SimDisk, first: Manifest | None) -> None:
        """Replace a directory by an empty one. The process is down."""
        self.disks[number] = disk
        self._first[number] = first

    def heal(self) -> None:
        """End all faults of the disks."""
        for disk in self.disks:
            disk.faults = Faults()

    def make_slow(self, latency_us: tuple[int, int]) -> None:
        """From now on, each operation of the disks takes a time in this range."""
        for files in self.files:
            files.latency_us = latency_us

    def _newest_doubt(self) -> int:
        return max((manifest.doubt.epoch for manifest in self._manifests()), default=0)

    def _manifests(self) -> Iterator[Any]:
        for disk in self.disks:
            content = disk.durable_names.get("MANIFEST")
            if content is not None:
                with suppress(StorageError):
                    yield decode_manifest(bytes(content.durable))
