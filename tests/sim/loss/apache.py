"""A recovery that behaves like Apache's client, as far as this affects a bookie.

It is the shipped recovery with two differences. The LAC of its write-backs moves with them
(PROTOCOL.md#C10 forbids this, because a reader may then see a LAC above the end). It may reopen a
closed ledger first, as Apache's tools do with a forced recovery.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.model import LedgerMetadata, LedgerState
from ledgerlog_spark.protocol.ledger import messages as m
from ledgerlog_spark.protocol.ledger.metadata_update import Refusal
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


class HastyRecovery(LedgerRecovery):
    """A recovery that closes any record in recovery with the same last fragment.

    Apache's client closes so. No random schedule has this recovery: together with a forced
    recovery, it closes a ledger below its end (PROTOCOL.md#C13).
    """

    def _decide_close(self, current: LedgerMetadata) -> LedgerMetadata | Refusal:
        accept_any_version(self, current)
        return super()._decide_close(current)


def accept_any_version(recovery: LedgerRecovery, current: LedgerMetadata) -> None:
    """Let a recovery close the record that it has loaded now, if its last fragment is the same."""
    assert recovery._update is not None
    is_same = current.last_fragment == recovery._base.value.last_fragment
    if is_same and current.state is LedgerState.IN_RECOVERY:
        version = recovery._update.current.version
        recovery._base = replace(recovery._base, version=version)


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
