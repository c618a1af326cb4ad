"""How fast does Spark write rows to a log with three copies that are durable before the commit?

The job writes 5 million rows of (long, long, double, string of 20 characters). The limit is the
rate at which Spark writes the same rows, with the same settings and batch size, to a Python sink
that drops them. The goal is 0.6 times this rate.
"""

from __future__ import annotations

import ledgerlog_spark as ll
from benchmarks.machine import median
from benchmarks.options import parsed
from benchmarks.report import Figure, show
from benchmarks.spark_baselines import DroppingSink
from benchmarks.spark_session import compared, figures, generated, session

ROWS = 5_000_000


def main() -> None:
    """Measure the sink of ledgerlog and the sink that drops rows in turn, in one session."""
    options = parsed(__doc__)
    with ll.local_cluster(bookies=3, directory=options.directory) as cluster, session() as spark:
        spark.dataSource.register(DroppingSink)
        rows = generated(spark, ROWS)
        ours, drop = compared(
            lambda: rows.write.format("ledger").mode("overwrite").save("written"),
            lambda: rows.write.format("benchmark_drop").mode("append").save(),
            rows=ROWS,
            rounds=options.rounds,
            cluster=cluster,
        )
    what = "write 5 M rows, three durable copies"
    rate = Figure(what, median(ours.rates), "M rows/s", tuple(ours.rates), goal=1.2,
                  limit=median(drop.rates), limit_of="sink that drops")  # fmt: skip
    shares = figures("writing", ours, drop, "sink that drops", share=0.6)
    show("spark_write", [rate, *shares], as_json=options.json)


if __name__ == "__main__":
    main()
