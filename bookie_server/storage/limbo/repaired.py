"""Stores entries that a repair fetched from other bookies, and clears ledgers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from bookie_server.core.doubt import Doubt
from bookie_server.core.ledger_gate import is_in_limbo
from bookie_server.core.ledger_state import HeldLedger
from bookie_server.core.record import NO_KEY, JournalRecord, JournalRecordKind
from bookie_server.core.requests import StoredAdd
from bookie_server.errors import StorageError
from bookie_server.ports import Future
from bookie_server.storage.adds import AddPath
from bookie_server.storage.files.keeper import FileKeeper
from bookie_server.storage.journal import Journal
from bookie_server.storage.reading.readings import finish
from bookie_server.storage.reading.reads import Reader
from bookie_server.storage.shared import Shared
from bookie_server.storage.wake_ups import resolve
from ledgerlog_spark.model import NO_ENTRY, Code


class RepairedLedgers:
    """Reads and writes the ledgers of this directory for a repair."""

    def __init__(
        self, shared: Shared, keeper: FileKeeper, journal: Journal, reader: Reader, adds: AddPath
    ) -> None:
        self._shared = shared
        self._states = shared.states
        self._keeper = keeper
        self._journal = journal
        self._reader = reader
        self._adds = adds
        self.on_cleared: Callable[[], None] = lambda: None

    def in_limbo(self) -> list[int]:
        """Return the ids of the ledgers that have a state and need a repair, in ascending order.

        A deleted ledger needs no repair, and stays in limbo until its state is removed. A released
        ledger needs a repair, because it may still exist, and its metadata may name this bookie
        again. In this case, the bookie may lack entries that it should have.
        """
        doubt = self._shared.health.doubt
        if doubt.epoch == 0:
            return []
        return sorted(s.ledger_id for s in self._states.values() if needs_repair(s, doubt))

    async def verify_held(
        self, ledger_id: int, entry_ids: Sequence[int], is_intact: Callable[[int, bytes], bool]
    ) -> frozenset[int]:
        """Return the ids of the stored entries whose bytes `is_intact` accepts.

        Each entry is read, and the checksums of its record are verified.
        """
        held: list[int] = []
        for entry_id in entry_ids:
            try:
                stored = await finish(self._reader.read_entry(ledger_id, entry_id))
            except StorageError:
                continue
            if stored is not None and is_intact(entry_id, stored):
                held.append(entry_id)
            await self._shared.give_way()
        return frozenset(held)

    async def store_repaired(self, ledger_id: int, entry_id: int, stored: bytes) -> Code:
        """Store an entry as a recovery add. If the code is OK, the entry is synced.

        If the bookie has lost the key of the ledger, the next request of a client sets the key.
        """
        state = self._states.get(ledger_id)
        key = NO_KEY if state is None or state.master_key is None else state.master_key
        request = StoredAdd(ledger_id, (entry_id,), (len(stored),), stored, key, is_recovery=True)
        done: Future[Code] = self._shared.tasks.future()
        self._adds.add(request, partial(resolve, done))
        return await done

    async def clear_ledger(self, ledger_id: int, epoch: int, last_add_confirmed: int) -> Code:
        """Store that a ledger lost nothing up to `epoch`, or that its losses are repaired.

        The code OK means that the record of this call is synced, and all entries that were stored
        before it. The check epoch does not change, so the next regular add reads the metadata.
        """
        return await self._write(ledger_id, epoch, last_add_confirmed)

    async def keep_in_limbo(self, ledger_id: int) -> Code:
        """Write the state of a ledger in limbo. If the code is OK, the state is synced.

        A record is written even if the ledger has a state in memory, because the record from which
        that state comes may be lost.
        """
        state = self._shared.state_of(ledger_id)
        return await self._write(ledger_id, state.cleared_epoch, NO_ENTRY)

    async def _write(self, ledger_id: int, epoch: int, last_add_confirmed: int) -> Code:
        code = self._keeper.refuses_control()
        if code is not None:
            return code
        state = self._shared.state_of(ledger_id)
        record = JournalRecord(
            JournalRecordKind.LIMBO, ledger_id, value=last_add_confirmed, epoch=epoch
        )
        done: Future[Code] = self._shared.tasks.future()

        def durable(code: Code) -> None:
            # The state changes in the same turn of the event loop in which the record becomes
            # durable. So the first MANIFEST that lists the record's file as finished has the
            # change.
            if code is Code.OK:
                self._apply(ledger_id, epoch, last_add_confirmed)
            resolve(done, code)

        state.last_ticket = self._journal.submit(record)
        self._journal.when_durable(record.ticket, durable)
        return await done

    def _apply(self, ledger_id: int, epoch: int, last_add_confirmed: int) -> None:
        state = self._shared.state_of(ledger_id)
        state.cleared_epoch = max(state.cleared_epoch, epoch)
        state.explicit_lac = max(state.explicit_lac, last_add_confirmed)
        self._states.changed.add(ledger_id)
        self.on_cleared()


def needs_repair(state: HeldLedger, doubt: Doubt) -> bool:
    """Return whether a ledger with a state is in limbo and not deleted."""
    return is_in_limbo(state, doubt) and not state.is_deleted
