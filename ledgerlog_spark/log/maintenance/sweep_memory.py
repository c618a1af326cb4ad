"""Stores results of earlier passes of the sweeper, so that a pass without due work is cheap.

A pass over a log calculates the time when the next work on the log is due. Work is due, for
example, when a version expires or the grace period of a mark ends. Before this time, passes need
not read the log. Changes of the log after the pass also cause work, but only after a grace period.
Therefore the calculated time is never later than the end of a grace period that begins with the
pass. All times are times of the store's clock. A change of the log's properties clears the stored
results.

Some work may become due at any time, for example work for a mark without a grace period, or for a
replaced run. A pass searches for such work when `LOOK_AGAIN_MS` have passed since the last search.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from ledgerlog_spark.metadata.logs.store import LogStore
from ledgerlog_spark.model import Version
from ledgerlog_spark.protocol.log.change.retention import PageSizes
from ledgerlog_spark.protocol.log.state.records import LogHead, LogKind

LOOK_AGAIN_MS = 3_600_000
"""Maximum time between two searches for work that may become due at any time, in milliseconds."""


@dataclass(slots=True)
class LogDue:
    """The times when each kind of work on one log is due next.

    Times are in milliseconds of the store's clock; 0 means now.

    Attributes:
        properties: The properties that the head had when the times were calculated.
        starts: First version and first row of this head. If the present head has a different first
            version or row, a truncation may be unfinished, so `versions` is set to 0.
        versions: Time when the next versions expire.
        registrations: Time when the next registrations end.
        marks: Time when the next marked ledgers are deleted.
        pages: Time when pages that no head names are deleted.
        producers: Time when ledgers of replaced runs are sealed, and producer records shrink or are
            deleted.
        removal: Time when the last nodes of a deleted log are deleted.
        rows: Time when retention deletes rows, or merging may find more closed ledgers.
        rows_head: The version of the head in which retention and merging found nothing to do.
        page_sizes: Payload bytes of the ranges in each page of the list, for retention by size.
        untimed_to: An offset; the times of the rows before this offset are unknown.
        sealed: An epoch for each producer. No ledger of the producer with an earlier epoch is open.
        seen_ms: The time of the store's clock when the log was last read.
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
        """Store the present time of the store's clock.

        If the clock was set back, all work is due.
        """
        if now_ms < self.seen_ms - LOOK_AGAIN_MS:
            self.versions = self.registrations = self.marks = self.pages = 0
            self.producers = self.removal = self.rows = 0
        self.seen_ms = now_ms

    def has_rows_due(self, head: Version, now_ms: int) -> bool:
        """Whether retention and merging may find work in the head with this version."""
        return head != self.rows_head or now_ms >= self.rows


class SweepMemory:
    """The times when work is due, for all logs.

    A log needs a small object, and a number for each page.
    """

    def __init__(self) -> None:
        """Create a memory without results of passes, so that all work is due."""
        self._due: dict[str, LogDue] = {}

    def of(self, log_id: str, head: LogHead) -> LogDue:
        """Return the times when work on a log is due. `head` is the head that was just read."""
        due = self._due.get(log_id)
        if due is None or due.properties != head.properties:
            due = self._due[log_id] = LogDue(properties=dict(head.properties))
        is_leader = head.kind is LogKind.LEADER
        starts = head.oldest_version, head.start_offset if is_leader else head.oldest_offset
        if starts != due.starts:
            due.starts, due.versions = starts, 0
        return due

    def forget_all_but(self, log_ids: Collection[str]) -> None:
        """Remove the times of the logs that are not in `log_ids`, because they were deleted."""
        for gone in self._due.keys() - set(log_ids):
            del self._due[gone]


class PassClock:
    """A clock for one pass. It reads the store's clock only once, by one write.

    This clock does not advance during the pass. Therefore a pass may delete an object later than
    possible, but never too early.
    """

    def __init__(self, store: LogStore) -> None:
        """Create a clock that has not been read yet."""
        self._store = store
        self._now_ms: int | None = None

    async def now_ms(self, log_id: str) -> int:
        """Return the store's time at the first call.

        The first call reads the time with a write to the log `log_id`.
        """
        if self._now_ms is None:
            self._now_ms = await self._store.now_ms(log_id)
        return self._now_ms
