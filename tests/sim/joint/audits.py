"""Shipped auditors in the world of healing. They use the records and marks of that world."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledgerlog_spark.model import LedgerMetadata, Versioned
from ledgerlog_spark.protocol.autorecovery.audit.messages import ClusterState, LedgerRecord
from tests.sim.auditor.auditors import AuditProcess
from tests.sim.auditor.checker import AuditChecker
from tests.sim.auditor.store import AuditStore, Queue
from tests.sim.auditor.world import AuditOptions, AuditWorld

if TYPE_CHECKING:
    from tests.sim.joint.world import JointWorld

POLL_MS = 4
"""The time between two looks at the registrations, after which watches fire."""


class SharedMarks(Queue):
    """The queue of marks, which the workers of the world take."""

    def __init__(self, world: JointWorld) -> None:
        super().__init__(world.scheduler)
        self._world = world

    def add(self, ledger_id: int, bookie_ids: frozenset[str]) -> None:
        self._world.store.note("mark", ledger_id, bookie_ids)


class SharedStore(AuditStore):
    """The nodes that auditors read: the records and the registrations of the world."""

    def __init__(self, world: JointWorld) -> None:
        super().__init__(world.scheduler)
        self._world = world
        self.marks = SharedMarks(world)
        self.known = set(world.bookies)
        self.delay_ms = world.options.audit_delay_ms
        self._before = self.state().registered

    def state(self) -> ClusterState:
        return ClusterState(
            registered=frozenset(n for n, one in self._world.bookies.items() if one.is_registered),
            known=frozenset(self.known),
            is_enabled=self.is_enabled,
            delay_ms=self.delay_ms,
            delay_writes=self.delay_writes,
        )

    def look(self) -> None:
        """Fire the watches if a registration has changed."""
        now = self.state().registered
        if now != self._before:
            self._before = now
            self.changed()

    def put(self, ledger_id: int, record: Versioned[LedgerMetadata]) -> None:
        self._write(LedgerRecord(ledger_id, record.value, record.version))

    def drop(self, ledger_id: int) -> None:
        """The record was deleted. Replicas that lag still show it."""
        before = self.records.pop(ledger_id, None)
        if before is not None:
            self._history.append((self.scheduler.now_us, ledger_id, before, before))


@dataclass(frozen=True)
class SeenBookie:
    """The properties of a bookie of the world that the checker of audits reads."""

    world: JointWorld
    name: str
    has_lost_session: bool = False

    @property
    def is_alive(self) -> bool:
        return self.world.bookies[self.name].is_up

    @property
    def lost_us(self) -> int | None:
        bookie = self.world.bookies[self.name]
        return None if bookie.is_registered else bookie.down_us


class Audits(AuditWorld):
    """The auditors of a joint world, with the invariants of `tests.sim.auditor.checker`."""

    store: SharedStore

    def __init__(self, world: JointWorld) -> None:
        self._world = world
        self.options = AuditOptions(
            pause_rate=world.options.audit_pause_rate,
            lost_rate=0.1 if world.options.audit_pause_rate else 0.0,
        )
        self.draws = world.draws
        self.scheduler = world.scheduler
        self.store = SharedStore(world)
        self.checker = AuditChecker(self)
        self.marks = world.audit_marks
        self.trace = world.trace
        self.is_healed = False
        self.lost_rate = self.options.lost_rate
        self.bookies = {name: SeenBookie(world, name) for name in world.bookies}  # type: ignore[misc]
        self.auditors = [AuditProcess(self, f"auditor-{number}") for number in range(2)]

    def start(self) -> None:
        for auditor in self.auditors:
            auditor.start()
        self._poll()

    def _poll(self) -> None:
        if not self._world.is_over:
            self.store.look()
            self.scheduler.call_later(POLL_MS * 1_000, self._poll)

    def calm(self) -> None:
        """The faults of auditors end."""
        self.is_healed, self.lost_rate = True, 0.0
        for auditor in self.auditors:
            auditor.reconnect()
