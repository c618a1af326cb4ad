"""Lists the bookies that recently failed several times."""

from __future__ import annotations

from collections import deque

FAILURES_MIN = 3
FAILURES_WITHIN_MS = 60_000
QUARANTINE_MS = 300_000
BOOKIES_MAX = 1_000
"""Maximum number of bookies whose failures are kept. The bookie whose last failure is the oldest is
forgotten first."""


class Quarantine:
    """The failures of bookies that one client has noticed (AUTORECOVERY.md#Z6).

    All times are readings of the caller's monotonic clock in ms, so they never decrease.
    """

    def __init__(self) -> None:
        self._failures: dict[str, deque[int]] = {}
        self._until: dict[str, int] = {}

    def failed(self, bookie_id: str, now_ms: int) -> None:
        """Record that a writer had to replace the bookie, or continued without it."""
        times = self._failures.pop(bookie_id, None) or deque(maxlen=FAILURES_MIN)
        self._failures[bookie_id] = times
        times.append(now_ms)
        if len(times) == FAILURES_MIN and now_ms - times[0] <= FAILURES_WITHIN_MS:
            self._until.pop(bookie_id, None)
            self._until[bookie_id] = now_ms + QUARANTINE_MS
        for kept in (self._failures, self._until):
            while len(kept) > BOOKIES_MAX:
                del kept[next(iter(kept))]

    def bookies(self, now_ms: int) -> frozenset[str]:
        """Return the bookies that are in quarantine at this time."""
        for name in [name for name, until in self._until.items() if until <= now_ms]:
            del self._until[name]
        return frozenset(self._until)
