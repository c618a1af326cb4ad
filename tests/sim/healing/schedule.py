"""One random schedule with workers, deaths of bookies, lost sessions and releases."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from tests.sim.draws import Draws
from tests.sim.healing.world import LOST_MS, HealingOptions, HealingWorld, healing_options
from tests.sim.loss.options import QUORUMS
from tests.sim.options import drawn
from tests.sim.release.schedule import LONG_WAIT_MS
from tests.sim.release.world import release_options
from tests.sim.schedule import Outcome, Workload, judged

US = 1_000
AFTER_MS = 250


def drawn_healing(draws: Draws) -> HealingOptions:
    """Return the options of a seed."""
    base = drawn(draws)
    quorum = draws.pick(QUORUMS, "healing quorum")
    base = replace(
        base,
        quorum=quorum,
        bookies=quorum.ensemble_size + draws.integer(1, 2, "healing spares"),
        entries=min(base.entries, 20),
        span_ms=min(base.span_ms, 80),
        entry_size_bytes=0,
        recoverers=draws.pick((0, 1, 2), "healing recoverers"),
        session_ms=draws.pick((5, 20), "healing session"),
        wrong_passwords=0,
        unreadable_rate=0.0,
        torn_writes=0,
        disk_errors=0,
        full_disks=0,
        slow_disks=0,
        rots=0,
        collections=0,
        delete_closed_rate=base.delete_closed_rate,
    )
    if draws.uniform("calm") < 0.5:
        base = replace(base, ending="close", faults_max=12)
    released = release_options(
        base,
        wait_ms=draws.pick((5, 20, 60, LONG_WAIT_MS, LONG_WAIT_MS), "wait"),
        workers=0,
        forced=0,
        apache_part=0.0,
    )
    # A directory that is lost, or a release soon after a copy, is not safe with Apache's worker.
    is_safe = released.wait_ms >= LONG_WAIT_MS
    apache_healers = draws.pick((0, 1), "apache healers") if is_safe else 0
    return healing_options(
        released,
        apache_healers=apache_healers,
        deaths=draws.integer(1, 4, "deaths"),
        healers=draws.integer(1, 3, "healers"),
        expiries=draws.pick((0, 1, 4), "expiries"),
        worker_crashes=draws.pick((0, 0, 1), "worker crashes"),
        spare_wipes=0 if apache_healers else draws.pick((0, 1, 3), "wipes"),
        sleep_rate=draws.pick((0.0, 0.1, 0.4), "sleeps"),
    )


class HealingPlan:
    """Draws and schedules the faults of a world."""

    def __init__(self, world: HealingWorld) -> None:
        self.world = world
        self.draws = world.draws
        self._steps = 0

    def arm(self) -> None:
        options = self.world.options
        self._each("death", options.deaths, self._die)
        self._each("expiry", options.expiries, self._expire)
        self._each("worker crash", options.worker_crashes, self._crash)
        self._each("wipe", options.spare_wipes, self._wipe)
        self._each("hole", 4, lambda _: self.world.note_holes())
        self.world.sleep_ms = self._sleep_ms
        self.world.start_auditor()
        self.world.start_healers(options.healers)
        self.world.start_apache(options.apache_healers)

    def _each(self, kind: str, count: int, act: Any) -> None:
        for number in range(count):
            until_us = (self.world.options.span_ms + AFTER_MS) * US
            at_us = self.draws.integer(2, until_us, kind, number)
            self.world.scheduler.call_at(at_us, partial(self._perhaps, kind, number, act))

    def _perhaps(self, kind: str, number: int, act: Any) -> None:
        world = self.world
        if not world.faults.is_healed and world.faults.take(f"{kind} {number}"):
            act(number)

    def _sleep_ms(self, worker: Any, effect: Any) -> int:
        self._steps += 1
        name = type(effect).__name__
        if self.draws.uniform("sleeps", self._steps) >= self.world.options.sleep_rate:
            return 0
        return self.draws.pick((5, 30, 120), "sleep", worker.name, name, self._steps)

    def _die(self, number: int) -> None:
        """Let a bookie be away for long. Only one bookie at a time is away."""
        world, draws = self.world, self.draws
        if any(not bookie.is_up for bookie in world.bookies.values()):
            return
        name = draws.pick(sorted(world.bookies), "dies", number)
        away_ms = draws.pick((LOST_MS, 2 * LOST_MS, 400), "away", number)
        world.faults.lasts("kill", away_ms * US)
        world.kill(name, power=draws.uniform("power", number) < 0.5)
        world.dead.add(name)
        world.checkers.mark("bookie lost")

        def back() -> None:
            world.dead.discard(name)
            world.restart(name)

        world.scheduler.call_later(away_ms * US, back)

    def _expire(self, number: int) -> None:
        alive = [one for one in self.world.healers if one.is_alive and one.session.is_alive]
        if alive:
            healer = self.draws.pick(alive, "expires", number)
            healer.expire(self.draws.integer(1, 60 * US, "noticed", number))

    def _crash(self, number: int) -> None:
        alive = [one for one in self.world.healers if one.is_alive]
        if alive:
            self.draws.pick(alive, "crashes", number).crash()
            self.world.start_healers(1)

    def _wipe(self, number: int) -> None:
        world, draws = self.world, self.draws
        named = {
            name
            for record in world.store.records.values()
            for fragment in record.value.fragments
            for name in fragment.ensemble
        }
        spares = sorted(set(world.bookies) - named)
        if spares:
            world.wipe_spare(
                draws.pick(spares, "wiped", number),
                is_fix=draws.uniform("fix", number) < 0.5,
                is_in_doubt=False,
            )


def run_healing(
    seed: int, *, suppressed: frozenset[str] = frozenset(), keeps_trace: bool = False
) -> Outcome:
    """Run one seed: the workload with faults and workers, then the audit of the healed cluster."""
    options = drawn_healing(Draws(seed))
    world = HealingWorld(seed, options, suppressed=suppressed, keeps_trace=keeps_trace)

    def play() -> None:
        HealingPlan(world).arm()
        Workload(world).run()
        world.run_for(AFTER_MS + 4 * options.wait_ms)
        world.audit()
        world.is_over = True

    return judged(world, seed, play, world.scheduler.close, keeps_trace=keeps_trace)
