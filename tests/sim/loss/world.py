"""A cluster whose bookies lose acknowledged records."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.sim.client import SimClient
from tests.sim.loss.apache import force, perhaps_as_apache
from tests.sim.loss.audit import LossAudit
from tests.sim.loss.bookie import LossBookie
from tests.sim.loss.checker import LossCheckers
from tests.sim.loss.directory import Directory
from tests.sim.loss.options import LossOptions
from tests.sim.loss.store import LossStore
from tests.sim.loss.worker import Worker
from tests.sim.world import World

US = 1_000


class LossWorld(World):
    """A cluster whose bookies lose acknowledged records."""

    options: LossOptions
    store: LossStore
    checkers: LossCheckers
    bookies: dict[str, LossBookie]  # type: ignore[assignment]

    def __init__(self, seed: int, options: LossOptions, **rest: Any) -> None:
        super().__init__(seed, options, **rest)
        self.workers: list[Worker] = []
        self.failing: set[str] = set()  # bookies whose next sync fails
        self.losing: set[str] = set()  # bookies whose sync is about to fail
        self.dies_unaware: bool | None = None  # in a failing sync; None for a random decision
        self.checkers.has_moving_lacs = options.apache_part > 0
        self.store.now_ms = lambda: self.scheduler.now_us // 1_000
        self.store.skew_ms = self.draws.integer(-50, 50, "clock skew")

    def new_store(self) -> LossStore:
        return LossStore(self.faults)

    def new_checkers(self) -> LossCheckers:
        return LossCheckers()

    def new_bookie(self, name: str) -> LossBookie:  # type: ignore[override]
        return LossBookie(self, name)

    # Losses.

    @property
    def losses_max(self) -> int:
        """How many bookies may have lost something at a time."""
        limits = {"one": 1, "quorum": self.options.quorum.ack_quorum - 1}
        return limits.get(self.options.limit, len(self.bookies))

    def may_lose(self, name: str) -> bool:
        """Whether this bookie may lose something now."""
        if self.faults.is_healed:
            return False
        others = [
            one
            for one, bookie in self.bookies.items()
            if one != name and (bookie.is_in_doubt or one in self.losing)
        ]
        return len(others) < self.losses_max

    def kill(self, name: str, *, power: bool = False) -> None:
        """Kill a bookie. It keeps its records if it must not lose any now."""
        super().kill(name, power=power and self.may_lose(name))

    def sync_fails(self, name: str) -> bool:
        """Whether this sync of a bookie fails."""
        if name in self.failing and self.may_lose(name):
            self.failing.discard(name)
            self.losing.add(name)
            return True
        return False

    def dies_in_sync(self, name: str) -> bool:
        """Whether the process dies before it can record that its sync failed."""
        drawn = self.draws.uniform("dies in sync", name, self.bookies[name].boots) < 0.5
        return drawn if self.dies_unaware is None else self.dies_unaware

    def replace_directory(self, name: str, directory: Directory, kind: str) -> None:
        """Kill a bookie, and start it with another directory."""
        bookie = self.bookies[name]
        self.kill(name)
        bookie.directory = directory
        bookie.note_loss(kind)
        self.restart(name)

    def older_copies(self, name: str) -> list[Directory]:
        """Return the copies that the counter in the bookie's node shows as older."""
        newest = self.store.starts.get(name, 0)
        return [
            one
            for one in self.bookies[name].copies
            if one.manifest is not None and one.manifest.starts < newest
        ]

    # Clients.

    def recoverer(self, name: str, **rest: Any) -> SimClient:
        client = super().recoverer(name, **rest)
        perhaps_as_apache(self, client, self.options.apache_part)
        return client

    def force(self, name: str, ledger_id: int) -> None:
        """Reopen a closed ledger, and recover it, as Apache's tools do."""
        force(self, name, ledger_id)

    def audit(self) -> None:
        LossAudit(self).run()

    def let_go(self) -> None:
        """Do nothing: the model has no garbage collection."""


class LossPlan:
    """Draws and schedules the losses of a world."""

    def __init__(self, world: LossWorld) -> None:
        self.world = world
        self.draws = world.draws

    def arm(self) -> None:
        """Schedule every loss at its time."""
        options = self.world.options
        self._each("power cut", options.power_cuts, self._power)
        self._each("wipe", options.wipes, self._wipe)
        self._each("absent wipe", options.absent_wipes, self._be_wiped_while_absent)
        self._each("older copy", options.old_copies, self._copy)
        self._each("lost record", options.lost_records, self._record)
        self._each("failed sync", options.failed_syncs, self._sync)
        self._each("forced", options.forced, self._force)
        self._each("worker", options.workers, self._work)

    def _each(self, kind: str, count: int, strike: Any) -> None:
        for number in range(count):
            at_us = self.draws.integer(2, (self.world.options.span_ms + 40) * US, kind, number)
            self.world.scheduler.call_at(at_us, partial(self._strike, kind, number, strike))

    def _strike(self, kind: str, number: int, strike: Any) -> None:
        world = self.world
        names = list(world.bookies)
        # The bookies that hold the first ledger are the interesting ones.
        record = world.store.records.get(7)
        if record is not None and self.draws.uniform(kind, "near", number) < 0.6:
            names = list(record.value.last_fragment.ensemble)
        name = self.draws.pick(names, kind, number)
        bookie = world.bookies[name]
        if kind in ("forced", "worker"):
            if world.faults.take(f"{kind} {number}"):
                strike(number)
        elif bookie.is_up and world.may_lose(name) and world.faults.take(f"{kind} {number}"):
            strike(name)

    def _power(self, name: str) -> None:
        world = self.world
        names = [name]
        if world.options.limit == "any" and self.draws.uniform("all at once", name) < 0.3:
            names = [one for one, bookie in world.bookies.items() if bookie.is_up]
        for one in names:
            world.kill(one, power=True)
            down_us = self.draws.integer(500, 20_000, "down", one, world.bookies[one].boots)
            world.scheduler.call_later(down_us, partial(world.restart, one))

    def _wipe(self, name: str) -> None:
        if name in self.world.store.starts:
            self.world.replace_directory(name, Directory(), "wipe")

    def _be_wiped_while_absent(self, name: str) -> None:
        """Stop a bookie for longer than writers retry. It comes back with an empty directory."""
        world, bookie = self.world, self.world.bookies[name]
        if name not in world.store.starts:
            return
        world.kill(name)
        bookie.directory = Directory()
        bookie.note_loss("wipe")
        world.checkers.mark("wiped while absent")
        away_us = self.draws.integer(100 * US, 800 * US, "absent wipe", name, bookie.boots)
        world.faults.lasts("absent", away_us)
        world.scheduler.call_later(away_us, partial(world.restart, name))

    def _copy(self, name: str) -> None:
        copies = self.world.older_copies(name)
        if copies:
            copy = self.draws.pick(copies, "which copy", name, len(copies))
            self.world.replace_directory(name, copy.copied(), "older copy")

    def _record(self, name: str) -> None:
        self.world.bookies[name].lose_record()

    def _sync(self, name: str) -> None:
        self.world.failing.add(name)

    def _force(self, number: int) -> None:
        world = self.world
        closed = [one for one, record in world.store.records.items() if record.value.is_closed]
        if closed:
            world.force(f"forced{number}", self.draws.pick(sorted(closed), "forced", number))

    def _work(self, number: int) -> None:
        """Begin to move a member's entries, like a worker of ours or of Apache."""
        world, draws, options = self.world, self.draws, self.world.options
        closed = [one for one, record in world.store.records.items() if record.value.is_closed]
        if not closed:
            return
        ledger_id = draws.pick(sorted(closed), "moved ledger", number)
        fragments = world.store.records[ledger_id].value.fragments
        place = draws.integer(0, len(fragments) - 1, "moved fragment", number)
        ensemble = fragments[place].ensemble
        targets = [one for one in world.bookies if one not in ensemble]
        if not targets:
            return
        # ADR 39: only a power loss is safe with Apache's worker.
        others = (options.wipes, options.old_copies, options.lost_records, options.failed_syncs)
        is_apache = not any(others) and draws.uniform("apache works", number) < 0.5
        worker = Worker(world, f"worker{number}", ledger_id, is_apache=is_apache)
        world.workers.append(worker)
        old = draws.pick(ensemble, "moved from", number)
        worker.begin(place, old, draws.pick(targets, "moved to", number))
