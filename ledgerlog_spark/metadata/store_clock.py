"""Estimates the time of the store's clock, usually without a request (LOGS.md#G12).

The answer to each write contains the time of the write, by the store's own clock. A monotonic clock
of this machine measures the time since the answer. Therefore a wrong date on this machine has no
effect. The estimate is never later than the time of the store's clock, because an answer arrives
after its write.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol


class EstimatedClock(Protocol):
    """An estimate of the store's clock in this process."""

    def estimate_ms(self, age_ms_max: int | None = None) -> int | None:
        """Return the store's time or a slightly earlier time, in ms since 1970-01-01 UTC.

        The result is None if there was no answer yet, or if the last answer is older than
        `age_ms_max`.
        """


def elapsed_ns() -> int:
    """Return the time of a monotonic clock in ns.

    If possible, it also runs in a suspended machine.
    """
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    return time.monotonic_ns()


class StoreClock:
    """An `EstimatedClock` that gets the store's time from each answer to a write."""

    __slots__ = ("_elapsed_ns", "_noted_ns", "_store_ms")

    def __init__(self, elapsed: Callable[[], int] = elapsed_ns) -> None:
        self._elapsed_ns = elapsed
        self._store_ms: int | None = None
        self._noted_ns = 0

    def note(self, store_ms: int) -> None:
        """Store the store's time from the answer to a write.

        The newest answer is used, even if its time is earlier than the time of an earlier answer.
        This happens if the store's clock was set back, or if another server answered.
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
