"""Processes with an auditor, which is elected, paused, and loses its session."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.protocol.autorecovery.audit import messages as m
from ledgerlog_spark.protocol.autorecovery.audit.auditor import Auditor, AuditSettings
from ledgerlog_spark.protocol.autorecovery.audit.marking import MarkingLimits
from ledgerlog_spark.protocol.ledger.messages import StartTimer, TimerFired
from ledgerlog_spark.retry import NO_LIMIT, RetryPolicy
from tests.sim.auditor.store import SESSION_MS, US

if TYPE_CHECKING:
    from tests.sim.auditor.world import AuditWorld

MARKS_BETWEEN_READS = 4
MARKS_OPEN_MAX = 2
WALK_PAUSE_MS = 1_500
SETTINGS = AuditSettings(
    session_timeout_ms=SESSION_MS,
    walk_pause_ms=WALK_PAUSE_MS,
    limits=MarkingLimits(
        page_records=3, marks_open_max=MARKS_OPEN_MAX, marks_between_reads=MARKS_BETWEEN_READS
    ),
    retry=RetryPolicy(first_delay_ms=10, delay_max_ms=80, attempts_max=NO_LIMIT),
)
LATENCY_MS_MAX = 6
LAG_MS_MAX = 60
"""A replica of the store lags by up to this time, but never behind the last sync of the client."""


class AuditProcess:
    """One process: it takes part in the election, and runs the machine while it is elected."""

    def __init__(self, world: AuditWorld, name: str) -> None:
        self.world = world
        self.name = name
        self.machine: Auditor | None = None
        self.session = 0
        self.elected_in = 0  # the session of the election of the machine
        self.is_suspended = False
        self.paused_until_us = 0
        self.synced_us = 0
        self._queue: list[Callable[[], None]] = []
        self._steps = 0
        self._open: dict[int, Any] = {}
        world.store.watch(lambda: self._later(self._on_change))

    def start(self) -> None:
        self.session = self.world.store.new_session()
        self.is_suspended = False
        session = self.session
        self.world.store.join(session, lambda: self._later(lambda: self._elected(session)))

    def pause(self, duration_ms: int) -> None:
        """Stop the process for a time. If the pause is longer than the session time, its session
        ends."""
        now_us = self.world.scheduler.now_us
        self.paused_until_us = max(self.paused_until_us, now_us + duration_ms * US)
        if duration_ms > SESSION_MS:
            session = self.session
            self.world.scheduler.call_later(
                SESSION_MS * US, lambda: self.world.store.end_session(session)
            )
            self.world.scheduler.call_later(duration_ms * US, lambda: self._later(self.reconnect))

    def suspend(self) -> None:
        """The connection is lost."""
        self.is_suspended = True
        self._send(m.StoreSuspended())

    def reconnect(self) -> None:
        """The connection has returned, perhaps with another session."""
        store = self.world.store
        if not store.is_up:
            return
        if store.is_live(self.session):
            if self.is_suspended:
                self.is_suspended = False
                self._send(m.StoreResumed())
            return
        self.world.note(self.name, "new session")
        self._send(m.SessionEnded())
        self.start()

    # The machine.

    def _elected(self, session: int) -> None:
        if session != self.session or not self.world.store.is_live(session):
            return
        self.world.note(self.name, "elected")
        self.elected_in = session
        self.world.checker.elected(self)
        self.machine = Auditor(SETTINGS, self.world.store.position)
        self._perform(self.machine.begin())

    def _on_change(self) -> None:
        self._send(m.ClusterChanged())

    def _send(self, event: Any, to: Auditor | None = None) -> None:
        """Give an event to the machine. A reply to an earlier machine is dropped."""
        if self.machine is None or (to is not None and to is not self.machine):
            return
        if isinstance(event, m.ClusterRead) and event.state is not None:
            self.world.checker.cluster_read(self, event.state)
        self._perform(self.machine.handle(event))

    def _perform(self, effects: list[Any]) -> None:
        machine = self.machine
        assert machine is not None
        for effect in effects:
            self._steps += 1
            self.world.at_effect(self, self._steps)
            if isinstance(effect, StartTimer):
                fired = TimerFired(effect.request)
                self.world.scheduler.call_later(
                    effect.delay_ms * US, partial(self._reply, fired, machine)
                )
            elif isinstance(effect, m.StorePosition):
                self._request(partial(self._store_position, effect.after))
            elif hasattr(effect, "request"):
                if isinstance(effect, m.WriteMark):
                    self.world.checker.mark_begins(self, effect)
                self._request(partial(self._execute, effect, machine))
            elif isinstance(effect, m.WalkEnded):
                self.world.mark("walk ended")
                self.world.checker.walk_ended(self, effect)
                self.world.note(self.name, effect)
            elif isinstance(effect, m.BookiesLost):
                self.world.mark("bookies lost")
                self.world.note(self.name, effect)

    def _request(self, execute: Callable[[], None]) -> None:
        """Send a request, which the store executes after a moment. A pause delays the sending."""
        self._later(lambda: self.world.scheduler.call_later(self._latency_us("request"), execute))

    def _execute(self, effect: Any, machine: Auditor) -> None:
        store = self.world.store
        fails = not store.is_up or not store.is_live(self.session) or self.is_suspended
        lost = self.world.draws.uniform(self.name, "lost", effect.request) < self.world.lost_rate
        reply = self._failed(effect) if fails else self._executed(effect)
        if lost and not self.world.is_healed:
            reply = self._failed(effect)
        self.world.scheduler.call_later(
            self._latency_us("reply", effect.request), lambda: self._reply(reply, machine)
        )

    def _executed(self, effect: Any) -> Any:
        store, world = self.world.store, self.world
        match effect:
            case m.ReadCluster(request):
                self.synced_us = world.scheduler.now_us
                return m.ClusterRead(request, store.state())
            case m.ReadRecords(request, after, count_max):
                lag_us = world.draws.integer(0, LAG_MS_MAX, self.name, "lag", request) * US
                at_us = max(self.synced_us, world.scheduler.now_us - lag_us)
                found = store.records_at(at_us)
                ids = sorted(one for one in found if one > after)
                page = ids[:count_max]
                return m.RecordsRead(
                    request,
                    is_read=True,
                    records=[found[one] for one in page],
                    last=page[-1] if page else after,
                    is_end=len(page) == len(ids),
                )
            case m.LoadRecords(request, ledger_ids):
                self.synced_us = world.scheduler.now_us
                ids = [one for one in ledger_ids if one in store.records]
                return m.RecordsRead(
                    request,
                    is_read=True,
                    records=[store.records[one] for one in ids],
                    last=ledger_ids[-1],
                    is_end=True,
                )
            case m.WriteMark(request, ledger_id, bookie_ids):
                world.note(self.name, f"marks {ledger_id} for {bookie_ids}")
                store.marks.add(ledger_id, frozenset(bookie_ids))
                world.checker.marked(ledger_id, bookie_ids)
                world.mark("marked")
                return m.NoteWritten(request, is_written=True)
            case _:
                raise AssertionError(effect)

    def _failed(self, effect: Any) -> Any:
        match effect:
            case m.ReadCluster(request):
                return m.ClusterRead(request, None)
            case m.ReadRecords(request) | m.LoadRecords(request):
                return m.RecordsRead(request, is_read=False)
            case _:
                return m.NoteWritten(effect.request, is_written=False)

    def _store_position(self, after: int) -> None:
        if self.world.store.is_up:
            self.world.store.position = after

    def _reply(self, event: Any, machine: Auditor) -> None:
        self._later(lambda: self._send(event, machine))

    def _later(self, callback: Callable[[], None]) -> None:
        """Run a callback of the process, after its pause."""
        now_us = self.world.scheduler.now_us
        if now_us < self.paused_until_us or self._queue:
            self._queue.append(callback)
            if len(self._queue) == 1:
                self.world.scheduler.call_at(self.paused_until_us, self._drain)
        else:
            callback()

    def _drain(self) -> None:
        while self._queue:
            if self.world.scheduler.now_us < self.paused_until_us:
                self.world.scheduler.call_at(self.paused_until_us, self._drain)
                return
            callback = self._queue[0]
            callback()
            self._queue.pop(0)

    def _latency_us(self, *key: object) -> int:
        self._steps += 1
        draws = self.world.draws
        return draws.integer(100, LATENCY_MS_MAX * US, self.name, "latency", self._steps, *key)
