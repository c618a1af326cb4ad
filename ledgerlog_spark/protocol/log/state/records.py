"""The values of a log's stored state (LOGS.md#G1-G6).

Offsets count rows. They have 64 bits and no gaps, and are never reused. An interval of offsets does
not contain its end. A range of entry ids contains both ends. A *token* consists of 32 hexadecimal
digits, and names one attempt to change a head. The pages of the attempt are stored under its token.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Generic, TypeVar

from ledgerlog_spark.model import NO_ENTRY

LOG_FORMAT = 1
"""Format number of heads, pages and producer records that this version writes."""

NO_SCHEMA = -1
"""Schema id of a log that has no schema yet, or whose content is `RECORDS`."""

NO_BATCH = -1
"""Batch id of a producer that has committed nothing."""

HEAD_SIZE_BYTES_MAX = 16 * 1024
PAGE_SIZE_BYTES_MAX = 256 * 1024
RUNS_REMEMBERED_MAX = 64
STATISTICS_SIZE_BYTES_MAX = 1_024
STATISTICS_SIZE_BYTES_MAX_LARGE_LOG = 64
LARGE_LOG_ITEMS = 10_000
"""Number of items above which a log stores only short statistics."""

T = TypeVar("T")


class LogKind(IntEnum):
    """The kind of the writers of a log: one leader, or jobs with commits.

    The kind of a log is set when the log is created, and never changes.
    """

    LEADER = 1
    TRANSACTIONAL = 2


class LogContent(IntEnum):
    """What the entries of a log contain.

    The content of a log is set when the log is created, and never changes.
    """

    RECORDS = 1
    ROWS = 2


class Operation(IntEnum):
    """The operation that created a version."""

    CREATE = 1
    APPEND = 2
    OVERWRITE = 3
    TRUNCATE = 4
    RESTORE = 5


class WriteMode(Enum):
    """How a commit places its ranges: after the existing rows, or in place of them."""

    APPEND = "append"
    OVERWRITE = "overwrite"


@dataclass(frozen=True, slots=True)
class StagedRange:
    """A range that one task wrote into one ledger, before the commit gives it offsets.

    Attributes:
        first_entry_id: Id of the entry with the first record batch (inclusive). Entry 0 of a
            ledger is the schema message, and is in no range.
        last_entry_id: Id of the last entry (inclusive), which is the index entry if the range has
            an index entry.
        index_entry_id: Id of the index entry; NO_ENTRY if a fence ended the range early.
        rows: Number of rows, at least 1.
        size_bytes: Payload bytes of the entries in the range.
        statistics: The result of `statistics.encode_statistics`; empty if there are no statistics.
    """

    ledger_id: int
    first_entry_id: int
    last_entry_id: int
    index_entry_id: int
    rows: int
    size_bytes: int
    statistics: bytes = b""


@dataclass(frozen=True, slots=True)
class Item:
    """One listed range of a ledger, with the offsets of its rows. See also `StagedRange`.

    Attributes:
        index_entry_id: Id of the index entry; NO_ENTRY if the range has no index entry. Without an
            index entry, the whole range must be read to find a row.
        first_offset: Offset of the range's first row.
        schema_id: Id of the schema in the ledger's entry 0.
        newest_ms: Time of the newest row in ms since the epoch: the time of its commit or, in a
            leader log, of its append. It is 0 if an older release listed the range without a time.
    """

    ledger_id: int
    first_entry_id: int
    last_entry_id: int
    index_entry_id: int
    rows: int
    size_bytes: int
    first_offset: int
    schema_id: int = NO_SCHEMA
    statistics: bytes = b""
    newest_ms: int = 0

    @property
    def end_offset(self) -> int:
        """Offset after the range's last row (exclusive)."""
        return self.first_offset + self.rows

    @property
    def has_index(self) -> bool:
        """Whether an index entry ends the range."""
        return self.index_entry_id != NO_ENTRY


@dataclass(frozen=True, slots=True)
class OpenLedger:
    """A ledger of a leader log that is not an item yet, because its end is unknown."""

    ledger_id: int
    first_offset: int
    """Offset of the first record. For the oldest open ledger, this offset is exact, and equal to
    the head's `end_offset`. For the younger open ledger, it is a lower bound, because this ledger
    is listed while records are still being appended to the older ledger (LOGS.md#J5)."""
    opened_ms: int
    """Time at which the leader listed the ledger, by the store's clock, ms since the epoch."""


OPEN_LEDGERS_MAX = 2
"""Maximum number of a leader log's open ledgers (LOGS.md#J5)."""


@dataclass(frozen=True, slots=True)
class VersionInterval:
    """One version of a log: the rows [start_offset, end_offset).

    Attributes:
        version: Number of the version. A new, empty log has version 0.
        start_offset: Offset of the first row, which never decreases from version to version.
        end_offset: Offset after the last row, which never decreases from version to version.
        commit_time_ms: Time of the commit by the store's clock, ms since the epoch. Each version
            has a later time than the version before it.
        token: Token of the commit that created the version.
        schema_id: Id of the log's schema in this version.
    """

    version: int
    start_offset: int
    end_offset: int
    commit_time_ms: int
    token: str
    schema_id: int = NO_SCHEMA
    operation: Operation = Operation.APPEND

    @property
    def rows(self) -> int:
        """Number of rows of the version."""
        return self.end_offset - self.start_offset


@dataclass(frozen=True, slots=True)
class SchemaRecord:
    """One schema of the log's rows, as the bytes of an Arrow schema message."""

    schema_id: int
    schema: bytes


@dataclass(frozen=True, slots=True)
class PageRef:
    """A reference to an immutable page: its path, `pages/<token>/<number>`, and its keys.

    Keys are offsets (items), versions (history) or schema ids (schemas).
    """

    token: str  # token of the attempt that wrote the page
    number: int  # pages of an attempt are numbered from 0
    first_key: int
    end_key: int
    count: int  # number of records in the page, or in the pages that an index page names
    size_bytes: int  # size of the records before compression, without the envelope and the count


@dataclass(frozen=True, slots=True)
class Paged(Generic[T]):
    """A sequence in ascending order of key: index pages, then pages, then records in the head."""

    index: tuple[PageRef, ...] = ()  # the index pages, which name the pages of the oldest records
    pages: tuple[PageRef, ...] = ()  # the pages that no index page names yet
    recent: tuple[T, ...] = ()

    @property
    def count(self) -> int:
        """Number of records. If only a part of a page was dropped, all its records are counted."""
        paged = sum(page.count for page in self.index) + sum(page.count for page in self.pages)
        return paged + len(self.recent)


@dataclass(frozen=True, slots=True)
class LogHead:
    """The state of a log, which is stored in its head.

    The items, the history and the schemas may grow without a limit. The newest records are in the
    head. Records that do not fit into the head are in pages, which the head names.

    Attributes:
        log_id: Id of the log, which is never used for another log, even after deletion.
        name: The name under which the log was created.
        properties: The properties that differ from their defaults, by name.
        version: The newest version.
        start_offset: First offset of the newest version (inclusive).
        end_offset: End of the newest version (exclusive), which is the offset of the next row.
        schema_id: Id of the current schema; NO_SCHEMA if the log has no schema yet.
        commit_time_ms: Time of the commit of the newest version, ms since the epoch.
        token: Token of the last change of this head, whether it created a version or not.
        oldest_version: The oldest retained version.
        oldest_offset: Start of the oldest retained version. An item that ends at or before this
            offset is not listed.
        deleted_ms: Time at which the log was deleted; 0 while it exists. The head stays until the
            log's ledgers are deleted.
        items: Every item that a retained version names, sorted by first offset.
        history: Every retained version, including the newest, sorted by version.
        schemas: Every schema that a listed item may name, sorted by id.
        reader_features: Sorted names of features. A reader that does not support all these features
            refuses to read the log.
        writer_features: Sorted names of features. A writer that does not support all these features
            refuses to write to the log.
        open_ledgers: In a leader log, the ledgers that are listed after `items`: at most two,
            oldest first. The oldest open ledger begins at `end_offset`.
    """

    # LOGS.md#G2 describes which parts are in pages.
    log_id: str
    name: str
    kind: LogKind
    content: LogContent
    version: int
    start_offset: int
    end_offset: int
    schema_id: int
    commit_time_ms: int
    token: str
    oldest_version: int = 0
    oldest_offset: int = 0
    deleted_ms: int = 0
    items: Paged[Item] = field(default_factory=Paged)
    history: Paged[VersionInterval] = field(default_factory=Paged)
    schemas: Paged[SchemaRecord] = field(default_factory=Paged)
    properties: Mapping[str, str] = field(default_factory=dict)
    reader_features: tuple[str, ...] = ()
    writer_features: tuple[str, ...] = ()
    open_ledgers: tuple[OpenLedger, ...] = ()
    log_format: int = LOG_FORMAT

    @property
    def interval(self) -> tuple[int, int]:
        """Start (inclusive) and end (exclusive) of the newest version."""
        return self.start_offset, self.end_offset


def next_version(
    head: LogHead,
    *,
    start_offset: int,
    end_offset: int,
    schema_id: int,
    operation: Operation,
    now_ms: int,
) -> VersionInterval:
    """Return the version after the newest version of the head.

    Its time is later than the time of the newest version, even if the store's clock was set back.
    """
    return VersionInterval(
        version=head.version + 1,
        start_offset=start_offset,
        end_offset=end_offset,
        commit_time_ms=max(head.commit_time_ms + 1, now_ms),
        token=head.token,
        schema_id=schema_id,
        operation=operation,
    )


@dataclass(frozen=True, slots=True)
class ProducerRecord:
    """The state of one producer in a log."""

    epoch: int = 0  # incremented by each run that takes over; 0 before the first run
    runs: tuple[str, ...] = ()  # the last 64 runs in the order in which they took over
    last_batch_id: int = NO_BATCH  # the last committed batch
    token: str = ""  # token of the last commit of this producer; empty before the first commit
    time_ms: int = 0  # time of the last change, by the store's clock

    @property
    def current_run(self) -> str | None:
        """The only query run that may commit; None before the first run."""
        return self.runs[-1] if self.runs else None


@dataclass(frozen=True, slots=True)
class LogSnapshot:
    """One whole version of a log, from which a scan is planned.

    Attributes:
        interval: The number, offsets, time and schema id of the version.
        items: All items that overlap the interval, sorted by offset. The first item may begin
            before the interval.
        schemas: Every schema of an item, and the schema of the version, by id.
        properties: The stored properties, by name.
        kind: Kind of the writers, which determines how entries are decoded.
        open_ledgers: In a leader log, the open ledgers that are not among `items`.
    """

    log_id: str
    name: str
    interval: VersionInterval
    items: tuple[Item, ...]
    schemas: Mapping[int, bytes]
    properties: Mapping[str, str] = field(default_factory=dict)
    kind: LogKind = LogKind.TRANSACTIONAL
    content: LogContent = LogContent.ROWS
    open_ledgers: tuple[OpenLedger, ...] = ()

    @property
    def schema(self) -> bytes | None:
        """The version's own schema; None if the log had no schema at this version."""
        return self.schemas.get(self.interval.schema_id)
