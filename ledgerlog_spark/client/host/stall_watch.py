"""Ends a wait for a machine that gets no answers any more.

Each request of a machine is answered, if only by its deadline, so a machine that waits for
something hears of it within the longest of them. One that only its own timers reach stands still,
which is a bug of ours; who waits for it must not wait for ever.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class StallWatch:
    """Looks now and then whether replies came; on the event loop's thread."""

    def __init__(
        self, replies: Callable[[], int], on_stall: Callable[[], None], stall_ms: int
    ) -> None:
        """A watch that `start` starts.

        Args:
            replies: How many replies came so far.
            on_stall: Called when none came for `stall_ms`, and again after as long.
            stall_ms: Longer than any request takes.
        """
        self._replies = replies
        self._on_stall = on_stall
        self._seconds = stall_ms / 1e3
        self._seen = 0
        self._timer: asyncio.Handle | None = None

    def start(self) -> None:
        """Look from now on."""
        self._seen = self._replies()
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._look)

    def stop(self) -> None:
        """Look no more; stopping again is fine."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        is_stalled = self._replies() == self._seen
        self.start()
        if is_stalled:
            self._on_stall()
