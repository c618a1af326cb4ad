"""The invariants of the audit, checked at each effect of an auditor (docs/AUTORECOVERY.md)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.sim.auditor.auditors import MARKS_BETWEEN_READS
from tests.sim.auditor.store import US
from tests.sim.checker import require

if TYPE_CHECKING:
    from ledgerlog_spark.protocol.autorecovery.audit import messages as m
    from tests.sim.auditor.auditors import AuditProcess
    from tests.sim.auditor.world import AuditWorld


@dataclass
class Observed:
    """What one elected auditor has read of the cluster.

    Attributes:
        lost_since_us: For each bookie that is lost, the time of the first of the consecutive reads
            in which it was lost.
        may_hurry: Bookies that were lost together with another new one, or after the operator
            requested an audit.
    """

    state: m.ClusterState | None = None
    lost_since_us: dict[str, int] = field(default_factory=dict)
    may_hurry: set[str] = field(default_factory=set)
    delay_ms_min: int = 0
    marks_since_read: int = 0
    delay: tuple[int, int] | None = None
    walk_began_us: int = 0
    handled: set[str] = field(default_factory=set)


class AuditChecker:
    """Checks each mark when it begins, each deletion of a mark, and the end."""

    def __init__(self, world: AuditWorld) -> None:
        self.world = world
        self.observed: dict[str, Observed] = {}
        self._marked_us: dict[tuple[int, str], int] = {}
        self._written_us: dict[int, int] = {}

    def elected(self, auditor: AuditProcess) -> None:
        self.observed[auditor.name] = Observed(walk_began_us=self.world.scheduler.now_us)

    def cluster_read(self, auditor: AuditProcess, state: m.ClusterState) -> None:
        """Note a read, with its times."""
        seen, now_us = self.observed[auditor.name], self.world.scheduler.now_us
        lost = self._candidates(state) - state.registered
        seen.lost_since_us = {one: seen.lost_since_us.get(one, now_us) for one in sorted(lost)}
        seen.may_hurry &= lost
        seen.handled &= lost
        if len(lost - seen.handled) > 1:
            seen.may_hurry |= lost
        before, seen.delay = seen.delay, (state.delay_ms, state.delay_writes)
        if before is not None and before != seen.delay and before[0] == state.delay_ms:
            seen.may_hurry |= lost
        is_first = not lost or before is None
        least_ms = state.delay_ms if is_first else min(seen.delay_ms_min, state.delay_ms)
        seen.delay_ms_min = least_ms
        seen.state, seen.marks_since_read = state, 0

    def _candidates(self, state: m.ClusterState) -> frozenset[str]:
        named = frozenset().union(*(each.names for each in self.world.store.records.values()))
        return state.known | named

    def mark_begins(self, auditor: AuditProcess, effect: m.WriteMark) -> None:
        """A mark needs a live session, an enabled auto-recovery, and lost bookies."""
        world = self.world
        seen = self.observed[auditor.name]
        require(not auditor.is_suspended, "N8", f"{auditor.name} marks while it is suspended")
        require(
            auditor.elected_in == auditor.session,
            "N8",
            f"{auditor.name} marks in session {auditor.session}, elected in {auditor.elected_in}",
        )
        assert seen.state is not None
        require(seen.state.is_enabled, "N4", f"{auditor.name} marks, but read that it is disabled")
        seen.marks_since_read += 1
        require(
            seen.marks_since_read <= MARKS_BETWEEN_READS,
            "N1",
            f"{auditor.name} writes {seen.marks_since_read} marks after its last read",
        )
        for name in effect.bookie_ids:
            self._check_lost(auditor, seen, effect.ledger_id, name)
            bookie = world.bookies.get(name)
            require(
                bookie is None or not (bookie.is_alive and bookie.has_lost_session),
                "N3",
                f"{auditor.name} marks {effect.ledger_id} for {name}, which runs and registers "
                "again",
            )

    def _check_lost(self, auditor: AuditProcess, seen: Observed, ledger_id: int, name: str) -> None:
        since_us = seen.lost_since_us.get(name)
        require(
            since_us is not None,
            "N1",
            f"{auditor.name} marks {ledger_id} for {name}, which its last read shows registered",
        )
        assert since_us is not None
        waited_us = self.world.scheduler.now_us - since_us
        require(
            name in seen.may_hurry or waited_us >= seen.delay_ms_min * US,
            "N2",
            f"{auditor.name} marks {ledger_id} for {name} after {waited_us / US} ms, and the delay "
            f"is {seen.delay_ms_min} ms",
        )

    def marked(self, ledger_id: int, bookie_ids: tuple[str, ...]) -> None:
        """A mark is written."""
        self._written_us[ledger_id] = self.world.scheduler.now_us
        for name in bookie_ids:
            self._marked_us[ledger_id, name] = self.world.scheduler.now_us

    def mark_deleted(self, ledger_id: int, taken_us: int) -> None:
        """Check a mark that a worker deleted: the ledger was not marked after the worker took the
        mark."""
        require(
            self._written_us.get(ledger_id, -1) <= taken_us,
            "N7",
            f"a worker deleted the mark of ledger {ledger_id}, which was marked after it took it",
        )

    def walk_ended(self, auditor: AuditProcess, effect: m.WalkEnded) -> None:
        """Every ledger that named a handled bookie before the walk was marked."""
        world, seen = self.world, self.observed[auditor.name]
        began_us, seen.walk_began_us = seen.walk_began_us, world.scheduler.now_us
        seen.handled |= set(effect.handled)
        for ledger_id, record in world.store.records.items():
            if world.store.written_us(ledger_id) > began_us:
                continue
            for name in sorted(record.names & set(effect.handled)):
                lost_us = world.bookies[name].lost_us
                if lost_us is None:
                    continue
                require(
                    self._marked_us.get((ledger_id, name), -1) >= lost_us,
                    "N6",
                    f"{auditor.name} ended its walk for {name}, but did not mark {ledger_id}",
                )

    def at_end(self) -> None:
        """All ledgers that name a lost bookie are in the queue."""
        store = self.world.store
        for ledger_id, record in store.records.items():
            for name in sorted(record.names - set(store.registered)):
                found = store.marks.notes.get(ledger_id)
                require(
                    found is not None and name in found.bookie_ids,
                    "END",
                    f"ledger {ledger_id} names {name}, which is lost, and has no mark for it",
                )
