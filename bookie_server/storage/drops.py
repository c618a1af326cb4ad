"""Writes, applies and forgets the tombstones of deleted ledgers.

A tombstone deletes the entries with a smaller origin sequence. It also fences the ledger, which
keeps its key. After the tombstone, only recovery adds can store new entries, and
deleted entries cannot be read again (FORMATS.md#dropped-ledgers).
"""

from __future__ import annotations

from collections.abc import Sequence

from bookie_server.core.ledger_gate import may_forget
from bookie_server.core.ledger_state import HeldLedger
from bookie_server.core.record import NO_KEY, JournalRecord, JournalRecordKind
from bookie_server.core.requests import OnAdd
from bookie_server.storage.files.keeper import FileKeeper
from bookie_server.storage.journal import Journal
from bookie_server.storage.shared import Shared
from bookie_server.storage.slices import parts
from ledgerlog_spark.model import Code

MILLISECONDS = 1_000


class Drops:
    """Deletes the entries of ledgers, and later forgets the ledgers."""

    def __init__(self, shared: Shared, keeper: FileKeeper, journal: Journal) -> None:
        self._shared = shared
        self._keeper = keeper
        self._journal = journal
        self._leaving: set[int] = set()  # forgotten ledgers whose states may be in the MANIFEST

    async def candidates(self) -> list[int]:
        """Return the ids of all known ledgers that are not dropped, in ascending order."""
        found: list[int] = []
        for part in parts(list(self._shared.states.values())):
            found += [state.ledger_id for state in part if not state.is_deleted]
            await self._shared.give_way()
        return sorted(found)

    def drop(self, ledger_id: int, on_done: OnAdd) -> None:
        """Fence a ledger, and delete all entries that were accepted for the ledger so far.

        The caller has checked that the ledger's metadata is deleted. `LedgerStorage.reclaim` later
        frees files without live entries. `on_done` gets OK after the deletion is durable, and
        NO_LEDGER or READ_ONLY if nothing changed. After IO_ERROR, the result is unknown.
        """
        state = self._shared.states.get(ledger_id)
        if state is None:
            on_done(Code.NO_LEDGER)
            return
        if state.is_deleted:
            self._journal.when_durable(state.drop_ticket, on_done)
            return
        code = self._keeper.refuses_control(is_drop=True)
        if code is not None:
            on_done(code)
            return
        # Change the state before any await, because the next records of the ledger follow the
        # tombstone in the journal.
        state.is_fenced, state.is_released = True, False
        state.last_accepted_id = -1
        self._shared.states.changed.add(ledger_id)
        record = JournalRecord(
            JournalRecordKind.TOMBSTONE,
            ledger_id,
            master_key=state.master_key or NO_KEY,
            value=self._now_s(),
        )
        record.on_done = on_done
        state.last_ticket = state.drop_ticket = self._journal.submit(record)

    def on_durable(self, record: JournalRecord) -> None:
        """Apply a durable tombstone: delete the ledger's entries before it in the journal."""
        state = self._shared.states[record.ledger_id]
        state.bury(record.origin_sequence, record.value, is_release=record.is_release)
        self._shared.states.changed.add(record.ledger_id)
        state.last_entry_id = -1
        self._keeper.drop(record.ledger_id)
        if record.is_release:
            state.is_hidden = False
            self._shared.counters.releases += 1
        else:
            # A deleted ledger needs no repair.
            state.cleared_epoch = self._shared.health.doubt.epoch
            self._shared.counters.drops += 1

    async def forget(self) -> int:
        """Forget dropped ledgers whose old tombstones are no longer needed. Return their number.

        From the next commit on, the MANIFEST keeps only the largest id of the forgotten ledgers.
        """
        candidates: set[int] = set()
        for part in parts(list(self._shared.states.values())):
            candidates.update(state.ledger_id for state in part if self._may_forget(state))
            await self._shared.give_way()
        looked_at: set[int] = set()
        for file in list(self._keeper.finished):
            if not candidates:
                return 0
            for totals in parts(file.totals()):
                candidates.difference_update(total.ledger_id for total in totals)
                await self._shared.give_way()
            looked_at.add(file.entry.file_id)
        forgotten = 0
        for ids in parts(sorted(candidates)):
            forgotten += self._forget_now(ids, looked_at)
            await self._shared.give_way()
        return forgotten

    def _may_forget(self, state: HeldLedger) -> bool:
        return may_forget(
            state,
            now_s=self._now_s(),
            keep_s=self._shared.settings.tombstone_keep_s,
            durable_ticket=self._journal.durable_ticket,
            doubt=self._shared.health.doubt,
        )

    def _forget_now(self, ledger_ids: Sequence[int], looked_at: set[int]) -> int:
        """Forget the ledgers in `ledger_ids` that may still be forgotten. Return their number.

        `looked_at` contains the ids of finished files that have no records of these ledgers.
        """
        keeper, health = self._keeper, self._shared.health
        if keeper.is_in_doubt:
            return 0
        newer = [file for file in keeper.finished if file.entry.file_id not in looked_at]
        forgotten = 0
        for ledger_id in ledger_ids:
            state = self._shared.states.get(ledger_id)
            if state is None or not self._may_forget(state):
                continue
            is_named = any(ledger_id in file.index for file in keeper.opened)
            if is_named or any(file.has(ledger_id) for file in newer):
                continue
            if keeper.handover.names(ledger_id):
                continue
            del self._shared.states[ledger_id]
            self._shared.states.changed.add(ledger_id)
            self._leaving.add(ledger_id)
            health.highest_dropped_ledger_id = max(health.highest_dropped_ledger_id, ledger_id)
            forgotten += 1
        self._shared.counters.tombstones_forgotten += forgotten
        return forgotten

    @property
    def leaving_count(self) -> int:
        """Number of forgotten ledgers whose states the MANIFEST may still have."""
        return len(self._leaving)

    def note_commit(self) -> None:
        """Note that a commit has ended. States that it did not write are still in `changed`."""
        self._leaving &= self._shared.states.changed

    def is_leaving(self, ledger_id: int) -> bool:
        """Return whether the MANIFEST may still have the state of a forgotten ledger."""
        return ledger_id in self._leaving

    def _now_s(self) -> int:
        return self._shared.clock.wall_ms() // MILLISECONDS
