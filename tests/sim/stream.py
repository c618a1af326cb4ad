"""One application that writes ledger after ledger, through failures and restarts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ledgerlog_spark.protocol.ledger import messages as m
from ledgerlog_spark.protocol.ledger.write.settings import WriterPhase
from ledgerlog_spark.protocol.ledger.write.writer import ADDING
from ledgerlog_spark.protocol.placement.absent_members import place_new
from ledgerlog_spark.protocol.placement.place import Placed
from ledgerlog_spark.protocol.placement.places import BookieMap
from ledgerlog_spark.protocol.placement.policy import PlacementPolicy
from tests.sim.options import LEDGER

if TYPE_CHECKING:
    from tests.sim.client import SimClient
    from tests.sim.world import World


class Stream:
    """An application that writes a number of entries. Its machines run in one process, `address`.

    Attributes:
        left: Number of entries that it has not added yet.
        is_over: Whether it has ended.
    """

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.options = world.options
        self.draws = world.draws
        self.number = number
        self.address = "wv"[number]
        self.left = self.options.entries if number == 0 else max(1, self.options.entries // 3)
        self.is_over = False
        self.ledgers = 0
        self.restarts = 0
        self._is_due = False
        self.begin_ledger()

    def begin_ledger(self) -> None:
        """Create the next ledger. Only the first ledger has the name that scripts use."""
        world, quorum = self.world, self.options.quorum
        self.ledgers += 1
        is_first = self.number == 0 and self.ledgers == 1
        ledger_id = LEDGER
        if not is_first:
            ledger_id = world.next_ledger_id
            world.next_ledger_id += 1
        up = [name for name, bookie in world.bookies.items() if bookie.is_registered]
        away = [name for name in world.bookies if name not in up]
        found = place_new(
            quorum,
            self.draws.shuffled(up, "ensemble", ledger_id),
            self.draws.shuffled(away, "absent", ledger_id),
            BookieMap(),
            PlacementPolicy(),
        )
        if isinstance(found, Placed):
            ensemble = found.ensemble
        else:
            # Dead bookies stay registered for some time.
            everybody = self.draws.shuffled(list(world.bookies), "ensemble", ledger_id)
            ensemble, away = everybody[: quorum.ensemble_size], []
        self.name = self.address if self.ledgers == 1 else f"{self.address}{self.ledgers}"
        self.writer = world.create_ledger(
            quorum,
            ensemble,
            ledger_id=ledger_id,
            name=self.name,
            address=self.address,
            absent=tuple(name for name in ensemble if name in away),
        )
        writer = self.writer
        writer.on_indication = lambda said: self._on_writer(said) if writer is self.writer else None
        self._go_on()

    def _go_on(self, delay_us: int = 0) -> None:
        """Check the writer again after a delay. Several calls cause only one check."""
        if not self._is_due:
            self._is_due = True
            self.world.scheduler.call_later(delay_us, self._step)

    def _step(self) -> None:
        self._is_due = False
        writer, machine = self.writer, self.writer.machine
        if self.is_over or not writer.is_alive or machine.phase not in ADDING:
            return
        if writer.is_frozen:
            self._go_on(5_000)
            return
        rolls = self.options.roll_entries
        is_full = rolls is not None and machine.next_entry_id >= rolls
        if self.left == 0 or is_full:
            closes = self.left > 0 or self.options.ending == "close"
            checker = self.world.checkers.of(writer.ledger_id)
            if closes and checker.last_confirmed == machine.next_entry_id - 1:
                writer.feed(m.CloseRequested())
        elif machine.can_add:
            first = machine.next_entry_id
            most = min(self.left, self.options.run_entries_max)
            entries = self.draws.integer(1, most, "run", self.name, first)
            self.left -= entries
            self.world.add(entries, self.name)
            gap = 2 * self.draws.uniform("gap", self.name, first)
            self._go_on(int(self.options.gap_ms * 1_000 * gap))
        else:
            # Answers that confirm nothing also make room in the window.
            self._go_on(500)

    def _on_writer(self, indication: Any) -> None:
        if isinstance(indication, m.RunConfirmed):
            # The check comes after this event, which may confirm several runs.
            if self.left == 0 or self.options.roll_entries is not None:
                self._go_on()
        elif isinstance(indication, m.EnsembleChanged):
            world, rate = self.world, self.options.change_crash_rate
            world.replay_adds(self.writer.ledger_id, indication.replaced)
            first = indication.first_entry_id
            is_due = self.name in world.dies_at_change
            if is_due or world.faults.happens(rate, "change crash", self.name, first):
                world.checkers.mark("writer died after a change")
                world.scheduler.call_later(0, self._die)
        elif isinstance(indication, m.LedgerClosed):
            if self.left > 0 and not self.is_over:
                self.world.checkers.mark("ledger rolled")
                self.world.scheduler.call_later(0, self.begin_ledger)
            else:
                self.is_over = True
        elif isinstance(indication, m.LedgerFailed):
            if self.draws.uniform("closes after failure", self.name) < 0.5:
                delay_us = self.draws.integer(0, 20_000, "close after failure", self.name)
                writer = self.writer
                self.world.scheduler.call_later(delay_us, lambda: self._close_failed(writer))
            else:
                self.writer.crash()
            self._begin_anew()

    def _close_failed(self, writer: SimClient) -> None:
        """Close the handle after a failed append, as some applications do."""
        if writer.is_alive and writer.machine.phase is WriterPhase.FAILED:
            writer.feed(m.CloseRequested())

    def _die(self) -> None:
        """End the process."""
        self.writer.crash()
        self._begin_anew()

    def _begin_anew(self) -> None:
        """Seal the ledger of the last writer, and begin another ledger."""
        if self.is_over:
            return
        if self.left == 0 or self.restarts >= self.options.restarts:
            self.is_over = True
            return
        self.restarts += 1
        self.world.checkers.mark("client restarted")
        delay_us = self.draws.integer(500, 20_000, "restart", self.address, self.restarts)
        self.world.scheduler.call_later(delay_us, self._restart)

    def _restart(self) -> None:
        if self.is_over or self.world.faults.is_healed:
            self.is_over = True
            return
        name = f"{self.address}.seal{self.restarts}"
        ledger_id = self.writer.ledger_id
        client = self.world.recoverer(name, ledger_id=ledger_id, address=self.address)
        client.feed(m.Start())
        self.begin_ledger()

    def end(self) -> None:
        """End the writer as the schedule requires: with an early close, or with its process."""
        writer = self.writer
        if not writer.is_alive or writer.machine.phase not in ADDING:
            return
        if writer.is_frozen:
            self.world.scheduler.call_later(5_000, self.end)
        elif self.options.ending == "close_early":
            self.left = 0
            writer.feed(m.CloseRequested())
        elif self.options.ending == "crash":
            self._die()
