"""Records as entries: round trips, and decoders that accept or refuse any bytes."""

from __future__ import annotations

import lz4.block
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgerlog_spark.errors import LocalProtocolError, MetadataFormatError, WireFormatError
from ledgerlog_spark.log.entry_codec import decode_entry, encode_body
from ledgerlog_spark.log.records import RECORD_SIZE_BYTES_MAX, checked_record
from ledgerlog_spark.protocol.leader.entry import (
    LeaderCodec,
    LeaderEntryHeader,
    encode_entry_header,
)

records = st.lists(
    st.binary(max_size=60) | st.binary(min_size=1, max_size=9).map(lambda one: one * 200),
    min_size=1,
    max_size=40,
)


@given(records, st.integers(0, 1 << 50))
def test_any_records_come_back_from_their_entry(values: list[bytes], first_offset: int) -> None:
    body = encode_body(values)
    entry = body.entry(first_offset=first_offset, append_time_ms=7)
    assert len(entry) == body.entry_size_bytes
    header, found = decode_entry(entry)
    assert (header.first_offset, header.append_time_ms) == (first_offset, 7)
    assert (header.count, header.body_size_bytes) == (len(values), body.size_bytes)
    assert list(map(bytes, found)) == values


def test_body_is_compressed_when_that_makes_it_smaller_and_left_alone_when_not() -> None:
    text = encode_body([b"a line that looks like the others %d" % n for n in range(100)])
    assert text.codec is LeaderCodec.LZ4
    assert len(text.stored) < text.size_bytes / 2
    noise = encode_body([bytes((n * n * 7919 >> shift) & 255 for shift in range(16))
                         for n in range(3, 300)])  # fmt: skip
    assert encode_body([b"a" * 100]).codec is LeaderCodec.PLAIN
    assert noise.codec is LeaderCodec.PLAIN or len(noise.stored) <= noise.size_bytes * 7 / 8


@given(st.binary(max_size=200), st.integers(1, 50), st.integers(0, 5000), st.sampled_from([0, 1]))
def test_any_body_behind_a_good_header_decodes_or_is_refused(
    body: bytes, count: int, size: int, codec: int
) -> None:
    header = LeaderEntryHeader(LeaderCodec(codec), 0, 0, count, max(size, 4 * count))
    try:
        found, values = decode_entry(encode_entry_header(header) + body)
    except WireFormatError:
        return
    assert found == header
    assert len(values) == count


@given(st.binary(max_size=100))
def test_any_bytes_decode_or_are_refused(data: bytes) -> None:
    with pytest.raises((WireFormatError, MetadataFormatError)):
        decode_entry(data)


def test_block_that_unpacks_to_another_size_is_refused() -> None:
    packed = lz4.block.compress(b"\0" * 400, store_size=False)
    header = LeaderEntryHeader(LeaderCodec.LZ4, 0, 0, 100, 500)
    with pytest.raises(WireFormatError):
        decode_entry(encode_entry_header(header) + packed)
    header = LeaderEntryHeader(LeaderCodec.LZ4, 0, 0, 100, 400)
    assert len(decode_entry(encode_entry_header(header) + packed)[1]) == 100


def test_entry_of_rows_is_no_entry_of_records() -> None:
    header = LeaderEntryHeader(LeaderCodec.ARROW, 0, 0, 3, 10)
    with pytest.raises(WireFormatError, match="rows"):
        decode_entry(encode_entry_header(header) + bytes(10))


def test_record_is_bytes_and_fits_an_entry() -> None:
    assert checked_record(bytes(RECORD_SIZE_BYTES_MAX)) == bytes(RECORD_SIZE_BYTES_MAX)
    assert checked_record(bytearray(b"copied")) == b"copied"
    for bad in ("text", None, bytes(RECORD_SIZE_BYTES_MAX + 1), bytes(8 << 20)):
        with pytest.raises(LocalProtocolError, match=r"^a record (must be|has) "):
            checked_record(bad)
