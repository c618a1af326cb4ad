"""A machine that has not ended waits for something.

A machine is idle if its only open requests are its own timers. A machine may be idle while it waits
for the application, and while a timer leads to the next request. But if its timers only lead to
further timers, the machine never ends: it stands still.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ledgerlog_spark.protocol.leader.leader import LeaderLog
from ledgerlog_spark.protocol.leader.messages import LeaderPhase
from ledgerlog_spark.protocol.ledger import messages as m
from ledgerlog_spark.protocol.ledger.write.settings import WriterPhase
from ledgerlog_spark.protocol.ledger.write.writer import LedgerWriter

ROUNDS_MAX = 3
"""Rounds of timers without another request. A hedged read needs two before its next request."""


def has_work(machine: Any) -> bool:
    """Whether a machine that has begun still has work for its application."""
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
            machine: The machine. It has handled `event`, and no other event waits.
            event: The last event.
            open_requests: The requests without a reply.
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
