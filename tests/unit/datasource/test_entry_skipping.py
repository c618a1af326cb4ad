"""Entries that a scan does not need are not read, and the rows stay the same.

The planner, the index entries and the decoding are the real ones; the ledgers are lists of payloads
that count the reads.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledgerlog_spark.arrow.entry_cutter import EntrySplitter
from ledgerlog_spark.arrow.statistics import RangeStatistics, batch_statistics
from ledgerlog_spark.arrow.stream_codec import BatchEncoder, IndexedEntry, encode_schema
from ledgerlog_spark.datasource.options.values import SourceOptions
from ledgerlog_spark.datasource.scan import index_entries, plan, ranges
from ledgerlog_spark.datasource.scan.plan import LogScan, ScanPlan
from ledgerlog_spark.datasource.scan.task import ScanTask
from ledgerlog_spark.datasource.scan.task_rows import task_rows
from ledgerlog_spark.datasource.skipping import spans
from ledgerlog_spark.datasource.skipping.needs import Needs
from ledgerlog_spark.datasource.skipping.predicates import predicate_of
from ledgerlog_spark.datasource.skipping.top import Top
from ledgerlog_spark.errors import DataLossError, WireFormatError
from ledgerlog_spark.model import NO_ENTRY
from ledgerlog_spark.protocol.log.state.records import Item, LogSnapshot, VersionInterval
from ledgerlog_spark.protocol.log.state.statistics import encode_statistics
from tests.fixtures.examples import examples
from tests.unit.datasource.listed_ledgers import Ledgers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])
STORED = encode_schema(SCHEMA)
Row = tuple[int | None, str | None]


@dataclass
class Log:
    """A log of ranges with the given rows, each in its own ledger."""

    ledgers: Ledgers = field(default_factory=Ledgers)
    items: list[Item] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    lists_bounds: bool = True

    def append(
        self, rows: Sequence[Row], *, entry_rows: int, has_index: bool = True, before: int = 0
    ) -> Item:
        """Add a range of `rows`, with `entry_rows` in each entry, after `before` other entries."""
        ledger_id = 100 + len(self.items)
        encoder = BatchEncoder(SCHEMA, "none")
        entries: list[bytes] = []
        indexed: list[IndexedEntry] = []
        whole = RangeStatistics()
        for start in range(0, len(rows), entry_rows):
            splitter = EntrySplitter(SCHEMA, compression="none")
            batch = batch_of(rows[start : start + entry_rows])
            list(splitter.add(batch))
            list(splitter.finish())
            whole.add(batch.num_rows, batch_statistics(batch))
            entries.append(encoder.encode(batch, start))
            indexed.append(IndexedEntry(batch.num_rows, len(entries[-1]), splitter.statistics))
        first = 1 + before
        data_end = first + len(entries)
        if has_index:
            entries.append(encoder.encode_index(indexed))
        self.ledgers.entries[ledger_id] = dict(enumerate(entries, first))
        item = Item(
            ledger_id,
            first,
            first + len(entries) - 1,
            data_end if has_index else NO_ENTRY,
            len(rows),
            sum(map(len, entries)),
            len(self.rows),
            0,
            encode_statistics(whole.columns, size_bytes_max=1024) if self.lists_bounds else b"",
        )
        self.items.append(item)
        self.rows += rows
        return item

    @property
    def scan(self) -> LogScan:
        interval = VersionInterval(1, 0, len(self.rows), 0, "0" * 32, 0)
        snapshot = LogSnapshot("id", "flights", interval, tuple(self.items), {0: STORED})
        return LogScan(snapshot)


def batch_of(rows: Sequence[Row]) -> pa.RecordBatch:
    numbers, texts = (list(column) for column in zip(*rows, strict=True))
    return pa.record_batch([pa.array(numbers, pa.int64()), pa.array(texts)], schema=SCHEMA)


@pytest.fixture(autouse=True, scope="module")
def every_byte_counts() -> Iterator[None]:
    """Leave out even small entries: gaps between entries are never read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranges, "OPEN_COST_BYTES", 0)
        patch.setattr(plan, "OPEN_COST_BYTES", 0)
        patch.setattr(spans, "OPEN_COST_BYTES", 0)
        yield


def planned(
    log: Log, options: SourceOptions, *, with_indexes: bool, needs: Needs = plan.NO_FILTERS
) -> ScanPlan:
    """The plan, by default after the needed indexes were read."""
    scans = [log.scan]
    if with_indexes:
        wanted = plan.indexes_wanted(scans, options, needs=needs)
        indexes = index_entries.read_indexes(
            log.ledgers,  # type: ignore[arg-type]
            wanted, log_ids={"flights": "id"}, schemas={("flights", 0): STORED},
            password=b"secret",
        )  # fmt: skip
        scans = [replace(log.scan, indexes=indexes)]
    return plan.plan(scans, options, needs=needs)


def rows_read(
    log: Log,
    options: SourceOptions,
    *,
    with_indexes: bool = True,
    fail_on_data_loss: bool = True,
    needs: Needs = plan.NO_FILTERS,
) -> list[Row]:
    """All rows of a scan, task by task. From this call on, reads are counted."""
    log.ledgers.read.clear()
    found: list[Row] = []
    for partition in planned(log, options, with_indexes=with_indexes, needs=needs).partitions:
        task = ScanTask(partition.ranges, {"flights": "id"}, {("flights", 0): STORED})
        for batch in task_rows(
            log.ledgers,  # type: ignore[arg-type]
            task,
            SCHEMA,
            password=b"secret",
            fail_on_data_loss=fail_on_data_loss,
        ):
            found += zip(*(column.to_pylist() for column in batch.columns), strict=True)
    return found


NUMBERS = st.integers(-3, 30)
TEXTS = st.text("abc", max_size=3)


@st.composite
def logs(draw: st.DrawFn) -> Log:
    log = Log(lists_bounds=draw(st.booleans()))
    for _ in range(draw(st.integers(1, 3))):
        rows: list[Row] = draw(
            st.lists(
                st.tuples(st.none() | NUMBERS, st.none() | TEXTS), min_size=1, max_size=60
            ).map(lambda rows: sorted(rows, key=repr) if len(rows) % 2 else rows)
        )
        log.append(
            rows,
            entry_rows=draw(st.integers(1, 9)),
            has_index=draw(st.booleans()),
            before=draw(st.integers(0, 3)),
        )
    return log


@settings(max_examples=examples(40), deadline=None)
@given(
    log=logs(),
    edges=st.tuples(st.integers(0, 180), st.integers(0, 180)),
    size_bytes=st.integers(1, 4000),
    with_indexes=st.booleans(),
)
def test_any_cut_gives_the_rows_of_reading_whole_and_cutting(
    log: Log, edges: tuple[int, int], size_bytes: int, with_indexes: bool
) -> None:
    start, end = sorted(min(edge, len(log.rows)) for edge in edges)
    options = SourceOptions(
        starting_offsets={"*": start},
        ending_offsets={"*": end},
        max_bytes_per_partition=size_bytes,
    )
    assert rows_read(log, options, with_indexes=with_indexes) == log.rows[start:end]


@settings(max_examples=examples(40), deadline=None)
@given(
    log=logs(),
    edges=st.tuples(st.integers(0, 180), st.integers(0, 180)),
    size_bytes=st.integers(1, 4000),
)
def test_of_ranges_with_an_index_only_entries_between_the_offsets_are_read(
    log: Log, edges: tuple[int, int], size_bytes: int
) -> None:
    start, end = sorted(min(edge, len(log.rows)) for edge in edges)
    options = SourceOptions(
        starting_offsets={"*": start},
        ending_offsets={"*": end},
        max_bytes_per_partition=size_bytes,
    )
    rows_read(log, options)
    assert log.ledgers.read or start == end
    indexed = {
        item.ledger_id: item for item in log.items if item.has_index and plan._narrowing_pays(item)
    }
    for ledger_id, entry_id in log.ledgers.read:
        item = indexed.get(ledger_id)
        if item is None or entry_id == item.index_entry_id:
            continue
        batch = decoded(log, ledger_id, entry_id)
        first = item.first_offset + batch.first_row
        assert first < end
        assert first + batch.batch.num_rows > start


def between(low: int, high: int) -> Needs:
    """The filter `low <= n AND n < high`."""
    column = {"column": "n"}
    limits = ((">=", low), ("<", high))
    return Needs([
        predicate_of({"op": operator, "of": [column, {"type": "integer", "value": value}]})
        for operator, value in limits
    ])  # fmt: skip


@settings(max_examples=examples(40), deadline=None)
@given(
    log=logs(),
    edges=st.tuples(st.integers(0, 180), st.integers(0, 180)),
    low=NUMBERS,
    width=st.integers(0, 9),
    size_bytes=st.integers(1, 4000),
    with_indexes=st.booleans(),
)
def test_a_filter_loses_no_row_that_passes_it(
    log: Log,
    edges: tuple[int, int],
    low: int,
    width: int,
    size_bytes: int,
    with_indexes: bool,
) -> None:
    start, end = sorted(min(edge, len(log.rows)) for edge in edges)
    options = SourceOptions(
        starting_offsets={"*": start},
        ending_offsets={"*": end},
        max_bytes_per_partition=size_bytes,
    )
    needs = between(low, low + width)
    found = rows_read(log, options, with_indexes=with_indexes, needs=needs)

    def passing(rows: Sequence[Row]) -> list[Row]:
        return [row for row in rows if row[0] is not None and low <= row[0] < low + width]

    assert passing(found) == passing(log.rows[start:end])
    if with_indexes:
        for ledger_id, entry_id in log.ledgers.read:
            item = next(item for item in log.items if item.ledger_id == ledger_id)
            if item.has_index and entry_id != item.index_entry_id and plan._narrowing_pays(item):
                numbers = decoded(log, ledger_id, entry_id).batch["n"].to_pylist()
                known = [n for n in numbers if n is not None]
                assert min(known) < low + width
                assert max(known) >= low


def test_a_filter_reads_the_entries_with_its_rows_and_ranges_without_are_not_opened() -> None:
    log = counted_log()
    log.append([(n, None) for n in range(5000, 6000)], entry_rows=10)
    found = rows_read(log, SourceOptions(), needs=between(497, 503))
    assert [row[0] for row in found] == list(range(490, 510))
    assert log.ledgers.read == [(100, 104), (100, 53), (100, 54)]


def test_columns_that_came_later_are_null_in_older_ranges() -> None:
    log = counted_log()
    later = {"op": "=", "of": [{"column": "later"}, {"type": "integer", "value": 1}]}
    assert rows_read(log, SourceOptions(), needs=Needs([predicate_of(later)])) == []
    negated = predicate_of({"op": "IS_NULL", "of": [{"column": "later"}]})
    assert rows_read(log, SourceOptions(), needs=Needs([negated])) == log.rows


@settings(max_examples=examples(40), deadline=None)
@given(
    log=logs(),
    edges=st.tuples(st.integers(0, 180), st.integers(0, 180)),
    limit=st.integers(1, 9),
    descending=st.booleans(),
    nulls_first=st.booleans(),
    with_indexes=st.booleans(),
)
def test_the_first_rows_of_an_order_are_those_between_the_offsets(
    log: Log,
    edges: tuple[int, int],
    limit: int,
    descending: bool,
    nulls_first: bool,
    with_indexes: bool,
) -> None:
    start, end = sorted(min(edge, len(log.rows)) for edge in edges)
    options = SourceOptions(starting_offsets={"*": start}, ending_offsets={"*": end})
    needs = Needs(top=Top("n", descending, nulls_first, limit))
    found = rows_read(log, options, with_indexes=with_indexes, needs=needs)

    def first(rows: Sequence[Row]) -> list[int | None]:
        values = sorted((row[0] for row in rows if row[0] is not None), reverse=descending)
        nulls = [None for row in rows if row[0] is None]
        return [*nulls, *values][:limit] if nulls_first else [*values, *nulls][:limit]

    assert first(found) == first(log.rows[start:end])


def test_an_order_with_a_limit_reads_the_entries_with_the_first_rows() -> None:
    log = counted_log()
    found = rows_read(log, SourceOptions(), needs=Needs(top=Top("n", True, False, 15)))
    assert [row[0] for row in found] == list(range(980, 1000))
    assert log.ledgers.read == [(100, 104), (100, 102), (100, 103)]


def test_rows_after_the_end_of_a_scan_are_not_the_first_rows_of_an_order() -> None:
    log = Log()
    log.append([(n, None) for n in range(100, 110)], entry_rows=10)
    log.append([(n, None) for n in range(10)], entry_rows=10)
    options = SourceOptions(ending_offsets={"*": 13})
    found = rows_read(log, options, needs=Needs(top=Top("n", False, False, 5)))
    assert sorted(row[0] or 0 for row in found)[:5] == [0, 1, 2, 100, 101]


def decoded(log: Log, ledger_id: int, entry_id: int) -> Any:
    from ledgerlog_spark.arrow.stream_codec import decode_entries

    (entry,) = decode_entries(STORED, [log.ledgers.entries[ledger_id][entry_id]])
    return entry


def counted_log() -> Log:
    """One range of entries 4 to 103 of ten rows each, the numbers 0 to 999."""
    log = Log()
    log.append([(n, f"row {n:03}") for n in range(1000)], entry_rows=10, before=3)
    return log


def test_of_a_cut_range_the_index_and_the_entries_between_the_offsets_are_read() -> None:
    log = counted_log()
    options = SourceOptions(starting_offsets={"*": 495}, ending_offsets={"*": 520})
    assert rows_read(log, options) == log.rows[495:520]
    assert log.ledgers.read == [(100, 104), (100, 53), (100, 54), (100, 55)]


def test_a_range_read_whole_costs_no_read_of_its_index() -> None:
    log = counted_log()
    assert rows_read(log, SourceOptions()) == log.rows
    assert log.ledgers.read == [(100, entry_id) for entry_id in range(4, 104)]


def test_a_large_cut_range_is_shared_by_tasks_that_all_have_rows() -> None:
    log = counted_log()
    size_bytes = log.items[0].size_bytes // 10
    options = SourceOptions(
        starting_offsets={"*": 400}, ending_offsets={"*": 800}, max_bytes_per_partition=size_bytes
    )
    assert rows_read(log, options) == log.rows[400:800]
    assert log.ledgers.read == [(100, 104), *((100, entry_id) for entry_id in range(44, 84))]
    partitions = planned(log, options, with_indexes=True).partitions
    assert [p.rows for p in partitions] == [100] * 4


def test_a_range_without_an_index_is_read_whole() -> None:
    log = Log()
    log.append([(n, None) for n in range(50)], entry_rows=10, has_index=False)
    options = SourceOptions(starting_offsets={"*": 22}, ending_offsets={"*": 23})
    assert rows_read(log, options) == [(22, None)]
    assert len(log.ledgers.read) == 5


@pytest.mark.parametrize("size_bytes", [1 << 30, 2000], ids=["by the task", "by the planner"])
def test_a_range_whose_index_is_lost_is_read_whole(
    size_bytes: int, caplog: pytest.LogCaptureFixture
) -> None:
    log = counted_log()
    log.ledgers.lost.add((100, 104))
    options = SourceOptions(
        starting_offsets={"*": 495},
        ending_offsets={"*": 520},
        max_bytes_per_partition=size_bytes,
    )
    assert rows_read(log, options) == log.rows[495:520]
    assert set(log.ledgers.read) == {(100, entry_id) for entry_id in range(4, 104)}
    assert "index entry not read" in caplog.text


def test_a_lost_entry_that_is_not_needed_is_not_missed() -> None:
    log = counted_log()
    log.ledgers.lost.add((100, 4))
    options = SourceOptions(starting_offsets={"*": 495})
    assert rows_read(log, options) == log.rows[495:]
    with pytest.raises(DataLossError):
        rows_read(log, SourceOptions())


def test_of_a_lost_entry_the_rows_before_it_are_kept_when_told_to(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = counted_log()
    log.append([(1, "a")], entry_rows=1)
    log.ledgers.lost.add((100, 14))
    found = rows_read(log, SourceOptions(), fail_on_data_loss=False)
    assert found == [*log.rows[:100], log.rows[-1]]
    assert "rows skipped" in caplog.text


def wrong(log: Log, entries: Sequence[IndexedEntry]) -> Log:
    """The log with another index at the end of its range."""
    log.ledgers.entries[100][104] = BatchEncoder(SCHEMA, "none").encode_index(entries)
    return log


@pytest.mark.parametrize(
    "entries",
    [
        [IndexedEntry(10, 100)] * 99,
        [IndexedEntry(10, 100)] * 105,
        [IndexedEntry(10, 100)] * 48 + [IndexedEntry(9, 100), IndexedEntry(11, 100)]
        + [IndexedEntry(10, 100)] * 50,
        [IndexedEntry(10, 100)] * 51 + [IndexedEntry(20, 100)] + [IndexedEntry(10, 100)] * 48,
        [IndexedEntry(0, 100)] * 100,
    ],
    ids=["short", "long", "begins elsewhere", "ends elsewhere", "no rows"],
)  # fmt: skip
def test_an_index_that_is_not_that_of_its_range_is_an_error_and_hides_no_row(
    entries: list[IndexedEntry],
) -> None:
    log = wrong(counted_log(), entries)
    options = SourceOptions(starting_offsets={"*": 495}, ending_offsets={"*": 520})
    with pytest.raises(WireFormatError):
        rows_read(log, options)


def test_an_entry_in_the_place_of_the_index_is_an_error() -> None:
    log = counted_log()
    log.ledgers.entries[100][104] = log.ledgers.entries[100][4]
    with pytest.raises(WireFormatError, match="entry 104 of ledger 100 is not the index"):
        rows_read(log, SourceOptions(starting_offsets={"*": 495}))
