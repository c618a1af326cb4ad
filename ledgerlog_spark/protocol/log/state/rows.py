"""Encodes and decodes the records of pages and of the head's sequences (LOGS.md#formats).

A sequence of records consists of a varint count, then one row of fixed length for each record, then
the parts of variable length (statistics, schemas) in the same order. Rows are big-endian. Rows
compress well, and `struct.iter_unpack` parses them, so decoding 100,000 items takes half a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import attrgetter
from struct import Struct
from typing import Any, Generic, TypeVar

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

T = TypeVar("T")

SCHEMA_SIZE_BYTES_MAX = PAGE_SIZE_BYTES_MAX - 1_024

_HAS_TIME = 0x8000
_TIME = Struct(">q")
_OPEN_LEDGER = Struct(">qqq")  # ledger id, first offset, time at which the leader listed the ledger


@dataclass(frozen=True, slots=True, eq=False)
class RecordKind(Generic[T]):
    """The key, the size and the stored form of records of one kind."""

    name: str
    page_kind: int
    layout: Struct
    first_key: Callable[[T], int]
    """The smallest key that the record covers."""
    end_key: Callable[[T], int]
    """The key after the largest key that the record covers."""
    fields: Callable[[T], tuple[int | bytes, ...]]
    """The values of the record's row."""
    record: Callable[[tuple[Any, ...], ByteReader], T]
    """Decodes a row, including its part of variable length."""
    tail: Callable[[T], bytes] | None = None
    """The record's part of variable length; None if records of this kind have no such part."""

    def size_bytes(self, records: Sequence[T]) -> int:
        """Return the size of the records in a stored sequence, without the count before them."""
        tails = sum(map(len, map(self.tail, records))) if self.tail else 0
        return self.layout.size * len(records) + tails

    def sizes_bytes(self, records: Sequence[T]) -> Iterator[int]:
        """Return the size of each of these records in a stored sequence."""
        if self.tail is None:
            return repeat(self.layout.size, len(records))
        return (self.layout.size + size for size in map(len, map(self.tail, records)))

    def encode(self, records: Sequence[T]) -> bytes:
        """Encode the sequence: the count, the rows, then the parts of variable length."""
        out = bytearray()
        append_varint(out, len(records))
        for record in records:
            out += self.layout.pack(*self.fields(record))
        if self.tail is not None:
            for record in records:
                out += self.tail(record)
        return bytes(out)

    def decode(self, reader: ByteReader) -> tuple[T, ...]:
        """Decode a sequence that `encode` encoded. Raises WireFormatError for other bytes."""
        count = reader.length(reader.remaining // self.layout.size)
        rows = reader.take(count * self.layout.size)
        return tuple(self.record(row, reader) for row in self.layout.iter_unpack(rows))


def _item_fields(item: Item) -> tuple[int, ...]:
    """Return the row of an item.

    If the highest bit of the size of the statistics is set, 8 bytes with the time of the newest row
    follow the statistics. The first release wrote no time.
    """
    return (
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


def _item_tail(item: Item) -> bytes:
    return item.statistics + (_TIME.pack(item.newest_ms) if item.newest_ms else b"")


def _item(row: tuple[Any, ...], reader: ByteReader) -> Item:
    ledger, first, last, index, rows, size, offset, schema, tail = row
    if last < first or rows < 1 or offset < 0:
        raise WireFormatError(f"an impossible item: {row}")
    statistics, newest_ms = _statistics_and_time(reader, tail)
    return Item(ledger, first, last, index, rows, size, offset, schema, statistics, newest_ms)


def _statistics_and_time(reader: ByteReader, size: int) -> tuple[bytes, int]:
    has_time = bool(size & _HAS_TIME)
    size &= ~_HAS_TIME
    if size > STATISTICS_SIZE_BYTES_MAX:
        raise WireFormatError(f"statistics of {size} bytes")
    statistics = reader.take(size)
    if not has_time:
        return statistics, 0
    (newest_ms,) = _TIME.unpack(reader.take(_TIME.size))
    if newest_ms < 1:
        raise WireFormatError(f"the youngest row of an item has the impossible time {newest_ms} ms")
    return statistics, newest_ms


def _interval_fields(interval: VersionInterval) -> tuple[int | bytes, ...]:
    return (
        interval.version,
        interval.start_offset,
        interval.end_offset,
        interval.commit_time_ms,
        interval.schema_id,
        interval.operation,
        bytes.fromhex(interval.token),
    )


def _interval(row: tuple[Any, ...], _: ByteReader) -> VersionInterval:
    version, start, end, time_ms, schema_id, number, token = row
    try:
        operation = Operation(number)
    except ValueError:
        raise WireFormatError(f"a version has the unknown operation {number}") from None
    return VersionInterval(version, start, end, time_ms, token.hex(), schema_id, operation)


def _ref_fields(ref: PageRef) -> tuple[int | bytes, ...]:
    token = bytes.fromhex(ref.token)
    return token, ref.number, ref.first_key, ref.end_key, ref.count, ref.size_bytes


def _ref(row: tuple[Any, ...], _: ByteReader) -> PageRef:
    token, number, first_key, end_key, count, size_bytes = row
    if number < 0 or count < 1 or end_key <= first_key:
        raise WireFormatError(f"an impossible reference: {row}")
    return PageRef(token.hex(), number, first_key, end_key, count, size_bytes)


ITEMS: RecordKind[Item] = RecordKind(
    name="items",
    page_kind=2,
    layout=Struct(">qqqqqqqiH"),
    first_key=attrgetter("first_offset"),
    end_key=attrgetter("end_offset"),
    fields=_item_fields,
    record=_item,
    tail=_item_tail,
)
HISTORY: RecordKind[VersionInterval] = RecordKind(
    name="history",
    page_kind=3,
    layout=Struct(">qqqqiB16s"),
    first_key=attrgetter("version"),
    end_key=lambda interval: interval.version + 1,
    fields=_interval_fields,
    record=_interval,
)
SCHEMAS: RecordKind[SchemaRecord] = RecordKind(
    name="schemas",
    page_kind=4,
    layout=Struct(">iI"),  # schema id, size of the schema
    first_key=attrgetter("schema_id"),
    end_key=lambda record: record.schema_id + 1,
    fields=lambda record: (record.schema_id, len(record.schema)),
    record=lambda row, reader: SchemaRecord(row[0], reader.take(row[1])),
    tail=attrgetter("schema"),
)
REFS: RecordKind[PageRef] = RecordKind(
    name="index",
    page_kind=5,
    layout=Struct(">16siqqqq"),  # token, number, first key, end key, count, size
    first_key=attrgetter("first_key"),
    end_key=attrgetter("end_key"),
    fields=_ref_fields,
    record=_ref,
)


def encode_open_ledgers(ledgers: Sequence[OpenLedger]) -> bytes:
    """Encode the open ledgers of a leader log for its head."""
    out = bytearray()
    append_varint(out, len(ledgers))
    for ledger in ledgers:
        out += _OPEN_LEDGER.pack(ledger.ledger_id, ledger.first_offset, ledger.opened_ms)
    return bytes(out)


def decode_open_ledgers(reader: ByteReader) -> tuple[OpenLedger, ...]:
    """Decode the open ledgers that `encode_open_ledgers` encoded."""
    count = reader.length(OPEN_LEDGERS_MAX)
    rows = _OPEN_LEDGER.iter_unpack(reader.take(count * _OPEN_LEDGER.size))
    ledgers = tuple(OpenLedger(*row) for row in rows)
    offsets = [ledger.first_offset for ledger in ledgers]
    ids = {ledger.ledger_id for ledger in ledgers}
    if min((*ids, *offsets, 0)) < 0 or offsets != sorted(offsets) or len(ids) != count:
        raise WireFormatError(f"impossible open ledgers: {ledgers}")
    return ledgers
