"""How many rows/s does a stream with a backlog read, and how many does it copy to a log?

A query with Trigger.AvailableNow reads 5 million rows of (long, long, double, string of 20
characters). All rows are in the log before the query starts. One query writes to a Python sink that
drops the rows. Another query writes to a log with three durable copies. Each round is a new query
with a new checkpoint. The main figure is the rate of the micro-batches, from their planning to
their commit. The script also prints the rate of the whole query, which includes the time in which
Spark starts the query. The limit is the rate of a query from a Python source with rows in memory to
the same sink that drops rows.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ledgerlog_spark as ll
from benchmarks.machine import median
from benchmarks.options import parsed
from benchmarks.report import Figure, show
from benchmarks.spark_session import CORES, cpu_seconds, generated, session
from benchmarks.stream_baselines import StreamFloor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from ledgerlog_spark.local.cluster import Cluster

ROWS = 5_000_000
INPUT = "input"
READ, COPY, FLOOR = "read", "copy", "floor"
GOALS = {READ: 1.5, COPY: 0.8}
WHAT = {READ: "stream into a sink that drops", COPY: "stream from log to log"}


@dataclass
class Side:
    """The measurements of one kind of query, with one value for each round.

    Attributes:
        batches: M rows/s of the micro-batches.
        whole: M rows/s of the whole query, from its start to its end.
        cpu: CPU time of Spark and its workers, in seconds.
    """

    batches: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


def main() -> None:
    """Write the input, then run all queries in turn. The first round only warms up."""
    options = parsed(__doc__)
    scratch = Path(tempfile.mkdtemp(prefix="stream-throughput-", dir=options.directory))
    try:
        with (
            ll.local_cluster(bookies=3, directory=scratch / "cluster") as cluster,
            session() as spark,
        ):
            spark.dataSource.register(StreamFloor)
            generated(spark, ROWS).write.format("ledger").mode("append").save(INPUT)
            sides = {name: Side() for name in (FLOOR, READ, COPY)}
            for number in range(options.rounds + 1):
                for name, side in sides.items():
                    run(
                        spark, cluster, name, scratch / f"{name}-{number}", side if number else None
                    )
    finally:
        shutil.rmtree(scratch)
    show("stream_throughput", list(figures(sides)), as_json=options.json)


def run(
    spark: SparkSession, cluster: Cluster, name: str, checkpoint: Path, side: Side | None
) -> None:
    """Run one query from its start to its end, and add its figures to `side`."""
    if name == FLOOR:
        shape = {"batches": 1, "rows": ROWS, "partitions": CORES}
        frame = spark.readStream.format("benchmark_floor").options(**shape).load()
    else:
        reader = spark.readStream.format("ledger").option("startingOffsets", "earliest")
        frame = reader.load(INPUT)
    writer: Any = frame.writeStream.option("checkpointLocation", str(checkpoint))
    writer = writer.trigger(availableNow=True)
    before, begun = cpu_seconds(cluster)[0], time.perf_counter()
    if name == COPY:
        query = writer.format("ledger").start(checkpoint.name)
    else:
        query = writer.format("benchmark_floor").start()
    query.awaitTermination()
    seconds = time.perf_counter() - begun
    took = [p["durationMs"]["triggerExecution"] for p in query.recentProgress if p["numInputRows"]]
    rows = sum(p["numInputRows"] for p in query.recentProgress)
    if rows != ROWS:
        raise SystemExit(f"{name}: {rows} rows instead of {ROWS}")
    if side is not None:
        side.batches.append(ROWS / sum(took) / 1e3)
        side.whole.append(ROWS / seconds / 1e6)
        side.cpu.append(cpu_seconds(cluster)[0] - before)


def figures(sides: dict[str, Side]) -> Iterator[Figure]:
    """Yield the figures of both kinds of query. Their limit is the rate of the source in memory."""
    floor = sides[FLOOR]
    for name, goal in GOALS.items():
        side = sides[name]
        yield Figure(WHAT[name], median(side.batches), "M rows/s", tuple(side.batches), goal=goal,
                     limit=median(floor.batches), limit_of="source in memory, dropped")  # fmt: skip
        yield Figure("the whole query", median(side.whole), "M rows/s", tuple(side.whole),
                     limit=median(floor.whole), limit_of="source in memory, dropped")  # fmt: skip
        yield Figure("CPU of Spark and its workers", median(side.cpu), "s", tuple(side.cpu),
                     limit=median(floor.cpu), limit_of="source in memory, dropped")  # fmt: skip


if __name__ == "__main__":
    main()
