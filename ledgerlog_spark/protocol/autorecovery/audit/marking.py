"""The walk over all records that marks the ledgers of lost bookies (AUTORECOVERY.md#N6-N9).

First, the walk loads the records of the ledgers that the index proposes, and marks these ledgers if
necessary. After that, the walk reads all records, and these decide which ledgers are marked. It
begins at the position at which the predecessor stopped. After the record with the largest ledger
id, it continues with the smallest id. It ends when it has returned to the position at which it
began.

The walk processes one page of records at a time. It writes all marks of a page before it reads the
next page.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from ledgerlog_spark.protocol.autorecovery.audit.messages import (
    LedgerRecord,
    LoadRecords,
    ReadRecords,
    StorePosition,
    WriteMark,
)

if TYPE_CHECKING:
    from ledgerlog_spark.protocol.autorecovery.audit.index import LedgerIndex
    from ledgerlog_spark.protocol.autorecovery.audit.messages import (
        AuditEffect,
        NoteWritten,
        RecordsRead,
    )
    from ledgerlog_spark.protocol.request_numbers import RequestNumbers

BEFORE_ALL = -1
"""The position before the smallest ledger id."""


@dataclass(frozen=True, slots=True)
class MarkingLimits:
    """The limits of a walk.

    Attributes:
        page_records: Number of records that are read together.
        marks_open_max: Number of marks that are written at the same time.
        marks_between_reads: Number of marks after which the state of the cluster is read again.
    """

    page_records: int = 1_000
    marks_open_max: int = 64
    marks_between_reads: int = 1_000


class MarkingWalk:
    """The present walk over all records: its proposed ledgers, its pages and its marks.

    Attributes:
        is_running: Whether a walk has begun and has not ended.
        needs_cluster: Whether the state of the cluster must be read again before further marks.
        needs_pause: Whether a request failed, so that the walk must pause.
    """

    def __init__(
        self, limits: MarkingLimits, index: LedgerIndex, numbers: RequestNumbers, position: int
    ) -> None:
        self._limits = limits
        self._index = index
        self._numbers = numbers
        self._start = self._after = position
        self.is_running = self.needs_cluster = self.needs_pause = False
        self._proposals: deque[int] = deque()
        self._proposed_last = BEFORE_ALL
        self._marked: dict[int, int] = {}  # ledger id to the version of the proposed record
        self._whole: frozenset[str] = frozenset()  # bookies whose ledgers each step marked
        self._has_wrapped = False
        self._reading: int | None = None
        self._is_proposal = False
        self._todo: deque[LedgerRecord] = deque()
        self._open: dict[int, LedgerRecord] = {}
        # the last ledger id of the present page, and whether no page follows it
        self._page_end: tuple[int, bool] | None = None
        self._marks_since_read = 0
        self.ledgers = self.marks = self.unreadable = 0

    def begin(self, ripe: frozenset[str]) -> None:
        """Begin a walk that marks the ledgers of these bookies.

        If there are none, it only fills the index.
        """
        assert not self.is_running
        self.is_running, self._whole = True, ripe
        self._has_wrapped = self._start == BEFORE_ALL
        self._after = self._start
        self._marked = {}
        proposed = self._index.naming(ripe) if ripe else []
        first = bisect_right(proposed, self._start)
        self._proposals = deque(proposed[first:] + proposed[:first])
        self._proposed_last = BEFORE_ALL
        self._index.begin()
        self.ledgers = self.unreadable = 0

    def abandon(self) -> None:
        """Forget all open requests. Later, the walk reads its present page once more."""
        self._reading = self._page_end = None
        self._todo.clear()
        self._open.clear()
        self.needs_pause = False

    def cluster_read(self) -> None:
        """Allow further marks, because the state of the cluster was read."""
        self.needs_cluster = False
        self._marks_since_read = 0

    def awaits(self, request: int) -> bool:
        """Whether this is the number of an open request."""
        return request == self._reading or request in self._open

    def records_read(self, event: RecordsRead, ripe: frozenset[str]) -> None:
        """Handle a page of records, or the records of proposed ledgers."""
        self._reading = None
        if not event.is_read:
            self.needs_pause = True
            return
        if not self._is_proposal:
            self._page_end = event.last, event.is_end
            self.unreadable += len(event.unreadable)
            for record in event.records:
                self.ledgers += 1
                self._index.note(record.ledger_id, record.names)
        else:
            loaded = min(self._limits.page_records, len(self._proposals))
            for _ in range(loaded):
                self._proposed_last = self._proposals.popleft()
        self._todo.extend(record for record in event.records if self._is_found(record, ripe))

    def mark_written(self, event: NoteWritten) -> None:
        """Handle the outcome of the write of a mark. If the mark may be missing, write it again."""
        record = self._open.pop(event.request)
        if not event.is_written:
            self.needs_pause = True
            self._todo.append(record)
            return
        self.marks += 1
        if self._is_proposal:
            self._marked[record.ledger_id] = record.version.number

    def step(self, ripe: frozenset[str]) -> list[AuditEffect]:
        """Return the next effects. If `is_running` is False afterwards, the walk has ended."""
        self._whole &= ripe
        if not self.is_running or self.needs_pause:
            return []
        effects = self._write_marks(ripe)
        if self._todo or self._open or self._reading is not None:
            return effects
        return [*effects, *self._next_page(ripe)]

    def take_handled(self) -> frozenset[str]:
        """Return the bookies of which the ended walk has marked all ledgers."""
        return self._whole

    def _is_found(self, record: LedgerRecord, ripe: frozenset[str]) -> bool:
        """Whether to mark the ledger of a record, at most once for each version of the record."""
        if self._marked.get(record.ledger_id) == record.version.number:
            return False
        return bool(record.names & ripe)

    def _write_marks(self, ripe: frozenset[str]) -> list[AuditEffect]:
        effects: list[AuditEffect] = []
        while self._todo and len(self._open) < self._limits.marks_open_max:
            record = self._todo[0]
            lost = record.names & ripe
            if not lost:
                self._todo.popleft()  # the bookies have returned, or auto-recovery is disabled
                continue
            if self._marks_since_read >= self._limits.marks_between_reads:
                self.needs_cluster = True
            if self.needs_cluster:
                break
            self._todo.popleft()
            self._marks_since_read += 1
            request = self._numbers.next()
            self._open[request] = record
            effects.append(WriteMark(request, record.ledger_id, tuple(sorted(lost))))
        return effects

    def _next_page(self, ripe: frozenset[str]) -> list[AuditEffect]:
        if self._proposals:
            chunk = tuple(islice(self._proposals, self._limits.page_records))
            self._is_proposal, self._reading = True, self._numbers.next()
            done = self._proposed_last
            stored: list[AuditEffect] = [] if done == BEFORE_ALL else [StorePosition(done)]
            return [*stored, LoadRecords(self._reading, chunk)]
        self._is_proposal = False
        effects: list[AuditEffect] = []
        if self._page_end is not None:
            self._after, is_end = self._page_end
            self._page_end = None
            if ripe:
                effects.append(StorePosition(self._after))
            if is_end and not self._has_wrapped:
                self._has_wrapped, self._after = True, BEFORE_ALL
            elif self._has_wrapped and (is_end or self._is_round()):
                return [*effects, *self._end(ripe)]
        self._reading = self._numbers.next()
        return [*effects, ReadRecords(self._reading, self._after, self._limits.page_records)]

    def _is_round(self) -> bool:
        """Whether the walk has returned to the position at which it began."""
        return self._start != BEFORE_ALL and self._after >= self._start

    def _end(self, ripe: frozenset[str]) -> list[AuditEffect]:
        """End the walk. After a walk for lost bookies, the next walk begins at the smallest id."""
        self.is_running = False
        self._index.end()
        self._marked = {}
        if not ripe:
            return []
        self._start = BEFORE_ALL
        return [StorePosition(BEFORE_ALL)]
