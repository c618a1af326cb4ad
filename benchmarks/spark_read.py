"""How fast does Spark read a log through the Python source?

10 million rows of (long, long, double, string of 20). The limit is a Python source that yields the
same batches from memory; the goal is 0.78 of it.
"""

from __future__ import annotations

import time

from pyspark.sql import DataFrame

import ledgerlog_spark as ll
from benchmarks.machine import median
from benchmarks.options import parsed
from benchmarks.report import Figure, show
from benchmarks.spark_baselines import MemorySource
from benchmarks.spark_session import CORES, cpu_seconds, generated, session

ROWS = 10_000_000
LOG = "read"


def timed(frame: DataFrame, rounds: int) -> tuple[list[float], float]:
    """M rows/s of each round after one that warms up, and CPU seconds of a round."""
    frame.write.format("noop").mode("overwrite").save()
    found, before = [], cpu_seconds()
    for _ in range(rounds):
        begun = time.perf_counter()
        frame.write.format("noop").mode("overwrite").save()
        found.append(ROWS / (time.perf_counter() - begun) / 1e6)
    return found, (cpu_seconds() - before) / rounds


def batch_rows(uri: str) -> int:
    """Rows of an entry of the log, so that the source in memory yields batches of that size."""
    from ledgerlog_spark.log.blocking import BlockingLogs

    with ll.connect(uri) as client:
        items = BlockingLogs(client).open(LOG).snapshot().items
    entries = sum(item.last_entry_id - item.first_entry_id for item in items)
    return max(1, ROWS // max(1, entries))


def main() -> None:
    """Measure ours and the source in memory, one after the other, in one session."""
    options = parsed(__doc__)
    with (
        ll.local_cluster(bookies=3, directory=options.directory) as cluster,
        session() as spark,
    ):
        spark.dataSource.register(MemorySource)
        generated(spark, ROWS).write.format("ledger").mode("overwrite").save(LOG)
        ours, ours_cpu = timed(spark.read.format("ledger").load(LOG), options.rounds)
        memory = (
            spark.read.format("benchmark_memory")
            .option("rows", ROWS)
            .option("batchRows", batch_rows(cluster.metadata_service_uri))
            .option("partitions", CORES)
            .load()
        )
        limit, limit_cpu = timed(memory, options.rounds)
    figures = [
        Figure("read 10 M rows, all columns", median(ours), "M rows/s", tuple(ours),
               limit=median(limit), limit_of="source in memory"),
        Figure("share of the source in memory", median(ours) / median(limit), "x",
               tuple(a / b for a, b in zip(ours, limit, strict=True)), goal=0.78),
        Figure("CPU of Spark and its workers", ours_cpu, "s", (ours_cpu,),
               limit=limit_cpu, limit_of="source in memory"),
    ]  # fmt: skip
    show("spark_read", figures, as_json=options.json)


if __name__ == "__main__":
    main()
