"""The devices of a bookie's directories, each counted once."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path

from bookie_server.core.disk_use import DiskSpace
from bookie_server.storage.directories.opening import BookieStorage


class Devices:
    """The devices of the directories of an open storage."""

    def __init__(self, storage: BookieStorage) -> None:
        self._directories = storage.directories
        self._devices = [_device_of(each.path) for each in storage.directories]

    @property
    def space(self) -> DiskSpace:
        """The total bytes and the free bytes of all devices, as last measured."""
        spaces = {
            device: each.disk.space
            for device, each in zip(self._devices, self._directories, strict=True)
        }
        return DiskSpace(
            sum(each.total for each in spaces.values()), sum(each.free for each in spaces.values())
        )

    def usable_bytes(self, reserved: int) -> int:
        """Return how many bytes new entries may use, if `reserved` bytes per device stay free."""
        count = len(set(self._devices))
        return max(0, self.space.free - count * reserved)


def _device_of(path: str) -> Hashable:
    try:
        return Path(path).stat().st_dev
    except OSError:
        return path
