"""Counts durations by size, for quantiles of the last minutes."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

WINDOW_SECONDS: Final = 60.0
BOUNDS_MS: Final = tuple(0.05 * 2 ** (step / 4) for step in range(84))
"""Upper bounds of the counted sizes: from 0.05 ms to 88 s, each 19 % above the previous bound."""


@dataclass(frozen=True, slots=True)
class DurationSummary:
    """Number and sum of all durations so far, and quantiles of the last one to two windows."""

    count: int
    sum_ms: float
    quantiles: tuple[float, ...]  # milliseconds; NaN if the windows have no durations


class Durations:
    """Counts durations. Any thread may call the methods."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._count = 0
        self._sum_ms = 0.0
        self._current = [0] * (len(BOUNDS_MS) + 1)
        self._previous = list(self._current)
        self._until = clock() + WINDOW_SECONDS

    def note(self, seconds: float) -> None:
        """Count one duration."""
        milliseconds = seconds * 1_000
        with self._lock:
            self._advance()
            self._current[bisect_left(BOUNDS_MS, milliseconds)] += 1
            self._count += 1
            self._sum_ms += milliseconds

    def summary(self, quantiles: Sequence[float]) -> DurationSummary:
        """Return number, sum and quantiles of the times. A quantile is rounded up to a bound."""
        with self._lock:
            self._advance()
            counts = [a + b for a, b in zip(self._current, self._previous, strict=True)]
            found = tuple(_quantile(counts, each) for each in quantiles)
            return DurationSummary(self._count, self._sum_ms, found)

    def _advance(self) -> None:
        """Begin a new window if the current window has ended."""
        now = self._clock()
        if now < self._until:
            return
        is_next = now < self._until + WINDOW_SECONDS
        empty = [0] * len(self._current)
        self._previous = self._current if is_next else list(empty)
        self._current = empty
        self._until = now + WINDOW_SECONDS


def _quantile(counts: Sequence[int], quantile: float) -> float:
    total = sum(counts)
    if not total:
        return float("nan")
    below = 0
    for bound, count in zip((*BOUNDS_MS, float("inf")), counts, strict=True):
        below += count
        if below >= quantile * total:
            return bound
    return float("inf")
