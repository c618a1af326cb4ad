"""Bookies that answer BUSY: they work but refuse, so they are retried later, not replaced.

Every refusal lengthens the wait for that bookie. When the bookie has stored everything, the wait
becomes shorter again. A bookie that refuses for long while the others do not may be replaced. When
several refuse, the whole cluster is overloaded, and a replacement would only move the load.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledgerlog_spark.protocol.ledger.messages import StartTimer
from ledgerlog_spark.retry import RetryPolicy

if TYPE_CHECKING:
    from ledgerlog_spark.protocol.request_numbers import RequestNumbers

OVERLOAD = RetryPolicy(first_delay_ms=20, delay_max_ms=1_000, attempts_max=64)
"""Maximum time for a bookie that stores nothing in that time: about a minute."""

ALONE_ROUNDS = 16
"""After this many refusals in a row (about 10 s) by one bookie alone, it is replaced."""


@dataclass(slots=True)
class _Busy:
    """One bookie of the ensemble."""

    level: int = 0  # number of refusals that made the wait longer
    rounds: int = 0  # refusals in a row, without a stored run
    timer: int = 0  # request number; 0 while none runs
    owed: int = 0  # runs resent after the wait and not stored yet


class BusyBookies:
    """The indexes of an ensemble with a busy bookie."""

    def __init__(self, numbers: RequestNumbers, retry: RetryPolicy = OVERLOAD) -> None:
        self._numbers = numbers
        self._retry = retry
        self.waits: dict[int, _Busy] = {}  # by index

    @property
    def indexes(self) -> tuple[int, ...]:
        """Indexes of the busy bookies, rising."""
        return tuple(sorted(self.waits))

    @property
    def is_waiting(self) -> bool:
        """Whether a timer is running, after which something is resent."""
        return any(busy.timer for busy in self.waits.values())

    def refused(self, index: int) -> None:
        """The bookie at `index` answered BUSY, for the first time since the last send."""
        busy = self.waits.setdefault(index, _Busy())
        busy.level += 1
        busy.rounds += 1

    def wait(self, index: int) -> StartTimer | None:
        """The timer to wait for; None when the refusals lasted too long."""
        busy = self.waits[index]
        if self._retry.delay_ms(max(1, busy.rounds)) is None:
            return None
        busy.timer = self._numbers.next()
        return StartTimer(busy.timer, self._retry.pause_ms(busy.level))

    def should_be_replaced(self, index: int) -> bool:
        """Whether to look for another bookie: only this one refuses, and has for long."""
        is_alone = len(self.waits) == 1
        return is_alone and self.waits[index].rounds % ALONE_ROUNDS == 0

    def is_busy(self, index: int) -> bool:
        """Whether the bookie at `index` refused and has not stored everything since."""
        return index in self.waits

    def fired(self, timer: int) -> int | None:
        """The index of that timer; None if the timer is not one of these."""
        for index, busy in self.waits.items():
            if timer and busy.timer == timer:
                busy.timer = 0
                return index
        return None

    def resumed(self, index: int, runs: int) -> None:
        """This number of runs was resent."""
        self.waits[index].owed = runs
        if not runs:
            del self.waits[index]

    def stored(self, index: int) -> None:
        """The bookie stored a run. A bookie that stored all resent runs is no longer busy."""
        busy = self.waits.get(index)
        if busy is None:
            return
        busy.rounds = 0
        busy.owed -= 1
        if busy.owed <= 0 and not busy.timer:
            del self.waits[index]

    def forget(self, index: int) -> None:
        """Another bookie has the index, or none."""
        self.waits.pop(index, None)
