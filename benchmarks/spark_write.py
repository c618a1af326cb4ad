"""How fast does Spark write rows to a log of three copies, durable before the commit?

5 million rows of (long, long, double, string of 20). The limit is Spark writing the same rows, with
the same settings and batch size, to a Python sink that drops them; the goal is 0.6 of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import ledgerlog_spark as ll
from benchmarks.machine import median
from benchmarks.options import parsed
from benchmarks.report import Figure, show
from benchmarks.spark_baselines import DroppingSink
from benchmarks.spark_session import cpu_seconds, generated, session

ROWS = 5_000_000


def timed(write: Callable[[], None], rounds: int) -> tuple[list[float], float]:
    """M rows/s of each round after one that warms up, and CPU seconds of a round."""
    write()
    found, before = [], cpu_seconds()
    for _ in range(rounds):
        begun = time.perf_counter()
        write()
        found.append(ROWS / (time.perf_counter() - begun) / 1e6)
    return found, (cpu_seconds() - before) / rounds


def main() -> None:
    """Measure ours and the dropping sink, one after the other, in one session."""
    options = parsed(__doc__)
    with ll.local_cluster(bookies=3, directory=options.directory), session() as spark:
        spark.dataSource.register(DroppingSink)
        rows = generated(spark, ROWS)
        ours, ours_cpu = timed(
            lambda: rows.write.format("ledger").mode("overwrite").save("written"), options.rounds
        )
        drop, drop_cpu = timed(
            lambda: rows.write.format("benchmark_drop").mode("append").save(), options.rounds
        )
    figures = [
        Figure("write 5 M rows, three durable copies", median(ours), "M rows/s", tuple(ours),
               goal=1.2, limit=median(drop), limit_of="sink that drops"),
        Figure("share of the dropping sink", median(ours) / median(drop), "x",
               tuple(a / b for a, b in zip(ours, drop, strict=True)), goal=0.6),
        Figure("CPU of Spark and its workers", ours_cpu, "s", (ours_cpu,),
               limit=drop_cpu, limit_of="sink that drops"),
    ]  # fmt: skip
    show("spark_write", figures, as_json=options.json)


if __name__ == "__main__":
    main()
