"""Batch writes and reads through Spark, on real bookies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.spark.frames import load, same_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession


def test_rows_come_back_as_they_were_written(
    spark: SparkSession, log_name: str, save: Callable[..., None]
) -> None:
    frame = spark.range(0, 100_000, 1, 3).selectExpr(
        "id", "id % 7 AS day", "id / 3.0 AS ratio", "concat('row ', id) AS text"
    )
    save(frame)
    same_rows(load(spark, log_name), frame)
