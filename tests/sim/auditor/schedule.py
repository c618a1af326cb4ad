"""One random schedule of auditors, crashes, outages, pauses and operators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tests.sim.auditor.copies import CopyWorld
from tests.sim.auditor.store import US
from tests.sim.auditor.workers import move
from tests.sim.auditor.world import AuditOptions, AuditWorld
from tests.sim.checker import Violation
from tests.sim.draws import Draws

COPIES_SPAN_MS = 1_500
FAULTS = (
    "crash", "crash", "crash", "return", "return", "outage", "expire", "move", "move", "disable",
    "enable", "delay", "audit now", "blink", "flap", "create",
)  # fmt: skip


@dataclass(frozen=True)
class AuditOutcome:
    """The result of a schedule."""

    seed: int
    violation: Violation | None
    marks: dict[str, int]
    trace: list[str] | None


def drawn_audit(draws: Draws) -> AuditOptions:
    """Return the options of a seed."""
    return AuditOptions(
        bookies=draws.integer(3, 6, "bookies"),
        ledgers=draws.integer(3, 20, "ledgers"),
        copies=draws.integer(2, 3, "copies"),
        delay_ms=draws.pick((0, 100, 300, 500), "delay"),
        auditors=draws.pick((1, 2, 2, 3), "auditors"),
        workers=draws.pick((0, 1, 2), "workers"),
        span_ms=draws.pick((1_500, 3_000), "span"),
        pause_rate=draws.pick((0.0, 0.0, 0.01, 0.05), "pauses"),
        lost_rate=draws.pick((0.0, 0.0, 0.05), "lost answers"),
    )


class AuditPlan:
    """Draws the faults of a schedule."""

    def __init__(self, world: AuditWorld) -> None:
        self.world = world
        self.draws = world.draws

    def arm(self) -> None:
        for number in range(self.draws.integer(2, 12, "faults")):
            at_ms = self.draws.integer(50, self.world.options.span_ms, "fault at", number)
            kind = self.draws.pick(FAULTS, "fault", number)
            self.world.scheduler.call_at(at_ms * US, partial(self._act, kind, number))

    def _act(self, kind: str, number: int) -> None:
        world, draws = self.world, self.draws
        world.mark(kind)
        world.note("plan", kind)
        bookie = world.bookies[draws.pick(sorted(world.bookies), "of", number)]
        if kind in ("crash", "blink"):
            bookie.crash()
            if kind == "blink":
                after_ms = draws.integer(1, 400, "blinks", number)
                world.scheduler.call_later(after_ms * US, bookie.start)
        elif kind == "flap" and bookie.is_alive and world.store.is_up:
            # The session ends at once. The bookie returns, and is soon lost for good.
            world.store.end_session(bookie.session)
            bookie.lost_us = world.scheduler.now_us
            bookie.register_later(draws.integer(5, 60, "flaps", number))
            world.scheduler.call_later(draws.integer(70, 120, "dies", number) * US, bookie.crash)
        elif kind == "return":
            bookie.start()
        elif kind == "outage":
            world.stop_store(draws.pick((30, 120, 300), "outage", number))
        elif kind == "expire":
            world.expire(world.auditors[number % len(world.auditors)])
        elif kind == "move":
            move(world, number)
        elif kind in ("disable", "enable"):
            world.store.is_enabled = kind == "enable"
            world.store.changed()
        elif kind == "delay":
            world.store.write_delay(draws.pick((0, 50, 400), "new delay", number))
        elif kind == "audit now":
            world.store.write_delay(world.store.delay_ms)
        elif kind == "create":
            names = draws.shuffled(sorted(world.store.registered), "new", number)
            if names:
                world.store.create(1_000 + number, names[: world.options.copies])


def run_audit(seed: int, *, keeps_trace: bool = False) -> AuditOutcome:
    """Run one seed: faults, then the checks of the healed cluster."""
    world = AuditWorld(seed, drawn_audit(Draws(seed)), keeps_trace=keeps_trace)

    def play() -> None:
        world.start()
        AuditPlan(world).arm()
        world.scheduler.run_for(world.options.span_ms)
        world.heal()

    return _judged(seed, world, play)


def run_copies(seed: int, *, keeps_trace: bool = False) -> AuditOutcome:
    """Run one seed of the checks of copies."""
    world = CopyWorld(seed, keeps_trace=keeps_trace)
    return _judged(seed, world, lambda: world.run(COPIES_SPAN_MS))


def _judged(seed: int, world: AuditWorld | CopyWorld, play: Callable[[], None]) -> AuditOutcome:
    violation: Violation | None = None
    try:
        play()
    except Violation as broken:
        violation = broken
    except Exception as broken:  # noqa: BLE001 - whatever it is, it ends the schedule
        violation = Violation("BUG", f"{type(broken).__name__}: {broken}")
        violation.__cause__ = broken
    finally:
        world.scheduler.close()
    return AuditOutcome(seed, violation, dict(world.marks), world.trace)
