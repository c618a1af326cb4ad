"""The Spark session that benchmarks share, and what it cost in CPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psutil

import ledgerlog_spark as ll

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CORES = 2
COLUMNS = (
    "id AS a",
    "id * 7 AS b",
    "id / 3.0D AS c",
    "lpad(cast(id AS string), 20, 'x') AS d",
)


@contextmanager
def session() -> Iterator[SparkSession]:
    """local[2], configured as `ledgerlog_spark.configure` recommends."""
    from pyspark.sql import SparkSession

    builder = (
        SparkSession.builder.master(f"local[{CORES}]")
        .appName("ledgerlog benchmarks")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .config("spark.sql.catalogImplementation", "in-memory")
    )
    ll.configure(builder)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    ll.configure(spark)
    try:
        yield spark
    finally:
        spark.stop()


def generated(spark: SparkSession, rows: int) -> DataFrame:
    """`rows` rows of (long, long, double, string of 20) in two partitions."""
    return spark.range(0, rows, 1, CORES).selectExpr(*COLUMNS)


def cpu_seconds() -> float:
    """CPU time so far of this process and every live one below it: JVM, Python workers."""
    total = 0.0
    me = psutil.Process()
    for process in (me, *me.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total
