"""Names of columns in another case, under both values of `spark.sql.caseSensitive`."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.spark.frames import load, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    Save = Callable[..., None]

ROWS = "SELECT id AS k, named_struct('a', id, 'b', 'x') AS s FROM range(3)"


@contextmanager
def case_sensitive(spark: SparkSession) -> Iterator[None]:
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        yield
    finally:
        spark.conf.set("spark.sql.caseSensitive", "false")


def test_a_schema_in_another_case_reads_the_column_as_parquet_does(
    spark: SparkSession, log_name: str, save: Save, tmp_path: Path
) -> None:
    rows = spark.sql(ROWS)
    save(rows)
    rows.write.parquet(str(tmp_path / "parquet"))
    schema = "S struct<B: string, A: long>, K long"
    got = spark.read.format("ledger").schema(schema).load(log_name)
    parquet = spark.read.schema(schema).parquet(str(tmp_path / "parquet"))
    assert got.columns == ["S", "K"]
    assert rows_of(got) == rows_of(parquet)
    assert len(set(rows_of(got.select("K")))) == 3


def test_a_case_sensitive_query_does_not_take_another_name(
    spark: SparkSession, log_name: str, save: Save
) -> None:
    save(spark.sql(ROWS))
    with case_sensitive(spark):
        for schema in ("K long", "s struct<A: long>"):
            frame = spark.read.format("ledger").schema(schema).load(log_name)
            with pytest.raises(Exception, match="distinguishes upper and lower case in names"):
                frame.collect()
        assert spark.read.format("ledger").schema("k long").load(log_name).count() == 3


@pytest.mark.parametrize("schema", ["k long, z long", "s struct<a: long, z: long>"])
def test_a_column_that_no_log_has_is_an_error(
    schema: str, spark: SparkSession, log_name: str, save: Save
) -> None:
    save(spark.sql(ROWS))
    frame = spark.read.format("ledger").schema(schema).load(log_name)
    with pytest.raises(Exception, match=r"has a column '(s\.)?z'\. Columns are k, s"):
        frame.collect()


def test_a_column_that_one_log_of_several_has_is_read(
    spark: SparkSession, log_name: str, save: Save
) -> None:
    save(spark.sql("SELECT 1L AS k"))
    other = spark.sql("SELECT 2L AS K, 3L AS z")
    other.write.format("ledger").mode("append").save(f"{log_name}-2")
    frame = load(spark, f"{log_name},{log_name}-2")
    assert frame.columns == ["k", "z"]
    assert rows_of(frame) == [(1, None), (2, 3)]
    chosen = spark.read.format("ledger").schema("Z long").load(f"{log_name},{log_name}-2")
    assert rows_of(chosen) == [(3,), (None,)]


def test_a_log_without_columns_may_get_any(
    spark: SparkSession, log_name: str, client: object
) -> None:
    from ledgerlog_spark.log.blocking.logs import BlockingLogs

    BlockingLogs(client).create(log_name)  # type: ignore[arg-type]
    assert spark.read.format("ledger").schema("z long").load(log_name).count() == 0


def test_metadata_columns_are_found_in_any_case(
    spark: SparkSession, log_name: str, save: Save
) -> None:
    save(spark.sql(ROWS))
    reader = spark.read.format("ledger").option("includeMetadata", "true")
    assert rows_of(reader.schema("_OFFSET long, K long").load(log_name)) == [(0, 0), (1, 1), (2, 2)]
    with pytest.raises(Exception, match="has a column '_offset'"):
        spark.read.format("ledger").schema("_offset long").load(log_name).collect()


def test_the_option_columns_takes_names_in_any_case(
    spark: SparkSession, log_name: str, save: Save
) -> None:
    save(spark.sql(ROWS))
    assert load(spark, log_name, columns="K,k").columns == ["k"]


def test_rows_in_another_case_are_of_the_same_column(
    spark: SparkSession, log_name: str, save: Save
) -> None:
    save(spark.sql(ROWS))
    added = "SELECT 9L AS K, named_struct('B', 'y', 'A', 9L) AS S, 1 AS more"
    save(spark.sql(added), mergeSchema="true")
    got = load(spark, log_name)
    assert got.columns == ["k", "s", "more"]
    assert [tuple(row) for row in got.where("k = 9").select("k", "s.a", "s.b", "more").collect()] \
        == [(9, 9, "y", 1)]  # fmt: skip


def test_a_case_sensitive_session_writes_no_column_under_another_name(
    spark: SparkSession, log_name: str, save: Save
) -> None:
    save(spark.sql(ROWS))
    with case_sensitive(spark), pytest.raises(Exception, match="upper and lower case in names"):
        save(spark.sql("SELECT 9L AS K"), mergeSchema="true")
    assert load(spark, log_name).count() == 3


def test_columns_that_differ_in_case_alone_are_refused_at_every_level(
    spark: SparkSession, log_name: str, save: Save
) -> None:
    with case_sensitive(spark):
        for doubles in ("1 AS k, 2 AS K", "array(named_struct('a', 1, 'A', 2)) AS k"):
            with pytest.raises(Exception, match="have the same name to Spark"):
                save(spark.sql(f"SELECT {doubles}"))
        with pytest.raises(Exception, match="LogNotFoundError"):
            load(spark, log_name)


def test_a_stream_that_begins_with_a_column_that_no_log_has_stops(
    spark: SparkSession, log_name: str, save: Save, tmp_path: Path
) -> None:
    save(spark.sql(ROWS))

    def run(schema: str) -> None:
        stream = spark.readStream.format("ledger").schema(schema)
        frame = stream.option("startingOffsets", "earliest").load(log_name)
        writing = frame.writeStream.format("memory").queryName("names").trigger(availableNow=True)
        writing.option("checkpointLocation", str(tmp_path / schema)).start().awaitTermination()

    run("K long")
    assert rows_of(spark.table("names")) == [(0,), (1,), (2,)]
    with pytest.raises(Exception, match="has a column 'z'"):
        run("z long")
