"""Batches into entries (ledgerlog_spark.arrow.entry_cutter)."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledgerlog_spark.arrow.entry_cutter import EncodedEntry, EntrySplitter
from ledgerlog_spark.arrow.stream_codec import (
    ENTRY_ROWS_MAX,
    ENTRY_SIZE_BYTES_MAX,
    decode_entries,
    encode_schema,
)
from ledgerlog_spark.errors import LocalProtocolError
from ledgerlog_spark.protocol.log.state.statistics import decode_statistics
from tests.fixtures.examples import examples

RANDOM = random.Random(7)


def numbers(rows: int, first: int = 0) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(range(first, first + rows), pa.int64())})


def noise(rows: int, size_bytes: int) -> pa.RecordBatch:
    return pa.record_batch({"b": pa.array([RANDOM.randbytes(size_bytes) for _ in range(rows)])})


def split(splitter: EntrySplitter, batches: list[pa.RecordBatch]) -> list[EncodedEntry]:
    entries = [entry for batch in batches for entry in splitter.add(batch)]
    return entries + list(splitter.finish())


def test_small_batches_are_joined_to_entries_of_65536_rows() -> None:
    splitter = EntrySplitter(numbers(1).schema)
    entries = split(splitter, [numbers(10_000, first) for first in range(0, 200_000, 10_000)])
    assert [entry.rows for entry in entries] == [ENTRY_ROWS_MAX] * 3 + [200_000 % ENTRY_ROWS_MAX, 0]


def test_entries_of_incompressible_rows_are_near_the_target() -> None:
    splitter = EntrySplitter(noise(1, 1).schema, target_entry_bytes=100_000)
    *entries, _, _ = split(splitter, [noise(1000, 1000) for _ in range(3)])
    assert all(80_000 < len(entry.payload) < 130_000 for entry in entries)


def test_entries_never_exceed_the_frame_even_when_the_guess_was_wrong() -> None:
    zeros = pa.record_batch({"b": pa.array([bytes(1000)] * 60_000)})
    splitter = EntrySplitter(zeros.schema)
    entries = split(splitter, [zeros, noise(12_000, 1000)])
    assert max(len(entry.payload) for entry in entries) <= ENTRY_SIZE_BYTES_MAX
    assert sum(entry.rows for entry in entries) == 72_000


def test_a_row_beyond_the_frame_limit_is_an_error_that_names_both_sizes() -> None:
    splitter = EntrySplitter(noise(1, 1).schema)
    with pytest.raises(LocalProtocolError, match=f"at most {ENTRY_SIZE_BYTES_MAX}") as caught:
        split(splitter, [noise(1, 10), noise(1, ENTRY_SIZE_BYTES_MAX + 1)])
    assert caught.value.size_bytes > ENTRY_SIZE_BYTES_MAX


def test_a_range_without_rows_has_no_entries() -> None:
    assert split(EntrySplitter(numbers(1).schema), [numbers(0)]) == []


def test_the_index_entry_says_rows_bytes_and_statistics_of_each_entry() -> None:
    splitter = EntrySplitter(numbers(1).schema)
    entries = split(splitter, [numbers(100_000)])
    schema_entry = encode_schema(numbers(1).schema)
    *batches, last = decode_entries(schema_entry, [entry.payload for entry in entries])
    assert last.index is not None
    assert [e.rows for e in last.index] == [d.batch.num_rows for d in batches] == [65_536, 34_464]
    assert [e.size_bytes for e in last.index] == [len(e.payload) for e in entries[:-1]]
    (bounds,) = decode_statistics(last.index[1].statistics)
    assert (bounds.minimum, bounds.maximum, bounds.null_count) == (65_536, 99_999, 0)


def test_the_splitter_counts_rows_and_bounds_of_the_whole_range() -> None:
    splitter = EntrySplitter(numbers(1).schema)
    split(splitter, [numbers(100_000)])
    assert splitter.rows == 100_000
    (bounds,) = decode_statistics(splitter.statistics)
    assert (bounds.minimum, bounds.maximum) == (0, 99_999)


@settings(max_examples=examples(10), deadline=None)
@given(
    sizes=st.lists(st.integers(0, 40_000), max_size=6),
    target=st.integers(1_000, 200_000),
    compression=st.sampled_from(["zstd", "none"]),
)
def test_rows_come_back_in_order_with_contiguous_first_rows(
    sizes: list[int], target: int, compression: str
) -> None:
    batches, first = [], 0
    for rows in sizes:
        batches.append(numbers(rows, first))
        first += rows
    schema = numbers(1).schema
    splitter = EntrySplitter(schema, compression=compression, target_entry_bytes=target)
    entries = split(splitter, batches)
    decoded = list(decode_entries(encode_schema(schema), [entry.payload for entry in entries]))
    end = 0
    for entry in decoded:
        assert entry.first_row == end
        end += entry.batch.num_rows
    assert end == first
    assert [n for d in decoded for n in d.batch.column(0).to_pylist()] == list(range(first))
