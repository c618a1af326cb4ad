"""Encodes and decodes an entry of a leader log (LOGS.md#formats, LOGS.md#G10).

An entry begins with this header:

    2s   magic b"LE"
    u8   format: 1
    u8   codec: 0 plain, 1 LZ4 block, 2 Arrow record batch message
    i64  offset of the first record or row
    i64  append time, ms since the epoch
    i32  count of records or rows, at least 1
    u32  size of the body before compression

The body follows. With codec 0 the body is one i32 length for each record, then the records. With
codec 1 the body is the body of codec 0, compressed as one LZ4 block. The block does not store the
size before compression, because the header contains this size. With codec 2 the body is one
encapsulated Arrow record batch message of `count` rows. All numbers are big-endian.

Decoders accept any bytes. For an invalid entry they raise `WireFormatError`, before they allocate
memory of the size in the header. For an entry of another format they raise `MetadataFormatError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import accumulate, pairwise
from struct import Struct, pack, unpack_from

from ledgerlog_spark.errors import LocalProtocolError, MetadataFormatError, WireFormatError
from ledgerlog_spark.protocol.ledger.messages import Payload

BODY_SIZE_BYTES_MAX = 16 << 20
"""Maximum size of a body before compression. A header with a larger size is refused."""

COUNT_MAX = (1 << 31) - 1
OFFSET_END = (1 << 63) - 1
"""The offset of every record is less than this number."""

_HEADER = Struct(">2sBBqqiI")
HEADER_SIZE_BYTES = _HEADER.size
_MAGIC = b"LE"
_FORMAT = 1
_LENGTH_SIZE_BYTES = 4


class LeaderCodec(IntEnum):
    """Encoding of the body."""

    PLAIN = 0
    LZ4 = 1
    ARROW = 2


@dataclass(frozen=True, slots=True)
class LeaderEntryHeader:
    """The header of an entry."""

    codec: LeaderCodec
    first_offset: int
    append_time_ms: int  # time of the append call by the store's clock, ms since the epoch
    count: int
    body_size_bytes: int  # size of the body before compression

    @property
    def end_offset(self) -> int:
        """The offset after the last record or row of the entry."""
        return self.first_offset + self.count


def encode_entry_header(header: LeaderEntryHeader) -> bytes:
    """Encode the header, which is stored before the body."""
    wrong = _what_is_wrong(header)
    if wrong:
        raise LocalProtocolError(f"an entry of a leader log cannot have {wrong}: split it")
    return _HEADER.pack(
        _MAGIC,
        _FORMAT,
        header.codec,
        header.first_offset,
        header.append_time_ms,
        header.count,
        header.body_size_bytes,
    )


def decode_entry_header(entry: Payload) -> LeaderEntryHeader:
    """Decode the header of a whole entry. Check the body's length, unless the codec is LZ4."""
    if len(entry) < HEADER_SIZE_BYTES or bytes(entry[:2]) != _MAGIC:
        raise WireFormatError(f"these {len(entry)} bytes are not an entry of a leader log")
    _, entry_format, codec, first_offset, time_ms, count, size = _HEADER.unpack_from(entry)
    if entry_format != _FORMAT:
        raise MetadataFormatError(
            f"an entry of a leader log has format {entry_format}, but this version reads only "
            f"format {_FORMAT}: use the version of ledgerlog that wrote it, or a later version",
            entry_format=entry_format,
        )
    if codec not in LeaderCodec.__members__.values():
        raise WireFormatError(f"an entry of a leader log has the unknown codec {codec}")
    header = LeaderEntryHeader(LeaderCodec(codec), first_offset, time_ms, count, size)
    wrong = _what_is_wrong(header)
    if wrong:
        raise WireFormatError(f"an entry of a leader log cannot have {wrong}")
    stored = len(entry) - HEADER_SIZE_BYTES
    if header.codec is not LeaderCodec.LZ4 and stored != size:
        raise WireFormatError(f"the body of an entry has {stored} bytes instead of {size}")
    return header


def encode_records(records: Sequence[Payload]) -> bytes:
    """Return the uncompressed body of an entry: the lengths of all records, then all records."""
    return b"".join((pack(f">{len(records)}i", *map(len, records)), *records))


def split_records(body: Payload, count: int) -> list[memoryview]:
    """Return the records of an uncompressed body, as views into the body."""
    start = count * _LENGTH_SIZE_BYTES
    if count < 1 or start > len(body):
        raise WireFormatError(f"a body of {len(body)} bytes cannot have {count} records")
    lengths = unpack_from(f">{count}i", body)
    if min(lengths) < 0 or start + sum(lengths) != len(body):
        raise WireFormatError(f"the lengths of {count} records do not match the body")
    view = memoryview(body).toreadonly()
    return [view[first:end] for first, end in pairwise(accumulate(lengths, initial=start))]


def _what_is_wrong(header: LeaderEntryHeader) -> str:
    if not 1 <= header.count <= COUNT_MAX:
        return f"{header.count} records"
    if header.first_offset < 0 or header.end_offset > OFFSET_END:
        return f"offset {header.first_offset}"
    if header.append_time_ms < 0:
        return f"append time {header.append_time_ms}"
    lengths = 0 if header.codec is LeaderCodec.ARROW else header.count * _LENGTH_SIZE_BYTES
    if not lengths <= header.body_size_bytes <= BODY_SIZE_BYTES_MAX:
        return f"{header.count} records in {header.body_size_bytes} bytes"
    return ""
