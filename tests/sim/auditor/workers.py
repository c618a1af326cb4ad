"""A model of a replication worker, and of a client that moves ledgers between live bookies."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ledgerlog_spark.model import Fragment, LedgerMetadata
from tests.sim.auditor.store import US

if TYPE_CHECKING:
    from ledgerlog_spark.protocol.autorecovery.audit.messages import LedgerRecord
    from tests.sim.auditor.world import AuditWorld

STEP_MS_MAX = 120


class MarkWorker:
    """Takes marks, moves ledgers off lost bookies, and deletes the marks at the taken version."""

    def __init__(self, world: AuditWorld, name: str) -> None:
        self.world = world
        self.name = name
        self._steps = 0

    def start(self) -> None:
        self._sleep(self._take)

    def _sleep(self, then: object) -> None:
        self._steps += 1
        delay_ms = self.world.draws.integer(1, STEP_MS_MAX, self.name, self._steps)
        self.world.scheduler.call_later(delay_ms * US, then)  # type: ignore[arg-type]

    def _take(self) -> None:
        store = self.world.store
        if self.world.is_healed:
            return
        ids = sorted(store.marks.notes)
        if not ids or not store.is_up:
            self._sleep(self._take)
            return
        ledger_id = self.world.draws.pick(ids, self.name, "takes", self._steps)
        number, taken_us = store.marks.notes[ledger_id].number, self.world.scheduler.now_us
        self._sleep(lambda: self._work(ledger_id, number, taken_us))

    def _work(self, ledger_id: int, number: int, taken_us: int) -> None:
        """Replace each lost bookie, or leave the mark if there is no spare."""
        store = self.world.store
        record = store.records[ledger_id]
        is_whole = not (record.names - set(store.registered)) or self._heal(record)
        if not is_whole:
            self._sleep(self._take)
            return
        self._sleep(lambda: self._delete(ledger_id, number, taken_us))

    def _heal(self, record: LedgerRecord) -> bool:
        moved = moved_off(record.metadata, set(self.world.store.registered), self.world)
        return moved is not None and self.world.store.replace(record, moved)

    def _delete(self, ledger_id: int, number: int, taken_us: int) -> None:
        if self.world.store.is_up and self.world.store.marks.delete(ledger_id, number):
            self.world.mark("mark deleted")
            self.world.checker.mark_deleted(ledger_id, taken_us)
        self._sleep(self._take)


def moved_off(
    metadata: LedgerMetadata, registered: set[str], world: AuditWorld
) -> LedgerMetadata | None:
    """Return the metadata with live bookies instead of lost ones; None without enough spares."""
    fragments = []
    for fragment in metadata.fragments:
        spares = sorted(registered - set(fragment.ensemble))
        spares = list(world.draws.shuffled(spares, "spares", world.scheduler.events))
        ensemble = []
        for name in fragment.ensemble:
            if name in registered:
                ensemble.append(name)
            elif spares:
                ensemble.append(spares.pop())
            else:
                return None
        fragments.append(Fragment(fragment.first_entry_id, tuple(ensemble)))
    return replace(metadata, fragments=tuple(fragments))


def move(world: AuditWorld, number: int) -> None:
    """Move one copy of one ledger to another live bookie, as a drain does."""
    store = world.store
    record = store.records[world.draws.pick(sorted(store.records), "moved", number)]
    fragment = record.metadata.last_fragment
    targets = sorted(set(store.registered) - set(fragment.ensemble))
    if not targets or not store.is_up:
        return
    old = world.draws.pick(fragment.ensemble, "moved from", number)
    new = world.draws.pick(targets, "moved to", number)
    ensemble = tuple(new if one == old else one for one in fragment.ensemble)
    fragments = (*record.metadata.fragments[:-1], Fragment(fragment.first_entry_id, ensemble))
    world.note("move", f"ledger {record.ledger_id} from {old} to {new}")
    store.replace(record, replace(record.metadata, fragments=fragments))
