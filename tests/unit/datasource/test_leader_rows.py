"""Rows of leader logs in tasks (ledgerlog_spark.datasource.scan.task_rows)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledgerlog_spark.arrow.spark_types import arrow_schema_of
from ledgerlog_spark.arrow.stream_codec import BatchEncoder, encode_schema
from ledgerlog_spark.datasource.options.values import SourceOptions
from ledgerlog_spark.datasource.scan import index_entries, plan
from ledgerlog_spark.datasource.scan.plan import LogScan
from ledgerlog_spark.datasource.scan.task import ScanTask
from ledgerlog_spark.datasource.scan.task_rows import task_rows
from ledgerlog_spark.datasource.schemas import records_schema, scan_schema, with_records_schema
from ledgerlog_spark.errors import DataLossError, WireFormatError
from ledgerlog_spark.model import NO_ENTRY
from ledgerlog_spark.protocol.leader.entry import (
    LeaderCodec,
    LeaderEntryHeader,
    encode_entry_header,
    encode_records,
)
from ledgerlog_spark.protocol.log.state.records import (
    Item,
    LogContent,
    LogKind,
    LogSnapshot,
    VersionInterval,
)
from tests.fixtures.examples import examples
from tests.unit.datasource.listed_ledgers import Ledgers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROWS_SCHEMA = pa.schema([("n", pa.int64())])


@dataclass
class LeaderLog:
    """A leader log, whose first ledger is ledger 100."""

    content: LogContent = LogContent.RECORDS
    ledgers: Ledgers = field(default_factory=Ledgers)
    items: list[Item] = field(default_factory=list)
    records: list[bytes] = field(default_factory=list)

    def append(self, entries: Sequence[Sequence[bytes]]) -> None:
        """Add a ledger with these entries, appended at 1,000 ms, 2,000 ms and so on."""
        ledger_id = 100 + len(self.items)
        first_offset = len(self.records)
        payloads: dict[int, bytes] = {}
        for entry_id, records in enumerate(entries):
            payloads[entry_id] = self._entry(records, 1_000 * (entry_id + 1))
            self.records += records
        self.ledgers.entries[ledger_id] = payloads
        rows = len(self.records) - first_offset
        size_bytes = sum(map(len, payloads.values()))
        last = len(payloads) - 1
        self.items.append(Item(ledger_id, 0, last, NO_ENTRY, rows, size_bytes, first_offset, 0))

    def _entry(self, records: Sequence[bytes], time_ms: int) -> bytes:
        codec, body = LeaderCodec.PLAIN, encode_records(records)
        if self.content is LogContent.ROWS:
            batch = pa.record_batch([pa.array(map(int, records), pa.int64())], schema=ROWS_SCHEMA)
            codec, body = LeaderCodec.ARROW, BatchEncoder(ROWS_SCHEMA).encode(batch, 0)
        header = LeaderEntryHeader(codec, len(self.records), time_ms, len(records), len(body))
        return encode_entry_header(header) + body

    @property
    def scan(self) -> LogScan:
        interval = VersionInterval(0, 0, len(self.records), 0, "0" * 32, 0)
        snapshot = LogSnapshot(
            "id",
            "events",
            interval,
            tuple(self.items),
            {0: encode_schema(ROWS_SCHEMA)},
            kind=LogKind.LEADER,
            content=self.content,
        )
        return LogScan(with_records_schema(snapshot))


@pytest.fixture(autouse=True, scope="module")
def every_byte_counts() -> Iterator[None]:
    """Search even small ledgers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "OPEN_COST_BYTES", 0)
        yield


def table_of(
    log: LeaderLog,
    options: SourceOptions,
    *,
    include_metadata: bool = False,
    with_spans: bool = True,
) -> pa.Table:
    scan = log.scan
    schema_json = scan_schema(
        [("events", scan.snapshot.schemas[0])], columns=None, include_metadata=include_metadata
    )
    target = arrow_schema_of(schema_json)
    schemas = {("events", 0): scan.snapshot.schemas[0]}
    batches: list[pa.RecordBatch] = []
    ledgers: Any = log.ledgers
    ledgers.read.clear()
    if with_spans:
        spans = {
            wanted.ledger_id: span
            for wanted in plan.indexes_wanted([scan], options)
            if (span := index_entries.find_span(ledgers, wanted, log_id="id", password=b"secret"))
        }
        scan = replace(scan, spans=spans)
    for partition in plan.plan([scan], options).partitions:
        task = ScanTask(partition.ranges, {"events": "id"}, schemas, include_metadata)
        batches += task_rows(ledgers, task, target, password=b"secret")
    return pa.Table.from_batches(batches, target)


@st.composite
def logs(draw: st.DrawFn) -> LeaderLog:
    log = LeaderLog()
    entry = st.lists(st.binary(max_size=6), min_size=1, max_size=8)
    for entries in draw(st.lists(st.lists(entry, min_size=1, max_size=12), min_size=1, max_size=3)):
        log.append(entries)
    return log


@settings(max_examples=examples(50), deadline=None)
@given(
    log=logs(),
    edges=st.tuples(st.integers(0, 100), st.integers(0, 100)),
    size_bytes=st.integers(1, 1000),
    with_spans=st.booleans(),
)
def test_any_cut_gives_the_records_between_the_offsets(
    log: LeaderLog, edges: tuple[int, int], size_bytes: int, with_spans: bool
) -> None:
    start, end = sorted(min(edge, len(log.records)) for edge in edges)
    options = SourceOptions(
        starting_offsets={"*": start},
        ending_offsets={"*": end},
        max_bytes_per_partition=size_bytes,
    )
    found = table_of(log, options, with_spans=with_spans)
    assert found["value"].to_pylist() == log.records[start:end]


def hundred() -> LeaderLog:
    """A log of one ledger of a hundred entries of ten records."""
    log = LeaderLog()
    log.append([[b"%d" % n for n in range(first, first + 10)] for first in range(0, 1000, 10)])
    return log


def test_the_newest_records_of_a_ledger_cost_no_read_of_the_others() -> None:
    log = hundred()
    found = table_of(log, SourceOptions(starting_offsets={"*": 985}))
    assert found["value"].to_pylist() == log.records[985:]
    assert log.ledgers.read == [(100, 98), (100, 99), (100, 98), (100, 99)]


def test_a_ledger_read_whole_is_not_searched() -> None:
    log = hundred()
    assert table_of(log, SourceOptions())["value"].to_pylist() == log.records
    assert log.ledgers.read == [(100, entry_id) for entry_id in range(100)]


def test_metadata_columns_tell_the_time_of_each_entry() -> None:
    log = hundred()
    found = table_of(log, SourceOptions(starting_offsets={"*": 15}), include_metadata=True)
    assert found["_offset"].to_pylist() == list(range(15, 1000))
    assert found["_entry"].to_pylist() == [n // 10 for n in range(15, 1000)]
    assert set(found["_ledger"].to_pylist()) == {100}
    assert set(found["_log"].to_pylist()) == {"events"}
    assert found["_append_time"].to_pylist() == [
        datetime.fromtimestamp(n // 10 + 1, UTC) for n in range(15, 1000)
    ]


def test_rows_of_a_leader_log_come_with_the_schema_of_the_log() -> None:
    log = LeaderLog(LogContent.ROWS)
    log.append([[b"1", b"2"], [b"3"], [b"4", b"5", b"6"]])
    found = table_of(log, SourceOptions(starting_offsets={"*": 1}), include_metadata=True)
    assert found["n"].to_pylist() == [2, 3, 4, 5, 6]
    assert found["_offset"].to_pylist() == [1, 2, 3, 4, 5]


def test_a_lost_entry_that_the_search_meets_is_left_to_the_read() -> None:
    log = hundred()
    log.ledgers.lost.add((100, 50))
    assert (
        table_of(log, SourceOptions(starting_offsets={"*": 985}))["value"].to_pylist()
        == (log.records[985:])
    )
    log.ledgers.lost.add((100, 98))
    with pytest.raises(DataLossError):
        table_of(log, SourceOptions(starting_offsets={"*": 985}))


def test_an_entry_that_does_not_follow_the_one_before_is_an_error() -> None:
    log = hundred()
    log.ledgers.entries[100][7] = log.ledgers.entries[100][8]
    with pytest.raises(WireFormatError, match="entry 7 of ledger 100"):
        table_of(log, SourceOptions())


def test_records_are_shown_as_one_column_of_bytes() -> None:
    assert '"name":"value","type":"binary"' in scan_schema(
        [("events", records_schema())], columns=None, include_metadata=False
    )
