"""Estimates the time of the store's clock, usually without a request (LOGS.md#G12).

The answer to each write contains the time of the write, by the store's own clock. A monotonic clock
of this machine measures the time since the answer. So a wrong date on this machine has no effect.
The estimate is never ahead of the store's clock, because an answer arrives after its write.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol


class EstimatedClock(Protocol):
    """An estimate of the store's clock in this process."""

    def estimate_ms(self, age_ms_max: int | None = None) -> int | None:
        """The store's time or a little less, in ms since the epoch.

        None if there is no answer yet, or if the last answer is more than `age_ms_max` old.
        """


def elapsed_ns() -> int:
    """The time of a monotonic clock. If possible, the clock runs while the machine is suspended."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    return time.monotonic_ns()


class StoreClock:
    """An `EstimatedClock` that gets the time in each answer to a write."""

    __slots__ = ("_elapsed_ns", "_noted_ns", "_store_ms")

    def __init__(self, elapsed: Callable[[], int] = elapsed_ns) -> None:
        self._elapsed_ns = elapsed
        self._store_ms: int | None = None
        self._noted_ns = 0

    def note(self, store_ms: int) -> None:
        """Take the store's time from the answer to a write.

        The newest answer is used, even if its time is lower than the time of an earlier answer. A
        lower time means that the store's clock was set back, or that another server answered.
        """
        self._store_ms = store_ms
        self._noted_ns = self._elapsed_ns()

    def estimate_ms(self, age_ms_max: int | None = None) -> int | None:
        """Implements `EstimatedClock.estimate_ms`."""
        if self._store_ms is None:
            return None
        age_ms = (self._elapsed_ns() - self._noted_ns) // 1_000_000
        if age_ms_max is not None and age_ms > age_ms_max:
            return None
        return self._store_ms + age_ms
