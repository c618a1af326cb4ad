"""Reads the state from which a stream continues, in as few requests as possible.

Offsets have no gaps between versions, so a stream reads all *retained* rows, not the rows of one
version. Rows that were overwritten in the meantime are retained as long as a version with these
rows is retained.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from ledgerlog_spark.protocol.log.machine import LogMachine, Steps
from ledgerlog_spark.protocol.log.state.records import (
    NO_SCHEMA,
    Item,
    LogContent,
    LogHead,
    LogKind,
    OpenLedger,
    VersionInterval,
)
from ledgerlog_spark.protocol.log.state.rows import HISTORY, ITEMS, SCHEMAS
from ledgerlog_spark.protocol.log.state.walk import ListWalk

VERSIONS_AT_ONCE = 64
"""Number of versions that the first read requests, if the caller has no version. Each further read
requests as many versions as all earlier reads together."""


@dataclass(frozen=True, slots=True)
class LogView:
    """A log's retained rows, beginning at an offset.

    Attributes:
        oldest_offset: The offset of the first retained row.
        start_offset: First offset of the newest version, inclusive.
        end_offset: The offset of the next row (exclusive). In a leader log, this is the end of the
            visible records.
        first_offset: The offset from which on `items` is complete; at least `oldest_offset`.
        items: The items from `first_offset` on, sorted by offset. The first item may begin before
            `first_offset`.
        versions: The newest versions that the caller does not have, in ascending order and without
            gaps.
        schemas: The current schema and the schemas of the items, by id, except the schemas that the
            caller has.
        schema_id: Id of the current schema.
        properties: The stored properties, by name.
        open_ledgers: In a leader log, the open ledgers that are not among `items`.
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


class ViewMachine(LogMachine[LogView]):
    """Reads a `LogView`. Ends with `Finished(LogView)`, or fails with the same errors as any read.

    The caller already has the versions up to `known_version`, and the schemas `known_schemas`. If
    `known_version` is None, versions are read back to the version that ends before `first_offset`,
    or to the oldest version.
    """

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

    def _run(self) -> Steps[LogView]:
        return self._look(self._at)

    def _at(self, head: LogHead) -> Steps[LogView]:
        versions = yield from self._versions(head)
        first = max(self._first_offset, head.oldest_offset)
        items = yield from self._walk(ListWalk(ITEMS, head.items, first, head.end_offset))
        used = {item.schema_id for item in items} | {head.schema_id}
        wanted = used - self._known_schemas - {NO_SCHEMA}
        ids = (min(wanted), max(wanted) + 1) if wanted else (0, 0)
        schemas = yield from self._walk(ListWalk(SCHEMAS, head.schemas, *ids))
        return LogView(
            log_id=head.log_id,
            name=head.name,
            oldest_offset=head.oldest_offset,
            start_offset=head.start_offset,
            end_offset=head.end_offset,
            first_offset=first,
            items=items,
            versions=versions,
            schemas={record.schema_id: record.schema for record in schemas},
            schema_id=head.schema_id,
            properties=head.properties,
            kind=head.kind,
            content=head.content,
            open_ledgers=head.open_ledgers,
        )

    def _versions(self, head: LogHead) -> Steps[tuple[VersionInterval, ...]]:
        """Return the versions that the caller does not have, back to the caller's first row."""
        known = self._known_version
        first = head.version + 1 - VERSIONS_AT_ONCE if known is None else known + 1
        versions = older = yield from self._history(head, first, head.version + 1)
        while known is None and older:
            oldest = older[0]
            if oldest.version <= head.oldest_version or oldest.end_offset < self._first_offset:
                break
            count = head.version + 1 - oldest.version  # as many as all earlier reads returned
            older = yield from self._history(head, oldest.version - count, oldest.version)
            versions = (*older, *versions)
        return versions

    def _history(self, head: LogHead, first: int, end: int) -> Steps[tuple[VersionInterval, ...]]:
        first = max(first, head.oldest_version)
        return self._walk(ListWalk(HISTORY, head.history, first, end))
