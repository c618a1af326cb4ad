"""How far ledgers are confirmed, as one client has seen it; a known end never decreases.

The end of an open ledger is the largest last add confirmed of the bookies that answered. A bookie
that lags may answer instead of one that does not. Metadata comes from the metadata server that
answered, and after a new session another server may lag. So each read of the end starts from the
end that this client saw before (PROTOCOL.md#E12).

Bookies may report a wrong end: a later entry that no replica has withdraws it. The LACs in entries
that were read are right: their digests were checked.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from ledgerlog_spark.model import NO_ENTRY

if TYPE_CHECKING:
    from ledgerlog_spark.model import LedgerMetadata

ENDS_MAX = 10_000

OPEN = -1
"""Length of a ledger that is not closed."""


class _End(NamedTuple):
    """The known end of one ledger: last add confirmed, length if closed, and LAC of its entries."""

    last_entry_id: int = NO_ENTRY
    length: int = OPEN
    header_lac: int = NO_ENTRY


class KnownEnds:
    """By ledger id; the least recently used ones are dropped first."""

    def __init__(self) -> None:
        """No ends."""
        self._ends: OrderedDict[int, _End] = OrderedDict()

    def last_add_confirmed(self, ledger_id: int) -> int:
        """The largest that was seen, NO_ENTRY without one."""
        return self._of(ledger_id).last_entry_id

    def rise(self, ledger_id: int, last_add_confirmed: int) -> None:
        """An open ledger was confirmed up to here; ignored if smaller than the known end."""
        known = self._of(ledger_id)
        if known.length == OPEN and last_add_confirmed > known.last_entry_id:
            self._keep(ledger_id, known._replace(last_entry_id=last_add_confirmed))

    def note_header_lac(self, ledger_id: int, last_add_confirmed: int) -> None:
        """Entries of an open ledger that were read have this last add confirmed."""
        known = self._of(ledger_id)
        if known.length == OPEN and last_add_confirmed > known.header_lac:
            end = max(known.last_entry_id, last_add_confirmed)
            self._keep(ledger_id, _End(end, OPEN, last_add_confirmed))

    def newest(self, ledger_id: int, loaded: LedgerMetadata) -> LedgerMetadata:
        """The loaded metadata, closed if a closed one was seen before: CLOSED is final."""
        if loaded.is_closed:
            self._keep(ledger_id, _End(loaded.last_entry_id, loaded.length))
            return loaded
        known = self._of(ledger_id)
        if known.length == OPEN:
            return loaded
        return loaded.closed(last_entry_id=known.last_entry_id, length=known.length)

    def forget_from(self, ledger_id: int, absent_entry_id: int) -> None:
        """No replica has that entry: a bookie that reported a later end may be wrong.

        The LAC of entries stays: if it is not below the absent entry, that entry was confirmed and
        is lost.
        """
        known = self._of(ledger_id)
        if known.length == OPEN and known.last_entry_id >= absent_entry_id:
            self._keep(ledger_id, known._replace(last_entry_id=known.header_lac))

    def _of(self, ledger_id: int) -> _End:
        known = self._ends.get(ledger_id)
        if known is None:
            return _End()
        self._ends.move_to_end(ledger_id)
        return known

    def _keep(self, ledger_id: int, end: _End) -> None:
        self._ends[ledger_id] = end
        self._ends.move_to_end(ledger_id)
        if len(self._ends) > ENDS_MAX:
            self._ends.popitem(last=False)
