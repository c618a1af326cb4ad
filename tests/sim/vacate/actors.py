"""The other actors: writers, workers, the bookie, and the operator."""

from __future__ import annotations

from dataclasses import replace

from ledgerlog_spark.model import LedgerState
from ledgerlog_spark.protocol.autorecovery.vacate.departure import Departure
from ledgerlog_spark.protocol.autorecovery.vacate.share import is_named
from tests.sim.vacate.world import (
    BOOKIE,
    BOOKIES,
    KINDS,
    LIST_AGE_MS_MAX,
    SimVacation,
    World,
    closed,
    new_ledger,
    without,
)

WRITER_PAUSE_MS = 3_000
WORK_MS = (200, 6_000)


class Writers:
    """Create, change and close ledgers. The list of writable bookies may be old."""

    def __init__(self, world: World, ledgers: int) -> None:
        self._world = world
        self._open: list[int] = []
        for _ in range(ledgers):
            self._create(BOOKIES)
        self._next()

    def _next(self) -> None:
        self._world.later(self._world.draw_ms(100, WRITER_PAUSE_MS, "writer"), self._act)

    def _act(self) -> None:
        world = self._world
        if world.happens(0.02 if world.is_calm else 0.3, "create"):
            age_ms = world.draw_ms(0, LIST_AGE_MS_MAX, "age")
            is_there = world.store.at(max(0, world.now_ms - age_ms)).registered == "writable"
            self._create(BOOKIES if is_there else BOOKIES[1:])
        for ledger_id in [i for i in self._open if i not in world.store.now.unreadable]:
            found = world.store.now.ledgers[ledger_id]
            if world.happens(0.3, "close"):
                self._open.remove(ledger_id)
                world.store.write_ledger(ledger_id, closed(found.value))
            elif is_named(found.value, BOOKIE) and world.store.now.registered != "writable":
                # its adds are refused, or it notices that its member is drained
                spare = next(b for b in BOOKIES[1:] if b not in found.value.last_fragment.ensemble)
                world.store.write_ledger(ledger_id, without(found.value, spare))
        self._next()

    def _create(self, bookies: tuple[str, ...]) -> None:
        world = self._world
        ledger_id = next(world.next_ledger)
        chosen = world.draws.shuffled(bookies, "ensemble", ledger_id)[:3]
        world.store.write_ledger(ledger_id, new_ledger(chosen))
        self._open.append(ledger_id)
        world.note("ledgers")


class Workers:
    """Take moves, and make them: copy, and then replace the bookie in the metadata."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._next()

    def _next(self) -> None:
        self._world.later(self._world.draw_ms(*WORK_MS, "worker"), self._act)

    def _act(self) -> None:
        world = self._world
        moves = sorted(world.store.now.moves)
        if moves:
            ledger_id = world.draws.pick(moves, "move", world.now_ms)
            version = world.store.now.moves[ledger_id]
            found = world.store.now.ledgers[ledger_id]
            if ledger_id in world.store.now.unreadable:
                world.note("moves of unreadable ledgers")
            elif not is_named(found.value, BOOKIE):
                self._done(ledger_id, version)
            elif found.value.state is LedgerState.CLOSED:
                world.later(
                    world.draw_ms(*WORK_MS, "copy"),
                    lambda: self._moved(ledger_id, found.version, version),
                )
        self._next()

    def _moved(self, ledger_id: int, record: object, version: int) -> None:
        world = self._world
        found = world.store.now.ledgers[ledger_id]
        if ledger_id in world.store.now.unreadable:
            return
        if found.version != record or not is_named(found.value, BOOKIE):
            return
        taken = {name for one in found.value.fragments for name in one.ensemble}
        spare = next(name for name in BOOKIES[1:] if name not in taken)
        world.store.write_ledger(ledger_id, without(found.value, spare))
        world.note("moved")
        self._done(ledger_id, version)

    def _done(self, ledger_id: int, version: int) -> None:
        moves = dict(self._world.store.now.moves)
        if moves.get(ledger_id) == version:
            del moves[ledger_id]
            self._world.store.change(moves=moves)


class Damage:
    """Makes the record of a ledger unreadable for some time."""

    def __init__(self, world: World) -> None:
        self._world = world
        for number in range(2):
            if world.happens(0.6, "damage", number):
                world.later(world.draw_ms(1, 60_000, "damaged"), self._damage)

    def _damage(self) -> None:
        world = self._world
        named = sorted(set(world.named()) - world.store.now.unreadable)
        if named:
            ledger_id = world.draws.pick(named, "unreadable", world.now_ms)
            world.store.change(unreadable=world.store.now.unreadable | {ledger_id})
            world.note("unreadable ledgers")
            world.later(world.draw_ms(10_000, 230_000, "mended"), lambda: self._mend(ledger_id))

    def _mend(self, ledger_id: int) -> None:
        store = self._world.store
        store.change(unreadable=store.now.unreadable - {ledger_id})


class ApacheWorker:
    """Takes marks of lost bookies. If the bookie of a mark is registered, it deletes the mark."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._next()

    def _next(self) -> None:
        self._world.later(self._world.draw_ms(*WORK_MS, "apache"), self._act)

    def _act(self) -> None:
        state = self._world.store.now
        if state.marks and state.registered != "absent":
            self._world.store.change(marks=frozenset())
        self._next()


class BookieProcess:
    """The process of the bookie. It dies and returns."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._starts = 0
        self._watch()
        if world.happens(0.7, "dies"):
            world.later(world.draw_ms(1, 150_000, "death"), self._die)

    def _watch(self) -> None:
        """AUTORECOVERY.md#Y2: the bookie notices its vacation while it runs."""
        world = self._world
        vacation = world.store.at(max(0, world.now_ms - world.draw_ms(0, 2_000, "old"))).vacation
        if world.running and world.store.now.registered != "absent":
            now = world.store.now.vacation
            if now is not None and now.value.kind == "recover":
                world.store.write_vacation(None)  # the bookie is there, so nothing is to recover
            is_on = vacation is not None and vacation.value.is_read_only
            wanted = "read-only" if is_on else "writable"
            if wanted != world.store.now.registered:
                world.store.register(wanted)
        world.later(500, self._watch)

    def _die(self) -> None:
        world = self._world
        world.running = False
        self._starts += 1
        world.store.register("absent")
        world.note("deaths")
        if not world.is_calm:
            world.later(self._away_ms(), self._start)

    def _away_ms(self) -> int:
        """The bookie is away for a moment, or long enough that the vacation may end meanwhile."""
        world = self._world
        is_long = world.happens(0.6, "is away for long")
        return world.draw_ms(*((55_000, 100_000) if is_long else (100, 30_000)), "return")

    def _start(self) -> None:
        """AUTORECOVERY.md#Y7: write the vacation first, then check the cookie, then register."""
        world, starts = self._world, self._starts
        found = world.store.now.vacation  # read after a sync
        if found is not None and found.value.forbids_starts:
            world.note("refused starts")
            return
        if found is not None:
            world.later(
                world.draw_ms(1, 3_000, "touch"),
                lambda: self._touch(found.value, found.version, starts),
            )
        else:
            self._check_cookie(None, starts)

    def _touch(self, vacation: SimVacation, version: object, starts: int) -> None:
        world = self._world
        now = world.store.now.vacation
        if now is None or now.version != version:
            world.later(1, self._start)
            return
        if vacation.kind == "recover":
            world.store.write_vacation(None)
            self._check_cookie(None, starts)
            return
        returned = _returned(vacation)
        world.store.write_vacation(returned)
        world.returned_at_ms = world.now_ms
        self._check_cookie(returned, starts)

    def _check_cookie(self, vacation: SimVacation | None, starts: int) -> None:
        world = self._world
        if not world.store.now.has_cookie:
            world.note("starts without a cookie")
            return
        world.later(world.draw_ms(1, 20_000, "replay"), lambda: self._register(vacation, starts))

    def _register(self, vacation: SimVacation | None, starts: int) -> None:
        world = self._world
        if starts != self._starts:
            return
        world.running = True
        found = world.store.now.vacation  # it is read once more, after a sync
        vacation = vacation if found is None else found.value
        is_on = vacation is not None and vacation.is_read_only
        if found is not None and found.value.kind == "recover":
            world.store.write_vacation(None)
        world.store.register("read-only" if is_on else "writable")
        world.note("returns")
        if not world.is_calm and world.happens(0.3, "dies again"):
            world.later(world.draw_ms(1, 60_000, "death"), self._die)


def _returned(vacation: SimVacation) -> SimVacation:
    departure = vacation.departure
    return replace(vacation, departure=replace(departure, returns=departure.returns + 1))


class Operator:
    """Begins a vacation, and sometimes cancels it and begins it again."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.kind = world.draws.pick(KINDS, "kind")
        world.later(world.draw_ms(1_000, 40_000, "begin"), self._begin)

    def _begin(self) -> None:
        world = self._world
        if world.store.now.vacation is not None:
            return
        if self.kind == "recover" and world.store.now.registered != "absent":
            if not world.is_calm:
                world.later(world.draw_ms(1_000, 10_000, "wait"), self._begin)
                return
            self.kind = "drain"
        world.store.write_vacation(
            SimVacation(self.kind, Departure(deletes_cookie=self.kind == "decommission"))
        )
        world.note(f"begun {self.kind}")
        if world.happens(0.5, "cancels"):
            world.later(world.draw_ms(1, 90_000, "cancel"), self._cancel)

    def _cancel(self) -> None:
        world = self._world
        found = world.store.now.vacation
        if found is None or found.value.departure.is_over:
            return
        world.store.write_vacation(None)
        world.note("cancelled")
        world.later(world.draw_ms(1_000, 20_000, "again"), self._begin)
