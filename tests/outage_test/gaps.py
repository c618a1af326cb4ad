"""Measures the longest time in which work that must continue made no progress."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

POLL_SECONDS = 0.05


class Gap:
    """The longest time between two increases of a counter."""

    def __init__(self, counter: Callable[[], int], now_s: float) -> None:
        self._counter = counter
        self._count = counter()
        self._since_s = now_s
        self._longest_s = 0.0

    def look(self, now_s: float) -> None:
        """Read the counter. A gap that has not ended yet also counts."""
        self._longest_s = max(self._longest_s, now_s - self._since_s)
        count = self._counter()
        if count != self._count:
            self._count, self._since_s = count, now_s

    def take(self, now_s: float) -> float:
        """Return the longest gap since the last call. A gap that goes on counts from its start."""
        self.look(now_s)
        longest_s, self._longest_s = self._longest_s, 0.0
        return longest_s


class Gaps(threading.Thread):
    """Looks at counters at short intervals, until the end of its context."""

    def __init__(self, counters: Mapping[str, Callable[[], int]]) -> None:
        super().__init__(name="gaps", daemon=True)
        now_s = time.monotonic()
        self._gaps = {name: Gap(counter, now_s) for name, counter in counters.items()}
        self._lock = threading.Lock()
        self._must_end = threading.Event()

    def run(self) -> None:
        """Look until `stop`."""
        while not self._must_end.wait(POLL_SECONDS):
            with self._lock:
                for gap in self._gaps.values():
                    gap.look(time.monotonic())

    def take(self) -> dict[str, float]:
        """Return the longest gap of each counter since the last call, in seconds."""
        with self._lock:
            return {name: gap.take(time.monotonic()) for name, gap in self._gaps.items()}

    def stop(self) -> None:
        """End the thread."""
        self._must_end.set()
        self.join()
