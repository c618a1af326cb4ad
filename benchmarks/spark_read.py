"""How fast does Spark read a log through the Python source?

The log has 10 million rows of (long, long, double, string of 20 characters). The limit is the rate
of a Python source that yields the same batches from memory. The goal is 0.78 times this rate. With
`--engines shim,python,parquet,kafka-noop`, the script compares queries on these engines instead:
the JVM engine (`shim`), the Python source, Parquet files of the same rows, and Spark's Kafka
connector, with a broker that stores each row as text. `kafka-noop` needs Maven.
"""

from __future__ import annotations

import sys

from pyspark.sql import DataFrame

import ledgerlog_spark as ll
from benchmarks import peer_kafka
from benchmarks.machine import median
from benchmarks.options import parsed
from benchmarks.report import Figure, show
from benchmarks.spark_baselines import MemorySource
from benchmarks.spark_engines import SETTING, compared_engines, engine_names
from benchmarks.spark_session import compared, figures, generated, session

ROWS = 10_000_000
LOG = "read"


def drained(frame: DataFrame) -> None:
    """Read all rows with all columns, and drop the rows in the JVM."""
    frame.write.format("noop").mode("overwrite").save()


def batch_rows(uri: str) -> int:
    """Return the average number of rows in an entry of the log."""
    from ledgerlog_spark.log.blocking.logs import BlockingLogs

    with ll.connect(uri) as client:
        items = BlockingLogs(client).open(LOG).snapshot().items
    entries = sum(item.last_entry_id - item.first_entry_id for item in items)
    return max(1, ROWS // max(1, entries))


def main() -> None:
    """Measure the source of ledgerlog and the source in memory in turn, in one session."""
    options = parsed(__doc__, engines=engine_names)
    jars = peer_kafka.connector_jars() if "kafka-noop" in (options.engines or ()) else ""
    with (
        ll.local_cluster(bookies=3, directory=options.directory) as cluster,
        session(jars) as spark,
    ):
        spark.dataSource.register(MemorySource)
        generated(spark, ROWS).write.format("ledger").mode("overwrite").save(LOG)
        if options.engines:
            found = compared_engines(spark, LOG, ROWS, options.engines, options.rounds)
            show("spark_read, engines", found, as_json=options.json)
            return
        spark.conf.set(SETTING, "python")
        log = spark.read.format("ledger").load(LOG)
        memory = (
            spark.read.format("benchmark_memory")
            .option("rows", ROWS)
            .option("batchRows", batch_rows(cluster.metadata_service_uri))
            .option("partitions", log.rdd.getNumPartitions())
            .load()
        )
        ours, limit = compared(
            lambda: drained(log),
            lambda: drained(memory),
            rows=ROWS,
            rounds=options.rounds,
            cluster=cluster,
        )
        print(f"{log.rdd.getNumPartitions()} tasks each", file=sys.stderr)
    what = "read 10 M rows, all columns"
    rate = Figure(what, median(ours.rates), "M rows/s", tuple(ours.rates),
                  limit=median(limit.rates), limit_of="source in memory")  # fmt: skip
    shares = figures("reading", ours, limit, "source in memory", share=0.78)
    show("spark_read", [rate, *shares], as_json=options.json)


if __name__ == "__main__":
    main()
