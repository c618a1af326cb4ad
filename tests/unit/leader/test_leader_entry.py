"""Entries of leader logs: golden bytes, round trips, and decoders that refuse wrong bytes."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ledgerlog_spark.errors import LocalProtocolError, MetadataFormatError, WireFormatError
from ledgerlog_spark.protocol.leader.entry import (
    BODY_SIZE_BYTES_MAX,
    HEADER_SIZE_BYTES,
    OFFSET_END,
    LeaderCodec,
    LeaderEntryHeader,
    decode_entry_header,
    encode_entry_header,
    encode_records,
    split_records,
)

RECORDS = (b"ab", b"", b"cde")
HEADER = LeaderEntryHeader(LeaderCodec.PLAIN, 1_000, 1_700_000_000_000, 3, 17)
GOLDEN = bytes.fromhex(
    "4c45010000000000000003e80000018bcfe5680000000003000000110000000200000000000000036162636465"
)


def test_entry_is_stored_in_the_bytes_of_format_1() -> None:
    assert encode_entry_header(HEADER) + encode_records(RECORDS) == GOLDEN


def test_stored_entry_gives_back_header_and_records() -> None:
    assert decode_entry_header(GOLDEN) == HEADER
    assert HEADER.end_offset == 1_003
    body = memoryview(GOLDEN)[HEADER_SIZE_BYTES:]
    assert tuple(map(bytes, split_records(body, HEADER.count))) == RECORDS


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=30), st.integers(0, OFFSET_END - 30))
def test_any_records_come_back_as_they_were(records: list[bytes], first_offset: int) -> None:
    body = encode_records(records)
    header = LeaderEntryHeader(LeaderCodec.PLAIN, first_offset, 7, len(records), len(body))
    entry = encode_entry_header(header) + body
    assert decode_entry_header(entry) == header
    assert list(map(bytes, split_records(body, len(records)))) == records


def test_compressed_body_may_be_of_any_length() -> None:
    header = replace(HEADER, codec=LeaderCodec.LZ4, body_size_bytes=BODY_SIZE_BYTES_MAX)
    assert decode_entry_header(encode_entry_header(header) + b"short") == header


def test_arrow_body_has_no_lengths_so_that_few_bytes_may_hold_many_rows() -> None:
    header = replace(HEADER, codec=LeaderCodec.ARROW, count=1 << 30, body_size_bytes=5)
    assert decode_entry_header(encode_entry_header(header) + b"batch") == header


@pytest.mark.parametrize(
    "changed",
    [
        {"count": 0},
        {"count": 1 << 31},
        {"count": 5},
        {"first_offset": -1},
        {"first_offset": OFFSET_END - 2},
        {"append_time_ms": -1},
        {"body_size_bytes": BODY_SIZE_BYTES_MAX + 1},
        {"body_size_bytes": 11},
    ],
    ids=str,
)
def test_header_that_no_decoder_would_take_is_not_encoded(changed: dict[str, Any]) -> None:
    with pytest.raises(LocalProtocolError):
        encode_entry_header(replace(HEADER, **changed))


@pytest.mark.parametrize(
    ("place", "byte"),
    [(0, 0), (1, 0), (3, 3), (4, 0x80), (12, 0x80), (20, 0x80), (23, 0), (24, 1), (27, 0x12)],
    ids=str,
)
def test_entry_with_one_wrong_byte_in_its_header_is_refused(place: int, byte: int) -> None:
    damaged = bytearray(GOLDEN)
    damaged[place] = byte
    with pytest.raises(WireFormatError):
        decode_entry_header(bytes(damaged))


def test_entry_of_a_later_format_is_refused_by_name() -> None:
    later = bytearray(GOLDEN)
    later[2] = 2
    with pytest.raises(MetadataFormatError, match="format 2"):
        decode_entry_header(later)


@pytest.mark.parametrize("size", range(len(GOLDEN)))
def test_entry_that_is_cut_off_is_refused(size: int) -> None:
    with pytest.raises(WireFormatError):
        decode_entry_header(GOLDEN[:size])


@pytest.mark.parametrize(
    ("body", "count"),
    [(b"", 0), (b"", 1), (b"\0\0\0", 1), (b"\0\0\0\1", 1), (b"\0\0\0\1ab", 1),
     (b"\xff\xff\xff\xff\0\0\0\1", 2), (b"\0\0\0\0", 1 << 30)],
    ids=str,
)  # fmt: skip
def test_body_whose_lengths_do_not_add_up_is_refused(body: bytes, count: int) -> None:
    with pytest.raises(WireFormatError):
        split_records(body, count)


@given(st.binary(max_size=60), st.integers(0, 12))
@example(struct.pack(">3i", 1, 0, 2) + b"abc", 3)
def test_any_bytes_are_refused_or_read_and_nothing_else(data: bytes, count: int) -> None:
    for prefix in (b"", GOLDEN[:4], GOLDEN[:28]):
        try:
            header = decode_entry_header(prefix + data)
        except (WireFormatError, MetadataFormatError):
            continue
        assert header.count >= 1
    try:
        records = split_records(data, count)
    except WireFormatError:
        return
    assert sum(map(len, records)) + 4 * count == len(data)
