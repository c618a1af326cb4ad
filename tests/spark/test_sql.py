"""SQL tables on logs: which log is read and written, and which options results contain.

These are the tables of the Python source. `test_session_tables` has those with the jar. All other
SQL statements are in `test_sql_statements`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from ledgerlog_spark.datasource.options.sql_table import CATALOG_KEY, OPTIONS_KEY, is_hidden
from tests.spark.conftest import ENGINE_SETTING
from tests.spark.frames import load, rows_of, same_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    Save = Callable[..., None]

NOT_KNOWN = (
    r'nothing was written: .*df\.write\.format\("ledger"\)\.mode\("append"\)\.save\("name"\)'
)


@pytest.fixture(autouse=True)
def without_jar(spark: SparkSession) -> Iterator[None]:
    spark.conf.set(ENGINE_SETTING, "python")
    yield
    spark.conf.unset(ENGINE_SETTING)


@pytest.fixture
def table(spark: SparkSession, log_name: str, save: Save) -> Iterator[str]:
    if not is_hidden():
        pytest.skip("this Spark makes no ledger tables")
    save(spark.range(0, 10).selectExpr("id", "'x' AS text"))
    name = "t_" + log_name.replace("-", "_").replace(".", "_")
    spark.sql(f"CREATE TABLE {name} USING ledger OPTIONS (log '{log_name}')")
    yield name
    spark.sql(f"DROP TABLE {name}")


def catalog_json(spark: SparkSession, table: str) -> str:
    """The table's schema in the catalog, with all metadata."""
    identifier = spark._jvm.org.apache.spark.sql.catalyst.TableIdentifier(table)
    catalog = spark._jsparkSession.sessionState().catalog()
    return str(catalog.getTableMetadata(identifier).schema().json())


def has_ours(frame: DataFrame) -> bool:
    text = frame.schema.json()
    return CATALOG_KEY in text or OPTIONS_KEY in text


def test_a_table_is_read_with_the_options_it_was_made_with(
    table: str, spark: SparkSession, log_name: str
) -> None:
    assert spark.sql(f"SELECT count(*) FROM {table} WHERE id >= 4").collect()[0][0] == 6
    same_rows(spark.table(table), load(spark, log_name))


@pytest.mark.skipif(is_hidden(), reason="this Spark keeps a table's options to itself")
def test_an_older_spark_makes_no_table(spark: SparkSession, log_name: str, save: Save) -> None:
    save(spark.range(3))
    name = "o_" + log_name.replace("-", "_")
    with pytest.raises(Exception, match="a table cannot keep its log in Spark"):
        spark.sql(f"CREATE TABLE {name} USING ledger OPTIONS (log '{log_name}')")
    assert not spark.catalog.tableExists(name)


def test_a_table_takes_options_for_one_query(table: str, spark: SparkSession) -> None:
    rows = spark.sql(f"SELECT id FROM {table} WITH (endingOffsets = '4')")
    assert rows_of(rows) == rows_of(spark.range(4))


def test_an_insert_into_a_table_changes_nothing_and_names_what_works(
    table: str, spark: SparkSession, log_name: str
) -> None:
    for statement in (
        f"INSERT INTO {table} VALUES (10, 'y')",
        f"INSERT INTO {table} SELECT * FROM {table}",
        f"INSERT INTO {table} SELECT id + 1, text FROM {table}",
    ):
        with pytest.raises(Exception, match=NOT_KNOWN):
            spark.sql(statement)
    assert load(spark, log_name).count() == 10


def test_a_view_is_written_by_sql(table: str, spark: SparkSession, log_name: str) -> None:
    view = f"v_{table}"
    spark.sql(f"CREATE TEMPORARY VIEW {view} USING ledger OPTIONS (path '{log_name}')")
    spark.sql(f"INSERT INTO {view} SELECT id + 10, text FROM {table}")
    assert load(spark, log_name).count() == 20
    spark.sql(f"INSERT OVERWRITE {view} SELECT 1, 'z'")
    assert rows_of(spark.table(view)) == [(1, "z")] == rows_of(spark.table(table))


def test_a_view_of_a_part_of_a_log_is_not_written(
    spark: SparkSession, log_name: str, save: Save
) -> None:
    save(spark.range(5))
    view = "p_" + log_name.replace("-", "_")
    load(spark, log_name, endingOffsets="3").createOrReplaceTempView(view)
    with pytest.raises(Exception, match='"endingOffsets" is an option of reads only'):
        spark.sql(f"INSERT OVERWRITE {view} SELECT 1")
    assert load(spark, log_name).count() == 5


def test_nothing_of_ours_is_in_what_is_made_from_a_table(
    table: str, spark: SparkSession, tmp_path: Path
) -> None:
    assert OPTIONS_KEY in catalog_json(spark, table)
    made: list[DataFrame] = [spark.table(table), spark.sql(f"SELECT struct(*) AS all FROM {table}")]
    spark.table(table).write.parquet(str(tmp_path / "file"))
    made.append(spark.read.parquet(str(tmp_path / "file")))
    spark.sql(f"CREATE TABLE c_{table} USING parquet AS SELECT * FROM {table}")
    spark.sql(f"CREATE VIEW w_{table} AS SELECT * FROM {table}")
    spark.sql(f"CACHE TABLE {table}")
    made += [spark.table(f"{letter}_{table}") for letter in "cw"] + [spark.table(table)]
    made += [spark.readStream.table(table), spark.sql(f"DESCRIBE EXTENDED {table}")]
    for frame in made:
        assert not has_ours(frame)
    assert OPTIONS_KEY not in str(made[-1].collect())
    for letter in "cw":
        assert OPTIONS_KEY not in catalog_json(spark, f"{letter}_{table}")
    spark.sql(f"UNCACHE TABLE {table}")
    spark.sql(f"DROP VIEW w_{table}")
    spark.sql(f"DROP TABLE c_{table}")


def test_a_table_of_another_tables_columns_does_not_read_that_ones_log(
    table: str, spark: SparkSession
) -> None:
    copy = f"copy_{table}"
    spark.catalog.createTable(copy, source="ledger", schema=spark.table(table).schema, log="other")
    with pytest.raises(Exception, match="only if CREATE TABLE has no column list"):
        spark.table(copy).collect()
    spark.sql(f"DROP TABLE {copy}")


def with_old_metadata(frame: DataFrame, log: str) -> DataFrame:
    """The rows of a query over a table of c5a11d1, or of a file that was written from one."""
    first, *others = frame.columns
    metadata: dict[str, Any] = {OPTIONS_KEY: json.dumps({"log": log})}
    return frame.select(frame[first].alias(first, metadata=metadata), *others)


def test_a_file_that_an_earlier_version_wrote_from_a_table_diverts_no_write(
    table: str, spark: SparkSession, log_name: str, save: Save, tmp_path: Path
) -> None:
    old = with_old_metadata(spark.table(table), log_name)
    old.write.parquet(str(tmp_path / "old"))
    read = spark.read.parquet(str(tmp_path / "old"))
    assert has_ours(read)
    read.createOrReplaceTempView("old_file")
    with pytest.raises(Exception, match=NOT_KNOWN):
        spark.sql(f"INSERT INTO {table} SELECT * FROM old_file")
    other = f"{log_name}-2"
    read.write.format("ledger").mode("append").save(other)
    assert load(spark, log_name).count() == load(spark, other).count() == 10
    assert not has_ours(load(spark, other))


def test_a_temporary_view_keeps_its_options(spark: SparkSession, log_name: str, save: Save) -> None:
    save(spark.range(5))
    view = "v_" + log_name.replace("-", "_")
    spark.sql(f"CREATE TEMPORARY VIEW {view} USING ledger OPTIONS (log '{log_name}')")
    assert spark.table(view).count() == 5
    with pytest.raises(Exception, match=r"OPTIONS \(path 'name'\)"):
        spark.sql(f"INSERT INTO {view} VALUES (5)")
    assert spark.table(view).count() == 5


def test_what_is_loaded_carries_no_options_along(
    spark: SparkSession, log_name: str, save: Save
) -> None:
    save(spark.range(5))
    assert load(spark, log_name).schema["id"].metadata == {}


def test_a_frame_is_not_saved_as_a_table_that_could_not_be_read(
    spark: SparkSession, log_name: str
) -> None:
    name = "s_" + log_name.replace("-", "_")
    for options in ({"log": log_name}, {}):
        with pytest.raises(Exception, match=NOT_KNOWN):
            spark.range(4).write.format("ledger").options(**options).saveAsTable(name)
        assert not spark.catalog.tableExists(name)
    with pytest.raises(Exception, match="LogNotFoundError"):
        load(spark, log_name)


def test_a_table_made_with_a_column_list_says_what_is_missing(
    spark: SparkSession, log_name: str, save: Save
) -> None:
    save(spark.range(4))
    name = "c_" + log_name.replace("-", "_")
    spark.sql(f"CREATE TABLE {name} (id LONG) USING ledger OPTIONS (log '{log_name}')")
    with pytest.raises(Exception, match="only if CREATE TABLE has no column list"):
        spark.table(name).collect()
    assert spark.sql(f"SELECT * FROM {name} WITH (log = '{log_name}')").count() == 4
    spark.sql(f"DROP TABLE {name}")
