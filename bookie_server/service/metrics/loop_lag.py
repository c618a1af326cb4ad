"""Measures the lag of the event loop with a probe that wakes up periodically.

A late wake-up has two possible causes: work on the loop took too long, or the machine gave this
process no CPU. The wall clock cannot distinguish the two causes, but the CPU time of the loop's
thread can. If the thread of the loop used CPU time during the lag, the cause is the bookie's work.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections.abc import Callable
from itertools import accumulate
from typing import Final

INTERVAL_SECONDS: Final = 0.02
BOUNDS_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class Lags:
    """Counts lags by their size."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_SECONDS) + 1)  # one per bound, and one for longer lags
        self.sum_seconds = 0.0
        self.max_seconds = 0.0

    def note(self, seconds: float) -> None:
        """Count one lag."""
        self.counts[bisect_left(BOUNDS_SECONDS, seconds)] += 1
        self.sum_seconds += seconds
        self.max_seconds = max(self.max_seconds, seconds)

    def buckets(self) -> list[tuple[str, float]]:
        """Return cumulative counts by upper bound, in the form of Prometheus."""
        bounds = map(str, (*BOUNDS_SECONDS, "+Inf"))
        return list(zip(bounds, map(float, accumulate(self.counts)), strict=True))


class LoopLag:
    """Measures the lag of each wake-up, and the CPU time that was used during the lag.

    The probe wakes up every 20 ms, which takes 0.2 % of a CPU. So each delay of more than 20 ms is
    measured, and the result is up to 20 ms too short. Both clocks are in seconds.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = time.thread_time,
        call_later: Callable[[float, Callable[[], None]], object] | None = None,
    ) -> None:
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._call_later = call_later
        self._due = 0.0
        self._cpu_before = 0.0
        self._is_stopped = False
        self.wall = Lags()
        self.cpu = Lags()  # CPU time, but never more than the lag

    def start(self) -> None:
        """Start the probe on the running loop."""
        call_later = self._call_later or asyncio.get_running_loop().call_later
        self._due = self._clock() + INTERVAL_SECONDS
        self._cpu_before = self._cpu_clock()
        call_later(INTERVAL_SECONDS, self._wake)

    def stop(self) -> None:
        """Stop the probe at its next wake-up."""
        self._is_stopped = True

    def _wake(self) -> None:
        if not self._is_stopped:
            seconds = max(0.0, self._clock() - self._due)
            self.wall.note(seconds)
            self.cpu.note(min(seconds, self._cpu_clock() - self._cpu_before))
            self.start()
