"""Runs each query of TPC-H over logs and over Parquet in one session, and compares the rows."""

from __future__ import annotations

import json
import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

TABLES = ("customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier")
LOGS = "ledger.tpch"
FILES = "tpch_files"
MEASURED = ("logs", "Parquet")


@dataclass(frozen=True, slots=True)
class Query:
    """The median seconds of one query by source, and whether both sources give the same rows."""

    number: int
    rows: int
    is_equal: bool
    seconds: dict[str, float]


def load(spark: SparkSession, folder: Path) -> float:
    """Create a log of each table with CREATE TABLE .. AS SELECT, and return the seconds."""
    spark.sql(f"CREATE DATABASE IF NOT EXISTS {FILES}")
    begun = time.perf_counter()
    for table in TABLES:
        path = folder / f"{table}.parquet"
        spark.sql(f"CREATE TABLE {FILES}.{table} USING parquet LOCATION '{path}'")
        spark.sql(f"CREATE TABLE {LOGS}.{table} AS SELECT * FROM {FILES}.{table}")
    return time.perf_counter() - begun


def compare(spark: SparkSession, folder: Path, *, rounds: int) -> list[Query]:
    """Run each query over logs and over Parquet in turn."""
    texts = json.loads((folder / "queries.json").read_text())
    return [_query(spark, number, text, rounds) for number, text in enumerate(texts, 1)]


def _query(spark: SparkSession, number: int, text: str, rounds: int) -> Query:
    seconds: dict[str, list[float]] = {name: [] for name in MEASURED}
    rows: dict[str, list[Any]] = {}
    for _ in range(rounds):
        for name, namespace in zip(MEASURED, (LOGS, f"spark_catalog.{FILES}"), strict=True):
            spark.sql(f"USE {namespace}")
            begun = time.perf_counter()
            rows[name] = sorted(
                map(tuple, spark.sql(text.rstrip().rstrip(";")).collect()), key=repr
            )
            seconds[name].append(time.perf_counter() - begun)
    logs, files = rows.values()
    medians = {name: statistics.median(each) for name, each in seconds.items()}
    return Query(number, len(logs), logs == files, medians)
