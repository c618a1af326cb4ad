"""Random predicates on logs and on the same rows in Parquet; `make differential` runs more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.differential.compare import play
from tests.differential.wide import play_wide

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_a_log_gives_the_rows_that_parquet_gives(spark: SparkSession, tmp_path: Path) -> None:
    seen = play(spark, tmp_path, cases=120, seed=1)
    assert seen.cases == 120
    assert seen.passing > 120


def test_filters_that_are_read_first_give_the_same_rows(spark: SparkSession, engine: str) -> None:
    spark.conf.set("spark.sql.timeType.enabled", "true")
    try:
        seen = play_wide(spark, cases=60, seed=1)
    finally:
        spark.conf.unset("spark.sql.timeType.enabled")
    assert seen.passing > 600
    assert (seen.filtered > 10) is (engine == "jvm")
