"""Batch writes and reads through Spark, on real bookies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ledgerlog_spark.log.blocking.logs import BlockingLogs
from tests.spark.frames import load, rows_of, same_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from ledgerlog_spark.client.blocking.client import BlockingClient
    from ledgerlog_spark.local.cluster import Cluster

    Save = Callable[..., None]

PANDAS_IS_NEWER = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")
"""`mapInArrow` checks the version of pandas, which it does not use."""


def test_rows_come_back_as_they_were_written(
    spark: SparkSession, log_name: str, save: Save
) -> None:
    frame = spark.range(0, 200_000, 1, 3).selectExpr(
        "id", "id % 7 AS day", "id / 3.0 AS ratio", "concat('row ', id) AS text"
    )
    save(frame)
    same_rows(load(spark, log_name), frame)


def test_the_source_is_found_without_any_registration(
    spark: SparkSession, cluster: Cluster, log_name: str, save: Save
) -> None:
    save(spark.range(10))
    other = spark.newSession()
    uri = cluster.metadata_service_uri
    assert load(other, log_name, metadataServiceUri=uri).count() == 10


@pytest.mark.parametrize("compression", ["zstd", "lz4", "none"])
def test_every_compression_is_read_back(
    compression: str, spark: SparkSession, log_name: str, save: Save
) -> None:
    save(spark.range(1000), compression=compression, targetEntryBytes="4096")
    same_rows(load(spark, log_name), spark.range(1000))


def test_appends_follow_each_other_and_metadata_columns_say_where(
    spark: SparkSession, log_name: str, save: Save
) -> None:
    save(spark.range(0, 100, 1, 1))
    save(spark.range(100, 250, 1, 2))
    rows = load(spark, log_name, includeMetadata="true").orderBy("_offset").collect()
    assert [row["id"] for row in rows] == [row["_offset"] for row in rows] == list(range(250))
    assert {row["_log"] for row in rows} == {log_name}
    assert len({row["_ledger"] for row in rows}) == 3
    times = [row["_append_time"] for row in rows]
    assert times == sorted(times)
    assert len(set(times)) == 2


def test_metadata_columns_are_there_only_when_asked_for(
    spark: SparkSession, log_name: str, save: Save
) -> None:
    save(spark.range(3))
    assert load(spark, log_name).columns == ["id"]


def test_overwrite_replaces_the_rows_and_version_as_of_reads_the_old_ones(
    spark: SparkSession, log_name: str, save: Save
) -> None:
    save(spark.range(0, 10))
    save(spark.range(10, 20))
    save(spark.range(50, 53), mode="overwrite")
    same_rows(load(spark, log_name), spark.range(50, 53))
    same_rows(load(spark, log_name, versionAsOf="2"), spark.range(0, 20))
    same_rows(load(spark, log_name, versionAsOf="1"), spark.range(0, 10))
    same_rows(load(spark, log_name, versionAsOf="0"), spark.range(0))


def test_an_overwrite_without_rows_empties_the_log(
    spark: SparkSession, log_name: str, save: Save
) -> None:
    save(spark.range(10))
    save(spark.range(0), mode="overwrite")
    assert load(spark, log_name).collect() == []


def test_an_append_without_rows_changes_nothing(
    spark: SparkSession, client: BlockingClient, log_name: str, save: Save
) -> None:
    save(spark.range(10))
    save(spark.range(0))
    assert BlockingLogs(client).open(log_name).state().head.version == 1


def test_a_write_run_again_with_the_same_transaction_changes_nothing(
    spark: SparkSession, client: BlockingClient, log_name: str, save: Save
) -> None:
    for _ in range(3):
        save(spark.range(10), txnAppId="nightly", txnVersion="7")
    assert load(spark, log_name).count() == 10
    assert BlockingLogs(client).open(log_name).state().head.version == 1
    save(spark.range(10, 15), txnAppId="nightly", txnVersion="8")
    save(spark.range(99), txnAppId="nightly", txnVersion="6")
    same_rows(load(spark, log_name), spark.range(15))


def test_two_applications_with_the_same_version_both_write(
    spark: SparkSession, log_name: str, save: Save
) -> None:
    save(spark.range(0, 5), txnAppId="left", txnVersion="1")
    save(spark.range(5, 9), txnAppId="right", txnVersion="1")
    same_rows(load(spark, log_name), spark.range(9))


def fail_first_attempts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield all rows of each task's first attempt, then raise an error."""
    from pyspark import TaskContext

    yield from batches
    context = TaskContext.get()
    if context is not None and context.attemptNumber() == 0:
        raise RuntimeError("the first attempt fails after its last row")


@PANDAS_IS_NEWER
def test_a_task_that_fails_and_is_retried_leaves_no_duplicate(
    spark: SparkSession, client: BlockingClient, log_name: str, save: Save
) -> None:
    frame = spark.range(0, 1000, 1, 2)
    save(frame.mapInArrow(fail_first_attempts, frame.schema), targetEntryBytes="4096")
    same_rows(load(spark, log_name), frame)
    ledgers = {item.ledger_id for item in BlockingLogs(client).open(log_name).snapshot().items}
    assert len(ledgers) == 2


def fail_always(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches
    raise RuntimeError("this task never succeeds")


@PANDAS_IS_NEWER
def test_a_job_that_fails_leaves_nothing_visible(
    spark: SparkSession, client: BlockingClient, log_name: str, save: Save
) -> None:
    save(spark.range(5))
    frame = spark.range(0, 1000, 1, 2)
    with pytest.raises(Exception, match="this task never succeeds"):
        save(frame.mapInArrow(fail_always, frame.schema))
    same_rows(load(spark, log_name), spark.range(5))
    assert BlockingLogs(client).open(log_name).state().head.version == 1


def test_a_limit_ends_a_scan_early_and_the_next_query_works(
    spark: SparkSession, log_name: str, save: Save
) -> None:
    save(spark.range(0, 300_000, 1, 2), targetEntryBytes="4096", compression="none")
    frame = load(spark, log_name)
    assert len(frame.limit(3).collect()) == 3
    assert frame.count() == 300_000


def test_partitions_follow_the_options(spark: SparkSession, log_name: str, save: Save) -> None:
    save(spark.range(0, 50_000, 1, 2), targetEntryBytes="4096", compression="none")
    assert load(spark, log_name).rdd.getNumPartitions() == 1
    split = load(spark, log_name, maxBytesPerPartition="100k")
    assert split.rdd.getNumPartitions() >= 4
    same_rows(split, spark.range(50_000))
    assert load(spark, log_name, minPartitions="6").rdd.getNumPartitions() >= 6


def test_columns_are_read_in_the_order_they_are_named(
    spark: SparkSession, log_name: str, save: Save
) -> None:
    frame = spark.range(100).selectExpr("id AS a", "id * 2 AS b", "'x' AS c")
    save(frame)
    same_rows(load(spark, log_name, columns="c,a"), frame.select("c", "a"))


def test_a_schema_of_the_users_own_is_a_projection(
    spark: SparkSession, log_name: str, save: Save
) -> None:
    save(spark.range(100).selectExpr("id AS a", "id * 2 AS b"))
    frame = spark.read.format("ledger").schema("b long").load(log_name)
    assert rows_of(frame) == sorted([(2 * n,) for n in range(100)], key=repr)


def test_offsets_choose_rows(spark: SparkSession, log_name: str, save: Save) -> None:
    save(spark.range(0, 100, 1, 1), targetEntryBytes="4096")
    save(spark.range(100, 200, 1, 1))
    frame = load(spark, log_name, startingOffsets="90", endingOffsets=f'{{"{log_name}": 130}}')
    same_rows(frame, spark.range(90, 130))


def test_several_logs_are_read_by_name_and_by_pattern(
    spark: SparkSession, log_name: str, save: Save
) -> None:
    save(spark.range(5))
    other = f"{log_name}-other"
    wider = spark.range(5, 8).selectExpr("id", "'x' AS text")
    wider.write.format("ledger").mode("append").save(other)
    expected: list[Any] = [(n, None) for n in range(5)] + [(n, "x") for n in range(5, 8)]
    by_name = spark.read.format("ledger").load([log_name, other])
    by_pattern = spark.read.format("ledger").option("logPattern", f"{log_name}.*").load()
    assert rows_of(by_name) == rows_of(by_pattern) == sorted(expected, key=repr)


def test_a_written_frame_can_be_copied_from_one_log_to_another(
    spark: SparkSession, log_name: str, save: Save
) -> None:
    save(spark.range(10))
    load(spark, log_name).write.format("ledger").mode("append").save(f"{log_name}-copy")
    same_rows(load(spark, f"{log_name}-copy"), spark.range(10))
    assert load(spark, log_name).count() == 10


def test_an_overwrite_does_not_change_the_rows_of_a_query_that_runs(
    spark: SparkSession, save: Save, log_name: str
) -> None:
    save(spark.range(4))
    rows = load(spark, log_name).toLocalIterator()
    assert next(rows) is not None
    save(spark.range(9), mode="overwrite")
    assert len(list(rows)) == 3
    assert load(spark, log_name).count() == 9
