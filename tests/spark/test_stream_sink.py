"""The streaming sink through Spark, on real bookies: what is visible, and how often."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.spark.frames import load
from tests.spark.stream_sources import Numbers

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_rows_of_all_batches_are_there_once_and_in_order(
    spark: SparkSession, log_name: str, tmp_path: Path
) -> None:
    numbers = Numbers(spark, tmp_path)
    for _ in range(3):
        numbers.add(100)
        numbers.copy_to(log_name)
    rows = load(spark, log_name, includeMetadata="true").orderBy("_offset").collect()
    assert [row["value"] for row in rows] == list(range(300))
