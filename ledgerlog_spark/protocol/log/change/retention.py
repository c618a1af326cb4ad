"""Drops rows because of `retentionMs` and `retentionBytes` (LOGS.md#U8).

Items are dropped only if a ledger then has no items, so that the ledger can be deleted. Otherwise
versions would be lost, but no space would become free. There is one exception. If all items that a
pass read are due, the pass drops them in any case. Otherwise no later pass would read the items
after them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ledgerlog_spark.protocol.log.change.expiry import STEP_ITEMS_MAX
from ledgerlog_spark.protocol.log.change.truncate import Truncated, TruncateMachine
from ledgerlog_spark.protocol.log.machine import Steps
from ledgerlog_spark.protocol.log.messages import TimeNeeded
from ledgerlog_spark.protocol.log.read.versions import oldest_of
from ledgerlog_spark.protocol.log.state.pages import PageRequest, overlapping, select
from ledgerlog_spark.protocol.log.state.records import Item, LogHead, PageRef
from ledgerlog_spark.protocol.log.state.rows import ITEMS
from ledgerlog_spark.protocol.log.state.walk import ListWalk
from ledgerlog_spark.protocol.log.transaction import Plan

PageSizes = dict[tuple[str, int], int]
"""Payload bytes of the items of each page, by the token and the number of the page."""

ITEMS_AT_ONCE = 8_000
"""Minimum number of items that one read returns, unless fewer are left. Pages are read whole."""

KEPT = -1
"""Value of a retention property that keeps all rows."""


class RetentionMachine(TruncateMachine):
    """Does one pass of retention over a log of either kind; ends with `Finished(Truncated)`.

    The docstring of `Truncated` explains `next_due_ms`, `is_more_due` and `untimed_to`.
    """

    time_needed = TimeNeeded.EXACT

    def __init__(
        self,
        log: str,
        *,
        retention_ms: int,
        retention_bytes: int,
        token: str,
        page_sizes: PageSizes | None = None,
        untimed_to: int = 0,
    ) -> None:
        """If `retention_ms` or `retention_bytes` is -1, this limit keeps all rows.

        `page_sizes` contains the sizes of pages that an earlier pass read, so that this pass need
        not read these pages. The pass replaces the contents of `page_sizes` with the sizes of the
        current pages. `untimed_to` is a result of an earlier pass. Items before this offset are not
        read again, and are dropped with the first later item that is due.
        """
        super().__init__(log, offset=0, token=token)
        self._retention_ms = retention_ms
        self._retention_bytes = retention_bytes
        self._page_sizes = {} if page_sizes is None else page_sizes
        self.next_due_ms: int | None = None
        self.is_more_due = False
        self.untimed_to = untimed_to

    def _plan(self, head: LogHead) -> Plan[Truncated]:
        self.next_due_ms = None
        self.is_more_due = False
        first = max(head.oldest_offset, self.untimed_to)
        ages = [_items_from(head, first)]
        dropped = ages[0]
        is_prefix_unread = first > head.oldest_offset
        if is_prefix_unread:  # the step drops items from the oldest item on, so read this item too
            dropped = oldest_of(head, STEP_ITEMS_MAX)
            yield from self._walk(dropped)
        yield from self._walk(ages[0])
        newest: _NewestVersion | None = None
        if self._retention_bytes != KEPT:
            newest = _NewestVersion(head, self._page_sizes)
            yield from self._walk(newest)
        yield from self._look_on(head, ages)
        items = tuple(item for walk in ages for item in walk.records())
        is_cut = ages[-1].is_cut
        offset = self._target(items, newest, is_cut=is_cut, is_prefix_unread=is_prefix_unread)
        return (yield from self._drop(head, dropped, offset))

    def _look_on(self, head: LogHead, ages: list[ListWalk[Item]]) -> Steps[None]:
        """Read further items, until an item has the time of its newest row."""
        while self._retention_ms != KEPT and ages[-1].is_cut:
            items = ages[-1].records()
            if any(item.newest_ms for item in items):
                return
            self.untimed_to = items[-1].end_offset
            ages.append(_items_from(head, self.untimed_to))
            yield from self._walk(ages[-1])

    def _state_of(self, head: LogHead) -> Truncated:
        return replace(
            super()._state_of(head),
            next_due_ms=self.next_due_ms,
            is_more_due=self.is_more_due,
            untimed_to=self.untimed_to,
        )

    def _target(
        self,
        items: tuple[Item, ...],
        newest: _NewestVersion | None,
        *,
        is_cut: bool,
        is_prefix_unread: bool,
    ) -> int:
        """Return the offset of the first row that is kept; 0 when no row is dropped.

        If `is_cut` is true, unread items come after `items`. If `is_prefix_unread` is true, unread
        items without a time come before `items`.
        """
        offset, is_all_due = 0, False
        if self._retention_ms != KEPT:
            offset, is_all_due = self._due_by_age(items, is_cut=is_cut)
        if newest is not None:
            records = newest.records()
            surplus_bytes = newest.size_bytes() - self._retention_bytes
            by_size = due_by_size(records, surplus_bytes=surplus_bytes, is_all=not newest.is_cut)
            is_all_due |= newest.is_cut and by_size >= records[-1].end_offset
            items = (*items, *records)
            offset = max(offset, by_size)
        if is_all_due:  # drop them even if no ledger becomes free; the next pass reads later items
            self.is_more_due = True
            self.next_due_ms = self._now_ms
            return offset
        if is_prefix_unread and offset >= self.untimed_to:
            return offset  # the unread items are dropped too, which may free their ledgers
        gone = {item.ledger_id for item in items if item.end_offset <= offset}
        kept = {item.ledger_id for item in items if item.end_offset > offset}
        return offset if gone - kept else 0

    def _due_by_age(self, items: Sequence[Item], *, is_cut: bool) -> tuple[int, bool]:
        """Return the end offset of the items that are too old.

        Also return whether items that were not read may be too old.
        """
        since_ms = self._now_ms - self._retention_ms
        younger = [item.newest_ms for item in items if item.newest_ms >= since_ms]
        self.next_due_ms = min(younger, default=self._now_ms) + self._retention_ms + 1
        offset = due_by_age(items, since_ms=since_ms)
        last = max((item.end_offset for item in items if item.newest_ms), default=0)
        return offset, is_cut and offset >= last > 0


def _items_from(head: LogHead, offset: int) -> ListWalk[Item]:
    return ListWalk(ITEMS, head.items, offset, head.end_offset, records_min=ITEMS_AT_ONCE)


class _NewestVersion(ListWalk[Item]):
    """Reads the oldest pages of the newest version, and its pages of unknown size."""

    def __init__(self, head: LogHead, page_sizes: PageSizes) -> None:
        self._page_sizes = page_sizes
        self.all_refs: list[PageRef] = []
        super().__init__(
            ITEMS, head.items, head.start_offset, head.end_offset, records_min=ITEMS_AT_ONCE
        )

    def _want_pages(self, indexed: list[PageRef]) -> None:
        super()._want_pages(indexed)
        refs = (*indexed, *self._paged.pages)
        self.all_refs = overlapping(refs, self._first_key, self._end_key)
        unknown = (ref for ref in self.all_refs[len(self.refs) :] if not self._is_known(ref))
        self.wanted += tuple(PageRequest(ITEMS, ref) for ref in unknown)

    def _is_known(self, ref: PageRef) -> bool:
        return (ref.token, ref.number) in self._page_sizes

    def size_bytes(self) -> int:
        """Return the payload bytes of the version. Store the bytes of each page in `page_sizes`."""
        known: PageSizes = {}
        recent = select(ITEMS, self._paged.recent, self._first_key, self._end_key)
        left = sum(item.size_bytes for item in recent)
        for ref in self.all_refs:
            place = ref.token, ref.number
            page = self.loaded.get(place)  # only items of the version are counted
            if page is None:
                size_bytes = self._page_sizes[place]
            else:
                page = select(ITEMS, page, self._first_key, self._end_key)
                size_bytes = sum(item.size_bytes for item in page)
            known[place] = size_bytes
            left += size_bytes
        self._page_sizes.clear()
        self._page_sizes.update(known)
        return left


def due_by_age(items: Sequence[Item], *, since_ms: int) -> int:
    """Return the end offset of the items whose newest row is older than `since_ms`, or 0.

    Items without a time are dropped with the next item that has a time.
    """
    return max((i.end_offset for i in items if 0 < i.newest_ms < since_ms), default=0)


def due_by_size(items: Sequence[Item], *, surplus_bytes: int, is_all: bool = True) -> int:
    """Return the end offset of the oldest items that have at most `surplus_bytes` together, or 0.

    If `is_all` is true, the last of `items` is the last item of the log, which is never dropped.
    """
    offset = 0
    for item in items[:-1] if is_all else items:
        surplus_bytes -= item.size_bytes
        if surplus_bytes < 0:
            break
        offset = item.end_offset
    return offset
