"""One random schedule with workers, forced recoveries and releases."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from tests.sim.draws import Draws
from tests.sim.loss.options import QUORUMS
from tests.sim.options import drawn
from tests.sim.release.worker import APACHE_MS, Worker
from tests.sim.release.world import ReleaseOptions, ReleaseWorld, release_options
from tests.sim.schedule import Outcome, Workload, judged

US = 1_000
MOVES_MAX = 24
CALM_FAULTS = 12
"""In most schedules, few faults happen, so that moves and releases meet."""
AFTER_MS = 200
"""Workers and tools begin up to this time after the workload."""
LONG_WAIT_MS = 2 * APACHE_MS
"""With this wait, no worker of Apache names a bookie with copies from before the wait."""


def drawn_releases(draws: Draws) -> ReleaseOptions:
    """Return the options of a seed."""
    base = drawn(draws)
    quorum = draws.pick(QUORUMS, "release quorum")
    base = replace(
        base,
        quorum=quorum,
        bookies=quorum.ensemble_size + draws.integer(1, 2, "release spares"),
        entries=min(base.entries, 16),
        span_ms=min(base.span_ms, 60),
        entry_size_bytes=0,
        recoverers=draws.pick((0, 1, 2), "release recoverers"),
        wrong_passwords=0,
        unreadable_rate=0.0,
        torn_writes=0,
        disk_errors=0,
        full_disks=0,
        slow_disks=0,
        rots=0,
        collections=0,
    )
    if draws.uniform("calm") < 0.6:
        base = replace(base, ending="close", faults_max=CALM_FAULTS)
    return release_options(
        base,
        wait_ms=draws.pick((5, 20, 60, LONG_WAIT_MS), "wait"),
        workers=draws.integer(2, 8, "workers"),
        forced=draws.pick((0, 0, 1, 3), "forced"),
        apache_part=draws.pick((0.0, 0.5, 1.0), "apache part"),
    )


class ReleasePlan:
    """Draws and schedules the workers and tools of a world."""

    def __init__(self, world: ReleaseWorld) -> None:
        self.world = world
        self.draws = world.draws
        self.moves = 0
        world.on_hide = self._on_hide

    def arm(self) -> None:
        """Schedule every action at its time."""
        self._each("worker", self.world.options.workers, self._work)
        self._each("forced", self.world.options.forced, self._force)

    def _each(self, kind: str, count: int, act: Any) -> None:
        for number in range(count):
            until_us = (self.world.options.span_ms + AFTER_MS) * US
            at_us = self.draws.integer(2, until_us, kind, number)
            self.world.scheduler.call_at(at_us, partial(self._perhaps, kind, number, act))

    def _perhaps(self, kind: str, number: int, act: Any) -> None:
        world = self.world
        closed = [one for one, record in world.store.records.items() if record.value.is_closed]
        if closed and not world.faults.is_healed and world.faults.take(f"{kind} {number}"):
            act(number, self.draws.pick(sorted(closed), "closed", kind, number))

    def _force(self, number: int, ledger_id: int) -> None:
        self.world.force(f"forced{number}", ledger_id)

    def _work(self, number: int, ledger_id: int) -> None:
        """Begin a move, in most cases to a bookie that has copies already."""
        world, draws = self.world, self.draws
        fragments = world.store.records[ledger_id].value.fragments
        place = draws.integer(0, len(fragments) - 1, "moved fragment", number)
        ensemble = fragments[place].ensemble
        targets = [one for one in world.bookies if one not in ensemble]
        holders = [one for one in targets if world.holds(one, ledger_id)]
        if holders and draws.uniform("to a holder", number) < 0.7:
            targets = holders
        if not targets:
            return
        old = draws.pick(ensemble, "moved from", number)
        self._begin(ledger_id, place, old, draws.pick(sorted(targets), "moved to", number))

    def _begin(self, ledger_id: int, place: int, old: str, target: str) -> None:
        world, draws = self.world, self.draws
        self.moves += 1
        number = self.moves
        is_long = world.options.wait_ms >= LONG_WAIT_MS
        is_apache = is_long and draws.uniform("apache works", number) < world.options.apache_part
        worker = Worker(world, f"worker{number}", ledger_id, is_apache=is_apache)
        if draws.uniform("sleeps", number) < 0.5:
            most_ms = APACHE_MS // 8 if is_apache else draws.pick((5, 20, 100), "sleeps", number)
            steps = iter(range(1 << 20))
            worker.sleep_ms = lambda: draws.integer(0, most_ms, "sleep", number, next(steps))
        if draws.uniform("expires", number) < 0.6:
            after_us = draws.integer(1, 60 * US, "expires at", number)
            world.scheduler.call_later(after_us, partial(setattr, worker, "is_alive", False))
        if self.moves < MOVES_MAX:
            worker.on_end = partial(self._move_back, ledger_id, place, target, old, number)
        world.workers.append(worker)
        worker.begin(place, old, target)

    def _move_back(self, ledger_id: int, place: int, old: str, target: str, number: int) -> None:
        """Move the entries back at about the time at which the first bookie releases them."""
        at_ms = self.draws.integer(0, 2 * self.world.options.wait_ms + 40, "back", number)
        begin = partial(self._begin, ledger_id, place, old, target)
        self.world.scheduler.call_later(at_ms * US, begin)

    def _on_hide(self, name: str, ledger_id: int) -> None:
        """Begin a move to a bookie that begins to release the ledger, which has lost its lock."""
        world, draws = self.world, self.draws
        record = world.store.records.get(ledger_id)
        if record is None or self.moves >= MOVES_MAX or world.faults.is_healed:
            return
        if draws.uniform("into a release", self.moves) < 0.5:
            world.store.locks.pop(ledger_id, None)
            fragments = record.value.fragments
            place = draws.integer(0, len(fragments) - 1, "into fragment", self.moves)
            old = draws.pick(fragments[place].ensemble, "instead of", self.moves)
            self._begin(ledger_id, place, old, name)


def run_releases(
    seed: int, *, suppressed: frozenset[str] = frozenset(), keeps_trace: bool = False
) -> Outcome:
    """Run one seed: the workload with faults and moves, then the audit of the healed cluster."""
    options = drawn_releases(Draws(seed))
    world = ReleaseWorld(seed, options, suppressed=suppressed, keeps_trace=keeps_trace)

    def play() -> None:
        ReleasePlan(world).arm()
        Workload(world).run()
        world.run_for(AFTER_MS + 4 * options.wait_ms)
        world.audit()

    return judged(world, seed, play, world.scheduler.close, keeps_trace=keeps_trace)
