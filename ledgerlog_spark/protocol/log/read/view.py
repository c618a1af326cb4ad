"""What a stream needs of a log to read on, in as few requests as that takes.

Offsets are dense over all versions, so a stream reads *retained* rows, not one version's: rows that
were overwritten before it came to them are still read, as long as a version is kept that has them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.protocol.log.read.versions import HeadReader
from ledgerlog_spark.protocol.log.state.records import (
    NO_SCHEMA,
    Item,
    LogContent,
    LogHead,
    LogKind,
    OpenLedger,
    SchemaRecord,
    VersionInterval,
)
from ledgerlog_spark.protocol.log.state.rows import HISTORY, ITEMS, SCHEMAS
from ledgerlog_spark.protocol.log.state.walk import Walk

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from ledgerlog_spark.protocol.log.messages import LogEffects

VERSIONS_AT_ONCE = 64
"""Versions that are read first when nothing says how far back to go; then twice as many."""


@dataclass(frozen=True, slots=True)
class LogView:
    """A log's retained rows from some offset on.

    Attributes:
        log_id: Of the log.
        name: Of the log.
        oldest_offset: The first retained row.
        start_offset: Of the newest version, inclusive.
        end_offset: Exclusive; the next row's offset. In a leader log the visible end.
        first_offset: From here on `items` is complete; at least `oldest_offset`.
        items: By offset, rising; the first may begin before `first_offset`.
        versions: The newest versions, rising, without gap: those that were asked for.
        schemas: By id: those that items name and the current one, without those the caller has.
        schema_id: Of the current schema.
        properties: Of the log, as stored.
        kind: Who writes the log.
        content: What entries hold.
        open_ledgers: Of a leader log, those of its head that are not among `items`.
    """

    log_id: str
    name: str
    oldest_offset: int
    start_offset: int
    end_offset: int
    first_offset: int
    items: tuple[Item, ...]
    versions: tuple[VersionInterval, ...]
    schemas: Mapping[int, bytes] = field(repr=False)
    schema_id: int
    properties: Mapping[str, str] = field(default_factory=dict)
    kind: LogKind = LogKind.TRANSACTIONAL
    content: LogContent = LogContent.ROWS
    open_ledgers: tuple[OpenLedger, ...] = ()


class ViewMachine(HeadReader[LogView]):
    """Ends with `Finished(LogView)`, or `Failed` as the other readers.

    Args:
        log: Name, for messages.
        first_offset: The first row that the caller may read.
        known_version: The newest version that the caller has; None reads back to the one that
            ends before `first_offset`, or to the oldest.
        known_schemas: Ids of the schemas that the caller has.
        is_fresh: Synchronise first. Without it the view is that of some moment before, which is
            enough to read on, and never to conclude that something is gone.
    """

    __slots__ = (
        "_first_offset", "_history", "_items", "_known_schemas", "_known_version",
        "_schemas",
    )  # fmt: skip

    def __init__(
        self,
        log: str,
        *,
        first_offset: int = 0,
        known_version: int | None = None,
        known_schemas: Collection[int] = (),
        is_fresh: bool = True,
    ) -> None:
        super().__init__(log, is_fresh=is_fresh)
        self._first_offset = first_offset
        self._known_version = known_version
        self._known_schemas = frozenset(known_schemas)
        self._history: list[Walk[VersionInterval]] = []
        self._items: Walk[Item] | None = None
        self._schemas: Walk[SchemaRecord] | None = None

    def _walks(self, head: LogHead) -> list[Walk[Any]]:
        self._items = self._schemas = None
        known = self._known_version
        first = head.version + 1 - VERSIONS_AT_ONCE if known is None else known + 1
        self._history = [self._history_from(head, first, head.version + 1)]
        return list(self._history)

    def _more(self, head: LogHead, walked: list[Walk[Any]]) -> list[Walk[Any]]:
        del walked
        if self._items is None:
            older = self._older_history(head)
            if older is not None:
                self._history.append(older)
                return [older]
            first = max(self._first_offset, head.oldest_offset)
            self._items = Walk(ITEMS, head.items, first, head.end_offset)
            return [self._items]
        if self._schemas is None:
            used = {item.schema_id for item in self._items.records()} | {head.schema_id}
            wanted = used - self._known_schemas - {NO_SCHEMA}
            first, end = (min(wanted), max(wanted) + 1) if wanted else (0, 0)
            self._schemas = Walk(SCHEMAS, head.schemas, first, end)
            return [self._schemas]
        return []

    def _older_history(self, head: LogHead) -> Walk[VersionInterval] | None:
        """As many versions again, unless those read say all about the rows from the first on."""
        read = self._history[-1].records()
        if self._known_version is not None or not read:
            return None
        oldest = read[0]
        if oldest.version <= head.oldest_version or oldest.end_offset < self._first_offset:
            return None
        count = head.version + 1 - oldest.version
        return self._history_from(head, oldest.version - count, oldest.version)

    def _history_from(self, head: LogHead, first: int, end: int) -> Walk[VersionInterval]:
        return Walk(HISTORY, head.history, max(first, head.oldest_version), end)

    def _done(self, head: LogHead, walked: list[Walk[Any]]) -> LogEffects[LogView]:
        del walked
        assert self._items is not None
        assert self._schemas is not None
        versions = tuple(v for walk in reversed(self._history) for v in walk.records())
        return self._finish(
            LogView(
                log_id=head.log_id,
                name=head.name,
                oldest_offset=head.oldest_offset,
                start_offset=head.start_offset,
                end_offset=head.end_offset,
                first_offset=max(self._first_offset, head.oldest_offset),
                items=self._items.records(),
                versions=versions,
                schemas={record.schema_id: record.schema for record in self._schemas.records()},
                schema_id=head.schema_id,
                properties=head.properties,
                kind=head.kind,
                content=head.content,
                open_ledgers=head.open_ledgers,
            )
        )
