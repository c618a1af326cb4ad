"""What the store's clock shows, without asking the store each time (LOGS.md#G12).

The store dates each write by its own clock and says so in the answer. The time since then is taken
from a clock of this machine that only measures how long something took. So a wall clock that is
wrong changes nothing, and the estimate is never ahead of the store, because an answer comes after
the write that it dates.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class Clock(Protocol):
    """The store's clock, as far as it is known here."""

    def estimate_ms(self, age_ms_max: int | None = None) -> int | None:
        """What it shows now or a little later, ms since the epoch.

        Args:
            age_ms_max: How long ago the store may have said it; None for any time.

        Returns:
            None when the store did not say it, or too long ago.
        """


def elapsed_ns() -> int:
    """A clock that only rises, and where there is one goes on while the machine is suspended."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    return time.monotonic_ns()


class StoreClock:
    """A `Clock` that is told of each answer to a write."""

    __slots__ = ("_elapsed_ns", "_noted_ns", "_store_ms")

    def __init__(self, elapsed: Callable[[], int] = elapsed_ns) -> None:
        """Not told anything yet."""
        self._elapsed_ns = elapsed
        self._store_ms: int | None = None
        self._noted_ns = 0

    def note(self, store_ms: int) -> None:
        """The store dated a write so, whose answer has come.

        The newest answer counts, also when it is lower: another server of the store, or its clock
        was set.
        """
        self._store_ms = store_ms
        self._noted_ns = self._elapsed_ns()

    def estimate_ms(self, age_ms_max: int | None = None) -> int | None:
        """See `Clock.estimate_ms`."""
        if self._store_ms is None:
            return None
        age_ms = (self._elapsed_ns() - self._noted_ns) // 1_000_000
        if age_ms_max is not None and age_ms > age_ms_max:
            return None
        return self._store_ms + age_ms
