"""Passes calls from threads to the event loop, which runs the calls in their order."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import Any

BUSY_WAIT_SECONDS = 0.001


class LoopCalls:
    """Calls functions on a loop, for other threads.

    Each wake-up of the loop costs a system call and a switch of threads. Therefore calls that are
    added at about the same time wake the loop once. While the loop is busy, it takes calls at most
    once in `BUSY_WAIT_SECONDS`, so that it takes more calls each time. The owner of this object
    bounds the number of calls. There is one call for each request, each watch and each change of
    the connection.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, is_busy: Callable[[], bool]) -> None:
        """Create the object.

        `is_busy` is called on the loop, and returns whether many calls are expected.
        """
        self._loop = loop
        self._is_busy = is_busy
        self._calls: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._is_woken = False

    def add(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call `function` on the loop, from any thread. Do nothing if the loop is closed."""
        self._calls.append((function, arguments))
        if not self._is_woken:
            self._is_woken = True
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._begin)

    def _begin(self) -> None:
        if self._calls and self._is_busy():
            self._loop.call_later(BUSY_WAIT_SECONDS, self._begin)
        else:
            # A call that is added after this line wakes the loop again.
            self._is_woken = False
        while self._calls:
            function, arguments = self._calls.popleft()
            self._loop.call_soon(function, *arguments)
