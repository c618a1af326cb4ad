"""A separate Spark that copies the numbers to a log, and uses no Python worker twice.

`python -m tests.spark.stream_process URI LOG DIRECTORY`
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

import ledgerlog_spark as ll
from tests.spark.stream_sources import Numbers

if TYPE_CHECKING:
    from collections.abc import Mapping


def session(uri: str, master: str, settings: Mapping[str, str]) -> SparkSession:
    """A session for one query, with the settings of all tests of this kind."""
    builder = SparkSession.builder.master(master)
    ll.configure(builder, uri)
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.shuffle.partitions": "2",
        "spark.python.authenticate.socketTimeout": "120s",
        **settings,
    }.items():
        builder = builder.config(key, value)
    return ll.configure(builder.getOrCreate(), uri)


def main(uri: str, log: str, directory: str) -> None:
    spark = session(uri, "local[2,4]", {"spark.python.worker.reuse": "false"})
    numbers = Numbers(spark, Path(directory))
    for _ in range(3):
        numbers.add(200)
    numbers.copy_to(log, numbers.frame().repartition(2))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
