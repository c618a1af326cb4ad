"""The host of the machine: it performs effects with delays, lost answers and stalls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ledgerlog_spark.model import Versioned
from ledgerlog_spark.protocol.autorecovery.vacate import messages as m
from ledgerlog_spark.protocol.autorecovery.vacate.departure import Departure
from ledgerlog_spark.protocol.autorecovery.vacate.vacating import Vacating
from tests.sim.checker import require
from tests.sim.vacate.world import BOOKIE, LAG_MS_MAX, SimVacation, World

PAGE = 3
LOOK_MS = 4_000
STALL_PART = 0.02
LOST_PART = 0.05


class AuditorHost:
    """One of the auditors. It begins the machine when it finds a vacation."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._name = name
        self._machine: Vacating | None = None
        self._synced_ms = 0
        self._walk_began_ms = 0
        self._performers: dict[type, Callable[[Any], None]] = {
            m.LoadVacation: self._load,
            m.LookAtBookie: self._look_at_bookie,
            m.WalkLedgers: self._walk,
            m.QueueMoves: self._queue,
            m.CountMoves: self._count,
            m.WriteVacation: self._write,
            m.Retire: self._retire,
            m.VacationPause: self._pause,
            m.VacationEnded: self._end,
        }
        self._look()

    def _look(self) -> None:
        found = self._world.store.now.vacation
        is_on = found is not None and not found.value.departure.is_over
        if self._machine is None and is_on:
            self._machine = Vacating(BOOKIE)
            self._handle(m.VacationBegun())
        self._world.later(self._world.draw_ms(500, LOOK_MS, "look"), self._look)

    def _handle(self, event: m.Event, machine: Vacating | None = None) -> None:
        """Give an event to the machine, unless it answers a request of an earlier machine."""
        if self._machine is None or machine is not (machine and self._machine):
            return
        for effect in self._machine.handle(event):
            self._performers[type(effect)](effect)

    def _later(self, act: Callable[[], m.Event], *, failed: m.Event | None = None) -> None:
        """Perform a request after a delay, and answer after another one."""
        world, machine = self._world, self._machine
        delay_ms = world.draw_ms(1, 400, "request")
        if not world.is_calm and world.happens(STALL_PART, "stall"):
            delay_ms += world.draw_ms(1_000, 120_000, "stalled")
            world.note("stalls")

        def perform() -> None:
            event = act()
            if failed is not None and not world.is_calm and world.happens(LOST_PART, "lost"):
                event = failed
                world.note("lost answers")
            world.later(world.draw_ms(1, 400, "answer"), lambda: self._handle(event, machine))

        world.later(delay_ms, perform)

    def _load(self, effect: m.LoadVacation) -> None:
        self._later(
            lambda: m.VacationLoaded(effect.request, self._departure()),
            failed=m.VacateFailed(effect.request),
        )

    def _departure(self) -> Versioned[Departure] | None:
        found = self._world.store.now.vacation
        return None if found is None else Versioned(found.value.departure, found.version)

    def _look_at_bookie(self, effect: m.LookAtBookie) -> None:
        def seen() -> m.Event:
            now = self._world.store.now
            sight = m.BookieSight(now.registered)
            is_absent = sight is m.BookieSight.ABSENT
            return m.BookieSeen(effect.request, sight, None if is_absent else now.registration)

        self._later(seen, failed=m.VacateFailed(effect.request))

    def _walk(self, effect: m.WalkLedgers) -> None:
        world = self._world
        if effect.after == -1:
            self._walk_began_ms = world.now_ms

        def walked() -> m.Event:
            if effect.sync_first:
                self._synced_ms = world.now_ms
            oldest_ms = max(0, self._synced_ms, world.now_ms - LAG_MS_MAX)
            state = world.store.at(world.draw_ms(oldest_ms, world.now_ms, "replica"))
            left = [i for i in sorted(state.ledgers) if i > effect.after]
            ids = left[:PAGE]
            unreadable = [i for i in ids if i in state.unreadable]
            page = [(i, state.ledgers[i].value) for i in ids if i not in state.unreadable]
            return m.LedgersWalked(effect.request, page, len(left) <= PAGE, unreadable)

        self._later(walked, failed=m.VacateFailed(effect.request))

    def _queue(self, effect: m.QueueMoves) -> None:
        def queued() -> m.Event:
            self.queue_moves(effect.ledger_ids)
            return m.MovesQueued(effect.request)

        self._later(queued, failed=m.VacateFailed(effect.request))

    def queue_moves(self, ledger_ids: tuple[int, ...]) -> None:
        moves = dict(self._world.store.now.moves)
        for ledger_id in ledger_ids:
            moves[ledger_id] = moves.get(ledger_id, 0) + 1
        self._world.store.change(moves=moves)

    def _count(self, effect: m.CountMoves) -> None:
        self._later(
            lambda: m.MovesCounted(effect.request, len(self._world.store.now.moves)),
            failed=m.VacateFailed(effect.request),
        )

    def _write(self, effect: m.WriteVacation) -> None:
        unknown = m.VacationWritten(effect.request, m.VacationOutcome.UNKNOWN)
        self._later(lambda: self._written(effect), failed=unknown)

    def _retire(self, effect: m.Retire) -> None:
        unknown = m.VacationWritten(effect.request, m.VacationOutcome.UNKNOWN)
        self._later(lambda: self._written(effect, has_cookie=False), failed=unknown)

    def _written(self, effect: m.WriteVacation | m.Retire, **changes: object) -> m.Event:
        store = self._world.store
        found = store.now.vacation
        if found is None or not self.is_same(found.version, effect):
            return m.VacationWritten(effect.request, m.VacationOutcome.CONFLICT)
        vacation = replace(found.value, departure=effect.departure)
        if effect.departure.is_over:
            self._check_end(vacation)
        version = store.write_vacation(vacation, **changes)
        return m.VacationWritten(effect.request, m.VacationOutcome.OK, version)

    @staticmethod
    def is_same(version: object, effect: m.WriteVacation | m.Retire) -> bool:
        """The comparison of the transaction."""
        return version == effect.version

    def _check_end(self, vacation: SimVacation) -> None:
        """AUTORECOVERY.md#Y7: the last walk began after the last return of the bookie."""
        world = self._world
        returned_ms = world.returned_at_ms
        text = f"the walk began at {self._walk_began_ms}, and the bookie returned at {returned_ms}"
        require(returned_ms <= self._walk_began_ms, "Y7", text)
        world.note(f"vacated {vacation.kind}")

    def _pause(self, effect: m.VacationPause) -> None:
        delay_ms = effect.delay_ms + self._world.draw_ms(0, 300, "jitter")
        machine, over = self._machine, m.PauseOver(effect.request)
        self._world.later(delay_ms, lambda: self._handle(over, machine))

    def _end(self, effect: m.VacationEnded) -> None:
        self._machine = None
        if effect.end is m.VacationEnd.CANCELLED and self._world.store.now.vacation is None:
            self._world.store.change(moves={})
