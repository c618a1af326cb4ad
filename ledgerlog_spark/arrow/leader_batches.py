"""Entries of leader logs as record batches (design 6.3; docs/LOGS.md G10).

Records become one column of bytes that points into the entry's own memory: only the lengths are
turned into Arrow's offsets, by Arrow.
"""

from __future__ import annotations

import sys
from array import array
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ledgerlog_spark.arrow.stream_codec import decode_entries
from ledgerlog_spark.errors import WireFormatError
from ledgerlog_spark.protocol.leader_entry import (
    HEADER_SIZE_BYTES,
    LeaderCodec,
    LeaderEntryHeader,
    decode_entry_header,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

VALUE_COLUMN = "value"
RECORDS_SCHEMA = pa.schema([(VALUE_COLUMN, pa.binary())])
"""Of the rows that records are."""

_LENGTH_SIZE_BYTES = 4


@dataclass(frozen=True, slots=True)
class LeaderBatch:
    """One entry of a leader log, decoded.

    Attributes:
        batch: Its records or rows.
        first_offset: Of the first of them.
        append_time_ms: When its leader took it, ms since the epoch.
    """

    batch: pa.RecordBatch
    first_offset: int
    append_time_ms: int


def decode_record_bodies(
    bodies: Iterable[tuple[LeaderEntryHeader, memoryview]],
) -> Iterator[LeaderBatch]:
    """Entries of a log of records, as batches of RECORDS_SCHEMA.

    Args:
        bodies: Header and body of each entry, the body without compression.

    Raises:
        WireFormatError: A body is not what its header says.
    """
    for header, body in bodies:
        batch = pa.RecordBatch.from_arrays([_values(body, header.count)], schema=RECORDS_SCHEMA)
        yield LeaderBatch(batch, header.first_offset, header.append_time_ms)


def decode_row_entries(
    schema: bytes,
    entries: Iterable[bytes | memoryview],
    *,
    columns: Sequence[str] | None = None,
) -> Iterator[LeaderBatch]:
    """Entries of a leader log of rows.

    Args:
        schema: The schema message of the rows; it lies in the log's head.
        entries: Payloads.
        columns: Names of the columns to decode, as of `decode_entries`.

    Raises:
        WireFormatError: An entry is none of rows of this schema.
        MetadataFormatError: A later version of ledgerlog wrote it.
    """
    headers: deque[LeaderEntryHeader] = deque()

    def bodies() -> Iterator[memoryview]:
        for entry in entries:
            header = decode_entry_header(entry)
            if header.codec is not LeaderCodec.ARROW:
                raise WireFormatError("an entry of records in a leader log of rows")
            headers.append(header)
            yield memoryview(entry)[HEADER_SIZE_BYTES:]

    for decoded in decode_entries(schema, bodies(), columns=columns):
        header = headers.popleft()
        if decoded.batch.num_rows != header.count:
            raise WireFormatError(
                f"an entry of {decoded.batch.num_rows} rows in a leader log claims {header.count}"
            )
        yield LeaderBatch(decoded.batch, header.first_offset, header.append_time_ms)


def _values(body: memoryview, count: int) -> pa.Array:
    """The records of a body: its lengths, summed up, are the offsets of an Arrow array."""
    start = count * _LENGTH_SIZE_BYTES
    if start > len(body):
        raise WireFormatError(f"a body of {len(body)} bytes that claims {count} records")
    lengths = array("i", [0])
    assert lengths.itemsize == _LENGTH_SIZE_BYTES
    lengths.frombytes(body[:start])
    if sys.byteorder == "little":
        lengths.byteswap()
    each = pa.Array.from_buffers(pa.int32(), count + 1, [None, pa.py_buffer(lengths)])
    data_size_bytes = len(body) - start
    try:
        offsets = pc.cumulative_sum_checked(each)
    except pa.ArrowInvalid:
        offsets = None
    if offsets is None or offsets[-1].as_py() != data_size_bytes or pc.min(each).as_py() < 0:
        raise WireFormatError(f"{count} records whose lengths are not those of {len(body)} bytes")
    data = pa.py_buffer(body[start:])
    return pa.Array.from_buffers(pa.binary(), count, [None, offsets.buffers()[1], data])
