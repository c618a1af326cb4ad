"""The size and the free bytes of a bookie's device."""

from __future__ import annotations

import os
from pathlib import Path


class Disk:
    """The device of one directory. Each call reads the current values."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def free_bytes(self) -> int:
        """Return the number of bytes that an unprivileged process can still use."""
        status = os.statvfs(self._directory)
        return status.f_bavail * status.f_frsize

    def total_bytes(self) -> int:
        """Return the size of the device."""
        status = os.statvfs(self._directory)
        return status.f_blocks * status.f_frsize
