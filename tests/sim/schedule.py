"""One random schedule: a writer, recoverers, readers and faults, all drawn from a seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ledgerlog_spark.protocol import messages as m
from tests.sim.checker import Violation
from tests.sim.draws import Draws
from tests.sim.options import Options, drawn
from tests.sim.world import LEDGER, World


@dataclass
class Outcome:
    """What became of a schedule.

    Attributes:
        violation: The invariant that broke, None when all held.
        deviations: Names of all faults that happened, in order.
    """

    seed: int
    events: int
    deviations: list[str]
    violation: Violation | None
    marks: dict[str, int]
    trace: list[str] | None
    trace_hash: str | None


def run_schedule(
    seed: int,
    *,
    options: Options | None = None,
    suppressed: frozenset[str] = frozenset(),
    keeps_trace: bool = False,
) -> Outcome:
    """Run one seed: first faults and the workload, then a healed cluster and the audit."""
    world = World(
        seed,
        options or drawn(Draws(seed)),
        suppressed=suppressed,
        keeps_trace=keeps_trace,
    )
    violation: Violation | None = None
    try:
        Workload(world).run()
        world.audit()
        if world.options.collections:
            world.let_go()
    except Violation as broken:
        violation = broken
        world.note("checker", broken)
    except Exception as broken:  # noqa: BLE001 - whatever it is, the schedule has to be told
        violation = Violation("BUG", f"{type(broken).__name__}: {broken}")
        violation.__cause__ = broken
        world.note("checker", violation)
    finally:
        for bookie in world.bookies.values():
            if bookie.host is not None:
                bookie.host.kill()
    return Outcome(
        seed,
        world.scheduler.events,
        world.faults.happened,
        violation,
        world.checker.marks,
        world.trace,
        world.trace_hash if keeps_trace else None,
    )


class Workload:
    """Who does what when."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.options = world.options
        self.draws = world.draws
        self.left = self.options.entries
        self.readers = 0

    def run(self) -> None:
        world, options = self.world, self.options
        quorum = options.quorum
        ensemble = self.draws.shuffled(list(world.bookies), "ensemble")[: quorum.ensemble_size]
        self.writer = world.create_ledger(quorum, ensemble)
        self.writer.on_indication = self._on_writer
        self._at(0, self._add)
        if options.ending != "close":
            self._at(options.ending_at_ms, self._end)
        for number in range(options.recoverers):
            at = self.draws.integer(
                options.recoverers_from_ms, options.recoverers_to_ms, "recoverer", number
            )
            self._at(at, lambda number=number: self._recover(number))
        if options.recover_when_stored is not None:
            world.checker.on_stored = self._on_stored
        for number in range(options.readers):
            self._at(self.draws.integer(2, 40, "reader", number), self._read_lac)
        self._plan_faults()
        world.run_until(self._is_over, options.horizon_ms)

    def _at(self, time_ms: float, action: Any) -> None:
        self.world.scheduler.call_at(int(time_ms * 1_000), action)

    def _is_over(self) -> bool:
        return self.left == 0 and all(
            client.ended is not None or not client.is_alive
            for client in self.world.clients.values()
        )

    def _add(self) -> None:
        writer = self.writer
        if not writer.is_alive or not writer.machine.is_adding:
            self.left = 0
            return
        if writer.is_frozen:
            self.world.scheduler.call_later(5_000, self._add)
            return
        if self.left == 0:
            if self.options.ending == "close" and self.world.checker.last_confirmed == (
                writer.machine.next_entry_id - 1
            ):
                writer.feed(m.CloseRequested())
            return
        if writer.machine.can_add:
            first = writer.machine.next_entry_id
            most = min(self.left, self.options.run_entries_max)
            entries = self.draws.integer(1, most, "run", first)
            self.left -= entries
            self.world.add(entries)
            gap_us = int(self.options.gap_ms * 1_000 * 2 * self.draws.uniform("gap", first))
            self.world.scheduler.call_later(gap_us, self._add)

    def _on_writer(self, indication: Any) -> None:
        if isinstance(indication, m.RunConfirmed):
            # The event is over then; several runs may be confirmed by one.
            self.world.scheduler.call_later(0, self._add)
        elif isinstance(indication, m.LedgerFailed):
            self.left = 0

    def _end(self) -> None:
        writer = self.writer
        if not writer.is_alive or not writer.machine.is_adding:
            return
        if writer.is_frozen:
            self.world.scheduler.call_later(5_000, self._end)
            return
        if self.options.ending == "close_early":
            self.left = 0
            writer.feed(m.CloseRequested())
        elif self.options.ending == "crash":
            self.left = 0
            writer.crash()

    def _on_stored(self, entry_id: int) -> None:
        """Recovery just when an add is between its first and its last acknowledgement."""
        if entry_id == self.options.recover_when_stored:
            self.world.checker.on_stored = None
            self.world.scheduler.call_later(0, lambda: self._recover(9))

    def _recover(self, number: int) -> None:
        name = f"r{number}"
        client = self.world.recoverer(name)
        client.feed(m.Start())
        if self.draws.uniform("recoverer dies", number) < 0.25:
            delay_us = self.draws.integer(1, 30_000, "recoverer dies at", number)
            self.world.scheduler.call_later(delay_us, client.crash)

    def _read_lac(self) -> None:
        self.readers += 1
        record = self.world.store.load(LEDGER, is_synced=False, name=f"lac{self.readers}")
        if record is None:
            return
        client = self.world.lac_reader(f"lac{self.readers}", record.value)
        client.on_indication = self._on_lac

    def _on_lac(self, indication: Any) -> None:
        if isinstance(indication, m.LacRead) and indication.last_add_confirmed >= 0:
            self.readers += 1
            record = self.world.store.load(LEDGER, is_synced=False, name=f"reader{self.readers}")
            if record is not None:
                name = f"reader{self.readers}"
                self.world.reader(name, record.value, indication.last_add_confirmed)

    def _plan_faults(self) -> None:
        world, draws, options = self.world, self.draws, self.options
        names = list(world.bookies)
        everybody = [*names, "w", *(f"r{n}" for n in range(options.recoverers)), "zk"]
        for kind, count in (("kill", options.crashes), ("power", options.power_losses)):
            for number in range(count):
                victim = draws.pick(names, kind, number)
                at = draws.integer(1, 60, kind, "at", number)
                back = at + draws.integer(5, 80, kind, "for", number)
                self._at(at, lambda k=kind, v=victim, n=number: self._crash(k, v, n))
                self._at(back, lambda v=victim: world.restart(v))
        for number in range(options.disk_errors):
            victim = draws.pick(names, "disk", number)
            at = draws.integer(1, 60, "disk at", number)
            self._at(at, lambda v=victim, n=number: self._disk_error(v, n))
        for number in range(options.collections):
            victim = draws.pick(names, "collect", number)
            at = draws.integer(1, 100, "collect at", number)
            self._at(at, lambda v=victim: world.collect(v))
        for number in range(options.freezes):
            at = draws.integer(1, 60, "freeze at", number)
            duration_ms = draws.integer(10, 200, "freeze for", number)
            self._at(at, lambda n=number, d=duration_ms: self._freeze(n, d))
        for number in range(options.partitions):
            alone = draws.pick(everybody, "part", number)
            others = tuple(name for name in everybody if name != alone)
            if draws.uniform("part pair", number) < 0.5:
                others = (draws.pick(others, "part other", number),)
            both_ways = draws.uniform("part both", number) < 0.6
            at = draws.integer(0, 50, "part at", number)
            back = at + draws.integer(5, 100, "part for", number)

            def part(
                alone: str = alone,
                others: tuple[str, ...] = others,
                both: bool = both_ways,
                number: int = number,
                back: int = back,
            ) -> None:
                if world.faults.take(f"partition {number}"):
                    world.network.part((alone,), others, both_ways=both)
                    self._at(back, lambda: self._join(alone, others, both_ways=both))

            self._at(at, part)

    def _join(self, alone: str, others: tuple[str, ...], *, both_ways: bool) -> None:
        if not self.world.faults.is_healed:
            self.world.network.join((alone,), others, both_ways=both_ways)

    def _freeze(self, number: int, duration_ms: int) -> None:
        """A process that is stopped and later goes on as if nothing had happened."""
        clients = [c for c in self.world.clients.values() if c.is_alive and c.ended is None]
        if not clients:
            return
        client = self.draws.pick(clients, "freeze who", number)
        if not client.is_frozen and self.world.faults.take(f"freeze {number}"):
            self.world.note(client.name, "is frozen")
            self.world.checker.mark("client frozen")
            client.freeze()
            self.world.scheduler.call_later(duration_ms * 1_000, client.thaw)

    def _disk_error(self, victim: str, number: int) -> None:
        kind = self.draws.pick(("sync", "write", "read"), "disk kind", number)
        if self.world.faults.take(f"{kind} error {number}"):
            self.world.note(victim, f"the next {kind} fails")
            faults = self.world.bookies[victim].disk.faults
            if kind == "sync":
                faults.sync_errors += 1
            elif kind == "write":
                faults.write_errors += 1
            else:
                faults.read_errors += 1

    def _crash(self, kind: str, victim: str, number: int) -> None:
        bookie = self.world.bookies[victim]
        if bookie.is_up and self.world.faults.take(f"{kind} {number}"):
            self.world.kill(victim, power=kind == "power")
