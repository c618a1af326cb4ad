"""Computes how a commit changes a head: offsets, versions and schemas (LOGS.md#G4-G6)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ledgerlog_spark.errors import ConcurrentCommitError, LocalProtocolError, SchemaMismatchError
from ledgerlog_spark.protocol.log.state import pages as log_pages
from ledgerlog_spark.protocol.log.state.pages import Loaded, PageRequest, PageWriter
from ledgerlog_spark.protocol.log.state.records import (
    LARGE_LOG_ITEMS,
    NO_SCHEMA,
    STATISTICS_SIZE_BYTES_MAX_LARGE_LOG,
    Item,
    LogContent,
    LogHead,
    LogKind,
    Operation,
    SchemaRecord,
    StagedRange,
    VersionInterval,
    WriteMode,
    next_version,
)
from ledgerlog_spark.protocol.log.state.rows import HISTORY, ITEMS, SCHEMA_SIZE_BYTES_MAX, SCHEMAS
from ledgerlog_spark.protocol.log.state.statistics import shorten_statistics


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """The commit that a job requests.

    Attributes:
        app: The name of the producer.
        batch_id: The id of the batch. If the producer has already committed this batch or a later
            batch, the commit does nothing.
        ranges: The ranges to append, sorted by partition, then by their order in the partition.
        schema: The schema of the rows; empty for a log of records.
        schema_id: The log's id of `schema`; None when the log does not have this schema.
        base_schema_id: Id of the log's current schema at the time when the job was planned.
        planned_version: The log's newest version at the time when the job was planned.
        overwrite_if_changed: Whether an overwrite also replaces rows that were committed after the
            job was planned.
        expected_version: The version that the log must have when the batch is committed, even if
            the batch has no rows. This is None if the caller requires no version.
        is_first: Whether the job was planned on a log without commits. If so, `schema` replaces the
            schema of the new log, and is committed even if the batch has no rows.

    Raises:
        LocalProtocolError: A range is invalid.
    """

    app: str
    run: str
    batch_id: int
    ranges: tuple[StagedRange, ...] = ()
    mode: WriteMode = WriteMode.APPEND
    schema: bytes = b""
    schema_id: int | None = None
    base_schema_id: int = NO_SCHEMA
    planned_version: int = 0
    overwrite_if_changed: bool = False
    password: bytes = field(repr=False, default=b"")
    is_first: bool = False  # LOGS.md#K8
    expected_version: int | None = None

    def __post_init__(self) -> None:
        if self.batch_id < 0:
            raise LocalProtocolError(f"the batch id is {self.batch_id}, but it must be at least 0")
        for staged in self.ranges:
            ordered = 0 <= staged.first_entry_id <= staged.last_entry_id
            if not ordered or staged.rows < 1 or staged.size_bytes < 0:
                raise LocalProtocolError(f"an impossible range: {staged}", range=staged)

    @property
    def is_empty(self) -> bool:
        """Whether the commit has nothing to write or check, so that the log need not be read."""
        return self.is_bare and not self.is_first and self.expected_version is None

    def is_nothing_for(self, head: LogHead) -> bool:
        """Whether there is nothing to write to a log with this head."""
        return self.is_bare and not (self.is_first and head.version == 0)

    @property
    def is_bare(self) -> bool:
        """Whether the batch appends no rows, and keeps the schema of the planned version."""
        return self._appends_nothing and not self.changes_schema

    @property
    def changes_schema(self) -> bool:
        """Whether the batch's schema differs from the log's schema when the job was planned."""
        return bool(self.schema) and self.schema_id != self.base_schema_id

    def is_done_by(self, current_schema: bytes | None) -> bool:
        """Whether the batch appends no rows, and its schema is already the log's current schema."""
        return self._appends_nothing and self.schema == current_schema

    @property
    def _appends_nothing(self) -> bool:
        return self.mode is WriteMode.APPEND and not self.ranges

    @property
    def ledger_ids(self) -> frozenset[int]:
        """The ledgers of the ranges."""
        return frozenset(staged.ledger_id for staged in self.ranges)


@dataclass(frozen=True, slots=True)
class NewVersion:
    """The change of `head` that creates the version `interval`."""

    head: LogHead
    interval: VersionInterval
    items: tuple[Item, ...] = ()
    schemas: tuple[SchemaRecord, ...] = ()

    def pages_to_merge(self) -> tuple[PageRequest, ...]:
        """Return the pages that have to be read before `build` is called."""
        return (
            *log_pages.pages_to_merge(ITEMS, self.head.items, self.items),
            *log_pages.pages_to_merge(HISTORY, self.head.history, (self.interval,)),
            *log_pages.pages_to_merge(SCHEMAS, self.head.schemas, self.schemas),
        )

    def build(self, token: str, loaded: Loaded) -> tuple[LogHead, tuple[bytes, ...]]:
        """Return the new head, and the pages that are written under `token` before the head."""
        writer = PageWriter(token)
        interval = replace(self.interval, token=token)
        items = log_pages.append(ITEMS, self.head.items, self.items, writer, loaded)
        history = log_pages.append(HISTORY, self.head.history, (interval,), writer, loaded)
        schemas = log_pages.append(SCHEMAS, self.head.schemas, self.schemas, writer, loaded)
        head = replace(
            self.head,
            version=interval.version,
            start_offset=interval.start_offset,
            end_offset=interval.end_offset,
            schema_id=interval.schema_id,
            commit_time_ms=interval.commit_time_ms,
            token=token,
            items=items,
            history=history,
            schemas=schemas,
        )
        return head, tuple(writer.pages)


def plan_commit(
    head: LogHead, request: CommitRequest, *, now_ms: int, current_schema: bytes | None
) -> NewVersion:
    """Plan the change of `head`. The caller has checked the request with the producer record.

    `current_schema` is needed if `needs_current_schema` is true. The errors are definite.

    Raises:
        ConcurrentCommitError: Another commit followed after the job was planned. Because of that
            commit, the job's schema does not match the log's schema any more, or the job's
            overwrite would replace rows of that commit.
        SchemaMismatchError: The schema is too large to be stored.
    """
    overwrites = request.mode is WriteMode.OVERWRITE
    changed = head.version != request.planned_version
    if overwrites and changed and not request.overwrite_if_changed:  # LOGS.md#K9
        raise ConcurrentCommitError(
            f"log {head.name!r} is at version {head.version}, but the overwrite was planned at "
            f"version {request.planned_version}: run the job again, or set overwriteIfChanged",
            log=head.name,
            version=head.version,
            planned_version=request.planned_version,
        )
    schema_id, schemas = _schema(head, request, current_schema)
    interval = next_version(
        head,
        start_offset=head.end_offset if overwrites else head.start_offset,
        end_offset=head.end_offset + sum(staged.rows for staged in request.ranges),
        schema_id=schema_id,
        operation=Operation.OVERWRITE if overwrites else Operation.APPEND,
        now_ms=now_ms,
    )
    items = tuple(listed(head, request.ranges, schema_id, interval.commit_time_ms))
    return NewVersion(head, interval, items, schemas)


def check_expected(head: LogHead, expected_version: int | None) -> None:
    """Raise an error unless the log has the version that the caller expects (LOGS.md#K17)."""
    if expected_version is None or head.version == expected_version:
        return
    raise ConcurrentCommitError(
        f"log {head.name!r} is at version {head.version}, and the write expects version "
        f"{expected_version}; nothing was changed: read the new version, then repeat the write",
        log=head.name,
        version=head.version,
        expected_version=expected_version,
    )


def needs_current_schema(head: LogHead, request: CommitRequest) -> bool:
    """Whether `plan_commit` compares the job's schema with the log's current schema."""
    return bool(request.schema) and head.schema_id not in {request.base_schema_id, NO_SCHEMA}


def created(
    *,
    log_id: str,
    name: str,
    kind: LogKind,
    content: LogContent,
    now_ms: int,
    token: str,
    schema: bytes = b"",
    properties: Mapping[str, str] | None = None,
) -> tuple[LogHead, tuple[bytes, ...]]:
    """Return the head of a new, empty log at version 0, and its pages."""
    schemas = (SchemaRecord(0, _storable(name, schema)),) if schema else ()
    interval = VersionInterval(
        version=0,
        start_offset=0,
        end_offset=0,
        commit_time_ms=now_ms,
        token=token,
        schema_id=0 if schemas else NO_SCHEMA,
        operation=Operation.CREATE,
    )
    bare = LogHead(
        log_id=log_id,
        name=name,
        kind=kind,
        content=content,
        version=0,
        start_offset=0,
        end_offset=0,
        schema_id=NO_SCHEMA,
        commit_time_ms=now_ms,
        token=token,
        properties=dict(properties or {}),
    )
    return NewVersion(bare, interval, (), schemas).build(token, {})


def listed(
    head: LogHead, ranges: Sequence[StagedRange | Item], schema_id: int, commit_time_ms: int
) -> Iterator[Item]:
    """Yield the items that append these ranges to the log's list.

    Some ranges may already be items of the log.
    """
    is_large = head.items.count + len(ranges) > LARGE_LOG_ITEMS
    offset = head.end_offset
    for staged in ranges:
        statistics = staged.statistics
        if is_large:
            statistics = shorten_statistics(
                statistics, size_bytes_max=STATISTICS_SIZE_BYTES_MAX_LARGE_LOG
            )
        yield Item(
            ledger_id=staged.ledger_id,
            first_entry_id=staged.first_entry_id,
            last_entry_id=staged.last_entry_id,
            index_entry_id=staged.index_entry_id,
            rows=staged.rows,
            size_bytes=staged.size_bytes,
            first_offset=offset,
            schema_id=schema_id,
            statistics=statistics,
            newest_ms=commit_time_ms,
        )
        offset += staged.rows


def _schema(
    head: LogHead, request: CommitRequest, current_schema: bytes | None
) -> tuple[int, tuple[SchemaRecord, ...]]:
    """Return the id of the rows' schema, and its record if the log does not have it yet."""
    if not request.schema:
        return head.schema_id, ()
    if head.schema_id != request.base_schema_id:
        if head.schema_id != NO_SCHEMA and current_schema == request.schema:
            return head.schema_id, ()
        raise ConcurrentCommitError(
            f"the schema of log {head.name!r} changed after the job was planned: run the job again",
            log=head.name,
            schema_id=head.schema_id,
            planned_schema_id=request.base_schema_id,
        )
    is_new = request.schema_id != request.base_schema_id
    if request.is_first and is_new and head.version > 0:
        raise ConcurrentCommitError(
            f"log {head.name!r} got its first rows after the job was planned, and these rows have "
            "other columns than the rows of the job: run the job again",
            log=head.name,
            version=head.version,
        )
    if request.schema_id is not None:
        return request.schema_id, ()
    schema_id = log_pages.end_key(SCHEMAS, head.schemas)
    return schema_id, (SchemaRecord(schema_id, _storable(head.name, request.schema)),)


def _storable(log: str, schema: bytes) -> bytes:
    if len(schema) > SCHEMA_SIZE_BYTES_MAX:
        raise SchemaMismatchError(
            f"the schema of log {log!r} takes {len(schema)} bytes, but at most "
            f"{SCHEMA_SIZE_BYTES_MAX} can be stored: use fewer columns or less metadata",
            log=log,
            size_bytes=len(schema),
        )
    return schema
