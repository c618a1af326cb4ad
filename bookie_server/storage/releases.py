"""Releases ledgers: deletes their entries without a fence (FORMATS.md#released-ledgers).

While a ledger is *releasing*, the bookie neither lists its entries nor denies that an entry exists.
Each add to the ledger ends the release. The state *releasing* is only in memory, because only the
process that began a release can delete the entries. So a release also ends when the process ends.
"""

from __future__ import annotations

from bookie_server.core.ledger_state import HeldLedger
from bookie_server.core.record import FLAG_RELEASE, NO_KEY, JournalRecord, JournalRecordKind
from bookie_server.core.release import AddPeriods, may_begin
from bookie_server.core.requests import OnAdd
from bookie_server.storage.drops import MILLISECONDS
from bookie_server.storage.files.keeper import FileKeeper
from bookie_server.storage.journal import Journal
from bookie_server.storage.shared import Shared
from bookie_server.storage.slices import parts
from ledgerlog_spark.model import Code


class Releases:
    """Hides ledgers, and drops the hidden ledgers without a fence."""

    def __init__(self, shared: Shared, keeper: FileKeeper, journal: Journal) -> None:
        self._shared = shared
        self._keeper = keeper
        self._journal = journal
        self._wait_ms = shared.settings.release_wait_ms
        self._periods = AddPeriods(self._wait_ms, shared.clock.monotonic_ms())

    async def candidates(self) -> list[int]:
        """Return the ids of ledgers that got no add for `release_wait_ms`, in ascending order."""
        self._periods.advance(self._shared.clock.monotonic_ms())
        self._shared.health.add_period = self._periods.current
        quiet_before = self._quiet_before()
        found: list[int] = []
        for part in parts(list(self._shared.states.values())):
            found += [state.ledger_id for state in part if self._may_begin(state, quiet_before)]
            await self._shared.give_way()
        return sorted(found)

    def _quiet_before(self) -> int:
        """Return the first period whose adds are too recent for a release; 0 if the wait is 0."""
        if not self._wait_ms:
            return 0
        return self._periods.quiet_before(self._shared.clock.monotonic_ms())

    def _may_begin(self, state: HeldLedger, quiet_before: int) -> bool:
        return may_begin(
            state,
            self._shared.health,
            quiet_before=quiet_before,
            durable_ticket=self._journal.durable_ticket,
        )

    def hide(self, ledger_id: int) -> bool:
        """Begin to release a ledger. Return False if it may not be released now."""
        state = self._shared.states.get(ledger_id)
        if state is None or not self._may_begin(state, self._quiet_before()):
            return False
        state.is_releasing = state.is_hidden = True
        return True

    def unhide(self, ledger_id: int) -> None:
        """End the release of a ledger, and keep its entries. Without a release, do nothing."""
        state = self._shared.states.get(ledger_id)
        if state is not None:
            state.end_release()

    def release(self, ledger_id: int, on_done: OnAdd) -> None:
        """Delete all entries of a hidden ledger, without a fence.

        The ledger keeps its key and its fence. Its next regular add waits for the metadata check.
        `on_done` gets OK when the deletion is durable. It gets NO_LEDGER if an add has ended the
        release, and READ_ONLY if there is no room. After IO_ERROR, the result is unknown.
        """
        state = self._shared.states.get(ledger_id)
        if state is None or not state.is_releasing:
            on_done(Code.NO_LEDGER)
            return
        code = self._keeper.refuses_control(is_drop=True)
        if code is not None:
            on_done(code)
            return
        # Change the state before any await, because the next records of the ledger follow the
        # tombstone in the journal. The ledger stays hidden until the tombstone is durable, because
        # until then, the files still list the entries.
        state.is_releasing = False
        state.is_released = state.is_unverified = True
        state.last_accepted_id = -1
        self._shared.states.changed.add(ledger_id)
        record = JournalRecord(
            JournalRecordKind.TOMBSTONE,
            ledger_id,
            master_key=state.master_key or NO_KEY,
            flags=FLAG_RELEASE,
            value=self._shared.clock.wall_ms() // MILLISECONDS,
        )
        record.on_done = on_done
        state.last_ticket = state.drop_ticket = self._journal.submit(record)
