"""Leader logs of rows, read by Spark with their own columns while their leader appends."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from tests.fixtures.visible import wait_until_every_bookie_knows
from tests.spark.frames import load, rows_of
from tests.spark.streams import Reading

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from ledgerlog_spark.log.blocking.leader import BlockingLeader
    from ledgerlog_spark.log.clients import BlockingLogClient

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])


@pytest.fixture
def leader(client: BlockingLogClient, log_name: str) -> Iterator[BlockingLeader]:
    with client.open_log(log_name, lead=True, schema=SCHEMA) as leading:
        yield leading


@pytest.fixture
def reading(spark: SparkSession, log_name: str, tmp_path: Path) -> Iterator[Reading]:
    """A query of the test's log from its first row on."""
    made = Reading(spark, tmp_path / "checkpoint", log=log_name, startingOffsets="earliest")
    yield made
    if made.last is not None:
        made.last.stop()


def table(first: int, end: int) -> pa.Table:
    numbers = range(first, end)
    return pa.table([pa.array(numbers, pa.int64()), [f"row {n}" for n in numbers]], schema=SCHEMA)


def wait_until_visible(client: BlockingLogClient, leader: BlockingLeader) -> None:
    for last in client.open_log(leader.name).tail_rows(leader.end_offset - 1):
        wait_until_every_bookie_knows(client, last.ledger_id, last.entry_id)
        return


def rows(frame: DataFrame) -> pa.Table:
    """The columns of the log, in the order of the offsets."""
    return frame.orderBy("_offset").select(SCHEMA.names).toArrow().cast(SCHEMA)


def test_rows_have_their_own_columns_in_closed_and_open_ledgers(
    spark: SparkSession, client: BlockingLogClient, leader: BlockingLeader, log_name: str
) -> None:
    leader.append_rows(table(0, 100_000))
    leader.roll()
    for first in range(100_000, 100_500, 50):
        leader.append_rows(table(first, first + 50))
    wait_until_visible(client, leader)
    assert load(spark, log_name).dtypes == [("n", "bigint"), ("text", "string")]
    frame = load(spark, log_name, includeMetadata="true")
    assert rows(frame).equals(table(0, 100_500))
    assert frame.where("n <> _offset").count() == 0
    assert frame.select("_ledger").distinct().count() == 2
    assert load(spark, log_name).where("n >= 99990 AND text < 'row 99995'").count() == 5 + 500
    part = load(
        spark, log_name, includeMetadata="true", startingOffsets="65000", endingOffsets="100007"
    )
    assert rows(part).equals(table(65_000, 100_007))
    split = load(spark, log_name, includeMetadata="true", maxBytesPerPartition="100k")
    assert rows(split).equals(table(0, 100_500))


def test_a_truncated_log_of_rows_begins_where_it_was_cut(
    spark: SparkSession, client: BlockingLogClient, leader: BlockingLeader, log_name: str
) -> None:
    leader.append_rows(table(0, 70_000))
    leader.roll()
    leader.append_rows(table(70_000, 70_010))
    wait_until_visible(client, leader)
    leader.truncate(69_123)
    assert rows(load(spark, log_name, includeMetadata="true")).equals(table(69_123, 70_010))
    with pytest.raises(PySparkException, match="overwritten or truncated"):
        load(spark, log_name, startingOffsets="10").count()


def test_a_stream_reads_each_row_once_over_rolls_leaders_and_truncation(
    client: BlockingLogClient, log_name: str, reading: Reading
) -> None:
    leader = client.open_log(log_name, lead=True, schema=SCHEMA)
    leader.append_rows(table(0, 1_000))
    wait_until_visible(client, leader)
    reading.options["maxRowsPerTrigger"] = "700"
    reading.run()
    assert [len(reading.batches[n]) for n in sorted(reading.batches)] == [700, 300]
    leader.roll()
    leader.append_rows(table(1_000, 1_500))
    leader.truncate(900)
    with client.open_log(log_name, lead=True) as later:
        later.append_rows(table(1_500, 2_000))
        later.truncate(1_000)
        wait_until_visible(client, later)
        reading.run()
    assert sorted(reading.rows) == [(n, f"row {n}") for n in range(2_000)]
    with pytest.raises(Exception, match="has another leader"):
        leader.append_rows(table(0, 1))


def test_a_stream_that_runs_is_told_of_rows_as_they_are_appended(
    client: BlockingLogClient, leader: BlockingLeader, reading: Reading
) -> None:
    leader.append_rows(table(0, 10))
    wait_until_visible(client, leader)
    reading.start()
    reading.until(10)
    for first in (10, 20):
        leader.append_rows(table(first, first + 10))
        reading.until(first + 10)
        leader.roll()
    assert sorted(reading.rows) == [(n, f"row {n}") for n in range(30)]


def test_values_of_all_kinds_of_types_arrive_as_they_were_appended(
    spark: SparkSession, client: BlockingLogClient, log_name: str
) -> None:
    moment = dt.datetime(2026, 1, 2, 3, 4, 5, 678_000, dt.UTC)
    row = {
        "flag": True,
        "small": 7,
        "ratio": 0.5,
        "price": Decimal("12.34"),
        "day": dt.date(2026, 1, 2),
        "at": moment,
        "local": moment.replace(tzinfo=None),
        "blob": b"\x00\xff",
        "kind": "x",
        "tags": ["a", None],
        "pairs": [("k", 1)],
        "place": {"x": 1.0, "y": None},
    }
    schema = pa.schema(
        [
            ("flag", pa.bool_()),
            ("small", pa.int16()),
            ("ratio", pa.float32()),
            ("price", pa.decimal128(10, 2)),
            ("day", pa.date32()),
            ("at", pa.timestamp("ms", tz="UTC")),
            ("local", pa.timestamp("ns")),
            ("blob", pa.binary()),
            ("kind", pa.dictionary(pa.int32(), pa.string())),
            ("tags", pa.list_(pa.string())),
            ("pairs", pa.map_(pa.string(), pa.int32())),
            ("place", pa.struct([("x", pa.float64()), ("y", pa.float64())])),
        ]
    )
    nothing = dict.fromkeys(row)
    with client.open_log(log_name, lead=True, schema=schema) as leader:
        leader.append_rows(pa.Table.from_pylist([row, nothing], schema=schema))
    found = load(spark, log_name).toArrow().to_pylist()
    assert sorted(found, key=lambda one: one["flag"] is None) == [row, nothing]


def test_rows_of_a_leader_and_of_spark_are_read_side_by_side(
    spark: SparkSession, client: BlockingLogClient, leader: BlockingLeader, log_name: str
) -> None:
    leader.append_rows(table(1, 2))
    wait_until_visible(client, leader)
    other = spark.createDataFrame([(2, "row 2")], "n long, text string")
    other.write.format("ledger").mode("append").save(f"{log_name}-committed")
    both = spark.read.format("ledger").option("logPattern", f"{log_name}.*").load()
    assert rows_of(both) == [(1, "row 1"), (2, "row 2")]
    with pytest.raises(PySparkException, match="write to it through its leader"):
        other.write.format("ledger").mode("append").save(log_name)


def test_what_a_frame_has_beside_its_columns_stays(
    spark: SparkSession, client: BlockingLogClient, log_name: str
) -> None:
    words = spark.sql("SELECT 'abc' AS c, array(1) AS l")
    metadata = {"comment": "words", "deep": {"at": [1.5]}}
    rows = words.withMetadata("l", metadata).toArrow()
    with client.open_log(log_name, lead=True, schema=rows.schema) as leader:
        leader.append_rows(rows)
    got = load(spark, log_name)
    assert got.schema["l"].metadata == metadata
    assert rows_of(got) == [("abc", [1])]
