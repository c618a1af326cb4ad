"""Dropped ledgers: their tombstones, what these leave behind, and when they are forgotten.

A tombstone drops the entries with a lower origin sequence and keeps the ledger fenced and its key:
only recovery adds bring entries back, and never those (DESIGN 4.1, docs/FORMATS.md, Dropped
ledgers).
"""

from __future__ import annotations

from bookie_server.core.ledger_gate import Health, may_forget
from bookie_server.core.ledger_state import LedgerState
from bookie_server.core.record import NO_KEY, LogRecord, RecordKind
from bookie_server.core.requests import OnAdd
from bookie_server.core.settings import StorageSettings
from bookie_server.ports import Clock
from bookie_server.storage.adds import AddPath
from bookie_server.storage.counters import StorageCounters
from bookie_server.storage.file_keeper import FileKeeper
from bookie_server.storage.log import Log
from ledgerlog_spark.model import Code

MILLISECONDS = 1_000


class Drops:
    """Lets ledgers go."""

    def __init__(
        self,
        *,
        log: Log,
        keeper: FileKeeper,
        adds: AddPath,
        clock: Clock,
        settings: StorageSettings,
        health: Health,
        states: dict[int, LedgerState],
        counters: StorageCounters,
    ) -> None:
        self._log = log
        self._keeper = keeper
        self._adds = adds
        self._clock = clock
        self._settings = settings
        self._health = health
        self._states = states
        self._counters = counters

    def candidates(self) -> list[int]:
        """Ledgers that a drop would change something of, in rising order."""
        return sorted(i for i, state in self._states.items() if not state.is_dropped)

    def drop(self, ledger_id: int, on_done: OnAdd) -> None:
        """Write a tombstone; see `LedgerStorage.drop`."""
        state = self._states.get(ledger_id)
        if state is None:
            on_done(Code.NO_LEDGER)
            return
        if state.is_dropped:
            self._log.when_durable(state.drop_ticket, on_done)
            return
        code = self._adds.refuses_control()
        if code is not None:
            on_done(code)
            return
        # At once: what is admitted from here on lies behind the tombstone in the log.
        state.is_fenced = True
        state.last_accepted_id = -1
        record = LogRecord(
            RecordKind.TOMBSTONE,
            ledger_id,
            master_key=state.master_key or NO_KEY,
            value=self._now_s(),
        )
        record.on_done = on_done
        state.last_ticket = state.drop_ticket = self._log.submit(record)

    def on_durable(self, record: LogRecord) -> None:
        """A tombstone counts: nothing that lies before it in the log is held any more."""
        state = self._states[record.ledger_id]
        state.bury(record.origin_sequence, record.value)
        state.last_entry_id = -1
        self._keeper.drop(record.ledger_id)
        self._counters.drops += 1

    def forget(self) -> int:
        """Forget old tombstones that no record needs any more; returns how many.

        From the next commit on the largest of their ids is in the MANIFEST instead.
        """
        old = [
            state
            for state in self._states.values()
            if may_forget(
                state,
                now_s=self._now_s(),
                keep_s=self._settings.tombstone_keep_s,
                durable_ticket=self._log.durable_ticket,
            )
        ]
        if not old:
            return 0
        needed = self._keeper.ledgers_with_records()
        if needed is None:
            return 0
        forgotten = [state.ledger_id for state in old if state.ledger_id not in needed]
        for ledger_id in forgotten:
            del self._states[ledger_id]
        health = self._health
        health.highest_dropped_ledger_id = max(health.highest_dropped_ledger_id, *forgotten, -1)
        self._counters.tombstones_forgotten += len(forgotten)
        return len(forgotten)

    def _now_s(self) -> int:
        return self._clock.wall_ms() // MILLISECONDS
