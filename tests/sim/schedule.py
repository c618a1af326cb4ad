"""One random schedule: a writer, recoverers, readers and faults, all drawn from a seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ledgerlog_spark.model import NO_ENTRY
from ledgerlog_spark.protocol.ledger import messages as m
from tests.sim.checker import Violation
from tests.sim.draws import Draws
from tests.sim.options import LEDGER, Options, drawn
from tests.sim.plan import FaultPlan
from tests.sim.stream import Stream
from tests.sim.world import World


@dataclass
class Outcome:
    """The result of a schedule.

    Attributes:
        violation: The broken invariant; None if all invariants held.
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
    """Run one seed: the workload with faults, then the audit of the healed cluster."""
    world = World(
        seed,
        options or drawn(Draws(seed)),
        suppressed=suppressed,
        keeps_trace=keeps_trace,
    )

    def play() -> None:
        Workload(world).run()
        world.audit()
        if world.options.collections:
            world.let_go()

    def end() -> None:
        for bookie in world.bookies.values():
            if bookie.host is not None:
                bookie.host.kill()

    return judged(world, seed, play, end, keeps_trace=keeps_trace)


def judged(
    world: World,
    seed: int,
    play: Callable[[], None],
    end: Callable[[], None],
    *,
    keeps_trace: bool,
) -> Outcome:
    """Play a schedule in its world, and end the world; return what happened."""
    violation: Violation | None = None
    try:
        play()
    except Violation as broken:
        violation = broken
        world.note("checker", broken)
    except Exception as broken:  # noqa: BLE001 - whatever it is, the schedule has to be told
        violation = Violation("BUG", f"{type(broken).__name__}: {broken}")
        violation.__cause__ = broken
        world.note("checker", violation)
    finally:
        end()
    return Outcome(
        seed,
        world.scheduler.events,
        world.faults.happened,
        violation,
        world.checkers.marks,
        world.trace,
        world.trace_hash if keeps_trace else None,
    )


class Workload:
    """The clients of a schedule, with the times of their actions."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.options = world.options
        self.draws = world.draws
        self.readers = 0

    def run(self) -> None:
        world, options = self.world, self.options
        self.streams = [Stream(world, number) for number in range(options.streams)]
        if options.ending in ("close_early", "crash"):
            self._at(options.ending_at_ms, self.streams[0].end)
        for number in range(options.recoverers):
            at = self.draws.integer(
                options.recoverers_from_ms, options.recoverers_to_ms, "recoverer", number
            )
            self._at(at, lambda number=number: self._recover(number))
        if options.recover_when_stored is not None:
            world.checker.on_stored = self._on_stored
        for kind, count, act in (
            ("reader", options.readers, self._read_lac),
            ("announcement", options.announcements, self._announce),
            ("wrong password", options.wrong_passwords, self._intrude),
        ):
            for number in range(count):
                at = self.draws.integer(2, options.span_ms, kind, number)
                self._at(at, lambda number=number, act=act: act(number))
        if options.delete_at_ms is not None:
            self._at(options.delete_at_ms, self._delete)
        clients = [
            *(s.address for s in self.streams),
            *(f"r{n}" for n in range(options.recoverers)),
        ]
        FaultPlan(world, clients).arm()
        world.run_until(self._is_over, options.horizon_ms)
        for stream in self.streams:
            # From now on, no new work begins.
            stream.left = 0

    def _at(self, time_ms: float, action: Any) -> None:
        self.world.scheduler.call_at(int(time_ms * 1_000), action)

    def _is_over(self) -> bool:
        return all(stream.is_over or stream.left == 0 for stream in self.streams) and all(
            client.ended is not None or not client.is_alive
            for client in self.world.clients.values()
        )

    def _on_stored(self, entry_id: int) -> None:
        """Begin a recovery while an add is between its first and its last acknowledgement."""
        when = self.options.recover_when_stored
        if when is not None and entry_id >= when:
            self.world.checker.on_stored = None
            self.world.scheduler.call_later(0, lambda: self._recover(9))

    def _ledger(self, *key: object) -> int:
        """Return a random ledger; in half of the cases, the first one."""
        ids = sorted(self.world.store.records)
        if not ids or self.draws.uniform("which", *key) < 0.5:
            return LEDGER
        return self.draws.pick(ids, "ledger", *key)

    def _recover(self, number: int) -> None:
        world, ledger_id = self.world, self._ledger("recover", number)
        checker = world.checkers.of(ledger_id)
        floors = {"confirmed": checker.last_confirmed, "beyond": checker.last_confirmed + 3}
        floor = floors.get(self.options.floor or "", NO_ENTRY)
        client = world.recoverer(f"r{number}", ledger_id=ledger_id, floor=floor)
        client.feed(m.Start())
        if self.draws.uniform("recoverer dies", number) < 0.25:
            delay_us = self.draws.integer(1, 30_000, "recoverer dies at", number)
            world.scheduler.call_later(delay_us, client.crash)

    def _intrude(self, number: int) -> None:
        """Try to recover a ledger without its password."""
        if self.world.faults.take(f"password {number}"):
            intruder = self.world.recoverer(f"intruder{number}", password=b"guess")
            intruder.may_ask_bookies = False
            intruder.feed(m.Start())

    def _announce(self, number: int) -> None:
        name = self.draws.pick(self.streams, "announces", number).name
        self.world.announce(name, is_written=self.draws.uniform("is written", number) < 0.6)

    def _delete(self) -> None:
        ids = sorted(self.world.store.records)
        if ids and self.world.faults.take("delete"):
            self.world.delete_ledger(self.draws.pick(ids, "deleted"))
            self.world.checkers.mark("deleted while in use")

    def _read_lac(self, number: int) -> None:
        ledger_id = self._ledger("read", number)
        record = self.world.store.load(ledger_id, is_synced=False, name=f"lac{number}")
        if record is None:
            return
        client = self.world.lac_reader(f"lac{number}", record.value, ledger_id=ledger_id)
        client.on_indication = lambda said: self._on_lac(number, ledger_id, said)

    def _on_lac(self, number: int, ledger_id: int, indication: Any) -> None:
        if isinstance(indication, m.LacRead) and indication.last_add_confirmed >= 0:
            name = f"reader{number}"
            record = self.world.store.load(ledger_id, is_synced=False, name=name)
            last = indication.last_add_confirmed
            if self.draws.uniform("old record", number) < self.options.old_record_rate:
                # The reader opened the ledger long ago, and got the end from the writer.
                record = self.world.store.first[ledger_id]
                last = self.world.checkers.of(ledger_id).last_confirmed
            if record is not None and last >= 0:
                self.world.reader(
                    name,
                    record.value,
                    last,
                    ledger_id=ledger_id,
                    pause_us=self.options.read_pause_us,
                )
