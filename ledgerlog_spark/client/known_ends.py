"""How far ledgers are confirmed, as one client has seen it: what it has seen never becomes less.

The end of an open ledger is the largest last add confirmed of the bookies that answered, and one of
them that lags may answer instead of one that does not. The record is that of the metadata server
which answered, and after a new session another one may lag behind it. So each look begins with
what this client saw before.
"""

from __future__ import annotations

from collections import OrderedDict

from ledgerlog_spark.model import NO_ENTRY, LedgerMetadata

ENDS_MAX = 10_000


class KnownEnds:
    """By ledger id: the last add confirmed, or the closed record. The oldest go first."""

    def __init__(self) -> None:
        """Knows nothing yet."""
        self._ends: OrderedDict[int, int | LedgerMetadata] = OrderedDict()

    def last_add_confirmed(self, ledger_id: int) -> int:
        """The largest that was seen of a ledger that was open; NO_ENTRY without one."""
        known = self._ends.get(ledger_id, NO_ENTRY)
        return known.last_entry_id if isinstance(known, LedgerMetadata) else known

    def rise(self, ledger_id: int, last_add_confirmed: int) -> None:
        """An open ledger was confirmed up to there; smaller than what is known, it does nothing."""
        known = self._ends.get(ledger_id, NO_ENTRY)
        if not isinstance(known, LedgerMetadata) and last_add_confirmed > known:
            self._keep(ledger_id, last_add_confirmed)

    def newest(self, ledger_id: int, loaded: LedgerMetadata) -> LedgerMetadata:
        """The record that was loaded, or the closed one that was seen before: CLOSED is final."""
        known = self._ends.get(ledger_id)
        if isinstance(known, LedgerMetadata) and not loaded.is_closed:
            return known
        if loaded.is_closed:
            self._keep(ledger_id, loaded)
        return loaded

    def forget_from(self, ledger_id: int, absent_entry_id: int) -> None:
        """No replica has that entry: a bookie that reported an end behind it was wrong."""
        known = self._ends.get(ledger_id, NO_ENTRY)
        if not isinstance(known, LedgerMetadata) and known >= absent_entry_id:
            del self._ends[ledger_id]

    def _keep(self, ledger_id: int, end: int | LedgerMetadata) -> None:
        self._ends[ledger_id] = end
        self._ends.move_to_end(ledger_id)
        if len(self._ends) > ENDS_MAX:
            self._ends.popitem(last=False)
