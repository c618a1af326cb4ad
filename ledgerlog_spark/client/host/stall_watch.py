"""Ends a wait for a machine that gets no more answers.

Each request of a machine is answered, if only by its deadline, so a waiting machine gets an answer
within the longest deadline. A machine that only its own timers reach is stuck, which is a bug of
ours; its caller must not wait forever.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class StallWatch:
    """Checks periodically whether replies arrived; on the event loop's thread."""

    def __init__(
        self, replies: Callable[[], int], on_stall: Callable[[], None], stall_ms: int
    ) -> None:
        """A watch that `start` starts.

        Args:
            replies: Returns the number of replies so far.
            on_stall: Called after `stall_ms` without a reply, and repeatedly after the same time.
            stall_ms: Longer than any request takes.
        """
        self._replies = replies
        self._on_stall = on_stall
        self._seconds = stall_ms / 1e3
        self._seen = 0
        self._timer: asyncio.Handle | None = None

    def start(self) -> None:
        """Start to check."""
        self._seen = self._replies()
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._look)

    def stop(self) -> None:
        """Stop to check; idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        is_stalled = self._replies() == self._seen
        self.start()
        if is_stalled:
            self._on_stall()
