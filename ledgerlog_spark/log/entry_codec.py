"""Converts records to entries of a leader log, and back (LOGS.md#G10).

The body of an entry is compressed only if this makes it at least an eighth smaller. A smaller
saving is not worth the time to decompress the body. The layout and the limits are in
`protocol/leader/entry.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import lz4.block

from ledgerlog_spark.errors import WireFormatError
from ledgerlog_spark.protocol.leader.entry import (
    HEADER_SIZE_BYTES,
    LeaderCodec,
    LeaderEntryHeader,
    decode_entry_header,
    encode_entry_header,
    encode_records,
    split_records,
)
from ledgerlog_spark.protocol.ledger.messages import Payload

COMPRESSED_SIZE_BYTES_MIN = 256
"""Minimum size of a body that is compressed, in bytes."""


@dataclass(frozen=True, slots=True)
class EncodedBody:
    """The encoded body of an entry, which has no offset and no time yet.

    `size_bytes` is the size of the body before compression.
    """

    count: int
    codec: LeaderCodec
    stored: bytes
    size_bytes: int

    @property
    def entry_size_bytes(self) -> int:
        """Size of the entry, including its header."""
        return HEADER_SIZE_BYTES + len(self.stored)

    def entry(self, *, first_offset: int, append_time_ms: int) -> bytes:
        """Return the entry in the form in which it is stored."""
        header = LeaderEntryHeader(
            self.codec, first_offset, append_time_ms, self.count, self.size_bytes
        )
        return encode_entry_header(header) + self.stored


def encode_body(records: Sequence[Payload]) -> EncodedBody:
    """Encode one or more records as the body of an entry.

    Compress the body if this saves at least an eighth of its size.
    """
    plain = encode_records(records)
    size = len(plain)
    if size >= COMPRESSED_SIZE_BYTES_MIN:
        packed: bytes = lz4.block.compress(plain, store_size=False)
        if len(packed) <= size - size // 8:
            return EncodedBody(len(records), LeaderCodec.LZ4, packed, size)
    return EncodedBody(len(records), LeaderCodec.PLAIN, plain, size)


def decode_entry(entry: Payload) -> tuple[LeaderEntryHeader, list[memoryview]]:
    """Return the header and the records of an entry.

    Each record is a view of the decoded body, so it keeps the whole body in memory.

    Raises WireFormatError if the bytes are not an entry of records, and MetadataFormatError if a
    later release of ledgerlog wrote the entry.
    """
    header, body = plain_body(entry)
    return header, split_records(body, header.count)


def plain_body(entry: Payload) -> tuple[LeaderEntryHeader, memoryview]:
    """Return the header and the uncompressed body of an entry of records.

    The errors are those of `decode_entry`.
    """
    header = decode_entry_header(entry)
    body = memoryview(entry)[HEADER_SIZE_BYTES:]
    if header.codec is LeaderCodec.ARROW:
        raise WireFormatError("the entry has rows, but records were expected")
    if header.codec is LeaderCodec.LZ4:
        body = memoryview(_unpacked(body, header.body_size_bytes))
    return header, body


def _unpacked(packed: memoryview, size_bytes: int) -> bytes:
    try:
        body: bytes = lz4.block.decompress(packed, uncompressed_size=size_bytes)
    except lz4.block.LZ4BlockError as error:
        raise WireFormatError(
            f"LZ4 cannot decompress the body of {len(packed)} bytes: {error}"
        ) from None
    if len(body) != size_bytes:
        raise WireFormatError(
            f"the decompressed body has {len(body)} bytes, but its header states {size_bytes}"
        )
    return body
