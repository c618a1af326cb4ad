"""A Spark of two machines that runs a second attempt of a task beside the first one.

`python -m tests.spark.speculation_process URI LOG DIRECTORY`

Spark does not speculate in `local[N]`, and never runs two attempts of a task on one host. So this
program starts a master and two workers, whose hosts are two addresses of this machine. The first
attempt of one task waits until the second has all its rows, so that both finish writing at the same
time.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import SparkConf, SparkContext, TaskContext

from tests.spark.stream_process import session
from tests.spark.stream_sources import Numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

HOSTS = ("127.0.0.1", "127.0.0.2")
EXECUTOR_MEMORY_MB = 512
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.minTaskRuntime": "50ms",
    "spark.speculation.multiplier": "1",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.efficiency.enabled": "false",
}


def machines(directory: Path) -> str:
    """Run a master and its workers in this process's Java, and yield the master's URL."""
    SparkContext._ensure_initialized(conf=SparkConf())
    deploy: Any = SparkContext._jvm.org.apache.spark.deploy
    java: Any = SparkContext._jvm
    settings = java.org.apache.spark.SparkConf(True)
    settings.set("spark.master.rest.enabled", "false")
    settings.set("spark.ui.enabled", "false")
    started = deploy.master.Master.startRpcEnvAndEndpoint(HOSTS[0], 0, 0, settings)
    url = str(started._1().address().toSparkURL())
    urls = SparkContext._gateway.new_array(java.java.lang.String, 1)
    urls[0] = url
    nothing: Any = java.scala.Option.empty()
    for number, host in enumerate(HOSTS):
        deploy.worker.Worker.startRpcEnvAndEndpoint(
            host, 0, 0, 1, EXECUTOR_MEMORY_MB, urls, str(directory / "work"),
            java.scala.Option.apply(number), settings, nothing,
        )  # fmt: skip
    return url


def first_attempt_waits_for_the_second(
    gate: Path, met: Path
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Let the attempts of partition 0 wait for each other. Then `met` exists."""

    def attempt(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        yield from batches
        if context.partitionId() == 0 and context.attemptNumber() == 0:
            gate.read_text()
        elif context.partitionId() == 0:
            gate.write_text("both are here")
            met.touch()

    return attempt


def main(uri: str, log: str, folder: str) -> None:
    directory = Path(folder)
    gate = directory / "gate"
    os.mkfifo(gate)
    spark = session(
        uri,
        machines(directory),
        {
            **SPECULATION,
            "spark.executor.memory": f"{EXECUTOR_MEMORY_MB}m",
            "spark.executor.cores": "1",
            "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
        },
    )
    numbers = Numbers(spark, directory)
    numbers.add(100_000)
    rows = numbers.frame().repartition(2)
    waiting = first_attempt_waits_for_the_second(gate, directory / "met")
    numbers.copy_to(log, rows.mapInArrow(waiting, "value long"), targetEntryBytes="4096")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
