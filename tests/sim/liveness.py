"""A machine that has not ended waits for something.

A machine is idle when none of its requests is open but its own timers. That is allowed while the
application is to act, and while a timer leads to the next request. A machine whose timers fire
again and again and bring nothing but timers will never end: it stands still.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ledgerlog_spark.protocol.leader.leader import LeaderLog
from ledgerlog_spark.protocol.leader.messages import LeaderPhase
from ledgerlog_spark.protocol.ledger import messages as m
from ledgerlog_spark.protocol.ledger.write.writer import LedgerWriter, WriterPhase

ROUNDS_MAX = 3
"""Timer rounds without another request; hedging takes two until it asks somebody else."""


def has_work(machine: Any) -> bool:
    """Whether a machine that has begun owes its application something."""
    if isinstance(machine, LedgerWriter):
        is_busy = machine.phase not in (WriterPhase.OPEN, WriterPhase.CLOSED, WriterPhase.FAILED)
        return is_busy or machine._pipeline.entries_in_flight > 0
    if isinstance(machine, LeaderLog):
        if machine.phase is LeaderPhase.LEADING:
            assert machine._ledgers is not None
            return machine._ledgers.wants_roll or not machine._appends.is_empty
        return machine.phase in (LeaderPhase.OPENING, LeaderPhase.CLOSING)
    return machine.phase.name not in ("NEW", "DONE")


class Liveness:
    """Watches one machine; its host reports each event and the requests that are open after it."""

    def __init__(self) -> None:
        self._rounds = 0

    def stands_still(self, machine: Any, event: Any, open_requests: Iterable[Any]) -> bool:
        """Whether the machine will never do anything again by itself.

        Args:
            machine: It has handled `event` and nothing else waits to be handled.
            event: The last one.
            open_requests: The effects that have not been answered.
        """
        if not has_work(machine):
            self._rounds = 0
            return False
        waits_for_timers = False
        for request in open_requests:
            if type(request) is not m.StartTimer:
                self._rounds = 0
                return False
            waits_for_timers = True
        self._rounds += type(event) is m.TimerFired
        return not waits_for_timers or self._rounds > ROUNDS_MAX
