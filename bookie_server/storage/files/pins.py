"""The readings under way, so that no slot is reused under one of them."""

from __future__ import annotations

import heapq
from collections.abc import Callable


class Pins:
    """Readings by number, in the order in which they began.

    A reading may touch any file that was in use when it began. So a freed slot waits for the end
    of all readings that began before it was freed.
    """

    def __init__(self) -> None:
        self._open: dict[int, None] = {}
        self._next = 0
        self._waiting: list[tuple[int, int, Callable[[], None]]] = []
        self._waiting_number = 0

    def take(self) -> int:
        """Register a reading; returns its number for `release`."""
        number, self._next = self._next, self._next + 1
        self._open[number] = None
        return number

    def release(self, number: int) -> None:
        """Unregister a reading."""
        del self._open[number]
        oldest = next(iter(self._open), self._next)
        while self._waiting and self._waiting[0][0] <= oldest:
            heapq.heappop(self._waiting)[2]()

    @property
    def are_taken(self) -> bool:
        """Return whether any reading is under way."""
        return bool(self._open)

    def when_past(self, callback: Callable[[], None]) -> None:
        """Call back after the end of all readings now under way; immediately if there are none."""
        if not self._open:
            callback()
            return
        self._waiting_number += 1
        heapq.heappush(self._waiting, (self._next, self._waiting_number, callback))
