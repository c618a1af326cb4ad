"""A Spark of its own that copies the numbers to a log and uses no Python worker twice.

`python -m tests.spark.stream_process URI LOG DIRECTORY`
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

import ledgerlog_spark as ll
from tests.spark.stream_sources import Numbers


def main(uri: str, log: str, directory: str) -> None:
    builder = SparkSession.builder.master("local[2,4]")
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.shuffle.partitions": "2",
        "spark.python.worker.reuse": "false",
        "spark.python.authenticate.socketTimeout": "120s",
    }.items():
        builder = builder.config(key, value)
    ll.configure(builder, uri)
    spark = ll.configure(builder.getOrCreate(), uri)
    numbers = Numbers(spark, Path(directory))
    for _ in range(3):
        numbers.add(200)
    numbers.copy_to(log, numbers.frame().repartition(2))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
