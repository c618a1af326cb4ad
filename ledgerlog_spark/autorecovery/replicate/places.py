"""The places of the jobs of a worker. A job that only waits needs none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

WAITING_MAX = 1_000
"""Number of jobs that may wait without a place. Further ones keep their places."""


class JobPlaces:
    """Bounds the number of jobs that work at the same time, and of those that wait.

    Attributes:
        waiting: Number of jobs that wait without a place.
    """

    def __init__(self, count: int, on_free: Callable[[], None]) -> None:
        """`on_free` is called when a job gives its place back."""
        self._semaphore = asyncio.Semaphore(count)
        self._on_free = on_free
        self.waiting = 0

    @property
    def are_taken(self) -> bool:
        """Whether no further job can begin now."""
        return self._semaphore.locked()

    async def take(self) -> None:
        """Wait for a place. Jobs that waited without a place are served first."""
        await self._semaphore.acquire()

    def give(self) -> None:
        """Give a place back."""
        self._semaphore.release()
        self._on_free()


class JobPlace:
    """The place of one job, which was taken for it. The job calls `give` at its end."""

    def __init__(self, places: JobPlaces) -> None:
        self._places = places
        self._is_held = True

    def give(self) -> None:
        """Give the place back, if the job has it."""
        if self._is_held:
            self._is_held = False
            self._places.give()

    async def wait(self, seconds: float) -> None:
        """Wait without the place, and then until the job has a place again."""
        if self._places.waiting >= WAITING_MAX:
            await asyncio.sleep(seconds)
            return
        self._places.waiting += 1
        self.give()
        try:
            await asyncio.sleep(seconds)
        finally:
            self._places.waiting -= 1
        await self._places.take()
        self._is_held = True
