"""The ends of ledgers that one client has found, so that a later read never finds an earlier end.

The end of an open ledger is the largest last add confirmed of the bookies that answered. A later
read may get answers only from bookies that lag, or metadata from a metadata server that lags.
Therefore each read returns at least the end that this client found before (PROTOCOL.md#E12).

A bookie may report an end that is too large. If a read shows that an entry up to this end is on no
replica, the client forgets the end. But the client never forgets a LAC that it read in an entry.
Such a LAC is correct, because the digest of the entry was checked.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from ledgerlog_spark.model import NO_ENTRY, LedgerMetadata

ENDS_MAX = 10_000

OPEN = -1
"""Value in place of the length of a ledger that is not closed."""


class _End(NamedTuple):
    """The known end of a ledger.

    It consists of the LAC, the length if the ledger is closed, and the largest LAC in its entries.
    """

    last_entry_id: int = NO_ENTRY
    length: int = OPEN
    header_lac: int = NO_ENTRY


class KnownEnds:
    """The known end of each ledger.

    Beyond `ENDS_MAX` ledgers, the least recently used end is dropped.
    """

    def __init__(self) -> None:
        """Create an object without known ends."""
        self._ends: OrderedDict[int, _End] = OrderedDict()

    def last_add_confirmed(self, ledger_id: int) -> int:
        """Return the largest known LAC of a ledger; NO_ENTRY if no LAC is known."""
        return self._of(ledger_id).last_entry_id

    def rise(self, ledger_id: int, last_add_confirmed: int) -> None:
        """Store the last add confirmed of an open ledger, unless the known end is larger."""
        known = self._of(ledger_id)
        if known.length == OPEN and last_add_confirmed > known.last_entry_id:
            self._keep(ledger_id, known._replace(last_entry_id=last_add_confirmed))

    def note_header_lac(self, ledger_id: int, last_add_confirmed: int) -> None:
        """Store a LAC from an entry of an open ledger, unless a larger LAC was read before."""
        known = self._of(ledger_id)
        if known.length == OPEN and last_add_confirmed > known.header_lac:
            end = max(known.last_entry_id, last_add_confirmed)
            self._keep(ledger_id, _End(end, OPEN, last_add_confirmed))

    def newest(self, ledger_id: int, loaded: LedgerMetadata) -> LedgerMetadata:
        """Return the loaded metadata.

        If this client found or made the ledger CLOSED earlier, the result is CLOSED too.
        """
        if loaded.is_closed:
            self._keep(ledger_id, _End(loaded.last_entry_id, loaded.length))
            return loaded
        known = self._of(ledger_id)
        if known.length == OPEN:
            return loaded
        return loaded.closed(last_entry_id=known.last_entry_id, length=known.length)

    def forget_from(self, ledger_id: int, absent_entry_id: int) -> None:
        """Remove a reported end at or after the entry `absent_entry_id`, which no replica has.

        The largest LAC that was read in entries then becomes the known end. If this LAC is at or
        after the absent entry, the absent entry was confirmed and is lost.
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
