"""Compares the engines of `format("ledger")`, Parquet and Kafka on the same rows, in one session.

`spark_read --engines shim,python,parquet,kafka-noop` calls this module. Each round runs one query
on each engine, in turn. So other programs on the machine, and a JVM that is not warm yet, affect
all engines equally. Kafka runs only the queries of `KAFKA_QUERIES`, because Kafka stores no
columns: Spark's connector delivers each row as bytes, and the query does not parse these bytes.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import peer_kafka
from benchmarks.machine import median
from benchmarks.report import Figure
from benchmarks.spark_session import WARM_UP_ROUNDS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ENGINES = ("shim", "python", "parquet", "kafka-noop")
SETTING = "spark.ledgerlog.engine"

Query = Callable[["DataFrame"], object]
QUERIES: Mapping[str, Query] = {
    "all columns": lambda frame: frame.write.format("noop").mode("overwrite").save(),
    "sum(a)": lambda frame: frame.selectExpr("sum(a)").collect(),
    "count(*)": lambda frame: frame.count(),
    "limit(1)": lambda frame: frame.limit(1).collect(),
    "min, max": lambda frame: frame.selectExpr("min(a)", "max(a)").collect(),
    "0.1 % of the rows": lambda frame: frame.where("a < 10000").count(),
}
GOALS = {
    ("all columns", "parquet"): 1.2,
    ("all columns", "python"): 2.0,
    ("sum(a)", "parquet"): 0.8,
    ("sum(a)", "python"): 4.0,
    ("limit(1)", "python"): 4.0,
}
"""Goal for each query and other engine: minimum speed of the JVM engine, divided by the speed of
the other engine."""

KAFKA_QUERIES = ("all columns", "count(*)", "limit(1)")

TIMED = ("limit(1)", "min, max", "0.1 % of the rows")
"""Queries that read few rows or no rows. Their times are compared instead of their rates."""


def engine_names(text: str) -> tuple[str, ...]:
    """Parse names of engines, separated by commas."""
    names = tuple(name.strip() for name in text.split(","))
    if unknown := [name for name in names if name not in ENGINES]:
        raise ValueError(f"engines are {', '.join(ENGINES)}, got {', '.join(unknown)}")
    return names


def compared_engines(
    spark: SparkSession, log: str, rows: int, engines: Sequence[str], rounds: int
) -> list[Figure]:
    """Return rates of all queries on all engines, and ratios of the JVM engine to other engines."""
    with tempfile.TemporaryDirectory() as folder, _kafka(spark, log, engines) as server:
        parquet = str(Path(folder, "rows"))
        if "parquet" in engines:
            _ledger(spark, log, "python").write.parquet(parquet)
        frames: dict[str, Callable[[], DataFrame]] = {
            "shim": lambda: _ledger(spark, log, "jvm"),
            "python": lambda: _ledger(spark, log, "python"),
            "parquet": lambda: spark.read.parquet(parquet),
            "kafka-noop": lambda: peer_kafka.read(spark, server),
        }
        found: list[Figure] = []
        for name, query in QUERIES.items():
            able = [each for each in engines if each != "kafka-noop" or name in KAFKA_QUERIES]
            seconds = _rounds({engine: frames[engine] for engine in able}, query, rounds)
            found += _figures(name, seconds, rows)
    streams = {
        engine: partial(_streamed, spark, log, engine)
        for engine in engines
        if engine in {"shim", "python"}
    }
    return [*found, *_figures("stream", _rounds(streams, _drained_stream, rounds), rows)]


@contextmanager
def _kafka(spark: SparkSession, log: str, engines: Sequence[str]) -> Iterator[str]:
    """If Kafka is one of the engines, run a broker that has the rows of the log."""
    if "kafka-noop" not in engines:
        yield ""
        return
    with peer_kafka.broker(None) as server:
        peer_kafka.write(_ledger(spark, log, "python"), server)
        yield server


def _streamed(spark: SparkSession, log: str, engine: str) -> DataFrame:
    spark.conf.set(SETTING, {"shim": "jvm"}.get(engine, engine))
    try:
        reader = spark.readStream.format("ledger").option("startingOffsets", "earliest")
        return reader.load(log)
    finally:
        spark.conf.unset(SETTING)


def _drained_stream(frame: DataFrame) -> None:
    """Read all rows of the stream in a new query, and drop them in the JVM."""
    with tempfile.TemporaryDirectory() as folder:
        writer = frame.writeStream.format("noop").option("checkpointLocation", folder)
        writer.trigger(availableNow=True).start().awaitTermination()


def _ledger(spark: SparkSession, log: str, engine: str) -> DataFrame:
    spark.conf.set(SETTING, engine)
    try:
        return spark.read.format("ledger").load(log)
    finally:
        spark.conf.unset(SETTING)


def _rounds(
    frames: Mapping[str, Callable[[], DataFrame]], query: Query, rounds: int
) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {engine: [] for engine in frames}
    for number in range(WARM_UP_ROUNDS + rounds):
        for engine, frame in frames.items():
            begun = time.perf_counter()
            query(frame())
            if number >= WARM_UP_ROUNDS:
                seconds[engine].append(time.perf_counter() - begun)
    return seconds


def _figures(name: str, seconds: Mapping[str, list[float]], rows: int) -> list[Figure]:
    found = [
        Figure(f"{name}, {engine}", median(took), "s", tuple(took), lower_is_better=True)
        if name in TIMED
        else Figure(
            f"{name}, {engine}",
            rows / median(took) / 1e6,
            "M rows/s",
            tuple(rows / each / 1e6 for each in took),
        )
        for engine, took in seconds.items()
    ]
    for other in seconds:
        if other != "shim" and "shim" in seconds:
            ratios = [b / a for a, b in zip(seconds["shim"], seconds[other], strict=True)]
            goal = GOALS.get((name, other))
            found.append(
                Figure(f"{name}, shim to {other}", median(ratios), "x", tuple(ratios), goal=goal)
            )
    return found
