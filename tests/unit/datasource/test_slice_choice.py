"""A scan reads slices only if the index and the wanted columns have few bytes."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from ledgerlog_spark.arrow.stream_codec import encode_schema
from ledgerlog_spark.datasource.scan.ranges import ScanRange
from ledgerlog_spark.datasource.scan.slice_choice import SliceChoice
from ledgerlog_spark.model import NO_ENTRY, SLICE_RANGES_MAX

MIB = 1 << 20
NAMES = [f"c{number}" for number in range(20)]
NUMBERS = pa.schema([(name, pa.int64()) for name in NAMES])
INDEX_ID = 65
ROWS = 64 * MIB // 160
RANGE = ScanRange(
    log="wide",
    ledger_id=7,
    first_entry_id=1,
    last_entry_id=64,
    rows=ROWS,
    size_bytes=64 * MIB,
    schema_id=0,
    range_offset=0,
    start_offset=0,
    end_offset=ROWS,
    commit_times=(),
    slices_entry_id=INDEX_ID,
    index_entries=64,
    entry_rows=(0, ROWS),
)


def chosen(
    *ranges: ScanRange,
    columns: list[str],
    schema: pa.Schema = NUMBERS,
    encoded: bytes | None = None,
) -> list[bool]:
    """For each range, whether its slices are read."""
    stored = encode_schema(schema) if encoded is None else encoded
    found = SliceChoice({("wide", 0): stored}, columns).chosen(ranges)
    for before, after in zip(ranges, found, strict=True):
        assert after.slices_entry_id in (before.slices_entry_id, NO_ENTRY)
        assert replace(after, slices_entry_id=before.slices_entry_id) == before
    return [one.slices_entry_id != NO_ENTRY for one in found]


@pytest.mark.parametrize("wanted", range(21))
def test_slices_are_read_if_the_columns_have_less_than_three_fifths(wanted: int) -> None:
    assert chosen(RANGE, columns=NAMES[:wanted]) == [wanted < 12]


def test_a_scan_that_lacks_one_column_reads_no_index() -> None:
    assert chosen(RANGE, columns=NAMES[1:]) == [False]
    assert chosen(RANGE, columns=[*NAMES[:10], "_offset"]) == [True]
    assert chosen(RANGE, columns=[name.upper() for name in NAMES[:10]]) == [True]


def test_a_filter_that_is_read_first_always_needs_the_index() -> None:
    def with_first(first: set[int], columns: list[str], schema: pa.Schema = NUMBERS) -> bool:
        schemas = {("wide", 0): encode_schema(schema)}
        (found,) = SliceChoice(schemas, columns, lambda _: first).chosen([RANGE])
        return found.slices_entry_id == INDEX_ID

    assert with_first({3}, NAMES)
    assert with_first({3, 4}, NAMES[1:])
    # The filter's columns are all that the scan reads.
    assert not with_first(set(range(20)), NAMES)
    assert not with_first(set(), NAMES)
    # The slices of this many columns would be more than a writer lists.
    many = pa.schema([(f"c{number}", pa.int64()) for number in range(5000)])
    assert not with_first({3}, many.names, many)


def piece(first: int, last: int, of: ScanRange = RANGE) -> ScanRange:
    entries = last - first + 1
    return replace(
        of,
        first_entry_id=first,
        last_entry_id=last,
        rows=of.rows * entries // 64,
        size_bytes=of.size_bytes * entries // 64,
        entry_rows=None,
    )


def test_a_small_piece_does_not_pay_for_the_index_of_the_whole_range() -> None:
    # The index has 64 entries of 20 + 224 + 560 bytes: 51 KB.
    range_of_2_mib = replace(RANGE, size_bytes=2 * MIB, rows=ROWS // 32, entry_rows=None)
    assert chosen(range_of_2_mib, columns=["c0"]) == [True]
    assert chosen(piece(1, 10, range_of_2_mib), columns=["c0"]) == [True]
    assert chosen(piece(1, 2, range_of_2_mib), columns=["c0"]) == [False]
    assert chosen(piece(1, 1), columns=["c0"]) == [True]


def test_pieces_of_one_range_in_one_task_share_the_index() -> None:
    range_of_2_mib = replace(RANGE, size_bytes=2 * MIB, rows=ROWS // 32, entry_rows=None)
    pieces = [piece(first, first + 1, range_of_2_mib) for first in (1, 11, 21)]
    other = replace(pieces[0], ledger_id=8)
    assert chosen(*pieces, other, columns=["c0"]) == [True, True, True, False]


def test_an_index_that_is_read_anyway_costs_nothing() -> None:
    small = replace(piece(1, 1, replace(RANGE, size_bytes=MIB)), index_entry_id=INDEX_ID)
    assert chosen(small, columns=["c0"]) == [True]
    assert chosen(replace(small, index_entry_id=NO_ENTRY), columns=["c0"]) == [False]
    assert chosen(small, columns=NAMES) == [False]


def test_a_range_whose_index_lists_no_slices_is_read_whole() -> None:
    # 64 entries of 224 bytes are more than 1/64 of 900 KB, and 5,000 are more than 1 MiB.
    assert chosen(replace(RANGE, size_bytes=900_000), columns=["c0"]) == [False]
    assert chosen(replace(RANGE, size_bytes=930_000), columns=["c0"]) == [True]
    many = replace(RANGE, last_entry_id=5_000, size_bytes=5_000 * MIB)
    assert chosen(replace(many, index_entries=4_600), columns=["c0"]) == [True]
    assert chosen(replace(many, index_entries=5_000), columns=["c0"]) == [False]
    assert chosen(replace(RANGE, slices_entry_id=NO_ENTRY), columns=["c0"]) == [False]


TEXT = pa.schema([("number", pa.int64()), ("text", pa.string()), ("list", pa.list_(pa.string()))])


def test_columns_of_varying_width_share_the_rest() -> None:
    long = replace(RANGE, rows=ROWS // 10, entry_rows=(0, ROWS // 10))
    assert chosen(long, columns=["number"], schema=TEXT) == [True]
    assert chosen(long, columns=["number", "text"], schema=TEXT) == [True]
    assert chosen(long, columns=["text", "list"], schema=TEXT) == [False]
    short = replace(RANGE, rows=ROWS * 8, entry_rows=(0, ROWS * 8))  # 20 bytes a row
    assert chosen(short, columns=["text"], schema=TEXT) == [True]
    assert chosen(short, columns=["number", "text"], schema=TEXT) == [False]


def test_compressed_columns_shrink_alike() -> None:
    small = replace(RANGE, rows=ROWS * 100, entry_rows=(0, ROWS * 100))  # 1.6 bytes a row
    assert chosen(small, columns=["text"], schema=TEXT) == [True]
    assert chosen(small, columns=["text", "number"], schema=TEXT) == [False]
    assert chosen(small, columns=["c0"]) == [True]
    assert chosen(small, columns=NAMES[:12]) == [False]


def test_rows_outside_the_offsets_count_because_their_entry_is_read() -> None:
    one = replace(piece(1, 1), rows=1, entry_rows=(0, ROWS // 8), index_entries=1)
    assert chosen(one, columns=["number", "text"], schema=TEXT) == [False]


def test_more_columns_than_a_request_may_have_are_read_whole() -> None:
    kinds = [(f"c{number}", pa.null()) for number in range(SLICE_RANGES_MAX + 1)]
    schema = pa.schema([*kinds, ("text", pa.string())])
    names = [name for name, _ in kinds]
    large = replace(RANGE, index_entry_id=INDEX_ID)
    assert chosen(large, columns=names[: SLICE_RANGES_MAX - 1], schema=schema) == [True]
    assert chosen(large, columns=names[:SLICE_RANGES_MAX], schema=schema) == [False]


def test_schemas_without_slices_are_read_whole() -> None:
    assert chosen(RANGE, columns=["c0"], encoded=b"") == [False]
    words = pa.schema([("c0", pa.int64()), ("word", pa.dictionary(pa.int32(), pa.string()))])
    assert chosen(RANGE, columns=["c0"], schema=words) == [False]
