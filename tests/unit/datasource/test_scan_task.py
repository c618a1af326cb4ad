"""Entries to batches (ledgerlog_spark.datasource.scan.task)."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from ledgerlog_spark.arrow.entry_cutter import EntrySplitter
from ledgerlog_spark.arrow.stream_codec import encode_schema
from ledgerlog_spark.datasource.scan.ranges import ScanRange
from ledgerlog_spark.datasource.scan.task import ScanTask, joined, read_batches
from ledgerlog_spark.errors import DataLossError, WireFormatError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROWS = 5_000
LOG_IDS = {"flights": "id"}
SCHEMAS = {("flights", 0): encode_schema(pa.schema([("n", pa.int64()), ("text", pa.string())]))}
SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])


@dataclass(frozen=True)
class Entry:
    entry_id: int
    payload: bytes


def ledger(rows: int = ROWS) -> list[Entry]:
    """Entries 1 to last of a range of `rows` rows, without its index entry."""
    splitter = EntrySplitter(SCHEMA, target_entry_bytes=4096, compression="none")
    batch = pa.record_batch(
        [pa.array(range(rows), pa.int64()), pa.array([f"row {n}" for n in range(rows)])],
        schema=SCHEMA,
    )
    entries = [*splitter.add(batch), *splitter.finish()]
    return [Entry(1 + place, entry.payload) for place, entry in enumerate(entries[:-1])]


ENTRIES = ledger()
COMMITS = ((1002, 1_500), (1000 + ROWS, 1_700))
WHOLE = ScanRange("flights", 7, 1, len(ENTRIES), ROWS, 0, 0, 1000, 1000, 1000 + ROWS, COMMITS)


def reading(entries: list[Entry]) -> Callable[[ScanRange], Iterator[Entry]]:
    def read(scanned: ScanRange) -> Iterator[Entry]:
        for entry in entries:
            if scanned.first_entry_id <= entry.entry_id <= scanned.last_entry_id:
                yield entry

    return read


def rows_of(
    *ranges: ScanRange, target: pa.Schema = SCHEMA, include_metadata: bool = False
) -> pa.Table:
    task = ScanTask(ranges, LOG_IDS, SCHEMAS, include_metadata)
    return pa.Table.from_batches(read_batches(task, target, reading(ENTRIES)), target)


def test_a_whole_range_gives_all_rows_in_order() -> None:
    assert len(ENTRIES) > 5
    assert rows_of(WHOLE)["n"].to_pylist() == list(range(ROWS))


def test_pieces_of_a_range_give_its_rows_together() -> None:
    middle = len(ENTRIES) // 2
    first, second = (
        replace(WHOLE, last_entry_id=middle),
        replace(WHOLE, first_entry_id=middle + 1),
    )
    rows = rows_of(first)["n"].to_pylist() + rows_of(second)["n"].to_pylist()
    assert rows == list(range(ROWS))


def test_rows_outside_the_offsets_are_cut_within_an_entry() -> None:
    cut = replace(WHOLE, start_offset=1003, end_offset=1000 + ROWS - 5)
    assert rows_of(cut)["n"].to_pylist() == list(range(3, ROWS - 5))


def test_metadata_columns_say_where_each_row_is() -> None:
    names = [("_log", pa.string()), ("_ledger", pa.int64()), ("_entry", pa.int64()),
             ("_offset", pa.int64()), ("_append_time", pa.timestamp("us", "UTC"))]  # fmt: skip
    target = pa.schema([*SCHEMA, *names])
    cut = replace(WHOLE, start_offset=1003)
    table = rows_of(cut, target=target, include_metadata=True)
    assert table["_offset"].to_pylist() == list(range(1003, 1000 + ROWS))
    assert table["_offset"].to_pylist() == [1000 + n for n in table["n"].to_pylist()]
    assert set(table["_entry"].to_pylist()) == set(range(1, len(ENTRIES) + 1))
    last = table.slice(table.num_rows - 1).to_pylist()[0]
    assert last["_append_time"] == datetime(1970, 1, 1, 0, 0, 1, 700_000, tzinfo=UTC)
    assert (last["_log"], last["_ledger"], last["_entry"]) == ("flights", 7, len(ENTRIES))


def test_rows_of_a_merged_range_keep_the_times_of_their_commits() -> None:
    target = pa.schema([*SCHEMA, ("_append_time", pa.timestamp("us", "UTC"))])
    forgotten = replace(WHOLE, commit_times=((1001, None), *COMMITS))
    times = rows_of(forgotten, target=target, include_metadata=True)["_append_time"]
    assert times.cast(pa.int64()).to_pylist() == [None, 1_500_000] + [1_700_000] * (ROWS - 2)


def test_metadata_columns_alone_count_the_rows() -> None:
    target = pa.schema([("_offset", pa.int64())])
    table = rows_of(WHOLE, target=target, include_metadata=True)
    assert table["_offset"].to_pylist() == list(range(1000, 1000 + ROWS))


def test_columns_that_the_ledger_lacks_are_null() -> None:
    target = pa.schema([("later", pa.float64()), ("n", pa.int64())])
    table = rows_of(WHOLE, target=target)
    assert table["later"].null_count == ROWS
    assert table["n"].to_pylist() == list(range(ROWS))


@pytest.mark.parametrize(
    "entries",
    [ENTRIES[1:], [*ENTRIES[:3], *ENTRIES[4:]], ENTRIES[:-1], [ENTRIES[1], ENTRIES[0]]],
    ids=["first", "middle", "last", "order"],
)
def test_entries_that_are_not_the_listed_ones_are_an_error(entries: list[Entry]) -> None:
    task = ScanTask((WHOLE,), LOG_IDS, SCHEMAS)

    def read(_: ScanRange) -> Iterator[Entry]:
        return iter(entries)

    with pytest.raises(WireFormatError, match="ledger 7: "):
        list(read_batches(task, SCHEMA, read))


def test_an_entry_with_another_first_row_is_an_error() -> None:
    swapped = [*ENTRIES[:2], Entry(3, ENTRIES[4].payload), *ENTRIES[3:]]
    task = ScanTask((WHOLE,), LOG_IDS, SCHEMAS)
    with pytest.raises(WireFormatError, match="entry 3 of ledger 7"):
        list(read_batches(task, SCHEMA, reading(swapped)))


def test_small_batches_are_joined_and_large_ones_are_left_alone() -> None:
    def batch(rows: int) -> pa.RecordBatch:
        return pa.record_batch({"n": pa.array(range(rows))})

    sizes = [b.num_rows for b in joined(map(batch, [0, 50_000, 10, 20_000, 20_000, 5, 5, 0]))]
    assert sizes == [50_000, 40_010, 10]


def test_few_large_rows_are_passed_on_before_they_fill_the_memory() -> None:
    def batch(rows: int) -> pa.RecordBatch:
        return pa.record_batch({"value": pa.array([bytes(1 << 20)] * rows)})

    came = 0

    def source() -> Iterator[pa.RecordBatch]:
        nonlocal came
        for rows in [1, 1, 5, *[1] * 20]:
            came += rows
            yield batch(rows)

    passed = 0
    sizes = []
    for each in joined(source()):
        passed += each.num_rows
        sizes.append(each.num_rows)
        assert came - passed <= 5
    assert sizes == [2, 5, *[3] * 6, 2]


def test_of_batches_that_wait_only_their_own_rows_are_kept_in_memory() -> None:
    """A slice and an uncompressed column keep much more memory than their own bytes."""
    freed: list[int] = []

    class Entry(bytearray):
        """Memory for which weak references are possible."""

    def source() -> Iterator[pa.RecordBatch]:
        for n in range(50):
            entry = Entry(1 << 16)
            weakref.finalize(entry, freed.append, n)
            column = pa.Array.from_buffers(pa.int64(), 1 << 13, [None, pa.py_buffer(entry)])
            del entry
            yield pa.record_batch({"n": column}).slice(n, 1)
            del column
            assert len(freed) >= n - 1

    (batch,) = joined(source())
    assert batch.num_rows == 50
    assert len(freed) == 50


def test_rows_in_front_of_a_lost_entry_are_passed_on_before_the_error() -> None:
    def source() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"n": pa.array([1, 2])})
        yield pa.record_batch({"n": pa.array([3])})
        raise DataLossError("gone")

    batches = joined(source())
    assert next(batches).column("n").to_pylist() == [1, 2, 3]
    with pytest.raises(DataLossError):
        next(batches)


def test_a_lost_entry_in_front_of_all_rows_is_an_error_alone() -> None:
    def source() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"n": pa.array([], pa.int64())})
        raise DataLossError("gone")

    with pytest.raises(DataLossError):
        next(joined(source()))
