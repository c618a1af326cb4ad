"""Sets fences. `core/ledger_gate.py` refuses the regular adds of a fenced ledger."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from bookie_server.core.ledger_gate import admit_fence, barrier_of
from bookie_server.core.ledger_state import HeldLedger
from bookie_server.core.record import JournalRecord, JournalRecordKind
from bookie_server.ports import Future
from bookie_server.storage.files.keeper import FileKeeper
from bookie_server.storage.files.room import CONTROL_RECORD_SIZE
from bookie_server.storage.journal import Journal
from bookie_server.storage.shared import Shared
from bookie_server.storage.wake_ups import resolve
from ledgerlog_spark.model import Code


class Fences:
    """Sets fences of ledgers and writes them to the journal."""

    def __init__(self, shared: Shared, keeper: FileKeeper, journal: Journal) -> None:
        self._shared = shared
        self._keeper = keeper
        self._journal = journal

    def fence(self, ledger_id: int, key: bytes, then: Callable[[Code], None]) -> None:
        """Fence a ledger for a reader, and call `then` after all earlier adds are durable."""
        health = self._shared.health
        health.has_room = self._keeper.has_room_for(CONTROL_RECORD_SIZE)
        code = admit_fence(key, self._shared.states.get(ledger_id), health)
        if code is None and health.is_closing:
            code = Code.IO_ERROR
        if code is not None:
            then(code)
            return
        state = self._shared.state_of(ledger_id, key)
        self._set(state)
        self._journal.when_durable(barrier_of(state), then)

    async def fence_unwritable(self, ledger_id: int, key: bytes) -> None:
        """Fence a ledger that is in recovery, closed or deleted. Its earlier fence may be lost."""
        state = self._shared.state_of(ledger_id)
        if state.is_fenced or self._shared.health.is_closing:
            return
        self._set(self._shared.state_of(ledger_id, key))
        durable: Future[Code] = self._shared.tasks.future()
        self._journal.when_durable(state.last_ticket, partial(resolve, durable))
        await durable

    def _set(self, state: HeldLedger) -> None:
        """Fence a ledger that has a key. The fence takes effect before its record is written."""
        if state.is_fenced:
            return
        assert state.master_key is not None
        state.is_fenced = True
        self._shared.states.changed.add(state.ledger_id)
        self._shared.counters.fences += 1
        record = JournalRecord(
            JournalRecordKind.FENCE, state.ledger_id, master_key=state.master_key
        )
        state.last_ticket = self._journal.submit(record)
