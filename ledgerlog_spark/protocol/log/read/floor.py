"""How far a log lists ledgers, read a few pages at a time (LOGS.md#S1).

A ledger says from which offset on it may be listed, so only what was committed since it was made is
read. One that does not say it was made by an older version: then the whole list is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ledgerlog_spark.model import NO_ENTRY
from ledgerlog_spark.protocol.log.read.versions import HeadReader
from ledgerlog_spark.protocol.log.state.records import Paged
from ledgerlog_spark.protocol.log.state.rows import ITEMS
from ledgerlog_spark.protocol.log.state.walk import Walk

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ledgerlog_spark.protocol.log.messages import LogEffects
    from ledgerlog_spark.protocol.log.state.records import Item, LogHead, PageRef

PAGES_AT_ONCE = 16
"""Pages of items that are held at a time, of at most 1 MiB each before compression."""


class FloorMachine(HeadReader[dict[int, int]]):
    """Ends with `Finished(dict)`: the highest listed last entry of each ledger, inclusive.

    NO_ENTRY for one that no retained version names. Or `Failed` as the other readers.
    """

    __slots__ = ("_floors", "_since_offset", "_waiting")

    def __init__(self, log: str, since_offsets: Mapping[int, int]) -> None:
        """Machine of one look.

        Args:
            log: Name, for messages.
            since_offsets: By ledger, the first offset at which it may be listed; 0 for any.
        """
        super().__init__(log)
        self._floors = dict.fromkeys(since_offsets, NO_ENTRY)
        self._since_offset = min(since_offsets.values(), default=0)
        self._waiting: list[PageRef] | None = None

    def _walks(self, head: LogHead) -> list[Walk[Any]]:
        self._floors = dict.fromkeys(self._floors, NO_ENTRY)
        self._waiting = None
        self._note(head.items.recent)
        first = max(self._since_offset, head.oldest_offset)
        return [Walk(ITEMS, head.items, first, head.end_offset)]

    def _is_over(self, walk: Walk[Any]) -> bool:
        """Of the first walk only the references are of interest."""
        return walk.is_indexed if self._waiting is None else super()._is_over(walk)

    def _more(self, head: LogHead, walked: list[Walk[Any]]) -> list[Walk[Any]]:
        if self._waiting is None:
            self._waiting = list(walked[0].refs)
        else:
            self._note(walked[-1].records())
            walked[-1].loaded.clear()
            walked.pop()
        some, self._waiting = self._waiting[:PAGES_AT_ONCE], self._waiting[PAGES_AT_ONCE:]
        if not some:
            return []
        return [Walk(ITEMS, Paged(pages=tuple(some)), some[0].first_key, head.end_offset)]

    def _note(self, items: Iterable[Item]) -> None:
        for item in items:
            known = self._floors.get(item.ledger_id)
            if known is not None and item.last_entry_id > known:
                self._floors[item.ledger_id] = item.last_entry_id

    def _done(self, head: LogHead, walked: list[Walk[Any]]) -> LogEffects[dict[int, int]]:
        del head, walked
        return self._finish(self._floors)
