"""Short functions for the Spark tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def load(spark: SparkSession, log: str, **options: str) -> DataFrame:
    return spark.read.format("ledger").options(**options).load(log)


def rows_of(frame: DataFrame) -> list[Any]:
    """All rows as tuples, sorted."""
    return sorted(map(tuple, frame.collect()), key=repr)


def same_rows(got: DataFrame, expected: DataFrame) -> None:
    assert got.columns == expected.columns
    assert rows_of(got) == rows_of(expected)


def make_active(spark: SparkSession) -> None:
    """Allow writes in this thread: Spark finds Python sources in the thread's active session."""
    jvm: Any = spark.sparkContext._jvm
    jvm.SparkSession.setActiveSession(spark._jsparkSession)
