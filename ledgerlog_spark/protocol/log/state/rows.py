"""Records of pages and of the head's sequences as bytes (LOGS.md#formats).

A sequence of records is a varint count, then that many fixed big-endian rows, then the parts of
variable length (statistics, schemas) in the same order. Fixed rows compress well and are parsed by
`struct.iter_unpack`, so that 100,000 items take half a second.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from struct import Struct
from typing import TYPE_CHECKING, Generic, TypeVar

from ledgerlog_spark.errors import WireFormatError
from ledgerlog_spark.protocol.log.state.bytes import ByteReader, append_varint
from ledgerlog_spark.protocol.log.state.records import (
    OPEN_LEDGERS_MAX,
    PAGE_SIZE_BYTES_MAX,
    STATISTICS_SIZE_BYTES_MAX,
    Item,
    OpenLedger,
    Operation,
    PageRef,
    SchemaRecord,
    VersionInterval,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")

COUNT_SIZE_BYTES_MAX = 5
SCHEMA_SIZE_BYTES_MAX = PAGE_SIZE_BYTES_MAX - 1_024

# ledger, first entry, last entry, index entry, rows, size, first offset, schema, statistics size
_ITEM = Struct(">qqqqqqqiH")
_HAS_TIME = 0x8000
_TIME = Struct(">q")
# version, start offset, end offset, commit time, schema, operation, token
_INTERVAL = Struct(">qqqqiB16s")
# token, number, first key, end key, count, size
_REF = Struct(">16siqqqq")
# schema, size
_SCHEMA = Struct(">iI")
# ledger, first offset, opened
_OPEN_LEDGER = Struct(">qqq")


class RecordKind(ABC, Generic[T]):
    """How records of one kind are keyed, measured and stored."""

    __slots__ = ()

    name: str
    page_kind: int

    @abstractmethod
    def first_key(self, record: T) -> int:
        """The smallest key that the record covers."""

    @abstractmethod
    def end_key(self, record: T) -> int:
        """After the largest key that the record covers."""

    @abstractmethod
    def size_bytes(self, records: Sequence[T]) -> int:
        """Size of the records in a sequence, without its count."""

    @abstractmethod
    def encode(self, records: Sequence[T]) -> bytes:
        """The sequence as bytes."""

    @abstractmethod
    def decode(self, reader: ByteReader) -> tuple[T, ...]:
        """The sequence that `encode` wrote.

        Raises:
            WireFormatError: On bytes that it cannot have written.
        """


class ItemKind(RecordKind[Item]):
    """Items, keyed by offset.

    The highest bit of a row's statistics size means that 8 bytes follow the statistics: the time of
    the youngest row. The first version wrote none.
    """

    __slots__ = ()
    name = "items"
    page_kind = 2

    def first_key(self, record: Item) -> int:
        """The first row's offset."""
        return record.first_offset

    def end_key(self, record: Item) -> int:
        """The offset after the last row."""
        return record.end_offset

    def size_bytes(self, records: Sequence[Item]) -> int:
        """Fixed rows, statistics and times."""
        tails = sum(len(item.statistics) + _TIME.size * (item.newest_ms > 0) for item in records)
        return _ITEM.size * len(records) + tails

    def encode(self, records: Sequence[Item]) -> bytes:
        """Rows, then statistics and time of each."""
        out = bytearray()
        append_varint(out, len(records))
        for item in records:
            out += _ITEM.pack(
                item.ledger_id,
                item.first_entry_id,
                item.last_entry_id,
                item.index_entry_id,
                item.rows,
                item.size_bytes,
                item.first_offset,
                item.schema_id,
                len(item.statistics) | (_HAS_TIME if item.newest_ms else 0),
            )
        for item in records:
            out += item.statistics
            if item.newest_ms:
                out += _TIME.pack(item.newest_ms)
        return bytes(out)

    def decode(self, reader: ByteReader) -> tuple[Item, ...]:
        """The items.

        Raises:
            WireFormatError: The bytes are not items, or items that are impossible.
        """
        rows = _take_rows(reader, _ITEM)
        items = tuple(
            Item(ledger, first, last, index, count, size, offset, schema, *_tail(reader, tail))
            for ledger, first, last, index, count, size, offset, schema, tail in _ITEM.iter_unpack(
                rows
            )
        )
        for row in _ITEM.iter_unpack(rows):
            if row[2] < row[1] or row[4] < 1 or row[6] < 0:
                raise WireFormatError(f"an impossible item: {row}")
        return items


class IntervalKind(RecordKind[VersionInterval]):
    """Versions, keyed by number."""

    __slots__ = ()
    name = "history"
    page_kind = 3

    def first_key(self, record: VersionInterval) -> int:
        """The version."""
        return record.version

    def end_key(self, record: VersionInterval) -> int:
        """The next version."""
        return record.version + 1

    def size_bytes(self, records: Sequence[VersionInterval]) -> int:
        """Fixed rows."""
        return _INTERVAL.size * len(records)

    def encode(self, records: Sequence[VersionInterval]) -> bytes:
        """Rows."""
        out = bytearray()
        append_varint(out, len(records))
        for record in records:
            out += _INTERVAL.pack(
                record.version,
                record.start_offset,
                record.end_offset,
                record.commit_time_ms,
                record.schema_id,
                record.operation,
                bytes.fromhex(record.token),
            )
        return bytes(out)

    def decode(self, reader: ByteReader) -> tuple[VersionInterval, ...]:
        """The versions.

        Raises:
            WireFormatError: On bytes that are no versions.
        """
        return tuple(
            VersionInterval(
                version,
                start,
                end,
                time_ms,
                token.hex(),
                schema_id,
                _operation(operation),
            )
            for version, start, end, time_ms, schema_id, operation, token in _INTERVAL.iter_unpack(
                _take_rows(reader, _INTERVAL)
            )
        )


class SchemaKind(RecordKind[SchemaRecord]):
    """Schemas, keyed by id."""

    __slots__ = ()
    name = "schemas"
    page_kind = 4

    def first_key(self, record: SchemaRecord) -> int:
        """The schema's id."""
        return record.schema_id

    def end_key(self, record: SchemaRecord) -> int:
        """The next id."""
        return record.schema_id + 1

    def size_bytes(self, records: Sequence[SchemaRecord]) -> int:
        """Fixed rows and schemas."""
        return sum(_SCHEMA.size + len(record.schema) for record in records)

    def encode(self, records: Sequence[SchemaRecord]) -> bytes:
        """Rows, then schemas."""
        out = bytearray()
        append_varint(out, len(records))
        for record in records:
            out += _SCHEMA.pack(record.schema_id, len(record.schema))
        for record in records:
            out += record.schema
        return bytes(out)

    def decode(self, reader: ByteReader) -> tuple[SchemaRecord, ...]:
        """The schemas.

        Raises:
            WireFormatError: On bytes that are no schemas.
        """
        rows = tuple(_SCHEMA.iter_unpack(_take_rows(reader, _SCHEMA)))
        return tuple(SchemaRecord(schema_id, reader.take(size)) for schema_id, size in rows)


class RefKind(RecordKind[PageRef]):
    """References to pages, keyed as the records in them."""

    __slots__ = ()
    name = "index"
    page_kind = 5

    def first_key(self, record: PageRef) -> int:
        """The page's first key."""
        return record.first_key

    def end_key(self, record: PageRef) -> int:
        """The key after the page's last."""
        return record.end_key

    def size_bytes(self, records: Sequence[PageRef]) -> int:
        """Fixed rows."""
        return _REF.size * len(records)

    def encode(self, records: Sequence[PageRef]) -> bytes:
        """Rows."""
        out = bytearray()
        append_varint(out, len(records))
        for ref in records:
            token = bytes.fromhex(ref.token)
            out += _REF.pack(
                token, ref.number, ref.first_key, ref.end_key, ref.count, ref.size_bytes
            )
        return bytes(out)

    def decode(self, reader: ByteReader) -> tuple[PageRef, ...]:
        """The references.

        Raises:
            WireFormatError: On bytes that are no references.
        """
        rows = _REF.iter_unpack(_take_rows(reader, _REF))
        refs = tuple(
            PageRef(token.hex(), number, first, end, count, size)
            for token, number, first, end, count, size in rows
        )
        for ref in refs:
            if ref.number < 0 or ref.count < 1 or ref.end_key <= ref.first_key:
                raise WireFormatError(f"an impossible reference: {ref}")
        return refs


ITEMS = ItemKind()
HISTORY = IntervalKind()
SCHEMAS = SchemaKind()
REFS = RefKind()
PAGE_KINDS: dict[
    int,
    RecordKind[Item] | RecordKind[VersionInterval] | RecordKind[SchemaRecord] | RecordKind[PageRef],
] = {kind.page_kind: kind for kind in (ITEMS, HISTORY, SCHEMAS, REFS)}


def encode_open_ledgers(ledgers: Sequence[OpenLedger]) -> bytes:
    """The open ledgers of a leader log, as its head stores them."""
    out = bytearray()
    append_varint(out, len(ledgers))
    for ledger in ledgers:
        out += _OPEN_LEDGER.pack(ledger.ledger_id, ledger.first_offset, ledger.opened_ms)
    return bytes(out)


def decode_open_ledgers(reader: ByteReader) -> tuple[OpenLedger, ...]:
    """The open ledgers that `encode_open_ledgers` wrote.

    Raises:
        WireFormatError: The bytes are invalid, or have more ledgers than a leader may have open.
    """
    count = reader.length(OPEN_LEDGERS_MAX)
    rows = _OPEN_LEDGER.iter_unpack(reader.take(count * _OPEN_LEDGER.size))
    ledgers = tuple(OpenLedger(*row) for row in rows)
    offsets = [ledger.first_offset for ledger in ledgers]
    ids = {ledger.ledger_id for ledger in ledgers}
    if min((*ids, *offsets, 0)) < 0 or offsets != sorted(offsets) or len(ids) != count:
        raise WireFormatError(f"impossible open ledgers: {ledgers}")
    return ledgers


def _tail(reader: ByteReader, size: int) -> tuple[bytes, int]:
    """Statistics and time of an item, from the statistics size of its row."""
    has_time = bool(size & _HAS_TIME)
    size &= ~_HAS_TIME
    if size > STATISTICS_SIZE_BYTES_MAX:
        raise WireFormatError(f"statistics of {size} bytes")
    statistics = reader.take(size)
    if not has_time:
        return statistics, 0
    (newest_ms,) = _TIME.unpack(reader.take(_TIME.size))
    if newest_ms < 1:
        raise WireFormatError(f"an item whose youngest row came at {newest_ms} ms")
    return statistics, newest_ms


def _take_rows(reader: ByteReader, row: Struct) -> bytes:
    count = reader.length(reader.remaining // row.size)
    return reader.take(count * row.size)


def _operation(number: int) -> Operation:
    try:
        return Operation(number)
    except ValueError:
        raise WireFormatError(f"a version made by unknown operation {number}") from None
