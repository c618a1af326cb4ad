"""Logs as streams: small appends, limits, restarts, several logs, added columns."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.spark.streams import CrashError, Reading

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    Save = Callable[..., None]


@pytest.fixture
def reading(spark: SparkSession, log_name: str, tmp_path: Path) -> Iterator[Reading]:
    """A query of the test's log from its first row on."""
    made = Reading(spark, tmp_path / "checkpoint", log=log_name, startingOffsets="earliest")
    yield made
    if made.last is not None:
        made.last.stop()


def write(spark: SparkSession, log: str, first: int, end: int, **options: str) -> None:
    frame = spark.range(first, end, 1, 1)
    frame.write.format("ledger").mode("append").options(**options).save(log)


def test_rows_come_as_they_are_committed_each_once(
    spark: SparkSession, log_name: str, reading: Reading
) -> None:
    write(spark, log_name, 0, 10)
    reading.start()
    reading.until(10)
    for first in (10, 20, 30):
        write(spark, log_name, first, first + 10)
        reading.until(first + 10)
    assert sorted(reading.ids) == list(range(40))
    assert len(reading.batches) == 4


def test_a_batch_that_was_cut_off_is_read_again_with_the_same_rows(
    spark: SparkSession, log_name: str, reading: Reading
) -> None:
    write(spark, log_name, 0, 25)
    reading.options |= {"maxRowsPerTrigger": "10", "includeMetadata": "true"}

    def crash(number: int) -> None:
        if number == 1 and reading.attempts[1] == 1:
            raise CrashError

    reading.during = crash
    with pytest.raises(Exception, match="CrashError"):
        reading.run()
    cut_off = reading.batches[1]
    write(spark, log_name, 25, 40)
    reading.run(maxRowsPerTrigger="100")
    assert reading.attempts[1] == 2
    assert reading.batches[1] == cut_off
    assert len(cut_off) == 10
    assert sorted(reading.ids) == list(range(40))
    assert [len(reading.batches[n]) for n in sorted(reading.batches)] == [10, 10, 20]


def test_available_now_reads_up_to_where_the_log_ended_when_it_began(
    spark: SparkSession, log_name: str, reading: Reading
) -> None:
    write(spark, log_name, 0, 30)
    reading.options["maxRowsPerTrigger"] = "12"
    reading.during = lambda number: write(spark, log_name, 100, 110) if number == 0 else None
    reading.run()
    assert [len(reading.batches[n]) for n in sorted(reading.batches)] == [12, 12, 6]
    assert sorted(reading.ids) == list(range(30))
    assert len(reading.run()) == 10
    assert reading.run() == []


def test_a_limit_of_bytes_below_an_entry_takes_about_one_at_a_time(
    spark: SparkSession, log_name: str, reading: Reading
) -> None:
    for first in (0, 10, 20):
        write(spark, log_name, first, first + 10)
    reading.run(maxBytesPerTrigger="1")
    assert [len(reading.batches[n]) for n in sorted(reading.batches)] == [10, 10, 10]


def test_lag_is_reported_in_rows_bytes_and_milliseconds(
    spark: SparkSession, log_name: str, reading: Reading
) -> None:
    write(spark, log_name, 0, 30)
    reading.run(maxOffsetsPerTrigger="20")
    assert reading.last is not None
    first, second = (p for p in reading.last.recentProgress if p.numInputRows)
    behind = json.loads(first.sources[0].latestOffset)[log_name]
    assert behind["offset"] == 30
    assert behind["lag"]["rows"] == 10
    assert behind["lag"]["bytes"] > 0
    assert behind["lag"]["ms"] > 0
    lag = json.loads(second.sources[0].latestOffset)[log_name]["lag"]
    assert lag == {"rows": 0, "bytes": 0, "ms": 0}


def test_too_few_rows_wait_for_more(spark: SparkSession, log_name: str, reading: Reading) -> None:
    write(spark, log_name, 0, 5)
    query = reading.start(minRowsPerTrigger="8", maxTriggerDelay="1d")
    query.processAllAvailable()
    assert reading.rows == []
    write(spark, log_name, 5, 10)
    reading.until(10)
    assert [len(rows) for rows in reading.batches.values() if rows] == [10]


def test_rows_that_waited_long_enough_are_read(
    spark: SparkSession, log_name: str, reading: Reading
) -> None:
    write(spark, log_name, 0, 5)
    reading.start(minRowsPerTrigger="8", maxTriggerDelay="0")
    reading.until(5)


def test_available_now_does_not_wait_for_more_rows(
    spark: SparkSession, log_name: str, reading: Reading
) -> None:
    write(spark, log_name, 0, 5)
    assert len(reading.run(minRowsPerTrigger="8")) == 5


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, range(0)),
        ({"startingOffsets": "earliest"}, range(20)),
        ({"startingOffsets": "15"}, range(15, 20)),
        ({"startingOffsets": '{"LOG": 12}'}, range(12, 20)),
        ({"startingOffsets": '{"LOG": -2}'}, range(20)),
        ({"startingTimestamp": "-1d"}, range(20)),
        (
            {"startingTimestamp": "2100-01-01", "startingOffsetsByTimestampStrategy": "latest"},
            range(0),
        ),
    ],
)
def test_a_stream_begins_where_it_is_told_to(
    spark: SparkSession, log_name: str, reading: Reading, options: dict[str, str], expected: range
) -> None:
    write(spark, log_name, 0, 10)
    write(spark, log_name, 10, 20)
    reading.options = {"log": log_name} | {
        key: value.replace("LOG", log_name) for key, value in options.items()
    }
    reading.run()
    assert sorted(reading.ids) == list(expected)


def test_several_logs_share_a_limit(spark: SparkSession, log_name: str, reading: Reading) -> None:
    names = [f"{log_name}-{n}" for n in range(3)]
    write(spark, names[0], 0, 4)
    write(spark, names[1], 100, 130)
    write(spark, names[2], 200, 230)
    del reading.options["log"]
    reading.run(logs=",".join(names), maxRowsPerTrigger="24")
    assert sorted(reading.ids) == [*range(4), *range(100, 130), *range(200, 230)]
    first = reading.offsets(0)
    assert [first[name]["offset"] for name in names] == [4, 10, 10]


def test_a_log_that_matches_later_is_read_from_its_first_row(
    spark: SparkSession, log_name: str, reading: Reading
) -> None:
    write(spark, f"{log_name}-a", 0, 5)
    del reading.options["log"]
    reading.options |= {"logPattern": f"{log_name}-.*", "startingOffsets": "latest"}
    reading.start().processAllAvailable()
    write(spark, f"{log_name}-b", 100, 105)
    reading.until(5)
    write(spark, f"{log_name}-a", 5, 10)
    reading.until(10)
    assert sorted(reading.ids) == [*range(5, 10), *range(100, 105)]
    assert reading.last is not None
    reading.last.stop()
    write(spark, f"{log_name}-c", 200, 205)
    assert [row[0] for row in reading.run()] == [*range(200, 205)]


def test_a_log_that_is_left_out_keeps_its_place(
    spark: SparkSession, log_name: str, reading: Reading
) -> None:
    first, second = f"{log_name}-a", f"{log_name}-b"
    write(spark, first, 0, 5)
    write(spark, second, 100, 105)
    del reading.options["log"]
    reading.run(logs=f"{first},{second}")
    write(spark, first, 5, 10)
    write(spark, second, 105, 110)
    assert sorted(row[0] for row in reading.run(logs=first)) == [*range(5, 10)]
    assert sorted(row[0] for row in reading.run(logs=f"{first},{second}")) == [*range(105, 110)]


def test_a_new_column_is_said_while_the_query_runs_and_read_after_a_restart(
    spark: SparkSession, log_name: str, reading: Reading
) -> None:
    write(spark, log_name, 0, 5)
    query = reading.start()
    reading.until(5)
    wider = spark.range(5, 10).selectExpr("id", "'x' AS text")
    wider.write.format("ledger").mode("append").option("mergeSchema", "true").save(log_name)
    reading.until(10)
    assert sorted(reading.rows) == [(n,) for n in range(10)]
    report = json.loads(query.lastProgress.sources[0].latestOffset)[log_name]
    assert "has new columns: text" in report["notice"]
    query.stop()
    write(spark, log_name, 10, 11)
    wider.write.format("ledger").mode("append").save(log_name)
    assert sorted(reading.run(), key=str) == [(10, None), *((n, "x") for n in range(5, 10))]


def test_older_rows_have_nulls_in_columns_that_came_later(
    spark: SparkSession, log_name: str, reading: Reading
) -> None:
    write(spark, log_name, 0, 2)
    wider = spark.range(2, 4).selectExpr("id", "'x' AS text")
    wider.write.format("ledger").mode("append").option("mergeSchema", "true").save(log_name)
    reading.run()
    assert sorted(reading.rows, key=str) == [(0, None), (1, None), (2, "x"), (3, "x")]


def test_columns_can_be_chosen_and_metadata_added(
    spark: SparkSession, log_name: str, reading: Reading
) -> None:
    frame = spark.range(0, 3, 1, 1).selectExpr("id", "id * 2 AS twice")
    frame.write.format("ledger").mode("append").save(log_name)
    reading.run(columns="twice", includeMetadata="true")
    assert [(row[0], row[1], row[4]) for row in reading.rows] == [
        (0, log_name, 0),
        (2, log_name, 1),
        (4, log_name, 2),
    ]
    assert all(row[5] is not None for row in reading.rows)
