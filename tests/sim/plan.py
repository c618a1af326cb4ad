"""The plan of the faults of a schedule, except those with a probability for each message."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ledgerlog_spark.protocol.ledger.write.writer import LedgerWriter

if TYPE_CHECKING:
    from tests.sim.disk import SimDisk
    from tests.sim.world import World

US = 1_000


class FaultPlan:
    """Draws and schedules the faults of one world."""

    def __init__(self, world: World, clients: list[str]) -> None:
        self.world = world
        self.options = world.options
        self.draws = world.draws
        self.names = list(world.bookies)
        self.everybody = [*self.names, *clients, "zk"]
        self.clients = clients

    def arm(self) -> None:
        """Schedule every fault at its time."""
        options = self.options
        self._each("kill", options.crashes, self._crash)
        self._each("power", options.power_losses, self._crash)
        self._each("torn", options.torn_writes, self._tear)
        self._each("restart", options.clean_restarts, self._restart)
        self._each("disk", options.disk_errors, self._disk_error)
        self._each("full", options.full_disks, self._fill)
        self._each("slow", options.slow_disks, self._slow)
        self._each("rot", options.rots, self._rot)
        self._each("collect", options.collections, self._collect)
        self._each("freeze", options.freezes, self._freeze)
        self._each("cut", options.cuts, self._cut)
        self._each("absent", options.absences, self._be_absent)
        self._each("false loss", options.false_losses, self._seem_lost)
        self._each("partition", options.partitions, self._part)
        self._each("reset", options.resets, self._reset)

    def _each(self, kind: str, count: int, strike: Callable[[str, int], None]) -> None:
        for number in range(count):
            at_us = self.draws.integer(1, (self.options.span_ms + 10) * US, kind, "at", number)
            self.world.scheduler.call_at(at_us, partial(strike, kind, number))

    def _victim(self, kind: str, number: int) -> str:
        return self.draws.pick(self.names, kind, number)

    def _lasts_us(self, kind: str, number: int, most_ms: int) -> int:
        return self.draws.integer(5 * US, most_ms * US, kind, "for", number)

    def _may_go(self) -> bool:
        """Whether one more bookie may be down."""
        away = sum(not bookie.is_up for bookie in self.world.bookies.values())
        return away < self.options.away_max

    def _down(self, kind: str, number: int, stop: Callable[[str], None]) -> None:
        """Stop a bookie and start it again after a while."""
        world, victim = self.world, self._victim(kind, number)
        lasts_us = self._lasts_us(kind, number, 80)
        is_possible = world.bookies[victim].is_up and self._may_go()
        if is_possible and world.faults.take(f"{kind} {number}", for_us=lasts_us):
            stop(victim)
            world.scheduler.call_later(lasts_us, lambda: world.restart(victim))

    def _be_absent(self, kind: str, number: int) -> None:
        """Stop a bookie for longer than writers retry. Writers are told that it is lost."""
        world, victim = self.world, self._victim(kind, number)
        lasts_us = self.draws.integer(100 * US, 1_500 * US, kind, "for", number)
        is_possible = world.bookies[victim].is_up and self._may_go()
        if not is_possible or not world.faults.take(f"{kind} {number}", for_us=lasts_us):
            return
        world.kill(victim, power=self.draws.uniform("absent power", number) < 0.3)
        world.checkers.mark("absent for long")
        if self.draws.uniform("is told", number) < 0.5:
            told_us = self.draws.integer(1 * US, 200 * US, "told", number)
            world.scheduler.call_later(told_us, lambda: world.tell_lost(victim))
        world.scheduler.call_later(lasts_us, lambda: world.restart(victim))

    def _seem_lost(self, kind: str, number: int) -> None:
        """A bookie runs, but its session ended: writers are told that it is lost."""
        victim = self._victim(kind, number)
        if self.world.faults.take(f"{kind} {number}"):
            self.world.tell_lost(victim)

    def _crash(self, kind: str, number: int) -> None:
        self._down(kind, number, lambda name: self.world.kill(name, power=kind == "power"))

    def _tear(self, kind: str, number: int) -> None:
        world = self.world

        def stop(name: str) -> None:
            world.note(name, "loses power in the middle of a write")
            world.bookies[name].tear()
            world.checkers.mark("tail torn")

        self._down(kind, number, stop)

    def _restart(self, kind: str, number: int) -> None:
        def stop(name: str) -> None:
            self.world.note(name, "stops cleanly")
            self.world.checkers.mark("clean restart")
            self.world.bookies[name].stop_cleanly()

        self._down(kind, number, stop)

    def _disk_error(self, kind: str, number: int) -> None:
        world, victim = self.world, self._victim(kind, number)
        what = self.draws.pick(("sync", "write", "read"), "disk kind", number)
        if not self._may_go() or not world.faults.take(f"disk {what} error {number}"):
            return
        world.note(victim, f"the next {what} fails")
        faults = self._disk(victim, number).faults
        if what == "sync":
            faults.sync_errors += 1
        elif what == "write":
            faults.write_errors += 1
        else:
            faults.read_errors += 1

    def _disk(self, victim: str, number: int) -> SimDisk:
        """Return a disk of a bookie."""
        return self.draws.pick(self.world.bookies[victim].directories.disks, "which disk", number)

    def _fill(self, kind: str, number: int) -> None:
        world, victim = self.world, self._victim(kind, number)
        lasts_us = self._lasts_us(kind, number, 100)
        if not world.faults.take(f"full {number}", for_us=lasts_us):
            return
        world.note(victim, "has a full disk")
        world.checkers.mark("disk full")
        disk = self._disk(victim, number)
        disk.faults.capacity_bytes = disk.used_bytes() + self.draws.integer(
            0, 1 << 12, "room", number
        )

        def free() -> None:
            disk.faults.capacity_bytes = None

        world.scheduler.call_later(lasts_us, free)

    def _slow(self, kind: str, number: int) -> None:
        world, victim = self.world, self._victim(kind, number)
        lasts_us = self._lasts_us(kind, number, 100)
        if not world.faults.take(f"slow {number}", for_us=lasts_us):
            return
        world.note(victim, "has a slow disk")
        world.checkers.mark("disk slow")
        bookie = world.bookies[victim]
        bookie.make_slow((500, 20_000))
        world.scheduler.call_later(lasts_us, lambda: bookie.make_slow((20, 400)))

    def _rot(self, kind: str, number: int) -> None:
        """Flip one bit of an entry-log file. Nothing notices this before the bit is read.

        The last groups are not damaged: without a proof of their sync, damage looks like a torn
        write.
        """
        world, draws, victim = self.world, self.draws, self._victim(kind, number)
        bookie = world.bookies[victim]
        vouched = bookie.vouched()
        if not vouched or not world.faults.take(f"rot {number}", for_us=1 << 60):
            return
        fences = bookie.fences()
        if fences and draws.uniform("rot fence", number) < 0.4:
            bookie.rot_fence()
        else:
            name = draws.pick(sorted(vouched), "rot file", number)
            content = bookie.disk.durable_names[name]
            # Records fill whole sectors, so most bytes are padding that is never read.
            used = [at for at, byte in enumerate(content.durable[: vouched[name]]) if byte]
            if not used:
                return
            bookie.rot(name, draws.pick(used, "rot at", number), number % 8)
        if draws.uniform("rot crash", number) < 0.5:
            world.crash(victim, "rot")

    def _collect(self, kind: str, number: int) -> None:
        self.world.collect(self._victim(kind, number))

    def _freeze(self, _kind: str, number: int) -> None:
        """Pause a process. It later continues as if nothing had happened."""
        world = self.world
        clients = [c for c in world.clients.values() if c.is_alive and c.ended is None]
        if not clients:
            return
        client = self.draws.pick(clients, "freeze who", number)
        duration_us = self.draws.integer(10, 200, "freeze for", number) * US
        if not client.is_frozen and world.faults.take(f"freeze {number}", for_us=duration_us):
            world.note(client.name, "is frozen")
            world.checkers.mark("client frozen")
            client.freeze()
            world.scheduler.call_later(duration_us, client.thaw)

    def _cut(self, kind: str, number: int) -> None:
        """Cut a writer from all bookies of its ensemble, or from all bookies, for a while.

        The writer then replaces many bookies at once, also by bookies that it cannot reach.
        """
        world = self.world
        writers = [
            client
            for client in world.clients.values()
            if client.is_alive and isinstance(client.machine, LedgerWriter)
        ]
        if not writers:
            return
        writer = self.draws.pick(writers, "cut who", number)
        away = writer.machine.metadata.value.last_fragment.ensemble
        if self.draws.uniform("cut off all", number) < 0.5:
            away = tuple(self.names)
            if self.draws.uniform("cut off and dies", number) < 0.5:
                world.dies_at_change.add(writer.name)
        lasts_us = self._lasts_us(kind, number, 150)
        if not world.faults.take(f"partition cut {number}", for_us=lasts_us):
            return
        world.note(writer.name, f"is cut off from {away}")
        world.checkers.mark("writer cut off")
        world.network.part((writer.address,), away, both_ways=True)

        def join() -> None:
            if not world.faults.is_healed:
                world.network.join((writer.address,), away, both_ways=True)

        world.scheduler.call_later(lasts_us, join)

    def _part(self, kind: str, number: int) -> None:
        world, draws = self.world, self.draws
        alone = draws.pick(self.everybody, "part", number)
        others = tuple(name for name in self.everybody if name != alone)
        if draws.uniform("part pair", number) < 0.5:
            others = (draws.pick(others, "part other", number),)
        both_ways = draws.uniform("part both", number) < 0.6
        lasts_us = self._lasts_us(kind, number, 100)
        if not world.faults.take(f"partition {number}", for_us=lasts_us):
            return
        world.network.part((alone,), others, both_ways=both_ways)

        def join() -> None:
            if not world.faults.is_healed:
                world.network.join((alone,), others, both_ways=both_ways)

        world.scheduler.call_later(lasts_us, join)

    def _reset(self, kind: str, number: int) -> None:
        client = self.draws.pick(self.clients, kind, "client", number)
        if self.world.faults.take(f"reset {number}"):
            self.world.reset(client, self._victim(kind, number))
