"""Tables of the session catalog with the jar: `CREATE TABLE t USING ledger OPTIONS (log ..)`.

Without the jar, Spark gives a write to such a table neither the table nor its options.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ledgerlog_spark.datasource.options.sql_table import is_hidden
from ledgerlog_spark.log.blocking.logs import BlockingLogs
from tests.spark.frames import load, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from ledgerlog_spark.client.blocking.client import BlockingClient

    Save = Callable[..., None]

pytestmark = pytest.mark.skipif(not is_hidden(), reason="this Spark makes no ledger tables")


@pytest.fixture
def table(spark: SparkSession, log_name: str, save: Save) -> Iterator[str]:
    """A table over a log with the rows 0 to 2."""
    save(spark.range(3))
    name = "t_" + log_name[-30:].replace("-", "_")
    spark.sql(f"CREATE TABLE {name} USING ledger OPTIONS (log '{log_name}')")
    yield name
    spark.sql(f"DROP TABLE IF EXISTS {name}")


def test_a_table_is_written_by_its_name(
    spark: SparkSession, table: str, log_name: str, client: BlockingClient
) -> None:
    names = BlockingLogs(client).names()
    spark.sql(f"INSERT INTO {table} VALUES (3)")
    spark.range(4, 5).write.insertInto(table)
    spark.range(5, 6).writeTo(table).append()
    spark.range(6, 7).write.format("ledger").mode("append").saveAsTable(table)
    assert rows_of(load(spark, log_name)) == [(n,) for n in range(7)]
    spark.sql(f"INSERT OVERWRITE {table} SELECT id + 10 FROM {table} WHERE id < 2")
    assert rows_of(spark.table(table)) == [(10,), (11,)]
    spark.range(1).write.insertInto(table, overwrite=True)
    assert rows_of(spark.table(table)) == [(0,)]
    assert BlockingLogs(client).names() == names


def test_a_stream_writes_a_table(
    spark: SparkSession, table: str, log_name: str, tmp_path: Path
) -> None:
    source = f"{table}_source"
    spark.sql(f"CREATE TABLE {source} USING ledger OPTIONS (log '{log_name}')")
    query = (
        spark.readStream.option("startingOffsets", "earliest")
        .table(source)
        .selectExpr("id + 10 AS id")
        .writeStream.option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .format("ledger")
        .toTable(table)
    )
    query.awaitTermination()
    assert rows_of(spark.table(table)) == [(0,), (1,), (10,), (11,), (12,), (2,)]
    spark.sql(f"DROP TABLE {source}")


def test_a_table_is_made_from_a_query(
    spark: SparkSession, log_name: str, client: BlockingClient
) -> None:
    name = "t_" + log_name[-30:].replace("-", "_")
    statement = f"CREATE TABLE {name} USING ledger OPTIONS (log '{log_name}') AS SELECT"
    with pytest.raises(Exception, match="by design"):
        spark.sql(f"{statement} CAST(raise_error('by design') AS BIGINT) AS id FROM range(2)")
    assert log_name not in BlockingLogs(client).names()
    assert not spark.catalog.tableExists(name)
    spark.sql(f"{statement} id FROM range(2)")
    assert rows_of(spark.table(name)) == rows_of(load(spark, log_name)) == [(0,), (1,)]
    spark.sql(f"DROP TABLE {name}")
    # Spark makes the same calls as for an INSERT, so the rows of an existing log stay.
    spark.sql(f"{statement} id FROM range(2, 3)")
    assert rows_of(spark.table(name)) == [(0,), (1,), (2,)]
    spark.sql(f"DROP TABLE {name}")


def test_a_table_with_a_column_list_is_read(spark: SparkSession, table: str, log_name: str) -> None:
    name = f"{table}_columns"
    spark.sql(f"CREATE TABLE {name} (id BIGINT) USING ledger OPTIONS (log '{log_name}')")
    assert rows_of(spark.table(name)) == [(0,), (1,), (2,)]
    assert rows_of(spark.sql(f"SELECT * FROM {name} WITH (endingOffsets = '1')")) == [(0,)]
    spark.sql(f"DROP TABLE {name}")


def test_a_write_that_names_another_log_or_a_part_of_one_is_refused(
    spark: SparkSession, table: str, log_name: str, client: BlockingClient
) -> None:
    part = f"{table}_part"
    spark.sql(f"CREATE TABLE {part} USING ledger OPTIONS (log '{log_name}', endingOffsets '2')")
    before = BlockingLogs(client).names()
    for statement, expected in (
        (f"INSERT INTO {table} WITH (log = 'other') VALUES (1)", "is over log"),
        (f"INSERT INTO {table} WITH (path = 'other') VALUES (1)", "is over log"),
        (f"INSERT INTO {part} VALUES (1)", '"endingOffsets" is an option of reads only'),
    ):
        with pytest.raises(Exception, match=expected):
            spark.sql(statement)
    assert rows_of(spark.table(table)) == [(0,), (1,), (2,)]
    assert rows_of(spark.table(part)) == [(0,), (1,)]
    assert BlockingLogs(client).names() == before
    spark.sql(f"DROP TABLE {part}")


def test_a_frame_that_is_saved_as_a_new_table_is_refused(
    spark: SparkSession, log_name: str, client: BlockingClient
) -> None:
    name = "t_" + log_name[-30:].replace("-", "_")
    rows: Any = spark.range(3).write.format("ledger")
    for writer in (rows, rows.option("log", log_name)):
        with pytest.raises(Exception, match="nothing was written"):
            writer.saveAsTable(name)
        assert not spark.catalog.tableExists(name)
    assert log_name not in BlockingLogs(client).names()
