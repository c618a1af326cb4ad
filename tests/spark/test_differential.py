"""Random predicates on logs and on the same rows in Parquet; `make differential` plays more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.differential.compare import play

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_a_log_gives_the_rows_that_parquet_gives(spark: SparkSession, tmp_path: Path) -> None:
    seen = play(spark, tmp_path, cases=200, seed=1)
    assert seen.cases == 200
    assert seen.passing > 200
