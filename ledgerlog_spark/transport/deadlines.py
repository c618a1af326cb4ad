"""Watches the deadlines of many requests, with one timer of the event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from ledgerlog_spark.transport.pending import Pending

REQUESTS_MAX = 32_768
"""Maximum number of watched requests. A transport answers further requests with `Code.BUSY`."""

_PRUNE_SECONDS = 0.05
"""Minimum time between two removals of answered requests from full queues."""


class Deadlines:
    """Calls `on_expired` with the requests that were not answered before their deadline.

    Requests with the same timeout expire in the order in which they were added, so each timeout has
    a queue. `trim` removes the answered requests at the beginning of each queue. Any other answered
    request stays in its queue until all requests before it are answered or have expired, or until
    the queues are full.
    """

    __slots__ = (
        "_due",
        "_loop",
        "_on_expired",
        "_prune_at",
        "_queues",
        "_requests_max",
        "_timer",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        on_expired: Callable[[list[Pending]], None],
        requests_max: int = REQUESTS_MAX,
    ) -> None:
        self._loop = loop
        self._on_expired = on_expired
        self._queues: dict[int, deque[Pending]] = {}
        # The time of the timer is stored in `_due`, because a timer of uvloop that is due
        # immediately has no `when`.
        self._timer: asyncio.Handle | None = None
        self._due = 0.0
        self._requests_max = requests_max
        self._prune_at = 0.0

    @property
    def is_full(self) -> bool:
        """Whether the maximum number of requests is watched, so that no request can be added."""
        if sum(map(len, self._queues.values())) < self._requests_max:
            return False
        now = self._loop.time()
        if now < self._prune_at:
            return True
        self._prune_at = now + _PRUNE_SECONDS
        for queue in self._queues.values():
            unanswered = [pending for pending in queue if pending.is_open]
            queue.clear()
            queue.extend(unanswered)
        return sum(map(len, self._queues.values())) >= self._requests_max

    def add(self, pending: Pending, timeout_ms: int) -> None:
        """Watch the deadline of a request, which is `timeout_ms` from now."""
        now = pending.submitted_at = self._loop.time()
        queue = self._queues.get(timeout_ms)
        if queue is None:
            queue = self._queues[timeout_ms] = deque()
        queue.append(pending)
        due = now + timeout_ms / 1e3
        if self._timer is None:
            self._start_timer(due)
        elif due < self._due:
            self._timer.cancel()
            self._start_timer(due)

    def trim(self) -> None:
        """Remove answered requests from the beginning of each queue."""
        for queue in self._queues.values():
            while queue and not queue[0].is_open:
                queue.popleft()

    def close(self) -> list[Pending]:
        """Stop watching, and return the requests that were not answered."""
        queues, self._queues = self._queues, {}
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return [pending for queue in queues.values() for pending in queue if pending.is_open]

    def _start_timer(self, due: float) -> None:
        self._due = due
        self._timer = self._loop.call_at(due, self._fire)

    def _fire(self) -> None:
        self._timer = None
        self.trim()
        now = self._loop.time()
        expired: list[Pending] = []
        next_due: float | None = None
        for timeout_ms, queue in self._queues.items():
            timeout = timeout_ms / 1e3
            while queue and (not queue[0].is_open or queue[0].submitted_at + timeout <= now):
                pending = queue.popleft()
                if pending.is_open:
                    expired.append(pending)
            if queue:
                due = queue[0].submitted_at + timeout
                next_due = due if next_due is None else min(next_due, due)
        self._queues = {timeout: queue for timeout, queue in self._queues.items() if queue}
        if next_due is not None:
            self._start_timer(next_due)
        if expired:
            self._on_expired(expired)
