"""How far ledgers are confirmed, as one client has seen it: what it has seen never becomes less.

The end of an open ledger is the largest last add confirmed of the bookies that answered, and one of
them that lags may answer instead of one that does not. The record is that of the metadata server
which answered, and after a new session another one may lag behind it. So each look begins with
what this client saw before.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from ledgerlog_spark.model import NO_ENTRY

if TYPE_CHECKING:
    from ledgerlog_spark.model import LedgerMetadata

ENDS_MAX = 10_000

OPEN = -1
"""Stands where the length of a closed ledger would."""


class KnownEnds:
    """By ledger id: the last add confirmed, and the length of a closed one. The oldest go first."""

    def __init__(self) -> None:
        """Knows nothing yet."""
        self._ends: OrderedDict[int, tuple[int, int]] = OrderedDict()

    def last_add_confirmed(self, ledger_id: int) -> int:
        """The largest that was seen, NO_ENTRY without one."""
        return self._of(ledger_id)[0]

    def rise(self, ledger_id: int, last_add_confirmed: int) -> None:
        """An open ledger was confirmed up to there; smaller than what is known, it does nothing."""
        known, length = self._of(ledger_id)
        if length == OPEN and last_add_confirmed > known:
            self._keep(ledger_id, last_add_confirmed, OPEN)

    def newest(self, ledger_id: int, loaded: LedgerMetadata) -> LedgerMetadata:
        """The record that was loaded, closed if a closed one was seen before: CLOSED is final."""
        if loaded.is_closed:
            self._keep(ledger_id, loaded.last_entry_id, loaded.length)
            return loaded
        last_entry_id, length = self._of(ledger_id)
        if length == OPEN:
            return loaded
        return loaded.closed(last_entry_id=last_entry_id, length=length)

    def forget_from(self, ledger_id: int, absent_entry_id: int) -> None:
        """No replica has that entry: a bookie that reported an end behind it was wrong."""
        known, length = self._of(ledger_id)
        if length == OPEN and known >= absent_entry_id:
            del self._ends[ledger_id]

    def _of(self, ledger_id: int) -> tuple[int, int]:
        return self._ends.get(ledger_id, (NO_ENTRY, OPEN))

    def _keep(self, ledger_id: int, last_entry_id: int, length: int) -> None:
        self._ends[ledger_id] = last_entry_id, length
        self._ends.move_to_end(ledger_id)
        if len(self._ends) > ENDS_MAX:
            self._ends.popitem(last=False)
