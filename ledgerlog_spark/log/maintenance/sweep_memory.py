"""What a process that does upkeep remembers of its last passes, so that an idle pass asks little.

A pass over a log finds out when the next thing there is due: a registration that is too old, a mark
whose time of grace is over, a version that expires. What comes later is younger, so it is due later
than the pass plus its time of grace. Until then the log need not be looked at. All times are those
of the store's clock. Properties that change end what was remembered.

What others may do at any time, such as a mark without a time of grace or a run that is replaced, is
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
"""What is not due is looked at again after this long at the latest, except for registrations."""


@dataclass(slots=True)
class LogDue:
    """When each kind of work on one log is due next, ms; 0 is now.

    Attributes:
        properties: Of the head that all this was concluded from.
        starts: Where that head's versions and rows start: a truncation moves them, and somebody
            may have to finish it.
        versions: Versions expire.
        registrations: Registrations end.
        marks: Marked ledgers are deleted.
        pages: Pages that nothing names are deleted.
        producers: Replaced runs' ledgers are sealed, records shrink, jobs are forgotten.
        removal: A deleted log's last records go.
        rows: Retention drops rows, or merging may find more closed ledgers.
        rows_head: The head in which retention and merging found nothing to do.
        page_sizes: Payload bytes of what the pages of its list name, for retention by size.
        untimed_to: What lies before this offset does not say when its rows came.
        sealed: The epoch of each producer of whose older epochs no ledger is open.
        seen_ms: The store's clock when it was looked at last.
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
        """The store's clock shows this. What was concluded before it was set back is forgotten."""
        if now_ms < self.seen_ms - LOOK_AGAIN_MS:
            self.versions = self.registrations = self.marks = self.pages = 0
            self.producers = self.removal = self.rows = 0
        self.seen_ms = now_ms

    def has_rows_due(self, head: Version, now_ms: int) -> bool:
        """Whether retention and merging may find something to do in that head."""
        return head != self.rows_head or now_ms >= self.rows


class SweepMemory:
    """What is due in each log; a small record for each log, and a number for each page of it."""

    def __init__(self) -> None:
        """Everything is due."""
        self._due: dict[str, LogDue] = {}

    def of(self, log_id: str, head: LogHead) -> LogDue:
        """What is due in a log whose head was just read."""
        due = self._due.get(log_id)
        if due is None or due.properties != head.properties:
            due = self._due[log_id] = LogDue(properties=dict(head.properties))
        is_leader = head.kind is LogKind.LEADER
        starts = head.oldest_version, head.start_offset if is_leader else head.oldest_offset
        if starts != due.starts:
            due.starts, due.versions = starts, 0
        return due

    def forget_all_but(self, log_ids: Collection[str]) -> None:
        """Forget logs that are gone."""
        for gone in self._due.keys() - set(log_ids):
            del self._due[gone]


class PassClock:
    """The store's clock as it was when a pass first looked at it; one write for all of the pass.

    It stands still, so things count as younger than they are and none is deleted too early.
    """

    def __init__(self, store: LogStore) -> None:
        """A clock that nobody has looked at."""
        self._store = store
        self._now_ms: int | None = None

    async def now_ms(self, log_id: str) -> int:
        """The store's time.

        Args:
            log_id: Of the log through which it is read, if it was not read yet.

        Raises:
            LogNotFoundError: That log is gone.
            MetadataError: The store failed.
        """
        if self._now_ms is None:
            self._now_ms = await self._store.now_ms(log_id)
        return self._now_ms
