"""Last adds confirmed (LACs) of ledgers: writers announce them, readers read and watch them."""

from __future__ import annotations

from collections.abc import Callable

from bookie_server.core.ledger_gate import key_fits
from bookie_server.core.ledger_state import HeldLedger
from bookie_server.core.record import JournalRecord, JournalRecordKind
from bookie_server.core.requests import ID_MAX, OnAdd, OnLac
from bookie_server.storage.files.keeper import FileKeeper
from bookie_server.storage.journal import Journal
from bookie_server.storage.limbo.denials import Denials
from bookie_server.storage.shared import Shared
from bookie_server.storage.wake_ups import call_back
from ledgerlog_spark.model import MASTER_KEY_SIZE_BYTES, NO_ENTRY, Code

OnLacChange = Callable[[int], None]


class Lacs:
    """The LACs of all ledgers of one storage, and their watches."""

    def __init__(
        self, shared: Shared, keeper: FileKeeper, journal: Journal, denials: Denials
    ) -> None:
        self._shared = shared
        self._denials = denials
        self._keeper = keeper
        self._journal = journal
        self._watches: dict[int, dict[object, OnLacChange]] = {}

    def read(self, ledger_id: int, on_done: OnLac) -> None:
        """Answer with the known LAC, or with IO_ERROR if a lost entry may have had a larger LAC."""
        if self._denials.must_compare(ledger_id):
            self._denials.compare(ledger_id, lambda: self._read(ledger_id, on_done))
        else:
            self._read(ledger_id, on_done)

    def _read(self, ledger_id: int, on_done: OnLac) -> None:
        state = self._shared.states.get(ledger_id)
        if state is None or not self._denials.may_deny(ledger_id):
            on_done(self._denials.code(ledger_id), NO_ENTRY)
        elif not state.is_lac_known:
            on_done(Code.IO_ERROR, NO_ENTRY)
        else:
            on_done(Code.OK, state.lac)

    def write(self, ledger_id: int, lac: int, master_key: bytes, on_done: OnAdd) -> None:
        """Store an explicit LAC, and answer when it is durable. A smaller LAC has no effect.

        Watches are called before the LAC is durable, because the writer has already confirmed the
        adds. Only the answer waits for the disk.
        """
        if (
            not 0 <= ledger_id <= ID_MAX
            or not 0 <= lac <= ID_MAX
            or len(master_key) != MASTER_KEY_SIZE_BYTES
        ):
            on_done(Code.BAD_REQUEST)
            return
        state = self._shared.states.get(ledger_id)
        if state is not None and not key_fits(state, master_key):
            on_done(Code.UNAUTHORIZED)
            return
        code = self._keeper.refuses_control()
        if code is not None:
            on_done(code)
            return
        state = self._shared.state_of(ledger_id, master_key)
        record = JournalRecord(JournalRecordKind.LAC, ledger_id, master_key=master_key, value=lac)
        record.on_done = on_done
        state.last_ticket = self._journal.submit(record)
        self._raise(state, lac)

    def announce(self, ledger_id: int, lac: int, master_key: bytes) -> None:
        """Remember a confirmed LAC at least until the process ends.

        If the ledger is unknown or the key is wrong, the LAC is ignored.
        """
        state = self._shared.states.get(ledger_id)
        if state is not None and state.master_key is not None and key_fits(state, master_key):
            self._raise(state, lac)

    def _raise(self, state: HeldLedger, lac: int) -> None:
        before = state.lac
        if lac > state.explicit_lac:
            state.explicit_lac = lac
            self._shared.states.changed.add(state.ledger_id)
        self.changed(state, before)

    def watch(self, ledger_id: int, on_change: OnLacChange) -> Callable[[], None]:
        """Call `on_change` whenever the LAC grows, and return a function that ends the watch."""
        watches = self._watches.setdefault(ledger_id, {})
        watch = object()
        watches[watch] = on_change

        def cancel() -> None:
            watches.pop(watch, None)
            if not watches and self._watches.get(ledger_id) is watches:
                del self._watches[ledger_id]

        return cancel

    def changed(self, state: HeldLedger, before: int) -> None:
        """Call the watches of a ledger if the ledger's LAC is larger than `before`."""
        lac = state.lac
        if lac > before:
            for on_change in list(self._watches.get(state.ledger_id, {}).values()):
                call_back(self._shared.tasks, on_change, lac)
