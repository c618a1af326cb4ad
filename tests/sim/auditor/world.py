"""One simulated cluster with auditors."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.sim.auditor.auditors import WALK_PAUSE_MS, AuditProcess
from tests.sim.auditor.bookies import AuditBookie
from tests.sim.auditor.checker import AuditChecker
from tests.sim.auditor.store import SESSION_MS, US, AuditStore
from tests.sim.auditor.workers import MarkWorker
from tests.sim.draws import Draws
from tests.sim.runtime import Scheduler


@dataclass(frozen=True)
class AuditOptions:
    """The options of one schedule.

    Attributes:
        span_ms: Time in which faults happen.
        pause_rate: Probability of a pause at one effect of an auditor.
        lost_rate: Probability that the answer to one request is lost.
    """

    bookies: int = 5
    ledgers: int = 12
    copies: int = 3
    delay_ms: int = 150
    auditors: int = 2
    workers: int = 1
    span_ms: int = 3_000
    pause_rate: float = 0.0
    lost_rate: float = 0.0


class AuditWorld:
    """The store, bookies, auditors and workers."""

    def __init__(self, seed: int, options: AuditOptions, *, keeps_trace: bool = False) -> None:
        self.options = options
        self.draws = Draws(seed)
        self.scheduler = Scheduler()
        self.store = AuditStore(self.scheduler)
        self.store.delay_ms = options.delay_ms
        self.checker = AuditChecker(self)
        self.marks: Counter[str] = Counter()
        self.trace: list[str] | None = [] if keeps_trace else None
        self.is_healed = False
        self.lost_rate = options.lost_rate
        names = [f"b{number}" for number in range(options.bookies)]
        self.bookies = {name: AuditBookie(self, name) for name in names}
        self.auditors = [AuditProcess(self, f"a{n}") for n in range(options.auditors)]
        self.workers = [MarkWorker(self, f"w{n}") for n in range(options.workers)]
        for ledger_id in range(options.ledgers):
            chosen = self.draws.shuffled(names, "ensemble", ledger_id)[: options.copies]
            self.store.create(ledger_id, chosen)

    def start(self) -> None:
        """Start everything, and wait until the bookies are registered."""
        for bookie in self.bookies.values():
            bookie.start()
        self.scheduler.run_for(40)
        for auditor in self.auditors:
            auditor.start()
        for worker in self.workers:
            worker.start()

    def note(self, who: str, what: Any) -> None:
        if self.trace is not None:
            self.trace.append(f"{self.scheduler.now_us / US:9.1f} {who}: {what}")

    def mark(self, what: str) -> None:
        self.marks[what] += 1

    def at_effect(self, auditor: AuditProcess, step: int) -> None:
        """Perhaps pause the process at this effect."""
        if self.is_healed or self.draws.uniform("pause", auditor.name, step) >= (
            self.options.pause_rate
        ):
            return
        duration_ms = self.draws.pick((20, 60, 250, 600), "paused for", auditor.name, step)
        self.note(auditor.name, f"paused for {duration_ms} ms")
        self.mark("paused")
        auditor.pause(duration_ms)

    # Faults.

    def stop_store(self, duration_ms: int) -> None:
        """Stop the store for a time. If this is longer than the session time, all sessions end."""
        if not self.store.is_up:
            return
        self.note("store", f"down for {duration_ms} ms")
        self.store.is_up = False
        for auditor in self.auditors:
            auditor._later(auditor.suspend)
        self.scheduler.call_later(duration_ms * US, lambda: self._start_store(duration_ms))

    def _start_store(self, duration_ms: int) -> None:
        self.note("store", "up")
        self.store.is_up = True
        if duration_ms >= SESSION_MS:
            self.mark("all sessions ended")
            self.store.end_all_sessions()
            for bookie in self.bookies.values():
                if bookie.is_alive:
                    bookie.session_lost()
        for auditor in self.auditors:
            delay_ms = self.draws.integer(1, 30, auditor.name, "reconnects", self.scheduler.events)
            reconnect = partial(auditor._later, auditor.reconnect)
            self.scheduler.call_later(delay_ms * US, reconnect)

    def expire(self, auditor: AuditProcess) -> None:
        """End the session of an auditor, which detects this a moment later."""
        if not self.store.is_up:
            return
        self.note(auditor.name, "session expires")
        auditor._later(auditor.suspend)
        self.store.end_session(auditor.session)
        delay_ms = self.draws.integer(1, 80, auditor.name, "learns", self.scheduler.events)
        self.scheduler.call_later(delay_ms * US, lambda: auditor._later(auditor.reconnect))

    # The end.

    def heal(self) -> None:
        """End all faults, wait until all work has ended, and check the final state."""
        self.is_healed = True
        self.lost_rate = 0.0
        self.scheduler.run_for(700)
        self.store.is_enabled = True
        self.store.changed()
        for auditor in self.auditors:
            auditor._later(auditor.reconnect)
        self.scheduler.run_for(3 * SESSION_MS + 2 * self.store.delay_ms + 2 * WALK_PAUSE_MS)
        self.checker.at_end()
