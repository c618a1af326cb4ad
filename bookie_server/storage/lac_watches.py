"""Who wants to hear when the last add confirmed of a ledger grows."""

from __future__ import annotations

from collections.abc import Callable

from bookie_server.core.ledger_state import LedgerState
from bookie_server.ports import Tasks
from bookie_server.storage.wake_ups import report

OnLacChange = Callable[[int], None]


class LacWatches:
    """The watches of all ledgers of one storage."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._by_ledger: dict[int, dict[object, OnLacChange]] = {}

    def watch(self, ledger_id: int, on_change: OnLacChange) -> Callable[[], None]:
        """Call `on_change` with the LAC whenever it grows; returns what ends that."""
        watches = self._by_ledger.setdefault(ledger_id, {})
        watch = object()
        watches[watch] = on_change

        def cancel() -> None:
            watches.pop(watch, None)
            if not watches and self._by_ledger.get(ledger_id) is watches:
                del self._by_ledger[ledger_id]

        return cancel

    def tell(self, state: LedgerState, before: int) -> None:
        """The LAC of a ledger was `before`, and may have grown."""
        lac = state.lac
        if lac > before:
            for on_change in list(self._by_ledger.get(state.ledger_id, {}).values()):
                try:
                    on_change(lac)
                except Exception as error:  # noqa: BLE001 - whatever it is, it is its owner's
                    report(self._tasks, error)
