"""Decodes entries of leader logs into record batches (LOGS.md#G10).

The records of an entry become one column of bytes that uses the entry's own memory. Arrow converts
the lengths of the records to offsets.
"""

from __future__ import annotations

import sys
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ledgerlog_spark.arrow.stream_codec import decode_entries
from ledgerlog_spark.errors import DataLossError, WireFormatError
from ledgerlog_spark.protocol.leader.entry import (
    HEADER_SIZE_BYTES,
    LeaderCodec,
    LeaderEntryHeader,
    decode_entry_header,
)

VALUE_COLUMN = "value"
RECORDS_SCHEMA = pa.schema([(VALUE_COLUMN, pa.binary())])
"""The schema of the batches that readers of records get."""

_LENGTH_SIZE_BYTES = 4
_FEW = 64
"""Maximum number of values for which a sum in Python is faster than a call of Arrow."""

JOINED_SIZE_BYTES_MAX = 64 << 10
"""Maximum size of a body that is copied into one batch with other small bodies.

Each separate batch takes 50 us, which is too long if each entry has only one record.
"""

BATCH_SIZE_BYTES_MAX = 1 << 20


class EntryRows(NamedTuple):
    """The rows of one entry in a batch, and the time when the leader accepted them."""

    rows: int
    append_time_ms: int


@dataclass(frozen=True, slots=True)
class LeaderBatch:
    """The rows of consecutive entries of a leader log. The offsets of the rows have no gap."""

    batch: pa.RecordBatch
    first_offset: int
    entries: Sequence[EntryRows]


def decode_record_bodies(
    bodies: Iterable[tuple[LeaderEntryHeader, memoryview]],
) -> Iterator[LeaderBatch]:
    """Decode entries of records into batches of RECORDS_SCHEMA.

    Several small entries share a batch. The bodies are not compressed. If `bodies` raises a
    DataLossError, the records before the lost entry are yielded first.
    """
    joined = _Joined()
    try:
        for header, body in bodies:
            is_small = len(body) <= JOINED_SIZE_BYTES_MAX
            if joined.entries and not (is_small and joined.takes(header, len(body))):
                yield joined.batch()
                joined = _Joined()
            if is_small:
                joined.add(header, body)
            else:
                entry = EntryRows(header.count, header.append_time_ms)
                values = _values(body, header.count)
                yield LeaderBatch(_batch_of(values), header.first_offset, (entry,))
    except DataLossError:
        if joined.entries:
            yield joined.batch()
        raise
    if joined.entries:
        yield joined.batch()


class _Joined:
    """Joins small entries into one batch."""

    def __init__(self) -> None:
        self.entries: list[EntryRows] = []
        self._lengths = array("i", [0])
        self._data: list[memoryview] = []
        self._size_bytes = 0
        self._first_offset = 0
        self._end_offset = 0

    def takes(self, header: LeaderEntryHeader, size_bytes: int) -> bool:
        is_next = header.first_offset == self._end_offset
        return is_next and self._size_bytes + size_bytes <= BATCH_SIZE_BYTES_MAX

    def add(self, header: LeaderEntryHeader, body: memoryview) -> None:
        lengths = _lengths(body, header.count)
        data = body[header.count * _LENGTH_SIZE_BYTES :]
        if not _add_up(lengths, len(data)):
            raise _wrong_lengths(body, header.count)
        if not self.entries:
            self._first_offset = header.first_offset
        self._end_offset = header.end_offset
        self._size_bytes += len(body)
        self._lengths.extend(lengths)
        self._data.append(data)
        self.entries.append(EntryRows(header.count, header.append_time_ms))

    def batch(self) -> LeaderBatch:
        data = pa.py_buffer(b"".join(self._data))
        return LeaderBatch(
            _batch_of(_binary(self._lengths, data)), self._first_offset, self.entries
        )


def decode_row_entries(
    schema: bytes,
    entries: Iterable[bytes | memoryview],
    *,
    columns: Sequence[str] | None = None,
) -> Iterator[LeaderBatch]:
    """Decode entries of a leader log of rows. For `columns`, see `decode_entries`."""
    headers: deque[LeaderEntryHeader] = deque()

    def bodies() -> Iterator[memoryview]:
        for entry in entries:
            header = decode_entry_header(entry)
            if header.codec is not LeaderCodec.ARROW:
                raise WireFormatError("the entry has records, but the leader log has rows")
            headers.append(header)
            yield memoryview(entry)[HEADER_SIZE_BYTES:]

    for decoded in decode_entries(schema, bodies(), columns=columns):
        header = headers.popleft()
        if decoded.batch.num_rows != header.count:
            raise WireFormatError(
                f"an entry has {decoded.batch.num_rows} rows, but its header states {header.count}"
            )
        entry = EntryRows(header.count, header.append_time_ms)
        yield LeaderBatch(decoded.batch, header.first_offset, (entry,))


def _batch_of(values: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([values], schema=RECORDS_SCHEMA)


def _lengths(body: memoryview, count: int) -> array[int]:
    start = count * _LENGTH_SIZE_BYTES
    if start > len(body):
        raise _wrong_lengths(body, count)
    lengths = array("i")
    assert lengths.itemsize == _LENGTH_SIZE_BYTES
    lengths.frombytes(body[:start])
    if sys.byteorder == "little":
        lengths.byteswap()
    return lengths


def _values(body: memoryview, count: int) -> pa.Array:
    """Return the records of a body.

    The running sums of the records' lengths are the offsets of the array.
    """
    lengths = array("i", [0])
    lengths.extend(_lengths(body, count))
    data = pa.py_buffer(body[count * _LENGTH_SIZE_BYTES :])
    if not _add_up(lengths, data.size):
        raise _wrong_lengths(body, count)
    return _binary(lengths, data)


def _add_up(lengths: array[int], size_bytes: int) -> bool:
    if len(lengths) <= _FEW:
        return min(lengths) >= 0 and sum(lengths) == size_bytes
    each = pa.Array.from_buffers(pa.int32(), len(lengths), [None, pa.py_buffer(lengths)])
    return bool(pc.min(each).as_py() >= 0 and pc.sum(each).as_py() == size_bytes)


def _binary(lengths: array[int], data: pa.Buffer) -> pa.Array:
    """Return an array of values. The first length is 0, and their sum is the size of `data`."""
    each = pa.Array.from_buffers(pa.int32(), len(lengths), [None, pa.py_buffer(lengths)])
    offsets = pc.cumulative_sum_checked(each)
    return pa.Array.from_buffers(pa.binary(), len(lengths) - 1, [None, offsets.buffers()[1], data])


def _wrong_lengths(body: memoryview, count: int) -> WireFormatError:
    return WireFormatError(
        f"the lengths of {count} records do not match a body of {len(body)} bytes"
    )
