"""The Spark session of the benchmarks, and the measurement of its CPU time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import psutil

import ledgerlog_spark as ll
from benchmarks.machine import median
from benchmarks.report import Figure

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ledgerlog_spark.local.cluster import Cluster

CORES = 2
WARM_UP_ROUNDS = 2
COLUMNS = (
    "id AS a",
    "id * 7 AS b",
    "id / 3.0D AS c",
    "lpad(cast(id AS string), 20, 'x') AS d",
)


@contextmanager
def session(jars: str = "") -> Iterator[SparkSession]:
    """Yield a session on local[2] with the settings of `ledgerlog_spark.configure` and `jars`."""
    from pyspark.sql import SparkSession

    builder = (
        SparkSession.builder.master(f"local[{CORES}]")
        .appName("ledgerlog benchmarks")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .config("spark.python.authenticate.socketTimeout", "120s")  # workers may start slowly
        .config("spark.sql.catalogImplementation", "in-memory")
    )
    if jars:
        builder.config("spark.jars", jars)
    ll.configure(builder)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    ll.configure(spark)
    try:
        yield spark
    finally:
        spark.stop()


def generated(spark: SparkSession, rows: int) -> DataFrame:
    """Return `rows` rows of (long, long, double, string of 20 characters) in two partitions."""
    return spark.range(0, rows, 1, CORES).selectExpr(*COLUMNS)


@dataclass(slots=True)
class Side:
    """The measurements of one of the two compared queries, with one value for each round.

    Attributes:
        rates: M rows/s.
        spark_seconds: CPU time of Spark and its Python workers.
        cluster_seconds: CPU time of the bookies and ZooKeeper in the same round.
    """

    rates: list[float] = field(default_factory=list)
    spark_seconds: list[float] = field(default_factory=list)
    cluster_seconds: list[float] = field(default_factory=list)


def compared(
    ours: Callable[[], None],
    limit: Callable[[], None],
    *,
    rows: int,
    rounds: int,
    cluster: Cluster,
) -> tuple[Side, Side]:
    """Measure both queries in turn, so that other programs and a cold JVM affect both equally.

    The first rounds only warm Spark up. The results do not contain them.
    """
    sides = ours, limit
    found = Side(), Side()
    for number in range(WARM_UP_ROUNDS + rounds):
        for run, side in zip(sides, found, strict=True):
            spark, behind = cpu_seconds(cluster)
            begun = time.perf_counter()
            run()
            seconds = time.perf_counter() - begun
            spark_after, behind_after = cpu_seconds(cluster)
            if number >= WARM_UP_ROUNDS:
                side.rates.append(rows / seconds / 1e6)
                side.spark_seconds.append(spark_after - spark)
                side.cluster_seconds.append(behind_after - behind)
    return found


def figures(what: str, ours: Side, limit: Side, limit_of: str, *, share: float) -> list[Figure]:
    """Return the ratios of both sides in wall time and in CPU time, and the CPU times."""
    wall = [a / b for a, b in zip(ours.rates, limit.rates, strict=True)]
    cpu = [b / a for a, b in zip(ours.spark_seconds, limit.spark_seconds, strict=True)]
    return [
        Figure(f"share of the {limit_of}, {what}", median(wall), "x", tuple(wall), goal=share),
        Figure("the same in CPU of Spark and its workers", median(cpu), "x", tuple(cpu)),
        Figure("CPU of Spark and its workers", median(ours.spark_seconds), "s",
               tuple(ours.spark_seconds), limit=median(limit.spark_seconds), limit_of=limit_of),
        Figure("CPU of bookies and ZooKeeper", median(ours.cluster_seconds), "s",
               tuple(ours.cluster_seconds), limit=median(limit.cluster_seconds),
               limit_of=limit_of),
    ]  # fmt: skip


def cpu_seconds(cluster: Cluster) -> tuple[float, float]:
    """Return the CPU seconds so far of Spark (this process, JVM, workers) and of the cluster."""
    spark, behind = 0.0, 0.0
    members = {member.pid for member in cluster.members.by_id.values()}
    me = psutil.Process()
    for process in (me, *me.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        seconds = times.user + times.system + times.children_user + times.children_system
        if process.pid in members:
            behind += seconds
        else:
            spark += seconds
    return spark, behind
