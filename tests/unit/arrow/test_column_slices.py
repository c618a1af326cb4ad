"""The bytes of columns in an entry (ledgerlog_spark.arrow.column_slices)."""

from __future__ import annotations

import contextlib
import random
from decimal import Decimal
from itertools import accumulate, pairwise
from struct import pack, unpack
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledgerlog_spark.arrow.batch_message import buffer_counts, find_parts
from ledgerlog_spark.arrow.column_slices import (
    SLICED_SIZE_BYTES_MIN,
    SLICES_SHARE_MAX,
    RequestedSlices,
    joined_slices,
    slices_of,
    split_slices,
)
from ledgerlog_spark.arrow.entry_cutter import EntrySplitter
from ledgerlog_spark.arrow.stream_codec import (
    COMPRESSIONS,
    INDEX_SIZE_BYTES_MAX,
    BatchEncoder,
    IndexedEntry,
    decode_entries,
    decode_index,
    encode_schema,
    places_of,
)
from ledgerlog_spark.errors import WireFormatError
from ledgerlog_spark.model import SLICE_RANGES_MAX
from ledgerlog_spark.wire.digests import crc32c
from ledgerlog_spark.wire.frames import ENTRY_SIZE_BYTES_MAX

ROWS = 200
FIELDS: dict[str, tuple[pa.DataType, Any]] = {
    "n": (pa.int64(), lambda row: row),
    "flag": (pa.bool_(), lambda row: row % 3 == 0),
    "nothing": (pa.null(), lambda _: None),
    "text": (pa.string(), lambda row: f"row {row} " + "x" * (row % 9)),
    "empty": (pa.binary(), lambda _: b""),
    "price": (pa.decimal128(12, 2), lambda row: Decimal(row) / 4),
    "list": (pa.list_(pa.int32()), lambda row: list(range(row % 4))),
    "nested": (
        pa.struct([("x", pa.float64()), ("y", pa.list_(pa.string()))]),
        lambda row: {"x": row / 2, "y": [str(row)] * (row % 3)},
    ),
    "map": (pa.map_(pa.string(), pa.int16()), lambda row: [("k", row % 100)]),
    "day": (pa.date32(), lambda row: row),
    "fixed": (pa.binary(4), lambda row: row.to_bytes(4, "big")),
    "large": (pa.large_string(), lambda row: "y" * (row % 5)),
    "last": (pa.float32(), float),
}
SCHEMA = pa.schema([(name, kind) for name, (kind, _) in FIELDS.items()])


COUNTS = buffer_counts(SCHEMA) or ()


def batch(first: int = 0, *, nulls: bool = True) -> pa.RecordBatch:
    def values(place: int, value_of: Any) -> list[Any]:
        rows = range(first, first + ROWS)
        return [None if nulls and row % 7 == place % 7 else value_of(row) for row in rows]

    arrays = [
        pa.array(values(place, value_of), kind)
        for place, (kind, value_of) in enumerate(FIELDS.values())
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def encoded(rows: pa.RecordBatch, compression: str) -> tuple[bytes, bytes]:
    """An entry and its slices."""
    entry = BatchEncoder(rows.schema, compression).encode(rows, 5)
    return entry, slices_of(entry, buffer_counts(rows.schema))


def received(entry: bytes, requested: RequestedSlices, entry_id: int) -> bytes:
    return b"".join(entry[at : at + size] for at, size in requested.ranges_of(entry_id))


@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_every_column_can_be_read_alone(compression: str, nulls: bool) -> None:
    rows = batch(nulls=nulls)
    entry, slices = encoded(rows, compression)
    lengths = unpack(f">{len(slices) // 4}I", slices)[::2]
    assert len(lengths) == len(FIELDS) + 1
    assert sum(lengths) == len(entry)
    for place, name in enumerate(SCHEMA.names):
        requested = RequestedSlices(3, [b"", slices], [place], COUNTS)
        data = received(entry, requested, 4)
        assert len(data) == lengths[0] + lengths[place + 1]
        payload = requested.payload_of(4, data)
        assert payload is not None
        (decoded,) = decode_entries(encode_schema(SCHEMA), [payload], columns=[name])
        assert decoded.batch == rows.select([name])
        assert decoded.first_row == 5


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_some_columns_and_no_column_are_the_same_rows_as_those_of_whole_entries(
    compression: str,
) -> None:
    rows = batch()
    entry, slices = encoded(rows, compression)
    schema = encode_schema(SCHEMA)
    for names in (["last", "N", "absent"], ["nested", "map", "list"], SCHEMA.names, ["absent"]):
        requested = RequestedSlices(0, [slices], places_of(SCHEMA, names), COUNTS)
        payload = requested.payload_of(0, received(entry, requested, 0))
        assert payload is not None
        (part,) = decode_entries(schema, [payload], columns=names)
        (whole,) = decode_entries(schema, [entry], columns=names)
        assert part.batch == whole.batch
        assert part.batch.num_rows == ROWS


def test_neighbouring_columns_are_one_range() -> None:
    entry, slices = encoded(batch(), "none")
    requested = RequestedSlices(0, [slices], [0, 1, 3, 12], COUNTS)
    ranges = requested.ranges_of(0)
    assert len(ranges) == 2  # between text and last, `nothing` has no bytes
    assert ranges[0][0] == 0
    assert sum(ranges[-1]) == len(entry)
    assert all(sum(one) < after[0] for one, after in pairwise(ranges))


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_other_bytes_than_those_of_the_slices_are_refused(compression: str) -> None:
    entry, slices = encoded(batch(), compression)
    requested = RequestedSlices(0, [slices], [3, 7], COUNTS)
    right = received(entry, requested, 0)
    assert requested.payload_of(0, right) is not None
    for damaged in (right[:-1], right + b"\0", b"", right[1:] + right[:1]):
        assert requested.payload_of(0, damaged) is None
    for place in range(0, len(right), 97):
        flipped = right[:place] + bytes([right[place] ^ 16]) + right[place + 1 :]
        assert requested.payload_of(0, flipped) is None


@pytest.mark.parametrize("moved", [-4_000, -64, 64, 4_000])
def test_borders_between_columns_that_cross_a_buffer_are_refused(moved: int) -> None:
    rows = pa.record_batch({name: pa.array(range(1_000), pa.int64()) for name in "abcd"})
    entry, slices = encoded(rows, "none")
    lengths = list(unpack(f">{len(slices) // 4}I", slices)[::2])
    lengths[1] += moved
    lengths[2] -= moved
    ends = list(accumulate(lengths, initial=0))
    wrong = slices_of_bytes([entry[at:end] for at, end in pairwise(ends)])
    for places in ([0], [1], [0, 2], [0, 1]):
        requested = RequestedSlices(0, [wrong], places, [2] * 4)
        payload = requested.payload_of(0, received(entry, requested, 0))
        names = [rows.schema.names[place] for place in places]
        if payload is not None:  # the columns are still inside their slices
            (decoded,) = decode_entries(encode_schema(rows.schema), [payload], columns=names)
            assert decoded.batch == rows.select(names)
    requested = RequestedSlices(0, [wrong], [0 if moved < 0 else 1], [2] * 4)
    assert requested.payload_of(0, received(entry, requested, 0)) is None


def test_a_header_that_is_none_is_refused_although_its_checksum_is_right() -> None:
    rows = pa.record_batch({"a": [1], "b": [2]})
    entry, _ = encoded(rows, "none")
    strange = RequestedSlices(0, [slices_of_bytes([b"head" * 8, entry, b""])], [0], [2, 2])
    assert strange.payload_of(0, b"head" * 8 + entry) is None


def slices_of_bytes(parts: list[bytes]) -> bytes:
    return b"".join(pack(">II", len(part), crc32c(part)) for part in parts)


def test_types_with_other_parts_than_buffers_have_no_slices() -> None:
    for kind in (pa.string_view(), pa.dictionary(pa.int8(), pa.string())):
        assert buffer_counts(pa.schema([("a", pa.int8()), ("b", kind)])) is None
        assert buffer_counts(pa.schema([("a", pa.list_(kind))])) is None
    assert slices_of(b"no entry", None) == b""
    assert slices_of(b"no entry", (2,)) == b""  # a single column cannot leave anything out


def test_an_index_keeps_the_slices_of_a_large_range_of_several_columns() -> None:
    noise = random.Random(1).randbytes(8 * 40_000)
    rows = pa.record_batch({f"c{n}": pa.array(memoryview(noise).cast("q")) for n in range(20)})
    for count, has_slices in ((40_000, True), (1_000, False)):
        splitter = EntrySplitter(rows.schema, compression="none")
        entries = [*splitter.add(rows.slice(0, count)), *splitter.finish()]
        size_bytes = sum(len(entry.payload) for entry in entries[:-1])
        assert (size_bytes >= SLICED_SIZE_BYTES_MIN) is has_slices
        (decoded,) = decode_entries(encode_schema(rows.schema), [entries[-1].payload])
        assert decoded.index is not None
        assert all(bool(entry.slices) is has_slices for entry in decoded.index)
        # An index entry costs at most two hundredths of its range.
        if has_slices:
            slices = RequestedSlices(0, [entry.slices for entry in decoded.index], [7], [2] * 20)
            assert slices.is_worthwhile(0, len(decoded.index) - 1)
            assert len(entries[-1].payload) < size_bytes / 50


@pytest.mark.parametrize(
    ("places", "is_worthwhile"), [([0], True), ([0, 1], True), ([0, 1, 2], False)]
)
def test_slices_are_worthwhile_if_they_have_less_than_three_fifths_of_the_bytes(
    places: list[int], *, is_worthwhile: bool
) -> None:
    part = bytes(1_000)
    slices = slices_of_bytes([b"h", *[part] * 4])
    requested = RequestedSlices(8, [slices] * 3, places, [2] * 4)
    assert requested.is_worthwhile(8, 10) is is_worthwhile
    for first, last in ((7, 10), (8, 11), (11, 11)):
        assert not requested.is_worthwhile(first, last)  # entries that the index does not list
    for columns in (3, 5):
        assert not RequestedSlices(8, [slices] * 3, [0], [2] * columns).is_worthwhile(8, 10)


@pytest.mark.parametrize(
    "lengths", [(0, 4, 4), (0, 0, 0), (9, 9, ENTRY_SIZE_BYTES_MAX), (9, 9, (1 << 32) - 1)]
)
def test_slices_that_no_entry_can_have_are_not_requested(lengths: tuple[int, int, int]) -> None:
    good = pack(">6I", 1, 0, 1, 0, 1_000, 0)
    assert RequestedSlices(0, [good, good], [0], [2, 2]).is_worthwhile(0, 1)
    hostile = pack(">6I", *(number for length in lengths for number in (length, 0)))
    assert not RequestedSlices(0, [good, hostile], [0], [2, 2]).is_worthwhile(0, 1)


def test_more_columns_than_a_request_may_have_are_not_requested() -> None:
    """Otherwise the request would be refused, and the read would fail."""
    columns = 3 * SLICE_RANGES_MAX
    slices = pack(f">{2 * (1 + columns)}I", *(1, 0) * (1 + columns))
    for wanted, is_worthwhile in ((SLICE_RANGES_MAX - 1, True), (SLICE_RANGES_MAX, False)):
        requested = RequestedSlices(0, [slices], range(1, 2 * wanted, 2), [2] * columns)
        assert requested.is_worthwhile(0, 0) is is_worthwhile
        assert len(requested.ranges_of(0)) == 1 + wanted


def test_a_message_with_other_bytes_than_its_body_has_no_slices() -> None:
    entry, slices = encoded(batch(), "none")
    assert slices
    assert slices_of(entry + bytes(8), COUNTS) == b""
    assert slices_of(entry[:-8], COUNTS) == b""


def test_slices_of_more_than_a_mebibyte_are_left_out_of_an_index() -> None:
    schema = pa.schema([(f"c{number}", pa.int8()) for number in range(50)])
    size = 1_000_000
    slices = pack(">102I", size, *[0] * 101)
    most = INDEX_SIZE_BYTES_MAX * 3 // 4 // len(slices)
    for count, has_slices in ((most, True), (most + 1, False)):
        entry = BatchEncoder(schema).encode_index([IndexedEntry(4, size, b"", slices)] * count)
        (decoded,) = decode_entries(encode_schema(schema), [entry])
        assert decoded.index is not None
        assert [bool(each.slices) for each in decoded.index] == [has_slices] * count


def test_wrong_slices_in_an_index_are_left_out() -> None:
    text = '{"format":1,"rows":[4],"bytes":[9],"slices":%s}'
    for slices in ('"AAAA"', '"?"', "7", "[1]", '{"a":1}', '"%s"' % ("A" * 32)):
        assert decode_index((text % slices).encode()) == (IndexedEntry(4, 9),)


def test_without_columns_a_small_column_is_decoded() -> None:
    fields = [("t", pa.string()), ("s", pa.struct([("x", pa.int8())])), ("n", pa.int64())]
    assert places_of(pa.schema([*fields, ("b", pa.bool_())]), []) == [3]
    assert places_of(pa.schema(fields), ["x"]) == [2]
    assert places_of(pa.schema(fields[:2]), []) == [0]
    assert places_of(pa.schema([]), ["x"]) == []


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_batches_without_rows_have_slices(compression: str) -> None:
    rows = batch().slice(0, 0)
    entry, slices = encoded(rows, compression)
    requested = RequestedSlices(0, [slices], [7, 8], COUNTS)
    payload = requested.payload_of(0, received(entry, requested, 0))
    assert payload is not None
    assert find_parts(payload).body_size <= find_parts(entry).body_size


def test_slices_that_are_a_large_part_of_their_range_are_left_out() -> None:
    few = SLICED_SIZE_BYTES_MIN
    most = int(few * SLICES_SHARE_MAX * 3 / 4)
    assert joined_slices([bytes(most)], few) == bytes(most)
    assert joined_slices([bytes(most + 1)], few) == b""
    assert joined_slices([bytes(8)], few - 1) == b""
    assert joined_slices([bytes(8), b""], few) == b""


def test_slices_that_do_not_add_up_are_refused() -> None:
    good = slices_of_bytes([b"head", b"one", b"three"])
    assert split_slices(good * 2, [12, 12]) == [good, good]
    for joined, sizes in ((good, [11]), (good[:-1], [12]), (good * 3, [12, 12]), (good[:16], [7])):
        with pytest.raises(WireFormatError):
            split_slices(joined, sizes)


def test_an_index_with_slices_is_read_back_and_an_older_one_has_none() -> None:
    schema = pa.schema([("a", pa.int8()), ("b", pa.int8())])
    size = SLICED_SIZE_BYTES_MIN
    slices = pack(">6I", 100, 1, size - 200, 2, 100, 3)
    index = (IndexedEntry(4, size, b"x", slices), IndexedEntry(5, size, b"", slices))
    entry = BatchEncoder(schema).encode_index(index)
    (decoded,) = decode_entries(encode_schema(schema), [entry])
    assert decoded.index == index
    assert decode_index(b'{"format":1,"rows":[4],"bytes":[9]}') == (IndexedEntry(4, 9),)


@given(st.binary(max_size=300))
@settings(max_examples=300)
def test_any_bytes_are_parts_of_a_message_or_an_error(data: bytes) -> None:
    for message in (data, pack("<Ii", 0xFFFFFFFF, max(1, len(data))) + data):
        with contextlib.suppress(WireFormatError):
            find_parts(message)


@given(st.data())
@settings(max_examples=200)
def test_a_damaged_header_is_decoded_or_an_error(data: st.DataObject) -> None:
    entry = bytearray(ENTRY)
    start = find_parts(ENTRY).body_start
    for _ in range(data.draw(st.integers(1, 4))):
        entry[data.draw(st.integers(0, start - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(WireFormatError):
        find_parts(entry)


@given(st.binary(max_size=100), st.lists(st.integers(0, 300), min_size=1, max_size=4))
def test_any_bytes_are_slices_or_an_error(joined: bytes, sizes: list[int]) -> None:
    try:
        slices = split_slices(joined, sizes)
    except WireFormatError:
        return
    assert b"".join(slices) == joined


ENTRY, _ = encoded(batch(), "zstd")
