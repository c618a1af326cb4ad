"""One version of a log, whole: interval, items, schemas (LOGS.md#Q1-Q5).

Pages are immutable, but one that was merged into a larger page is deleted some time later. A reader
that misses a page therefore reads the head again: the version it wants is still there, in other
pages. Only a page that the same head names twice and that is twice missing is a loss.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from ledgerlog_spark.errors import LogKindError, VersionNotAvailableError
from ledgerlog_spark.protocol.ledger.messages import MetadataOutcome
from ledgerlog_spark.protocol.log.machine import LogMachine, lost_page
from ledgerlog_spark.protocol.log.messages import (
    AskedTime,
    HeadRead,
    LogEffects,
    LogReply,
    PagesRead,
    R_co,
    ReadHead,
    ReadPages,
    Sync,
)
from ledgerlog_spark.protocol.log.state.pages import end_key
from ledgerlog_spark.protocol.log.state.records import (
    Item,
    LogHead,
    LogKind,
    LogSnapshot,
    SchemaRecord,
    VersionInterval,
)
from ledgerlog_spark.protocol.log.state.rows import HISTORY, ITEMS, SCHEMAS
from ledgerlog_spark.protocol.log.state.walk import Walk, Walks, is_complete

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ledgerlog_spark.model import Version


class ReadPhase(Enum):
    """What is being read; the last three belong to machines that also write."""

    IDLE = "idle"
    SYNC = "sync"
    HEAD = "head"
    PAGES = "pages"
    MERGE = "merge"
    WRITE_PAGES = "write pages"
    WRITE_HEAD = "write head"


class HeadReader(LogMachine[R_co]):
    """Reads the head, then walks over some of its sequences; what a machine that reads is made of.

    `_walks` says which, given the head; `_done` gets what was read. Both are overridden.

    Attributes:
        asked_time: Of the class: what its machines need the time for.
    """

    asked_time = AskedTime.NONE

    __slots__ = (
        "_head", "_head_version", "_is_fresh", "_is_synced", "_missed_token", "_now_ms",
        "_reading", "phase",
    )  # fmt: skip

    def __init__(self, log: str, *, is_fresh: bool = True) -> None:
        """A reader of the log's head.

        Args:
            log: Name, for messages.
            is_fresh: Synchronise first. Without it what is read is of some moment before, which is
                enough to read on, and never to conclude that something is gone.
        """
        super().__init__(log)
        self.phase = ReadPhase.IDLE
        self._is_fresh = is_fresh
        self._is_synced = False
        self._head: LogHead | None = None
        self._head_version: Version | None = None
        self._now_ms = 0
        self._reading = Walks([], is_complete)
        self._missed_token: str | None = None

    def _begin(self) -> LogEffects[R_co]:
        if self._is_fresh:
            self.phase = ReadPhase.SYNC
            return self._ask(Sync)
        self._is_fresh = True  # when a page is missing, it begins again
        return self._read_head()

    def _step(self, reply: LogReply) -> LogEffects[R_co]:
        if reply.outcome not in {MetadataOutcome.OK, MetadataOutcome.GONE}:
            raise self._read_error(reply.outcome)
        if self.phase is ReadPhase.SYNC:
            self._is_synced = True
            return self._read_head()
        if self.phase is ReadPhase.HEAD:
            return self._on_head(cast("HeadRead", reply))
        return self._on_pages(cast("PagesRead", reply))

    def _read_head(self) -> LogEffects[R_co]:
        self.phase = ReadPhase.HEAD
        return self._ask(partial(ReadHead, time=self.asked_time))

    def _on_head(self, reply: HeadRead) -> LogEffects[R_co]:
        if reply.head is None and not self._is_synced:
            return self._begin()  # an old replica may not have the log yet (LOGS.md#Q2)
        head = self._head_of(reply.head.value if reply.head else None, writes=None)
        if head.token == self._missed_token:
            raise lost_page(self.log)
        self._head = head
        self._head_version = reply.head.version if reply.head else None
        self._now_ms = reply.now_ms
        self._reading = Walks(self._walks(head), self._is_over)
        return self._go_on()

    def _on_pages(self, reply: PagesRead) -> LogEffects[R_co]:
        assert self._head is not None
        if reply.outcome is MetadataOutcome.GONE:
            self._missed_token = self._head.token
            return self._begin()
        self._reading.feed(reply.pages)
        return self._go_on()

    def _go_on(self) -> LogEffects[R_co]:
        assert self._head is not None
        wanted = self._reading.wanted(partial(self._more, self._head))
        if not wanted:
            return self._done(self._head, self._reading.walked)
        self.phase = ReadPhase.PAGES
        return self._ask(partial(ReadPages, pages=wanted))

    @abstractmethod
    def _walks(self, head: LogHead) -> list[Walk[Any]]:
        """What to read of this head first."""

    def _more(self, head: LogHead, walked: list[Walk[Any]]) -> list[Walk[Any]]:
        """What to read after that; asked again after each round, empty when all is there."""
        del head, walked
        return []

    def _is_over(self, walk: Walk[Any]) -> bool:
        """Whether a walk has read enough."""
        return is_complete(walk)

    @abstractmethod
    def _done(self, head: LogHead, walked: list[Walk[Any]]) -> LogEffects[R_co]:
        """All is read."""


class SnapshotMachine(HeadReader[LogSnapshot]):
    """Ends with `Finished(LogSnapshot)` of one version, the newest when none is named.

    Or `Failed` with `VersionNotAvailableError` (LOGS.md#Q4), `LogNotFoundError`, `LogKindError` or
    the store's errors. A leader log has no versions: its snapshot ends with its newest item, and
    `open_ledgers` follow.
    """

    __slots__ = ("_interval", "_version")

    def __init__(self, log: str, *, version: int | None = None) -> None:
        super().__init__(log)
        self._version = version
        self._interval: VersionInterval | None = None

    def _walks(self, head: LogHead) -> list[Walk[Any]]:
        if head.kind is LogKind.LEADER and self._version is not None:
            raise LogKindError(
                f"log {head.name!r} is a leader log, which has no versions: leave the version out",
                log=head.name,
                version=self._version,
            )
        version = head.version if self._version is None else self._version
        if not head.oldest_version <= version <= head.version:
            raise _not_available(head, version)
        self._interval = None
        return [Walk(HISTORY, head.history, version, version + 1)]

    def _more(self, head: LogHead, walked: list[Walk[Any]]) -> list[Walk[Any]]:
        if len(walked) == 1:
            found: tuple[VersionInterval, ...] = walked[0].records()
            if not found:
                raise _not_available(head, self._version)
            self._interval = interval = _shown(head, found[0])
            return [Walk(ITEMS, head.items, interval.start_offset, interval.end_offset)]
        if len(walked) == 2:  # noqa: PLR2004 (history, items, schemas)
            assert self._interval is not None
            items: tuple[Item, ...] = walked[1].records()
            ids = {item.schema_id for item in items} | {self._interval.schema_id}
            return [Walk(SCHEMAS, head.schemas, max(0, min(ids)), max(ids) + 1)]
        return []

    def _done(self, head: LogHead, walked: list[Walk[Any]]) -> LogEffects[LogSnapshot]:
        assert self._interval is not None
        _, items, schemas = walked
        records: tuple[SchemaRecord, ...] = schemas.records()
        return self._finish(
            LogSnapshot(
                log_id=head.log_id,
                name=head.name,
                interval=self._interval,
                items=items.records(),
                schemas={record.schema_id: record.schema for record in records},
                properties=head.properties,
                kind=head.kind,
                content=head.content,
                open_ledgers=head.open_ledgers,
            )
        )


class HistoryMachine(HeadReader[tuple[VersionInterval, ...]]):
    """Ends with `Finished(tuple[VersionInterval, ...])`: every retained version, oldest first."""

    __slots__ = ()

    def _walks(self, head: LogHead) -> list[Walk[Any]]:
        return [Walk(HISTORY, head.history, head.oldest_version, head.version + 1)]

    def _done(
        self, head: LogHead, walked: list[Walk[Any]]
    ) -> LogEffects[tuple[VersionInterval, ...]]:
        del head
        return self._finish(walked[0].records())


class ListingMachine(HeadReader[tuple[Item, ...]]):
    """Ends with `Finished(tuple[Item, ...])`: every item that a retained version may name."""

    __slots__ = ()

    def _walks(self, head: LogHead) -> list[Walk[Any]]:
        return [listing_of(head)]

    def _done(self, head: LogHead, walked: list[Walk[Any]]) -> LogEffects[tuple[Item, ...]]:
        del head
        return self._finish(walked[0].records())


def listing_of(head: LogHead) -> Walk[Item]:
    """A walk over all items that a retained version may name."""
    return Walk(ITEMS, head.items, head.oldest_offset, head.end_offset)


def oldest_of(head: LogHead, count: int) -> Walk[Item]:
    """A walk over the oldest of those items: more than `count`, by two pages at most, or all."""
    return Walk(ITEMS, head.items, head.oldest_offset, head.end_offset, records_min=count)


def newest_of(head: LogHead) -> Walk[Item]:
    """A walk over some of the newest items: those in the head, or in the last page."""
    items = head.items
    newest = items.recent[0].first_offset if items.recent else head.end_offset - 1
    first = items.pages[-1].first_key if items.pages and not items.recent else newest
    return Walk(ITEMS, items, max(first, head.oldest_offset), head.end_offset)


def _shown(head: LogHead, interval: VersionInterval) -> VersionInterval:
    """The interval; a leader log has one version, whose ends are those of its head."""
    if head.kind is LogKind.TRANSACTIONAL:
        return interval
    return replace(
        interval,
        start_offset=head.start_offset,
        end_offset=head.end_offset,
        schema_id=head.schema_id,
        commit_time_ms=head.commit_time_ms,
    )


def listed_ledgers(head: LogHead, items: Sequence[Item]) -> set[int]:
    """The ledgers of those items, and the open ones of a leader log."""
    return {item.ledger_id for item in items} | {o.ledger_id for o in head.open_ledgers}


def _not_available(head: LogHead, version: int | None) -> VersionNotAvailableError:
    return VersionNotAvailableError(
        f"version {version} of log {head.name!r} does not exist; available versions are "
        f"{head.oldest_version} to {head.version}",
        log=head.name,
        version=version,
        oldest=head.oldest_version,
        newest=head.version,
    )


@dataclass(frozen=True, slots=True)
class LogState:
    """A head as it was read, with all schemas of the log.

    Attributes:
        head: Of the log.
        version: Of the head's record.
        schemas: By id, rising.
    """

    head: LogHead
    version: Version
    schemas: Mapping[int, bytes]

    @property
    def schema(self) -> bytes | None:
        """The log's current schema, None before the first rows."""
        return self.schemas.get(self.head.schema_id)

    def schema_id_of(self, schema: bytes) -> int | None:
        """The id under which the log has exactly this schema, the newest if there are several."""
        newest_first = sorted(self.schemas, reverse=True)
        return next((i for i in newest_first if self.schemas[i] == schema), None)


class StateMachine(HeadReader[LogState]):
    """Ends with `Finished(LogState)`: the head and every schema of the log."""

    __slots__ = ()

    def _walks(self, head: LogHead) -> list[Walk[Any]]:
        return [Walk(SCHEMAS, head.schemas, 0, end_key(SCHEMAS, head.schemas))]

    def _done(self, head: LogHead, walked: list[Walk[Any]]) -> LogEffects[LogState]:
        records: tuple[SchemaRecord, ...] = walked[0].records()
        assert self._head_version is not None
        schemas = {record.schema_id: record.schema for record in records}
        return self._finish(LogState(head, self._head_version, schemas))
