"""Comments, defaults and lengths of columns, from a table of Spark to a log and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ledgerlog_spark.arrow.spark_types import comment_of
from ledgerlog_spark.log.blocking.logs import BlockingLogs
from tests.spark.frames import load, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from ledgerlog_spark.client.blocking.client import BlockingClient

    Save = Callable[..., None]

COLUMNS = """
    k BIGINT COMMENT 'the key', v VARCHAR(5), c CHAR(3), a ARRAY<VARCHAR(4)>,
    s STRUCT<x: CHAR(2), n: INT>, d INT DEFAULT 41 + 1
"""


@pytest.fixture
def table(spark: SparkSession) -> Iterator[DataFrame]:
    """A Parquet table with definitions, and one row. Spark itself checks its rows."""
    spark.sql(f"CREATE TABLE defined ({COLUMNS}) USING parquet")
    spark.sql("INSERT INTO defined VALUES (1, 'ab', 'x', array('y'), struct('z', 5), DEFAULT)")
    yield spark.table("defined")
    spark.sql("DROP TABLE defined")


ROW = "SELECT 2L AS k, {v} AS v, {c} AS c, array('q') AS a, struct('w' AS x, 6 AS n) AS s, 7 AS d"


def test_definitions_survive_a_write_of_plain_rows(
    spark: SparkSession, table: DataFrame, log_name: str, save: Save
) -> None:
    save(table)
    assert load(spark, log_name).schema.json() == table.schema.json()
    save(spark.sql(ROW.format(v="'abcde  '", c="'u'")))
    assert load(spark, log_name).schema.json() == table.schema.json()
    found = load(spark, log_name).where("k = 2").collect()
    assert [(r.v, r.c, r.a, r.s.x) for r in found] == [("abcde", "u  ", ["q"], "w ")]


@pytest.mark.parametrize(
    ("v", "c", "column"), [("'abcdef'", "'u'", "'v'"), ("'ab'", "'uvwx'", "'c'")]
)
def test_a_text_that_is_too_long_is_refused_and_nothing_is_written(
    spark: SparkSession, table: DataFrame, log_name: str, save: Save, v: str, c: str, column: str
) -> None:
    save(table)
    with pytest.raises(Exception, match=f"column {column} has at most . characters"):
        save(spark.sql(ROW.format(v=v, c=c)))
    assert load(spark, log_name).count() == 1


def test_the_same_texts_are_stored_and_refused_as_in_a_table_of_spark(
    spark: SparkSession, table: DataFrame, log_name: str, save: Save
) -> None:
    save(table)
    for v, c in (("'abcde '", "'x'"), ("'abcdef'", "'x'"), ("''", "''"), ("'äöüäö'", "'äöü '")):
        row = ROW.format(v=v, c=c)
        refused = []
        for write in (
            lambda row=row: spark.sql(f"INSERT INTO defined {row}"),
            lambda row=row: save(spark.sql(row)),
        ):
            try:
                write()
                refused.append(False)
            except Exception as error:  # noqa: BLE001 (each has its own)
                refused.append("EXCEED_LIMIT" in str(error) or "has at most" in str(error))
        assert refused[0] == refused[1], row
    assert rows_of(load(spark, log_name)) == rows_of(spark.table("defined"))


def test_comparisons_pad_a_char_as_spark_does(
    spark: SparkSession, table: DataFrame, log_name: str, save: Save
) -> None:
    save(table)
    log = load(spark, log_name)
    for condition in ("c = 'x'", "c = 'x  '", "v = 'ab'", "v = 'ab '"):
        assert log.where(condition).count() == spark.table("defined").where(condition).count()


def test_columns_of_type_varchar_themselves_are_written_and_read(
    spark: SparkSession, log_name: str, save: Save
) -> None:
    spark.conf.set("spark.sql.preserveCharVarcharTypeInfo", "true")
    try:
        save(spark.sql("SELECT CAST('ab' AS VARCHAR(5)) AS v, CAST('x' AS CHAR(3)) AS c"))
    finally:
        spark.conf.unset("spark.sql.preserveCharVarcharTypeInfo")
    save(spark.sql("SELECT 'cd' AS v, 'y' AS c"))
    assert rows_of(load(spark, log_name)) == [("ab", "x  "), ("cd", "y  ")]
    with pytest.raises(Exception, match="column 'v' has at most 5 characters"):
        save(spark.sql("SELECT 'abcdef' AS v, 'y' AS c"))


def test_a_stream_checks_lengths_too(
    spark: SparkSession, table: DataFrame, log_name: str, save: Save, tmp_path: Path
) -> None:
    save(table.select("k", "v"))
    source = f"{log_name}-source"
    rows = spark.sql("SELECT 2L AS k, 'abcdefg' AS v")
    rows.write.format("ledger").mode("append").save(source)
    stream = spark.readStream.format("ledger").option("startingOffsets", "earliest").load(source)
    query = stream.writeStream.format("ledger").trigger(availableNow=True)
    query = query.option("checkpointLocation", str(tmp_path))
    with pytest.raises(Exception, match="column 'v' has at most 5 characters"):
        query.start(log_name).awaitTermination()
    assert load(spark, log_name).count() == 1


def test_a_default_is_never_a_null(
    spark: SparkSession, table: DataFrame, log_name: str, save: Save
) -> None:
    save(table.select("k", "d"))
    with pytest.raises(Exception, match=r"column 'd' of log .* has the default 41 \+ 1"):
        save(spark.sql("SELECT 2L AS k"))
    save(spark.sql("SELECT 2L AS k, CAST(NULL AS INT) AS d"))
    assert rows_of(load(spark, log_name)) == [(1, 42), (2, None)]


def test_the_comment_of_a_log(
    spark: SparkSession, log_name: str, save: Save, client: BlockingClient
) -> None:
    save(spark.range(1), logComment="of days")
    save(spark.range(1, 2))
    assert comment_of(BlockingLogs(client).open(log_name).state().schema or b"") == "of days"
    assert load(spark, log_name).count() == 2
    with pytest.raises(Exception, match="applies to new logs"):
        save(spark.range(1), logComment="other")
