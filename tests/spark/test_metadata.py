"""Metadata of columns, at every level, as Parquet keeps it: collations, comments, char and ML."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as f

from tests.spark.frames import load, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    Save = Callable[..., None]

COLLATED = """
    SELECT id, word COLLATE UTF8_LCASE AS c, array(word COLLATE UNICODE_CI) AS l,
           named_struct('x', word COLLATE UTF8_LCASE, 'y', word) AS s,
           map('k', word COLLATE UTF8_LCASE) AS m
    FROM VALUES (0, 'abc'), (1, 'ABC'), (2, 'b'), (3, NULL) AS t(id, word)
"""


def same_as_parquet(spark: SparkSession, frame: DataFrame, log: str, directory: Path) -> DataFrame:
    """The rows from the log, which are the same as the rows from Parquet."""
    frame.write.parquet(str(directory / "parquet"))
    parquet, got = spark.read.parquet(str(directory / "parquet")), load(spark, log)
    assert got.schema.jsonValue() == parquet.schema.jsonValue()
    assert rows_of(got) == rows_of(parquet)
    return got


def test_collations_stay_at_every_level(
    spark: SparkSession, log_name: str, save: Save, tmp_path: Path
) -> None:
    frame = spark.sql(COLLATED)
    save(frame)
    got = same_as_parquet(spark, frame, log_name, tmp_path)
    assert got.where("c = 'aBc'").count() == 2
    assert got.where("s.x = 'aBc'").count() == 2
    assert got.where("array_contains(l, 'aBc')").count() == 2
    assert got.where("s.y = 'aBc'").count() == 0


def test_rows_without_the_collation_take_that_of_the_log(
    spark: SparkSession, log_name: str, save: Save
) -> None:
    save(spark.sql(COLLATED).select("id", "c"))
    save(spark.sql("SELECT 9 AS id, 'aBC' AS c"))
    assert load(spark, log_name).where("c = 'Abc'").count() == 3


def test_logs_of_two_collations_are_not_read_together(
    spark: SparkSession, log_name: str, save: Save
) -> None:
    save(spark.sql("SELECT 'a' COLLATE UTF8_LCASE AS c"))
    spark.sql("SELECT 'a' AS c").write.format("ledger").mode("append").save(f"{log_name}-plain")
    with pytest.raises(Exception, match=r"'c' is a string without a collation in log .*UTF8_LCASE"):
        load(spark, f"{log_name},{log_name}-plain")


def test_comments_char_and_ml_attributes_stay(
    spark: SparkSession, log_name: str, save: Save, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    columns = "c CHAR(4), v VARCHAR(3) COMMENT 'short'"
    spark.sql(f"CREATE TABLE of_char ({columns}) USING parquet LOCATION '{tmp_path}/of_char'")
    spark.sql("INSERT INTO of_char VALUES ('ab', 'abc')")
    ml = {"ml_attr": {"type": "nominal", "vals": ["a", "b"], "num": 2}, "deep": {"at": [1.5, 2.5]}}
    request.addfinalizer(lambda: spark.sql("DROP TABLE of_char"))
    frame = spark.table("of_char").withColumn("k", f.lit(1).alias("k", metadata=ml))
    save(frame)
    got = same_as_parquet(spark, frame, log_name, tmp_path)
    assert got.schema["k"].metadata == ml
    parquet = spark.read.parquet(str(tmp_path / "parquet"))
    for condition in ("c = 'ab'", "c = 'ab  '", "c IN ('ab', 'x')", "length(c) = 4"):
        assert got.where(condition).count() == parquet.where(condition).count(), condition
    assert got.schema["v"].metadata["comment"] == "short"


def test_a_watermark_is_not_stored(spark: SparkSession, log_name: str, save: Save) -> None:
    save(spark.sql("SELECT TIMESTAMP'2026-01-01' AS at").withWatermark("at", "1 minute"))
    assert load(spark, log_name).schema["at"].metadata == {}


def test_text_that_is_not_utf_8_is_stored_as_parquet_stores_it(
    spark: SparkSession, log_name: str, save: Save, tmp_path: Path
) -> None:
    frame = spark.sql("""
        SELECT id, CAST(b AS STRING) AS t, array(CAST(b AS STRING)) AS l
        FROM VALUES (0, X'FF41'), (1, X'C3'), (2, X'61'), (3, NULL) AS v(id, b)
    """)
    save(frame)
    frame.write.parquet(str(tmp_path / "parquet"))
    hexed = ("id", "hex(CAST(t AS BINARY))", "hex(CAST(l[0] AS BINARY))")
    got, parquet = load(spark, log_name), spark.read.parquet(str(tmp_path / "parquet"))
    assert rows_of(got.selectExpr(*hexed)) == rows_of(parquet.selectExpr(*hexed))
