"""Decides at which disk usage a bookie warns, refuses regular adds, and accepts them again.

The functions do no I/O. `storage/disk_watch.py` measures the device and carries out the decisions.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class DiskLevel(Enum):
    """The effect of the disk usage on the bookie."""

    NORMAL = "normal"
    HIGH = "high"
    """The use is above `DiskSettings.warn`. The bookie works as before."""
    FULL = "full"
    """Regular adds are refused until the use is below `DiskSettings.low_water`."""


@dataclass(frozen=True, slots=True)
class DiskSettings:
    """Thresholds for the used part of the device, from 0 to 1.

    The threshold 1 has no effect, because the used part is never above 1.
    """

    warn: float = 1.0  # above this used part, the level is HIGH
    full: float = 1.0  # above this used part, the level is FULL
    low_water: float = 1.0  # below this used part, the level HIGH or FULL ends
    check_interval_ms: int = 10_000  # time between two measurements of the device

    def __post_init__(self) -> None:
        # `BookieSettings` has already reported wrong values to the operator.
        assert 0 < self.low_water <= self.full <= 1
        assert 0 < self.warn <= self.full
        assert self.check_interval_ms > 0


NO_THRESHOLDS = DiskSettings()


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """The bytes of a device.

    `free` includes the bytes of freed files that the bookie keeps, because its next files reuse
    them. `free` also includes the bytes of a file of copies if the sources of the copies are freed
    soon.
    """

    total: int = 0
    free: int = 0

    @property
    def used_part(self) -> float:
        """The part of the device that is not free. A device of unknown size counts as empty."""
        if self.total <= 0:
            return 0.0
        return min(1.0, max(0.0, 1 - self.free / self.total))


def level_of(space: DiskSpace, before: DiskLevel, settings: DiskSettings) -> DiskLevel:
    """Return the level after a measurement.

    A level above `NORMAL` ends only when the used part is below `low_water`. So the level does not
    change with each new file.
    """
    used = space.used_part
    stays = used >= settings.low_water
    if used > settings.full or (stays and before is DiskLevel.FULL):
        return DiskLevel.FULL
    if used > settings.warn or (stays and before is DiskLevel.HIGH):
        return DiskLevel.HIGH
    return DiskLevel.NORMAL
