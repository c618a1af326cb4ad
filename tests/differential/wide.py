"""Runs queries over rows with a large column, which a filter may leave unread in most entries.

An entry has few rows, in random order, so statistics leave out few entries. The rows that pass are
compared with the same conditions as columns of a scan without a filter.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from tests.differential.predicates import random_predicate
from tests.differential.worlds import random_world
from tests.spark.scan_metrics import collected

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LARGE_BYTES = 25_000
ENTRY_BYTES = 5 * LARGE_BYTES
COPIES = 3
"""Number of copies of each row."""
PREDICATES_MAX = 50
"""Maximum number of predicates for one world."""


@dataclass
class SeenWide:
    """The numbers of compared cases and rows, and of entries without their large column."""

    cases: int = 0
    passing: int = 0
    filtered: int = 0

    def __str__(self) -> str:
        return (
            f"{self.cases:,} predicates, {self.passing:,} rows passed, {self.filtered:,} entries "
            "were left out by their filter's columns, 0 differences"
        )


def play_wide(spark: SparkSession, *, cases: int, seed: int) -> SeenWide:
    """Compare `cases` random predicates.

    Raises:
        AssertionError: A filter returned wrong rows. The message has the seed, the world and the
            predicate.
    """
    seen = SeenWide()
    worlds = 0
    while seen.cases < cases:
        dice = Random(f"wide {seed}/{worlds}")
        world = random_world(dice)
        predicates = [
            random_predicate(dice, world) for _ in range(min(PREDICATES_MAX, cases - seen.cases))
        ]
        logs = []
        for log in world.logs:
            logs.append(f"wide-{seed}-{worlds}-{uuid.uuid4().hex[:8]}")
            rows = spark.createDataFrame(log.table).withColumn(
                "copy", f.explode(f.sequence(f.lit(1), f.lit(COPIES)))
            )
            mixed = rows.coalesce(1).sortWithinPartitions(f.xxhash64("id", "copy"))
            large = mixed.withColumn("large", f.expr(f"repeat('x', {LARGE_BYTES})"))
            large.drop("copy").write.format("ledger").mode("append").options(
                compression="none", targetEntryBytes=str(ENTRY_BYTES)
            ).save(logs[-1])
        frame = spark.read.format("ledger").load(",".join(logs))
        columns = [f.expr(text).alias(f"p{case}") for case, text in enumerate(predicates)]
        expected = frame.select("id", *columns).collect()
        for case, text in enumerate(predicates):
            rows, metrics = collected(frame.where(text).select("id", f.length("large")))
            ids = [row["id"] for row in expected if row[f"p{case}"]]
            assert sorted(rows) == sorted((each, LARGE_BYTES) for each in ids), f"{logs}, {text}"
            seen.passing += len(ids)
            seen.filtered += metrics.get("entriesFiltered", 0)
        seen.cases += len(predicates)
        worlds += 1
    return seen
