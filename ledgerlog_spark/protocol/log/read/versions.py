"""Reads one version, the history, the list or the schemas from a head and its pages.

LOGS.md#Q1-Q5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ledgerlog_spark.errors import LogKindError, VersionNotAvailableError
from ledgerlog_spark.model import Version
from ledgerlog_spark.protocol.log.machine import LogMachine, Steps
from ledgerlog_spark.protocol.log.state.pages import end_key
from ledgerlog_spark.protocol.log.state.records import (
    Item,
    LogHead,
    LogKind,
    LogSnapshot,
    VersionInterval,
)
from ledgerlog_spark.protocol.log.state.rows import HISTORY, ITEMS, SCHEMAS
from ledgerlog_spark.protocol.log.state.walk import ListWalk


class SnapshotMachine(LogMachine[LogSnapshot]):
    """Reads one version (the newest if `version` is None); ends with `Finished(LogSnapshot)`.

    Fails with `VersionNotAvailableError` (LOGS.md#Q4), `LogNotFoundError`, `LogKindError` or the
    store's errors. A leader log has no versions. In its snapshot, the records of `open_ledgers`
    follow the records of the newest item.
    """

    def __init__(self, log: str, *, version: int | None = None) -> None:
        super().__init__(log)
        self._version = version

    def _run(self) -> Steps[LogSnapshot]:
        return self._look(self._at)

    def _at(self, head: LogHead) -> Steps[LogSnapshot]:
        if head.kind is LogKind.LEADER and self._version is not None:
            raise LogKindError(
                f"log {head.name!r} is a leader log, which has no versions: leave the version out",
                log=head.name,
                version=self._version,
            )
        version = head.version if self._version is None else self._version
        check_version(head, version)
        found = yield from self._walk(ListWalk(HISTORY, head.history, version, version + 1))
        if not found:
            raise _not_available(head, version)
        interval = _shown(head, found[0])
        walk = ListWalk(ITEMS, head.items, interval.start_offset, interval.end_offset)
        items = yield from self._walk(walk)
        ids = {item.schema_id for item in items} | {interval.schema_id}
        schemas = ListWalk(SCHEMAS, head.schemas, max(0, min(ids)), max(ids) + 1)
        records = yield from self._walk(schemas)
        return LogSnapshot(
            log_id=head.log_id,
            name=head.name,
            interval=interval,
            items=items,
            schemas={record.schema_id: record.schema for record in records},
            properties=head.properties,
            kind=head.kind,
            content=head.content,
            open_ledgers=head.open_ledgers,
        )


class HeadMachine(LogMachine[LogHead]):
    """Reads the head; ends with `Finished(LogHead)`."""

    def _run(self) -> Steps[LogHead]:
        return self._read_head()


class HistoryMachine(LogMachine[tuple[VersionInterval, ...]]):
    """Reads all retained versions, oldest first; ends with `Finished(tuple)`."""

    def _run(self) -> Steps[tuple[VersionInterval, ...]]:
        return self._look(
            lambda head: self._walk(
                ListWalk(HISTORY, head.history, head.oldest_version, head.version + 1)
            )
        )


class ListingMachine(LogMachine[tuple[Item, ...]]):
    """Reads all items that a retained version may name; ends with `Finished(tuple)`."""

    def _run(self) -> Steps[tuple[Item, ...]]:
        return self._look(lambda head: self._walk(listing_of(head)))


def listing_of(head: LogHead) -> ListWalk[Item]:
    """Return a walk over all items that a retained version may name."""
    return ListWalk(ITEMS, head.items, head.oldest_offset, head.end_offset)


def oldest_of(head: LogHead, count: int) -> ListWalk[Item]:
    """Return a walk over all items, or over the oldest pages with more than `count` items."""
    return ListWalk(ITEMS, head.items, head.oldest_offset, head.end_offset, records_min=count)


def newest_of(head: LogHead) -> ListWalk[Item]:
    """Return a walk over the items in the head or, if the head has no items, in the last page."""
    items = head.items
    newest = items.recent[0].first_offset if items.recent else head.end_offset - 1
    first = items.pages[-1].first_key if items.pages and not items.recent else newest
    return ListWalk(ITEMS, items, max(first, head.oldest_offset), head.end_offset)


def _shown(head: LogHead, interval: VersionInterval) -> VersionInterval:
    """Return the interval that users see.

    A leader log has only one version, which gets the offsets, the schema and the time of the head.
    """
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
    """Return the ledgers of `items`, and the open ledgers of a leader log."""
    return {item.ledger_id for item in items} | {o.ledger_id for o in head.open_ledgers}


def check_version(head: LogHead, version: int) -> None:
    """Raise an error unless the head retains the version."""
    if not head.oldest_version <= version <= head.version:
        raise _not_available(head, version)


def _not_available(head: LogHead, version: int) -> VersionNotAvailableError:
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
        version: The version of the head's node.
        schemas: The schemas by id, in ascending order.
    """

    head: LogHead
    version: Version
    schemas: Mapping[int, bytes]

    @property
    def schema(self) -> bytes | None:
        """The log's current schema; None if the log has no schema yet."""
        return self.schemas.get(self.head.schema_id)

    def schema_id_of(self, schema: bytes) -> int | None:
        """Return the newest id of exactly this schema; None if the log does not have the schema."""
        newest_first = sorted(self.schemas, reverse=True)
        return next((i for i in newest_first if self.schemas[i] == schema), None)


class StateMachine(LogMachine[LogState]):
    """Reads the head and every schema of the log; ends with `Finished(LogState)`."""

    def _run(self) -> Steps[LogState]:
        return self._look(self._at)

    def _at(self, head: LogHead) -> Steps[LogState]:
        walk = ListWalk(SCHEMAS, head.schemas, 0, end_key(SCHEMAS, head.schemas))
        schemas = {record.schema_id: record.schema for record in (yield from self._walk(walk))}
        assert self._head is not None
        return LogState(head, self._head.version, schemas)
