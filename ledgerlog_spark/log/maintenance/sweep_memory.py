"""Findings of earlier passes in a process, so that an idle pass needs few requests.

A pass over a log finds when the next work there is due: a registration that becomes too old, a mark
whose grace ends, a version that expires. Later changes are younger, so they are due later than the
pass plus their grace. Until then the log need not be read. All times are those of the store's
clock. A change of properties clears the findings.

Events that others may cause at any time, such as a mark without a grace or a replaced run, are
looked for once in `LOOK_AGAIN_MS`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ledgerlog_spark.protocol.log.state.records import LogKind

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from ledgerlog_spark.metadata.logs.store import LogStore
    from ledgerlog_spark.model import Version
    from ledgerlog_spark.protocol.log.change.retention import PageSizes
    from ledgerlog_spark.protocol.log.state.records import LogHead

LOOK_AGAIN_MS = 3_600_000
"""Longest time between two searches for work that is not due, except for registrations."""


@dataclass(slots=True)
class LogDue:
    """When each kind of work on one log is due next, ms; 0 is now.

    Attributes:
        properties: Properties of the head that the rest was concluded from.
        starts: First version and row of that head: a truncation moves them, and may have to be
            finished.
        versions: Versions expire.
        registrations: Registrations end.
        marks: Marked ledgers are deleted.
        pages: Pages that nothing names are deleted.
        producers: Replaced runs' ledgers are sealed, records shrink, jobs are forgotten.
        removal: A deleted log's last records go.
        rows: Retention drops rows, or merging may find more closed ledgers.
        rows_head: The head in which retention and merging found nothing to do.
        page_sizes: Payload bytes of the ranges in each page of its list, for retention by size.
        untimed_to: The times of rows before this offset are unknown.
        sealed: For each producer, the epoch before which no ledger is open.
        seen_ms: The store's clock at the last read of the log.
    """

    properties: Mapping[str, str] = field(default_factory=dict)
    starts: tuple[int, int] = (0, 0)
    versions: int = 0
    registrations: int = 0
    marks: int = 0
    pages: int = 0
    producers: int = 0
    removal: int = 0
    rows: int = 0
    rows_head: Version | None = None
    page_sizes: PageSizes = field(default_factory=dict)
    untimed_to: int = 0
    sealed: dict[str, int] = field(default_factory=dict)
    seen_ms: int = 0

    def see(self, now_ms: int) -> None:
        """Set the store's clock. If it was set back, all conclusions are cleared."""
        if now_ms < self.seen_ms - LOOK_AGAIN_MS:
            self.versions = self.registrations = self.marks = self.pages = 0
            self.producers = self.removal = self.rows = 0
        self.seen_ms = now_ms

    def has_rows_due(self, head: Version, now_ms: int) -> bool:
        """Whether retention and merging may find something to do in that head."""
        return head != self.rows_head or now_ms >= self.rows


class SweepMemory:
    """The due work of each log: a small record for each log, and a number for each of its pages."""

    def __init__(self) -> None:
        """Everything is due."""
        self._due: dict[str, LogDue] = {}

    def of(self, log_id: str, head: LogHead) -> LogDue:
        """The due work of a log whose head was just read."""
        due = self._due.get(log_id)
        if due is None or due.properties != head.properties:
            due = self._due[log_id] = LogDue(properties=dict(head.properties))
        is_leader = head.kind is LogKind.LEADER
        starts = head.oldest_version, head.start_offset if is_leader else head.oldest_offset
        if starts != due.starts:
            due.starts, due.versions = starts, 0
        return due

    def forget_all_but(self, log_ids: Collection[str]) -> None:
        """Forget all other logs, which were deleted."""
        for gone in self._due.keys() - set(log_ids):
            del self._due[gone]


class PassClock:
    """The store's clock at the first read of a pass; one write for the whole pass.

    It does not advance during the pass, so nothing counts as older than it is, and nothing is
    deleted too early.
    """

    def __init__(self, store: LogStore) -> None:
        """A clock that was not read yet."""
        self._store = store
        self._now_ms: int | None = None

    async def now_ms(self, log_id: str) -> int:
        """The store's time; it is read through that log, if it was not read yet."""
        if self._now_ms is None:
            self._now_ms = await self._store.now_ms(log_id)
        return self._now_ms
