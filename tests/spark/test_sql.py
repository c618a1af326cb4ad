"""SQL tables on logs: Spark hands a table's options to the source once, and they are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.spark.frames import load, rows_of, same_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    Save = Callable[..., None]


@pytest.fixture
def table(spark: SparkSession, log_name: str, save: Save) -> Iterator[str]:
    save(spark.range(0, 10).selectExpr("id", "'x' AS text"))
    name = "t_" + log_name.replace("-", "_")
    spark.sql(f"CREATE TABLE {name} USING ledger OPTIONS (log '{log_name}')")
    yield name
    spark.sql(f"DROP TABLE {name}")


def test_a_table_is_read_and_written_with_the_options_it_was_made_with(
    table: str, spark: SparkSession, log_name: str
) -> None:
    assert spark.sql(f"SELECT count(*) FROM {table} WHERE id >= 4").collect()[0][0] == 6
    spark.sql(f"INSERT INTO {table} VALUES (10, 'y')")
    assert spark.table(table).count() == 11
    same_rows(load(spark, log_name), spark.table(table))


def test_a_table_takes_options_for_one_query(table: str, spark: SparkSession) -> None:
    spark.sql(f"INSERT INTO {table} VALUES (10, 'y')")
    rows = spark.sql(f"SELECT id FROM {table} WITH (endingOffsets = '10')")
    assert rows_of(rows) == rows_of(spark.range(10))


def test_a_table_is_overwritten(table: str, spark: SparkSession) -> None:
    spark.sql(f"INSERT OVERWRITE {table} SELECT 1, 'z'")
    assert rows_of(spark.table(table)) == [(1, "z")]


def test_a_temporary_view_keeps_its_options(spark: SparkSession, log_name: str, save: Save) -> None:
    save(spark.range(5))
    view = "v_" + log_name.replace("-", "_")
    spark.sql(f"CREATE TEMPORARY VIEW {view} USING ledger OPTIONS (log '{log_name}')")
    assert spark.table(view).count() == 5


def test_what_is_loaded_carries_no_options_along(
    spark: SparkSession, log_name: str, save: Save
) -> None:
    save(spark.range(5))
    assert load(spark, log_name).schema["id"].metadata == {}


def test_a_frame_is_saved_as_a_table(spark: SparkSession, log_name: str) -> None:
    name = "s_" + log_name.replace("-", "_")
    spark.range(4).write.format("ledger").option("log", log_name).saveAsTable(name)
    assert load(spark, log_name).count() == 4
    spark.sql(f"DROP TABLE {name}")


def test_a_table_made_with_a_column_list_says_what_is_missing(
    spark: SparkSession, log_name: str, save: Save
) -> None:
    save(spark.range(4))
    name = "c_" + log_name.replace("-", "_")
    spark.sql(f"CREATE TABLE {name} (id LONG) USING ledger OPTIONS (log '{log_name}')")
    with pytest.raises(Exception, match="leave its column list out"):
        spark.table(name).collect()
    spark.sql(f"DROP TABLE {name}")
