"""The values of a log's stored state (LOGS.md#G1-G6).

Offsets count rows, are dense, 64 bit, and never reused. Intervals of offsets are half-open; entry
ids are inclusive on both ends. A *token* is the 32 hexadecimal digits that name one attempt to
change a head; the pages of the attempt are stored under it.
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
"""Schema id of a log that has no schema yet or holds records."""

NO_BATCH = -1
"""Batch id of a producer that has committed nothing."""

HEAD_SIZE_BYTES_MAX = 16 * 1024
PAGE_SIZE_BYTES_MAX = 256 * 1024
RUNS_REMEMBERED_MAX = 64
STATISTICS_SIZE_BYTES_MAX = 1_024
STATISTICS_SIZE_BYTES_MAX_LARGE_LOG = 64
LARGE_LOG_ITEMS = 10_000
"""A log with more items than this keeps the short statistics."""

T = TypeVar("T")


class LogKind(IntEnum):
    """Kind of the writers; fixed when the log is created."""

    LEADER = 1
    TRANSACTIONAL = 2


class LogContent(IntEnum):
    """Content of an entry; fixed when the log is created."""

    RECORDS = 1
    ROWS = 2


class Operation(IntEnum):
    """The operation that made a version."""

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
        ledger_id: The ledger; a range never spans two.
        first_entry_id: Inclusive; the first record batch. A ledger's schema message (entry 0) is in
            no range.
        last_entry_id: Inclusive; the index entry when there is one.
        index_entry_id: The range's index entry, NO_ENTRY when fencing cut the range short.
        rows: At least 1.
        size_bytes: Payload bytes of the entries in the range.
        statistics: Made by `statistics.encode_statistics`; empty for none.
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
    """One listed range of a ledger, with the offsets of its rows.

    Attributes:
        first_entry_id: Inclusive; the first record batch.
        last_entry_id: Inclusive; the index entry when there is one.
        index_entry_id: The range's index entry, NO_ENTRY when there is none: then the whole range
            has to be read to find a row in it.
        rows: At least 1.
        size_bytes: Payload bytes of the entries in the range.
        first_offset: Offset of the range's first row.
        schema_id: Id of the schema in the ledger's entry 0.
        statistics: Made by `statistics.encode_statistics`; empty for none.
        newest_ms: Time of the newest row in ms since the epoch: the time of its commit or, in a
            leader log, of its append. 0 in an older list without times.
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
    """A ledger of a leader log that is not an item yet, because its end is unknown.

    Attributes:
        first_offset: Offset of the first record. In the oldest open ledger it is exact, and equal
            to the head's `end_offset`. In the younger ledger it is a lower bound, because that
            ledger is listed while records are still appended to the older one (LOGS.md#J5).
        opened_ms: When the leader created it, by the store's clock, ms since the epoch.
    """

    ledger_id: int
    first_offset: int
    opened_ms: int


OPEN_LEDGERS_MAX = 2
"""Limit of a leader log's open ledgers (LOGS.md#J5)."""


@dataclass(frozen=True, slots=True)
class VersionInterval:
    """One version of a log: the rows [start_offset, end_offset).

    Attributes:
        version: Counts from 0, which is the empty log that was created.
        start_offset: Inclusive; never decreases from version to version.
        end_offset: Exclusive; never decreases from version to version.
        commit_time_ms: By the store's clock, ms since the epoch; rises from version to version.
        token: Token of the commit that created the version.
        schema_id: Id of the log's schema in this version.
        operation: The operation of the commit.
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
        """How many rows the version has."""
        return self.end_offset - self.start_offset


@dataclass(frozen=True, slots=True)
class SchemaRecord:
    """One schema of the log's rows, as the bytes of an Arrow schema message."""

    schema_id: int
    schema: bytes


@dataclass(frozen=True, slots=True)
class PageRef:
    """The path of an immutable page, and its keys.

    Keys are offsets (items), versions (history) or schema ids (schemas).

    Attributes:
        token: Token of the attempt that wrote the page, at `pages/<token>/<number>`.
        number: Counts the attempt's pages from 0.
        count: Records in the page; for a page of references, the records of the pages that it
            names.
        size_bytes: Size of the records before compression; the stored page is hardly larger.
    """

    token: str
    number: int
    first_key: int
    end_key: int
    count: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Paged(Generic[T]):
    """A sequence in rising order of key: index pages, then pages, then records in the head.

    Attributes:
        index: References to index pages, which lead to the oldest records. An index page contains
            references to pages.
        pages: References to pages that no index page names yet.
    """

    index: tuple[PageRef, ...] = ()
    pages: tuple[PageRef, ...] = ()
    recent: tuple[T, ...] = ()

    @property
    def count(self) -> int:
        """Number of records; includes all records of a page that is partly dropped."""
        paged = sum(page.count for page in self.index) + sum(page.count for page in self.pages)
        return paged + len(self.recent)


@dataclass(frozen=True, slots=True)
class LogHead:
    """The state of a log; the parts that do not fit are in pages (LOGS.md#G2).

    Attributes:
        log_id: Never used for another log, also after deletion.
        name: The name it was created under.
        properties: By name; without the defaults (`properties`).
        version: The newest version.
        start_offset: First offset of the newest version, inclusive.
        end_offset: End of the newest version, exclusive; the next row's offset.
        schema_id: Id of the current schema, NO_SCHEMA before the first rows.
        commit_time_ms: Time of the commit of the newest version, ms since the epoch.
        token: Token of the last change of this head, whether it created a version or not.
        oldest_version: The oldest retained version.
        oldest_offset: Start of that version; an item that ends at or before it is not listed.
        deleted_ms: When the log was deleted, 0 while it exists. The head stays until the log's
            ledgers are deleted.
        items: Every item that a retained version names, by first offset.
        history: Every retained version, the newest included, by version.
        schemas: Every schema that a listed item may name, by id.
        reader_features: Sorted names; a reader that does not support one refuses the log.
        writer_features: Sorted names; a writer that does not support one refuses to write.
        open_ledgers: In a leader log, the ledgers listed after `items`, oldest first, at most two.
            `end_offset` is the start of the oldest.
        log_format: Format number of the stored head.
    """

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
    """The next version of the head; its time is later, even if the store's clock was set back."""
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
    """The state of one producer in a log.

    Attributes:
        epoch: Incremented by each run that takes over the producer; 0 before the first run.
        runs: The last 64 runs in the order in which they took over, the newest last.
        last_batch_id: The last committed batch, NO_BATCH for none.
        token: Token of the last change of this record that was a commit, empty for none.
        time_ms: Time of the last change, by the store's clock.
    """

    epoch: int = 0
    runs: tuple[str, ...] = ()
    last_batch_id: int = NO_BATCH
    token: str = ""
    time_ms: int = 0

    @property
    def current_run(self) -> str | None:
        """The only query run that may commit, None before the first."""
        return self.runs[-1] if self.runs else None


@dataclass(frozen=True, slots=True)
class LogSnapshot:
    """One whole version of a log, from which a scan is planned.

    Attributes:
        interval: The version.
        items: All items that overlap the interval, by offset; the first may begin before it.
        schemas: Every schema of an item, and the schema of the version, by id.
        properties: The stored properties, by name.
        kind: Kind of the writers; determines how entries are decoded.
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
        """The version's own schema, None before the first rows."""
        return self.schemas.get(self.interval.schema_id)
