"""Additions to a log's columns through Spark, and refused changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ledgerlog_spark.log.blocking.logs import BlockingLogs
from tests.spark.frames import load, rows_of, same_rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from ledgerlog_spark.client.blocking.client import BlockingClient

    Save = Callable[..., None]


def test_merge_schema_adds_columns_and_older_rows_read_as_nulls(
    spark: SparkSession, log_name: str, save: Save
) -> None:
    save(spark.range(3))
    save(spark.range(3, 5).selectExpr("id", "'x' AS text"), mergeSchema="true")
    rows = [(n, None) for n in range(3)] + [(n, "x") for n in range(3, 5)]
    assert rows_of(load(spark, log_name)) == sorted(rows, key=repr)
    same_rows(load(spark, log_name, versionAsOf="1"), spark.range(3))


def test_merge_schema_adds_columns_also_without_rows(
    spark: SparkSession, log_name: str, save: Save
) -> None:
    save(spark.range(3))
    for _ in range(2):
        save(spark.range(0).selectExpr("id", "'x' AS text"), mergeSchema="true")
    rows = sorted([(n, None) for n in range(3)], key=repr)
    assert rows_of(load(spark, log_name)) == rows
    assert load(spark, log_name).columns == ["id", "text"]
    same_rows(load(spark, log_name, versionAsOf="1"), spark.range(3))
    with pytest.raises(Exception, match="version 3"):
        load(spark, log_name, versionAsOf="3")
    save(spark.range(3, 4).selectExpr("id", "'y' AS text"))
    assert rows_of(load(spark, log_name)) == sorted([*rows, (3, "y")], key=repr)


def test_a_stream_goes_on_over_columns_that_were_added_without_rows(
    spark: SparkSession, log_name: str, save: Save, tmp_path: Path
) -> None:
    save(spark.range(3))

    def copied() -> int:
        stream = spark.readStream.format("ledger").option("startingOffsets", "earliest")
        query = stream.load(log_name).select("id").writeStream.format("ledger")
        query = query.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
        query.start(f"{log_name}-copy").awaitTermination()
        return load(spark, f"{log_name}-copy").count()

    assert copied() == 3
    save(spark.range(0).selectExpr("id", "'x' AS text"), mergeSchema="true")
    assert copied() == 3
    save(spark.range(3, 5))
    assert copied() == 5


def test_a_new_column_without_merge_schema_is_an_error_and_writes_nothing(
    spark: SparkSession, log_name: str, save: Save
) -> None:
    save(spark.range(3))
    with pytest.raises(Exception, match=r"has no column 'text'.*\"mergeSchema\" to \"true\""):
        save(spark.range(3).selectExpr("id", "'x' AS text"))
    assert load(spark, log_name).count() == 3


def test_rows_without_a_column_store_nulls(spark: SparkSession, log_name: str, save: Save) -> None:
    save(spark.range(2).selectExpr("id", "'x' AS text"))
    save(spark.range(2, 3))
    rows = [(0, "x"), (1, "x"), (2, None)]
    assert rows_of(load(spark, log_name)) == sorted(rows, key=repr)


def test_narrower_numbers_are_stored_as_the_logs_type(
    spark: SparkSession, log_name: str, save: Save
) -> None:
    save(spark.range(2))
    save(spark.range(2, 4).selectExpr("CAST(id AS int) AS id"))
    same_rows(load(spark, log_name), spark.range(4))


def test_another_type_is_an_error_that_names_column_expected_and_got(
    spark: SparkSession, log_name: str, save: Save
) -> None:
    save(spark.range(2))
    with pytest.raises(Exception, match=r"column 'id' of log .* is long, but the rows have string"):
        save(spark.range(2).selectExpr("CAST(id AS string) AS id"))


def test_a_type_that_cannot_be_stored_names_the_column(
    spark: SparkSession, log_name: str, save: Save
) -> None:
    with pytest.raises(Exception, match="column 'span' has the type interval year"):
        save(spark.sql("SELECT INTERVAL '1' YEAR AS span"))


def test_no_rows_written_to_a_new_log_have_columns(
    spark: SparkSession, log_name: str, save: Save
) -> None:
    nothing = spark.range(0).selectExpr("id", "'x' AS text")
    save(nothing)
    assert load(spark, log_name).columns == ["id", "text"]
    same_rows(load(spark, log_name), nothing)


def test_a_log_that_was_made_without_columns_has_none_to_show(
    spark: SparkSession, log_name: str, client: BlockingClient
) -> None:
    BlockingLogs(client).create(log_name)
    with pytest.raises(Exception, match="has no rows yet"):
        load(spark, log_name)


def test_a_first_write_that_fails_does_not_fix_the_columns(
    spark: SparkSession, log_name: str, client: BlockingClient, save: Save
) -> None:
    with pytest.raises(Exception, match="by design"):
        save(spark.range(3).selectExpr("raise_error('by design') AS id"))
    assert log_name not in BlockingLogs(client).names()
    rows = spark.range(3).selectExpr("id", "'x' AS text")
    save(rows)
    same_rows(load(spark, log_name), rows)


def test_an_empty_first_write_fixes_the_columns(
    spark: SparkSession, log_name: str, save: Save
) -> None:
    save(spark.range(0))
    with pytest.raises(Exception, match="has no column 'text'"):
        save(spark.range(3).selectExpr("'x' AS text"))


def test_an_overwrite_replaces_the_columns_when_it_says_so(
    spark: SparkSession, log_name: str, save: Save
) -> None:
    save(spark.range(3))
    rows = spark.range(2).selectExpr("CAST(id AS string) AS id", "'x' AS text")
    with pytest.raises(Exception, match=r'is long, .* set "overwriteSchema" to "true"'):
        save(rows, mode="overwrite")
    same_rows(load(spark, log_name), spark.range(3))
    save(rows, mode="overwrite", overwriteSchema="true")
    same_rows(load(spark, log_name), rows)
    same_rows(load(spark, log_name, versionAsOf="1"), spark.range(3))
    save(rows)
    same_rows(load(spark, log_name), rows.union(rows))
