"""How long the event loop was kept from what was due: a probe that wakes up now and then.

A late wake-up has two causes. Something on the loop did not give way, or the machine gave this
process no CPU. The wall clock cannot tell them apart, the CPU time of the loop's thread can: what
it spent computing while a wake-up was overdue is the bookie's own doing.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections.abc import Callable
from typing import Final

INTERVAL_SECONDS: Final = 0.02
BOUNDS_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class Lags:
    """Lags of one kind.

    Attributes:
        counts: By length, one for each of `BOUNDS_SECONDS` and one above.
        sum_seconds: Of all.
        max_seconds: The longest.
    """

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_SECONDS) + 1)
        self.sum_seconds = 0.0
        self.max_seconds = 0.0

    def note(self, seconds: float) -> None:
        """Count one."""
        self.counts[bisect_left(BOUNDS_SECONDS, seconds)] += 1
        self.sum_seconds += seconds
        self.max_seconds = max(self.max_seconds, seconds)

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative counts, as Prometheus has them."""
        total = 0
        found: list[tuple[str, float]] = []
        for bound, count in zip((*BOUNDS_SECONDS, "+Inf"), self.counts, strict=True):
            total += count
            found.append((str(bound), float(total)))
        return found


class LoopLag:
    """Counts by how much each of its wake-ups came late, and how much of that was computing.

    It wakes up every 20 ms (0.2 % of a CPU), so what holds the loop up for longer is seen, less at
    most that time.

    Args:
        clock: Seconds that never go back.
        cpu_clock: Seconds of CPU that the calling thread has used.
        call_later: Of the running loop, when not given.

    Attributes:
        wall: How late each wake-up came.
        cpu: CPU seconds that the loop's thread used since the wake-up before, as far as this one
            came late: at least what was computed in that time.
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
        self.cpu = Lags()

    def start(self) -> None:
        """Begin; on the loop that is watched."""
        call_later = self._call_later or asyncio.get_running_loop().call_later
        self._due = self._clock() + INTERVAL_SECONDS
        self._cpu_before = self._cpu_clock()
        call_later(INTERVAL_SECONDS, self._wake)

    def stop(self) -> None:
        """End: at the next wake-up."""
        self._is_stopped = True

    def _wake(self) -> None:
        if not self._is_stopped:
            seconds = max(0.0, self._clock() - self._due)
            self.wall.note(seconds)
            self.cpu.note(min(seconds, self._cpu_clock() - self._cpu_before))
            self.start()
