"""A recovery that behaves like Apache's client, as far as this affects a bookie.

It is the shipped recovery with two differences. The LAC of its write-backs moves with them
(PROTOCOL.md#C10 forbids this, because a reader may then see a LAC above the end). It may reopen a
closed ledger first, as Apache's tools do with a forced recovery.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ledgerlog_spark.model import LedgerState
from ledgerlog_spark.protocol.ledger import messages as m
from ledgerlog_spark.protocol.ledger.recover.recovery import LedgerRecovery
from ledgerlog_spark.protocol.ledger.write.add_pipeline import AddPipeline

if TYPE_CHECKING:
    from tests.sim.client import SimClient
    from tests.sim.loss.world import LossWorld
    from tests.sim.release.world import ReleaseWorld


class MovingPipeline(AddPipeline):
    """A pipeline whose write-backs have the newest LAC."""

    __slots__ = ()

    @property
    def header_last_add_confirmed(self) -> int:
        return self.last_add_confirmed


class ApacheRecovery(LedgerRecovery):
    """A recovery of Apache's client."""

    def handle(self, event: Any) -> list[Any]:
        effects = super().handle(event)
        pipeline = self._tail.write_back.pipeline if self._tail is not None else None
        if pipeline is not None and type(pipeline) is AddPipeline:
            pipeline.__class__ = MovingPipeline
        return effects


def perhaps_as_apache(world: LossWorld | ReleaseWorld, client: SimClient, part: float) -> None:
    """Let a recovery behave as Apache's client does, in a part of the cases."""
    if world.draws.uniform("apache", client.name) < part:
        machine = client.machine
        assert type(machine) is LedgerRecovery
        machine.__class__ = ApacheRecovery
        world.checkers.mark("recovery of Apache's client")


def force(world: LossWorld | ReleaseWorld, name: str, ledger_id: int) -> None:
    """Reopen a closed ledger, and recover it, as Apache's tools do."""
    record = world.store.records.get(ledger_id)
    if record is None or not record.value.is_closed:
        return
    world.checkers.of(ledger_id).forced.add(name)
    reopened = record.value.in_recovery()

    def write() -> None:
        world.store.write(name, ledger_id, reopened, record.version)
        current = world.store.records.get(ledger_id)
        if current is not None and current.value.state is LedgerState.IN_RECOVERY:
            world.recoverer(name, ledger_id=ledger_id).feed(m.Start())

    world.scheduler.call_later(500, write)
