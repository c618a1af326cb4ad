"""Entries of leader logs to batches (ledgerlog_spark.arrow.leader_batches)."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import lz4.block
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ledgerlog_spark.arrow import leader_batches
from ledgerlog_spark.arrow.leader_batches import (
    RECORDS_SCHEMA,
    LeaderBatch,
    decode_record_bodies,
    decode_row_entries,
)
from ledgerlog_spark.arrow.stream_codec import BatchEncoder, encode_schema
from ledgerlog_spark.errors import DataLossError, WireFormatError
from ledgerlog_spark.log.entry_codec import plain_body
from ledgerlog_spark.protocol.leader.entry import (
    HEADER_SIZE_BYTES,
    LeaderCodec,
    LeaderEntryHeader,
    encode_entry_header,
    encode_records,
    split_records,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])


def decode_record_entries(entries: Iterable[bytes | memoryview]) -> Iterator[LeaderBatch]:
    return decode_record_bodies(map(plain_body, entries))


def records_entry(
    records: list[bytes], *, first_offset: int = 0, codec: LeaderCodec = LeaderCodec.PLAIN
) -> bytes:
    body = encode_records(records)
    header = LeaderEntryHeader(codec, first_offset, 1_700, len(records), len(body))
    if codec is LeaderCodec.LZ4:
        body = lz4.block.compress(body, store_size=False)
    return encode_entry_header(header) + body


def rows_entry(batch: pa.RecordBatch, *, first_offset: int = 0, count: int | None = None) -> bytes:
    body = BatchEncoder(SCHEMA).encode(batch, 0)
    rows = batch.num_rows if count is None else count
    header = LeaderEntryHeader(LeaderCodec.ARROW, first_offset, 1_700, rows, len(body))
    return encode_entry_header(header) + body


def rows(first: int, end: int) -> pa.RecordBatch:
    numbers = range(first, end)
    texts = [f"row {n}" for n in numbers]
    return pa.record_batch([pa.array(numbers, pa.int64()), pa.array(texts)], schema=SCHEMA)


@given(records=st.lists(st.binary(max_size=40), min_size=1, max_size=50), lz4_used=st.booleans())
@example(records=[b""], lz4_used=False)
@example(records=[b"", b"", b"x"], lz4_used=True)
def test_records_come_back_as_they_were_appended(records: list[bytes], lz4_used: bool) -> None:
    codec = LeaderCodec.LZ4 if lz4_used else LeaderCodec.PLAIN
    entry = records_entry(records, first_offset=70, codec=codec)
    (decoded,) = decode_record_entries([memoryview(entry)])
    assert decoded.batch.schema == RECORDS_SCHEMA
    decoded.batch.validate(full=True)
    assert decoded.batch["value"].to_pylist() == records
    assert (decoded.first_offset, decoded.entries) == (70, [(len(records), 1_700)])


def test_records_of_a_large_plain_entry_are_not_copied() -> None:
    entry = records_entry([b"a" * 100_000, b"b" * 1000])
    (decoded,) = decode_record_entries([entry])
    data = decoded.batch["value"].buffers()[2]
    whole = pa.py_buffer(entry)
    assert data.address == whole.address + HEADER_SIZE_BYTES + 8


@given(
    entries=st.lists(
        st.lists(st.binary(max_size=300), min_size=1, max_size=6), min_size=1, max_size=30
    ),
    gap=st.integers(0, 29),
)
def test_small_entries_share_a_batch_as_long_as_they_follow_each_other(
    entries: list[list[bytes]], gap: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leader_batches, "JOINED_SIZE_BYTES_MAX", 700)
        patch.setattr(leader_batches, "BATCH_SIZE_BYTES_MAX", 2_000)
        payloads, offset, starts = [], 0, []
        for place, records in enumerate(entries):
            offset += 5 * (place == gap)
            starts.append(offset)
            payloads.append(records_entry(records, first_offset=offset))
            offset += len(records)
        decoded = list(decode_record_entries(payloads))
    assert [value for each in decoded for value in each.batch["value"].to_pylist()] == [
        record for records in entries for record in records
    ]
    assert [count for each in decoded for count, _ in each.entries] == list(map(len, entries))
    place = 0
    for each in decoded:
        each.batch.validate(full=True)
        assert each.first_offset == starts[place]
        place += len(each.entries)
        end = starts[place - 1] + len(entries[place - 1])
        assert each.batch.num_rows == end - each.first_offset
        assert len(each.entries) == 1 or each.batch.nbytes < 2_200


def test_many_small_entries_are_few_batches() -> None:
    payloads = [records_entry([b"x" * 200], first_offset=n) for n in range(4_000)]
    assert len(list(decode_record_entries(payloads))) == 1


def test_rows_come_back_as_they_were_appended_with_the_columns_asked_for() -> None:
    entries = [rows_entry(rows(0, 5), first_offset=90), rows_entry(rows(5, 7), first_offset=95)]
    decoded = list(decode_row_entries(encode_schema(SCHEMA), entries))
    assert [each.batch for each in decoded] == [rows(0, 5), rows(5, 7)]
    assert [each.first_offset for each in decoded] == [90, 95]
    texts = list(decode_row_entries(encode_schema(SCHEMA), entries, columns=["text"]))
    assert [each.batch for each in texts] == [
        rows(0, 5).select(["text"]),
        rows(5, 7).select(["text"]),
    ]


@given(data=st.binary(max_size=200), codec=st.sampled_from(LeaderCodec), count=st.integers(1, 60))
@example(data=struct.pack(">2i", 1, 2) + b"abc", codec=LeaderCodec.PLAIN, count=2)
def test_any_body_is_decoded_as_the_pure_decoder_does_or_refused(
    data: bytes, codec: LeaderCodec, count: int
) -> None:
    least = 0 if codec is LeaderCodec.ARROW else 4 * count
    header = LeaderEntryHeader(codec, 0, 0, count, max(least, len(data)))
    entry = encode_entry_header(header) + data
    expected: list[bytes] | None = None
    if codec is LeaderCodec.PLAIN and len(data) >= least:
        try:
            expected = [bytes(record) for record in split_records(data, count)]
        except WireFormatError:
            expected = None
    if expected is None and codec is not LeaderCodec.LZ4:
        with pytest.raises(WireFormatError):
            list(decode_record_entries([entry]))
    elif expected is not None:
        (decoded,) = decode_record_entries([entry])
        assert decoded.batch["value"].to_pylist() == expected


@pytest.mark.parametrize(
    "lengths",
    [(-1, 5), (3, 2), (1, 2), (2**31 - 1, 2**31 - 1), (2**31 - 1, -(2**31) + 5)],
    ids=["negative", "too much", "too little", "overflow", "wraps around"],
)
def test_lengths_that_are_not_those_of_the_body_are_an_error(lengths: tuple[int, int]) -> None:
    body = struct.pack(">2i", *lengths) + b"abcd"
    header = LeaderEntryHeader(LeaderCodec.PLAIN, 0, 0, 2, len(body))
    with pytest.raises(WireFormatError, match="the lengths of 2 records do not match"):
        list(decode_record_entries([encode_entry_header(header) + body]))


@pytest.mark.parametrize("change", ["truncated", "larger claim", "smaller claim", "garbage"])
def test_a_compressed_body_that_is_not_what_the_header_says_is_an_error(change: str) -> None:
    entry = bytearray(records_entry([b"a" * 100] * 10, codec=LeaderCodec.LZ4))
    size = struct.Struct(">I")
    (claimed,) = size.unpack_from(entry, HEADER_SIZE_BYTES - 4)
    if change == "truncated":
        del entry[-3:]
    elif change == "garbage":
        entry[HEADER_SIZE_BYTES:] = b"\xff" * 20
    else:
        size.pack_into(
            entry, HEADER_SIZE_BYTES - 4, claimed + (1 if change == "larger claim" else -1)
        )
    with pytest.raises(WireFormatError):
        list(decode_record_entries([bytes(entry)]))


def test_entries_of_the_other_content_are_an_error() -> None:
    with pytest.raises(WireFormatError, match="the entry has rows, but records were expected"):
        list(decode_record_entries([rows_entry(rows(0, 5))]))
    with pytest.raises(WireFormatError, match="the entry has records, but the leader log has rows"):
        list(decode_row_entries(encode_schema(SCHEMA), [records_entry([b"a"])]))


def test_an_entry_that_claims_another_number_of_rows_is_an_error() -> None:
    with pytest.raises(WireFormatError, match="an entry has 5 rows, but its header states 6"):
        list(decode_row_entries(encode_schema(SCHEMA), [rows_entry(rows(0, 5), count=6)]))


def test_records_in_front_of_a_lost_entry_come_before_the_error() -> None:
    def entries() -> Iterator[bytes]:
        yield records_entry([b"a", b"b"])
        yield records_entry([b"c"], first_offset=2)
        raise DataLossError("gone")

    decoded = decode_record_entries(entries())
    first = next(decoded)
    assert first.batch.column("value").to_pylist() == [b"a", b"b", b"c"]
    with pytest.raises(DataLossError):
        next(decoded)


def test_rows_in_front_of_a_lost_entry_come_before_the_error() -> None:
    def entries() -> Iterator[bytes]:
        yield rows_entry(rows(0, 2))
        raise DataLossError("gone")

    decoded = decode_row_entries(encode_schema(SCHEMA), entries())
    assert next(decoded).batch == rows(0, 2)
    with pytest.raises(DataLossError):
        next(decoded)
