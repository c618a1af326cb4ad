"""Checks the end of a schedule with losses: every ledger closes, and every copy is restored."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ledgerlog_spark.model import LedgerMetadata
from ledgerlog_spark.protocol.ledger import messages as m
from ledgerlog_spark.protocol.ledger.write.writer import LedgerWriter
from tests.sim.audit import HEALTHY_MS, Audit
from tests.sim.checker import Checker, require, write_set
from tests.sim.client import SimClient, as_entry
from tests.sim.loss.checker import names

if TYPE_CHECKING:
    from tests.sim.loss.bookie import LossBookie
    from tests.sim.loss.world import LossWorld


class LossAudit(Audit):
    """The audit of one world."""

    world: LossWorld

    @property
    def may_be_lost(self) -> bool:
        """Whether more copies may be lost than the protocol promises to survive."""
        return self.world.options.limit == "any"

    def run(self) -> None:
        world = self.world
        world.heal()
        up = world.run_until(
            lambda: all(b.storage is not None for b in world.bookies.values() if b.boots),
            HEALTHY_MS,
        )
        require(up, "V1", "a bookie does not start")
        for client in list(world.clients.values()):
            if isinstance(client.machine, LedgerWriter):
                self.settle_writer(client)
        self.settle_clients()
        world.run_for(100)
        closed = {one: self.seal(one) for one in sorted(world.store.records)}
        self.wait_for_repair()
        for ledger_id, metadata in closed.items():
            if metadata is not None and not world.checkers.of(ledger_id).is_thin:
                self.check_ledger(ledger_id, world.store.records[ledger_id].value)
        self.end_writers()
        self._require_fences("L14")

    def _require_whole_write_sets(self, writer: SimClient, checker: Checker) -> None:
        """Check nothing: the repair restores lost entries of a bookie only after the close."""

    def seal(self, ledger_id: int) -> LedgerMetadata | None:
        if not self.may_be_lost:
            return super().seal(ledger_id)
        client = self.world.recoverer(f"final.{ledger_id}", ledger_id=ledger_id)
        client.feed(m.Start())
        has_ended = self.world.run_until(partial(lambda c: c.ended is not None, client), HEALTHY_MS)
        require(has_ended, "V1", f"{client.name} did not end in a healthy cluster")
        if isinstance(client.ended, m.LedgerClosed):
            return client.ended.versioned.value
        self.world.checkers.mark("not closed without an operator")
        self._require_reason(ledger_id, client)
        return None

    def _require_reason(self, ledger_id: int, client: SimClient) -> None:
        """Check that a ledger stays open only if an ack quorum of a write set lost something."""
        record = self.world.checkers.of(ledger_id).record
        quorum = record.quorum
        lossy = self.world.checkers.lossy
        worst = max(
            sum(fragment.ensemble[index] in lossy for index in write_set(quorum, residue))
            for fragment in record.fragments
            for residue in range(quorum.ensemble_size)
        )
        is_lost = worst >= quorum.ack_quorum
        require(is_lost, "V1", f"ledger {ledger_id} cannot be closed: {client.ended}")

    def wait_for_repair(self) -> None:
        """Check that limbo ends if enough copies are left."""
        world = self.world
        if self.may_be_lost:
            world.run_for(300)
            return
        ended = world.run_until(
            lambda: not any(map(self._is_in_doubt, world.bookies.values())), HEALTHY_MS
        )
        left = {
            name: [(one, bookie.repairs.outcomes.get(one)) for one in bookie.in_limbo]
            for name, bookie in world.bookies.items()
            if bookie.is_in_doubt
        }
        require(ended, "R2", f"in limbo: {left}")

    def _is_in_doubt(self, bookie: LossBookie) -> bool:
        """Whether a bookie is in doubt about more than the ledgers that are on too few bookies."""
        checkers = self.world.checkers
        left = [one for one in bookie.in_limbo if not checkers.of(one).is_thin]
        return bookie.is_in_doubt and (not bookie.doubt.is_over or bool(left))

    def check_ledger(self, ledger_id: int, metadata: LedgerMetadata) -> None:
        checker = self.world.checkers.of(ledger_id)
        require(
            metadata.last_entry_id >= checker.last_confirmed,
            "L1",
            f"closed at {metadata.last_entry_id}, confirmed {checker.last_confirmed}",
        )
        for entry_id in range(metadata.last_entry_id + 1):
            self._check_copies(ledger_id, metadata, entry_id, checker)
        if not self.may_be_lost:
            self._read_everything(f"audit.{ledger_id}", ledger_id, metadata)

    def _check_copies(
        self, ledger_id: int, metadata: LedgerMetadata, entry_id: int, checker: Checker
    ) -> None:
        copies = 0
        for name, bookie in self.world.bookies.items():
            if not names(metadata, name, entry_id):
                continue
            stored = bookie.peek(ledger_id, entry_id)
            if stored is not None:
                entry = as_entry(stored, ledger_id, entry_id)
                is_same = entry is not None and entry.payload == checker.payloads[entry_id]
                require(is_same, "L6", f"{name} has other bytes as entry {entry_id}")
                copies += 1
            elif not self.may_be_lost:
                was_held = self.world.checkers.of(ledger_id).owes(name, entry_id)
                about = f"{name} does not have entry {entry_id} of {ledger_id} after its repair"
                require(not was_held, "R1", about)
        if not self.may_be_lost:
            require(
                copies >= metadata.quorum.ack_quorum,
                "L3" if copies == 0 else "L5",
                f"entry {entry_id} of {ledger_id} has {copies} copies",
            )
