"""All queries of one DataFrame or view read the rows that its first query has read.

Spark keeps the plan of a Python source. The JVM engine plans each query, and pins the rows.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from ledgerlog_spark.datasource.options.sql_table import is_hidden
from tests.spark.conftest import ENGINES
from tests.spark.frames import load, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from ledgerlog_spark.log.clients import BlockingLogClient

    Save = Callable[..., None]


def counts_of(frame: DataFrame) -> tuple[int, int]:
    """The number of rows by an aggregation and by a scan with a filter of all rows."""
    column = frame.columns[0]
    return frame.count(), len(rows_of(frame.where(f"{column} IS NOT NULL")))


@contextmanager
def led(client: BlockingLogClient, name: str, *records: bytes) -> Iterator[Callable[[bytes], None]]:
    """A leader log with closed ledgers, whose records are all visible."""
    with client.open_log(name, lead=True) as leader:

        def append(record: bytes) -> None:
            leader.append(record)
            leader.roll()

        for record in records:
            append(record)
        yield append


def test_every_query_of_a_frame_reads_the_version_of_the_first(
    spark: SparkSession, save: Save, log_name: str
) -> None:
    save(spark.range(2))
    frame = load(spark, log_name)
    save(spark.range(2, 3))
    assert counts_of(frame) == (3, 3)
    save(spark.range(3, 4))
    assert counts_of(frame) == (3, 3)
    assert rows_of(frame.select("id")) == [(0,), (1,), (2,)]
    save(spark.range(9), mode="overwrite")
    assert counts_of(frame) == (3, 3)
    assert counts_of(load(spark, log_name)) == (9, 9)


def test_a_query_that_reads_a_frame_twice_reads_one_version(
    spark: SparkSession, save: Save, log_name: str
) -> None:
    save(spark.range(2))
    frame = load(spark, log_name)
    assert frame.where("id = 1").count() == 1
    save(spark.range(5))
    assert frame.alias("a").join(frame.alias("b"), "id").count() == 2
    assert frame.union(frame).count() == 4


def test_a_cached_frame_reads_the_same_rows_after_the_cache(
    spark: SparkSession, save: Save, log_name: str
) -> None:
    save(spark.range(2))
    frame = load(spark, log_name).cache()
    assert frame.count() == 2
    save(spark.range(2, 4))
    assert frame.count() == 2
    frame.unpersist(blocking=True)
    assert counts_of(frame) == (2, 2)


def test_a_temporary_view_reads_the_version_of_its_first_query(
    spark: SparkSession, save: Save, log_name: str, name: str
) -> None:
    save(spark.range(2))
    load(spark, log_name).createOrReplaceTempView(f"f_{name}")
    using = f"CREATE OR REPLACE TEMPORARY VIEW v_{name} USING ledger OPTIONS (path '{log_name}')"
    spark.sql(using)
    views = (f"f_{name}", f"v_{name}")
    assert [spark.table(view).count() for view in views] == [2, 2]
    spark.sql(f"INSERT INTO v_{name} VALUES (9L)")
    assert [len(spark.sql(f"SELECT * FROM {view}").collect()) for view in views] == [2, 2]
    spark.sql(f"INSERT INTO v_{name} SELECT * FROM v_{name}")
    assert load(spark, log_name).count() == 5
    spark.sql(using)
    assert spark.table(f"v_{name}").count() == 5
    for view in views:
        spark.catalog.dropTempView(view)


@pytest.mark.skipif(not is_hidden(), reason="this Spark makes no ledger tables")
def test_each_statement_reads_a_table_in_its_newest_version(
    spark: SparkSession, save: Save, log_name: str, name: str
) -> None:
    save(spark.range(2))
    spark.sql(f"CREATE TABLE t_{name} USING ledger OPTIONS (log '{log_name}')")
    tables = (f"t_{name}", f"ledger.`{log_name}`")
    frame = spark.table(f"t_{name}")
    assert counts_of(frame) == (2, 2)
    for rows in (3, 4):
        save(spark.range(rows - 1, rows))
        for table in tables:
            assert spark.sql(f"SELECT count(*) FROM {table}").first() == (rows,)
            assert len(spark.sql(f"SELECT * FROM {table} WHERE id >= 0").collect()) == rows
        assert counts_of(frame) == (2, 2)
    spark.sql(f"DROP TABLE t_{name}")


def test_an_open_end_a_pattern_and_a_relative_time_are_pinned(
    spark: SparkSession, save: Save, log_name: str
) -> None:
    save(spark.range(2))
    pattern = spark.read.format("ledger").option("logPattern", f"{log_name}.*").load()
    ago = load(spark, log_name, startingTimestamp="-10m")
    cut = load(spark, log_name, startingOffsets="1", includeMetadata="true")
    assert (counts_of(pattern), counts_of(ago), counts_of(cut)) == ((2, 2), (2, 2), (1, 1))
    save(spark.range(2, 3))
    spark.range(1).write.format("ledger").mode("append").save(f"{log_name}-other")
    assert (counts_of(pattern), counts_of(ago), counts_of(cut)) == ((2, 2), (2, 2), (1, 1))


def test_a_scan_that_converts_values_is_pinned(
    spark: SparkSession, save: Save, log_name: str
) -> None:
    save(spark.range(2))
    frame = spark.read.format("ledger").schema("id double").load(log_name)
    assert rows_of(frame) == [(0.0,), (1.0,)]
    save(spark.range(9), mode="overwrite")
    assert counts_of(frame) == (2, 2)
    assert rows_of(frame.selectExpr("id + 1")) == [(1.0,), (2.0,)]


def test_a_leader_log_is_pinned_at_its_end(
    spark: SparkSession, client: BlockingLogClient, log_name: str
) -> None:
    with led(client, log_name, b"a", b"b") as append:
        frame = load(spark, log_name)
        assert counts_of(frame) == (2, 2)
        append(b"c")
        assert counts_of(frame) == (2, 2)
        assert rows_of(frame) == [(b"a",), (b"b",)]
        assert counts_of(load(spark, log_name)) == (3, 3)


def test_a_ledger_is_pinned_at_its_last_entry(
    spark: SparkSession, client: BlockingLogClient
) -> None:
    with client.create_ledger() as ledger:
        ledger.append_batch([b"a", b"b", b"c"])
        frame = spark.read.format("ledger").option("ledgerId", ledger.id).load()
        found = counts_of(frame)
        assert found[0] == found[1]
        ledger.append_batch([b"d", b"e"])
        assert counts_of(frame) == found
    again = spark.read.format("ledger").option("ledgerId", ledger.id).load()
    assert counts_of(again) == (5, 5)


def test_rows_of_a_deleted_log_are_never_those_of_another_log(
    spark: SparkSession, client: BlockingLogClient, save: Save, log_name: str, engine: str
) -> None:
    save(spark.range(2))
    frame = load(spark, log_name)
    assert counts_of(frame) == (2, 2)
    client.logs.open(log_name).delete()
    save(spark.range(9))
    if engine == "jvm":
        with pytest.raises(PySparkException, match="LogNotFoundError"):
            rows_of(frame)
    else:  # Spark keeps the plan, and the ledgers are not deleted yet
        assert counts_of(frame) == (2, 2)
    assert counts_of(load(spark, log_name)) == (9, 9)


@pytest.mark.parametrize("chosen", ENGINES)
def test_the_engine_of_one_read_pins_the_rows_too(
    spark: SparkSession, save: Save, log_name: str, chosen: str, engine: str
) -> None:
    if (engine, chosen) == ("python", "jvm"):
        with pytest.raises(PySparkException, match="engine"):
            load(spark, log_name, engine=chosen).count()
        return
    save(spark.range(2))
    frame = load(spark, log_name, engine=chosen)
    assert counts_of(frame) == (2, 2)
    save(spark.range(2, 3))
    assert counts_of(frame) == (2, 2)
