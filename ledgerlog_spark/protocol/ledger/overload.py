"""Retries adds to busy bookies. A busy bookie works, but refuses adds with the answer BUSY.

Every refusal makes the wait before the next retry longer. When the bookie has stored all resent
runs, the wait becomes short again. A bookie may be replaced if it refuses adds for a long time and
no other bookie refuses adds. If several bookies refuse adds, the whole cluster is overloaded, and a
replacement would only move the load.
"""

from __future__ import annotations

from dataclasses import dataclass

from ledgerlog_spark.protocol.ledger.messages import StartTimer
from ledgerlog_spark.protocol.request_numbers import RequestNumbers
from ledgerlog_spark.retry import RetryPolicy

OVERLOAD = RetryPolicy(first_delay_ms=20, delay_max_ms=1_000, attempts_max=64)
"""Delays between retries. If a bookie stores nothing for about a minute, the retries end."""

ALONE_ROUNDS = 16
"""Number of refusals in a row (about 10 s) after which the only busy bookie is replaced."""


@dataclass(slots=True)
class _Busy:
    """The state of one busy bookie."""

    level: int = 0  # number of refusals since the bookie became busy; determines the wait
    rounds: int = 0  # number of refusals since the bookie last stored a run
    timer: int = 0  # request number of the running timer; 0 if no timer is running
    owed: int = 0  # number of runs that were resent after the wait and are not stored yet


class BusyBookies:
    """The busy bookies of an ensemble."""

    def __init__(self, numbers: RequestNumbers, retry: RetryPolicy = OVERLOAD) -> None:
        self._numbers = numbers
        self._retry = retry
        self.waits: dict[int, _Busy] = {}  # maps indexes to busy bookies

    @property
    def indexes(self) -> tuple[int, ...]:
        """Indexes of the busy bookies, in ascending order."""
        return tuple(sorted(self.waits))

    @property
    def is_waiting(self) -> bool:
        """Whether a timer is running. When the timer fires, refused runs are resent."""
        return any(busy.timer for busy in self.waits.values())

    def refused(self, index: int) -> None:
        """Record that the bookie at `index` refused runs that were sent together."""
        busy = self.waits.setdefault(index, _Busy())
        busy.level += 1
        busy.rounds += 1

    def wait(self, index: int) -> StartTimer | None:
        """Return the timer of the next retry; None if the bookie has refused adds for too long."""
        busy = self.waits[index]
        if self._retry.delay_ms(max(1, busy.rounds)) is None:
            return None
        busy.timer = self._numbers.next()
        return StartTimer(busy.timer, self._retry.pause_ms(busy.level))

    def should_be_replaced(self, index: int) -> bool:
        """Whether to replace the bookie at `index`.

        The bookie is replaced if it has refused adds for too long and no other bookie is busy.
        """
        is_alone = len(self.waits) == 1
        return is_alone and self.waits[index].rounds % ALONE_ROUNDS == 0

    def is_busy(self, index: int) -> bool:
        """Whether the bookie at `index` has not yet stored all runs that it refused."""
        return index in self.waits

    def fired(self, timer: int) -> int | None:
        """Record that `timer` fired.

        Return the index of the bookie that has this timer, or None if no bookie has this timer.
        """
        for index, busy in self.waits.items():
            if timer and busy.timer == timer:
                busy.timer = 0
                return index
        return None

    def resumed(self, index: int, runs: int) -> None:
        """Record that `runs` runs were resent to the bookie at `index`."""
        self.waits[index].owed = runs
        if not runs:
            del self.waits[index]

    def stored(self, index: int) -> None:
        """Record that the bookie stored a run.

        After its last resent run, the bookie is no longer busy.
        """
        busy = self.waits.get(index)
        if busy is None:
            return
        busy.rounds = 0
        busy.owed -= 1
        if busy.owed <= 0 and not busy.timer:
            del self.waits[index]

    def forget(self, index: int) -> None:
        """Forget the bookie at `index`, because it failed or was replaced."""
        self.waits.pop(index, None)
