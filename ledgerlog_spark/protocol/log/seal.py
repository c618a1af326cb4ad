"""Reads the last listed entry of a ledger (LOGS.md#S1-S3).

A recovery must not close the ledger below this entry. All entries of a listed range are on their
ack quorums. If a recovery finds fewer entries than the log lists, it has not read enough bookies.
If this recovery closed the ledger nevertheless, committed rows would be lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ledgerlog_spark.model import NO_ENTRY
from ledgerlog_spark.protocol.log.machine import LogMachine, Steps
from ledgerlog_spark.protocol.log.state.records import Item, LogHead, Paged
from ledgerlog_spark.protocol.log.state.rows import ITEMS
from ledgerlog_spark.protocol.log.state.walk import ListWalk

LOG_ID_KEY = "ledgerlog.log"
"""Key in the custom metadata of every ledger of a log. The value is the id of the log."""

APP_KEY = "ledgerlog.app"
"""Key in the custom metadata of a ledger. The value is the name of the producer that registered the
ledger."""

SINCE_KEY = "ledgerlog.since"
"""Key in the custom metadata of a ledger.

The value is the first offset at which the log may list the ledger, as decimal text.
"""


def since_offset(custom: Mapping[str, bytes]) -> int:
    """Return the value of `SINCE_KEY` in a ledger's custom metadata; 0 if there is no value."""
    text = custom.get(SINCE_KEY, b"").decode("ascii", errors="replace")
    return int(text) if text.isdecimal() else 0


PAGES_AT_ONCE = 16
"""Maximum number of pages in memory; each has at most 1 MiB before compression."""


class FloorMachine(LogMachine[dict[int, int]]):
    """Reads the last entry of each ledger that a log lists, a few pages at a time (LOGS.md#S1).

    A ledger's metadata contains the first offset at which the ledger may be listed, so that only
    later items are read. Ledgers of older releases have no such offset. For these ledgers, the
    whole list is read. Ends with `Finished(dict)`: for each ledger its last listed entry
    (inclusive), or NO_ENTRY if no retained version names the ledger. Fails with `LogNotFoundError`,
    `DataLossError` or the store's errors.
    """

    def __init__(self, log: str, since_offsets: Mapping[int, int]) -> None:
        """`since_offsets` has the first offset at which each ledger may be listed; 0 if unknown."""
        super().__init__(log)
        self._floors = dict.fromkeys(since_offsets, NO_ENTRY)
        self._since_offset = min(since_offsets.values(), default=0)

    def _run(self) -> Steps[dict[int, int]]:
        return self._look(self._at)

    def _at(self, head: LogHead) -> Steps[dict[int, int]]:
        self._floors = dict.fromkeys(self._floors, NO_ENTRY)
        self._note(head.items.recent)
        first = max(self._since_offset, head.oldest_offset)
        refs = yield from self._refs(ListWalk(ITEMS, head.items, first, head.end_offset))
        for place in range(0, len(refs), PAGES_AT_ONCE):
            some = tuple(refs[place : place + PAGES_AT_ONCE])
            walk = ListWalk(ITEMS, Paged(pages=some), some[0].first_key, head.end_offset)
            self._note((yield from self._walk(walk)))
        return self._floors

    def _note(self, items: Iterable[Item]) -> None:
        for item in items:
            known = self._floors.get(item.ledger_id)
            if known is not None and item.last_entry_id > known:
                self._floors[item.ledger_id] = item.last_entry_id
