"""Writes one world to logs and to Parquet, and runs the same queries on both in one session."""

from __future__ import annotations

import uuid
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from random import Random
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from tests.differential.predicates import random_predicate
from tests.differential.worlds import LogRows, World, random_world

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
SETTINGS = {
    "spark.sql.timeType.enabled": "true",
    # Only rows are compared: no class is compiled for each predicate, and Parquet skips nothing
    # (its filter `c = -0.0` leaves out rows of 0.0).
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.parquet.filterPushdown": "false",
}
PREDICATES_MAX = 100
"""Maximum number of predicates for one world."""
SCANS_MAX = 20
"""Maximum number of scans of one DataFrame in one query."""
ALONE = 0.25
"""Part of the predicates that have a separate scan without pushdown too."""


@dataclass
class Seen:
    """The numbers of compared cases, scans and rows.

    Attributes:
        cases: Number of predicates, each with and without pushdown.
        worlds: Number of schemas.
        scans: Number of scans of logs.
        passing: Number of rows that passed, in all cases.
    """

    cases: int = 0
    worlds: int = 0
    scans: int = 0
    passing: int = 0

    def __str__(self) -> str:
        return (
            f"{self.cases:,} predicates over {self.worlds} schemas, {self.scans:,} scans with and "
            f"without pushdown, {self.passing:,} rows passed, 0 differences"
        )


def play(spark: SparkSession, directory: Path, *, cases: int, seed: int) -> Seen:
    """Compare `cases` random predicates.

    Raises:
        AssertionError: A log returned other rows than Parquet. The message has the seed, the world
            and the predicate.
    """
    seen = Seen()
    with _settings(spark, SETTINGS):
        _play(spark, directory, cases, seed, seen)
    return seen


def _play(spark: SparkSession, directory: Path, cases: int, seed: int, seen: Seen) -> None:
    while seen.cases < cases:
        dice = Random(f"{seed}/{seen.worlds}")
        world = random_world(dice)
        count = min(PREDICATES_MAX, cases - seen.cases)
        predicates = [random_predicate(dice, world) for _ in range(count)]
        # A second run in the same cluster, such as that of another engine, has logs of its own.
        name = f"differential-{seed}-{seen.worlds}-{uuid.uuid4().hex[:8]}"
        logs = _written(spark, world, name, directory / name)
        parquet = spark.read.schema(", ".join(map(" ".join, world.sql.items()))).parquet(
            str(directory / name)
        )
        _compare(spark, ",".join(logs), parquet, predicates, dice, seen)
        seen.worlds += 1
        seen.cases += count


def _written(spark: SparkSession, world: World, name: str, directory: Path) -> list[str]:
    """Names of the logs; the same rows are in `directory`, in the types of the world."""
    names = []
    for number, log in enumerate(world.logs):
        frame = spark.createDataFrame(log.table)
        frame.write.format("ledger").mode("append").save(f"{name}-{number}")
        _widened(frame, world, log).write.mode("append").parquet(str(directory))
        names.append(f"{name}-{number}")
    return names


def _widened(frame: DataFrame, world: World, log: LogRows) -> DataFrame:
    return frame.select(*(
        f.expr(f"CAST({'NULL' if name in log.missing else name} AS {sql})").alias(name)
        for name, sql in world.sql.items()
    ))  # fmt: skip


def _compare(
    spark: SparkSession,
    logs: str,
    parquet: DataFrame,
    predicates: Sequence[str],
    dice: Random,
    seen: Seen,
) -> None:
    everything = {row["id"]: repr(row) for row in parquet.collect()}
    expected = _passing_at_once(parquet, predicates)
    for pushdown in dice.sample(("true", "false"), 2):
        with _settings(spark, {PUSHDOWN: pushdown}):
            frame = spark.read.format("ledger").load(logs)
            where = f"logs {logs}, pushdown {pushdown}"
            alone = len(predicates)
            if pushdown == "false":
                assert _passing_at_once(frame, predicates) == expected, where
                alone = int(alone * ALONE)
            for some in _queries(dice, len(predicates), alone):
                got = _passing(frame, predicates, some)
                seen.scans += len(some)
                for case, ids in got.items():
                    assert ids == expected[case], f"{where}, {predicates[case]}"
                    seen.passing += len(ids)
                if dice.random() < 0.5:
                    # The rows of a query without filters after a query with filters.
                    seen.scans += 1
                    found = sorted(row["id"] for row in frame.select("id").collect())
                    assert found == sorted(everything), where
            assert {row["id"]: repr(row) for row in frame.collect()} == everything, where


def _passing_at_once(frame: DataFrame, predicates: Sequence[str]) -> list[list[int]]:
    """Ids of the rows that pass each predicate, from one scan without a filter."""
    columns = [f.expr(text).alias(f"p{case}") for case, text in enumerate(predicates)]
    rows = frame.select("id", *columns).collect()
    return [sorted(row[0] for row in rows if row[case]) for case in range(1, len(columns) + 1)]


def _queries(dice: Random, count: int, chosen: int) -> Iterator[list[int]]:
    """Some or all cases in random order, alone or several in one query."""
    left = dice.sample(range(count), chosen)
    while left:
        size = dice.choice((1, 2, SCANS_MAX, SCANS_MAX))
        yield left[:size]
        left = left[size:]


def _passing(
    frame: DataFrame, predicates: Sequence[str], cases: Sequence[int]
) -> dict[int, list[int]]:
    """Ids of the rows that pass each of the cases; one scan of the DataFrame for each."""
    parts = [frame.where(predicates[case]).select(f.lit(case).alias("n"), "id") for case in cases]
    found: dict[int, list[int]] = defaultdict(list, {case: [] for case in cases})
    for row in reduce(lambda one, other: one.unionAll(other), parts).collect():
        found[row["n"]].append(row["id"])
    return {case: sorted(ids) for case, ids in found.items()}


@contextmanager
def _settings(spark: SparkSession, values: dict[str, str]) -> Iterator[None]:
    before = {key: spark.conf.get(key, None) for key in values}
    for key, value in values.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, old in before.items():
            spark.conf.unset(key) if old is None else spark.conf.set(key, old)
