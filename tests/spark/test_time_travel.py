"""Versions and rows by number and by time, and scans that read only the entries they need."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from ledgerlog_spark.datasource.options.values import SourceOptions
from ledgerlog_spark.datasource.scan.reader import BatchReader
from ledgerlog_spark.log.blocking.logs import BlockingLog, BlockingLogs
from tests.spark.frames import load, rows_of, same_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from pyspark.sql import SparkSession

    from ledgerlog_spark.client.blocking.client import BlockingClient
    from ledgerlog_spark.local.cluster import Cluster

LOG = "time-travel"


@pytest.fixture(scope="module")
def times_ms(spark: SparkSession, client: BlockingClient) -> dict[int, int]:
    """Commit times by version of a log: 0 to 9, 0 to 19, then 50 to 52 alone."""
    for first, end, mode in ((0, 10, "append"), (10, 20, "append"), (50, 53, "overwrite")):
        frame = spark.range(first, end, 1, 1)
        frame.write.format("ledger").mode(mode).save(LOG)
    history = BlockingLogs(client).open(LOG).history()
    return {version.version: version.commit_time_ms for version in history}


def iso(wall_ms: int) -> str:
    return datetime.fromtimestamp(wall_ms / 1000, UTC).isoformat(sep=" ", timespec="milliseconds")


def test_timestamp_as_of_reads_the_version_that_was_the_newest_then(
    spark: SparkSession, times_ms: dict[int, int]
) -> None:
    def as_of(moment: int | str) -> Any:
        return load(spark, LOG, timestampAsOf=str(moment))

    same_rows(as_of(times_ms[2]), spark.range(20))
    same_rows(as_of(times_ms[2] - 1), spark.range(10))
    same_rows(as_of(iso(times_ms[3] - 1)), spark.range(20))
    same_rows(as_of("2999-01-01"), spark.range(50, 53))
    assert as_of(times_ms[0]).count() == 0


def test_a_time_before_the_log_is_an_error_that_names_the_oldest_there_is(
    spark: SparkSession, times_ms: dict[int, int]
) -> None:
    with pytest.raises(Exception, match=f"was committed at {iso(times_ms[0])[:19]}"):
        load(spark, LOG, timestampAsOf="2001-02-03T04:05:06Z")


def test_starting_and_ending_timestamp_choose_rows_by_their_commit(
    spark: SparkSession, times_ms: dict[int, int]
) -> None:
    of_version_2 = {"versionAsOf": "2"}
    same_rows(
        load(spark, LOG, startingTimestamp=str(times_ms[2]), **of_version_2), spark.range(10, 20)
    )
    same_rows(load(spark, LOG, endingTimestamp=iso(times_ms[2]), **of_version_2), spark.range(10))
    same_rows(load(spark, LOG, startingTimestamp="-1d"), spark.range(50, 53))
    after = {"startingTimestamp": str(times_ms[3] + 1)}
    assert load(spark, LOG, startingOffsetsByTimestampStrategy="latest", **after).count() == 0
    with pytest.raises(Exception, match="its newest commit was at"):
        load(spark, LOG, **after).count()


def test_several_logs_are_read_each_from_an_offset_of_its_own_or_as_of_one_time(
    spark: SparkSession, times_ms: dict[int, int], log_name: str
) -> None:
    other = log_name
    spark.range(100, 110, 1, 1).write.format("ledger").mode("append").save(other)
    starting = f'{{"{LOG}": 22, "{other}": 7}}'
    ending = f'{{"{LOG}": -1, "{other}": 9}}'
    found = load(spark, f"{LOG},{other}", startingOffsets=starting, endingOffsets=ending)
    assert rows_of(found) == [(107,), (108,), (52,)]
    then = load(spark, f"{LOG},{other}", timestampAsOf="2999-01-01")
    assert then.count() == 13


class EntriesRead:
    """The entries that this process requests from bookies."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.entries: set[tuple[int, int]] = set()
        begin = BlockingLog.begin_ranges

        def counted(log: BlockingLog, ranges: Sequence[tuple[int, int, int]], **others: Any) -> Any:
            for ledger_id, first, last in ranges:
                self.entries |= {(ledger_id, entry) for entry in range(first, last + 1)}
            return begin(log, ranges, **others)

        patch.setattr(BlockingLog, "begin_ranges", counted)


@pytest.fixture
def entries_read(monkeypatch: pytest.MonkeyPatch) -> EntriesRead:
    return EntriesRead(monkeypatch)


WIDE = "time-travel-wide"


@pytest.fixture(scope="module")
def wide_schema(spark: SparkSession) -> str:
    """The schema of a log whose only range has 50,000 rows in entries of about 128 KiB."""
    numbers = spark.range(0, 50_000, 1, 1)
    frame = numbers.selectExpr("id", "repeat(sha2(cast(id AS string), 512), 2) AS text")
    frame.write.format("ledger").mode("append").options(
        targetEntryBytes=str(128 << 10), compression="none"
    ).save(WIDE)
    return str(load(spark, WIDE).schema.json())


def ids_of(reader: BatchReader) -> Iterator[int]:
    for partition in reader.partitions():
        for batch in reader.read(partition):
            yield from batch.column("id").to_pylist()


@pytest.mark.parametrize("size", ["128m", "1m"], ids=["by the task", "by the planner"])
def test_a_scan_of_few_rows_reads_their_entries_and_the_index_alone(
    size: str, cluster: Cluster, client: BlockingClient, wide_schema: str, entries_read: EntriesRead
) -> None:
    options = SourceOptions.parse(
        {"log": WIDE, "startingOffsets": "30000", "endingOffsets": "30010",
         "maxBytesPerPartition": size}
    ).for_read()  # fmt: skip
    reader = BatchReader(cluster.metadata_service_uri, options, wide_schema)
    assert list(ids_of(reader)) == list(range(30_000, 30_010))
    (item,) = BlockingLogs(client).open(WIDE).snapshot().items
    assert item.last_entry_id > 90
    assert len(entries_read.entries) <= 3
    assert (item.ledger_id, item.index_entry_id) in entries_read.entries
