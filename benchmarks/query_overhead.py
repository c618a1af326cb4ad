"""How much time does the JVM engine add to a first query, and the catalog to a statement?

The first figure is the time of the first query in a new session (`sum(a)` of 1 million rows) with
the JVM engine, minus the time of the same query on Parquet files. Each query runs in a process of
its own. The queries on the log and on Parquet alternate. The second figure is the time of a
statement that names a table of the catalog, minus the time of the same query with
`format("ledger")`. These statements alternate in one session that has run queries before.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import ledgerlog_spark as ll
from benchmarks.machine import median
from benchmarks.options import parsed
from benchmarks.report import Figure, show
from benchmarks.spark_engines import SETTING
from benchmarks.spark_session import generated, session

ROWS = 1_000_000
LOG = "overhead"
LEDGER = "ledger"
FIRST_GOAL_SECONDS = 1.5
STATEMENT_GOAL_MS = 50
STATEMENTS = 20
"""Number of statements in a round, because one statement takes only a few tens of milliseconds."""


def first_query(path: str) -> float:
    """Return the seconds of a session's first query.

    If `path` is `LEDGER`, the query reads the log, otherwise the Parquet files at `path`.
    """
    with session() as spark:
        begun = time.perf_counter()
        if path != LEDGER:
            frame = spark.read.parquet(path)
        else:
            spark.conf.set(SETTING, "jvm")
            frame = spark.read.format("ledger").load(LOG)
        frame.selectExpr("sum(a)").collect()
        return time.perf_counter() - begun


def in_a_process(path: str) -> float:
    """Return the result of `first_query`, which runs in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.query_overhead", path],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return float(json.loads(done.stdout.splitlines()[-1]))


def milliseconds(query: Callable[[], object]) -> float:
    """Return the mean time of `STATEMENTS` runs of a query, in ms."""
    begun = time.perf_counter()
    for _ in range(STATEMENTS):
        query()
    return (time.perf_counter() - begun) / STATEMENTS * 1e3


def main() -> None:
    """Write the rows, and measure both figures. The two queries of each figure alternate."""
    options = parsed(__doc__, rounds=5)
    with (
        ll.local_cluster(bookies=3, directory=options.directory),
        tempfile.TemporaryDirectory() as folder,
    ):
        parquet = str(Path(folder, "rows"))
        with session() as spark:
            generated(spark, ROWS).write.format("ledger").mode("overwrite").save(LOG)
            spark.read.format("ledger").load(LOG).write.parquet(parquet)
            by_name: list[float] = []
            by_format: list[float] = []
            spark.conf.set(SETTING, "jvm")
            for number in range(1 + options.rounds):
                one = milliseconds(lambda: spark.sql(f"SELECT sum(a) FROM ledger.{LOG}").collect())
                other = milliseconds(
                    lambda: spark.read.format("ledger").load(LOG).selectExpr("sum(a)").collect()
                )
                if number > 0:  # the first round warms up
                    by_name.append(one)
                    by_format.append(other)
        ours: list[float] = []
        theirs: list[float] = []
        for _ in range(options.rounds):
            ours.append(in_a_process(LEDGER))
            theirs.append(in_a_process(parquet))
    first = [a - b for a, b in zip(ours, theirs, strict=True)]
    named = [a - b for a, b in zip(by_name, by_format, strict=True)]
    show(
        "query_overhead",
        [
            Figure("first query, JVM engine", median(ours), "s", tuple(ours), lower_is_better=True),
            Figure("first query, Parquet", median(theirs), "s", tuple(theirs),
                   lower_is_better=True),
            Figure("first query, JVM engine minus Parquet", median(first), "s", tuple(first),
                   goal=FIRST_GOAL_SECONDS, lower_is_better=True),
            Figure("statement of the catalog", median(by_name), "ms", tuple(by_name),
                   lower_is_better=True),
            Figure('the same with format("ledger")', median(by_format), "ms", tuple(by_format),
                   lower_is_better=True),
            Figure("statement, catalog minus format", median(named), "ms", tuple(named),
                   goal=STATEMENT_GOAL_MS, lower_is_better=True),
        ],
        as_json=options.json,
    )  # fmt: skip


if __name__ == "__main__":
    if len(sys.argv) == 2 and not sys.argv[1].startswith("-"):
        sys.stdout.write(json.dumps(first_query(sys.argv[1])) + "\n")
    else:
        main()
