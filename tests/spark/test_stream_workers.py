"""The state that tasks of a stream leave when Spark ends them or their Python workers."""

from __future__ import annotations

import contextlib
import os
import select
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from pyspark import TaskContext

from ledgerlog_spark.log.blocking.logs import BlockingLogs
from ledgerlog_spark.log.logs import logs_of
from tests.fixtures.spark_python import DAEMON
from tests.spark.frames import load
from tests.spark.stream_sources import Numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from ledgerlog_spark.client.blocking.client import BlockingClient
    from ledgerlog_spark.log.blocking.logs import BlockingLog

PATIENCE_SECONDS = 120
CLEAN_UP = "org$apache$spark$api$python$PythonWorkerFactory$$cleanupIdleWorkers"
APP = "app"
BATCHES = 3
ROWS = 150_000
"""More rows than fit into the buffers between a task's Python processes."""


@pytest.fixture
def numbers(spark: SparkSession, tmp_path: Path) -> Numbers:
    return Numbers(spark, tmp_path)


@pytest.fixture
def log(client: BlockingClient, log_name: str) -> Callable[[], BlockingLog]:
    return lambda: BlockingLogs(client).open(log_name)


@pytest.fixture
def small_batches(spark: SparkSession) -> Iterator[None]:
    """A task's rows reach the sink in many batches, each of which becomes an entry."""
    key = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(key)
    assert before is not None
    spark.conf.set(key, "1000")
    yield
    spark.conf.set(key, before)


def values(spark: SparkSession, log: str) -> list[int]:
    rows = load(spark, log, includeMetadata="true").orderBy("_offset").collect()
    return [row["value"] for row in rows]


def ledgers(log: BlockingLog) -> list[int]:
    """The ledger of each listed range, in the order of the log."""
    return [item.ledger_id for item in log.snapshot().items]


def reap_idle_workers(spark: SparkSession) -> None:
    """End idle Python workers as Spark does after a minute, and wait for their end."""
    workers = _python_workers()
    assert workers
    java: Any = spark._jvm
    field = java.java.lang.Class.forName("org.apache.spark.SparkEnv").getDeclaredField(
        "pythonWorkers"
    )
    field.setAccessible(True)
    factories = field.get(spark.sparkContext._jsc.sc().env()).values().iterator()
    while factories.hasNext():
        getattr(factories.next(), CLEAN_UP)()
    _, alive = psutil.wait_procs(workers, PATIENCE_SECONDS)
    assert not alive, [(process.cmdline(), process.status()) for process in alive]


def _python_workers() -> list[psutil.Process]:
    """The processes that a daemon of Spark forked, without those that have just ended."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if DAEMON in process.cmdline():
                found += process.children()
    return found


@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")
@pytest.mark.usefixtures("small_batches")
def test_task_that_is_killed_among_its_rows_leaves_none_of_them(
    spark: SparkSession,
    client: BlockingClient,
    numbers: Numbers,
    log_name: str,
    log: Callable[[], BlockingLog],
    tmp_path: Path,
) -> None:
    told, never = tmp_path / "told", tmp_path / "never"
    os.mkfifo(told)
    os.mkfifo(never)

    def stuck_in_its_first_attempt(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        yield from batches
        if context.attemptNumber() == 0:
            told.write_text(f"{context.taskAttemptId()}\n")
            never.read_text()

    numbers.add(ROWS)
    frame = numbers.frame().mapInArrow(stuck_in_its_first_attempt, "value long")
    listening = os.open(told, os.O_RDONLY | os.O_NONBLOCK)
    query = numbers.start(log_name, frame, txnAppId=APP, targetEntryBytes="4096")
    try:
        assert select.select([listening], [], [], PATIENCE_SECONDS)[0], query.exception()
        attempt = int(os.read(listening, 100))
        assert spark.sparkContext._jsc.sc().killTaskAttempt(attempt, True, "by the test")
        query.awaitTermination()
    finally:
        os.close(listening)
        query.stop()
        with contextlib.suppress(OSError):  # Spark leaves its process stuck
            os.close(os.open(never, os.O_WRONLY | os.O_NONBLOCK))
    assert values(spark, log_name) == list(range(ROWS))
    found = log()
    registered = client.run(
        lambda inner: logs_of(inner).store.producers.registered(found.log_id, APP)
    )
    assert len(set(registered) - set(ledgers(found))) == 1, "the killed attempt wrote nothing"
    assert not found.check(every_entry=True).findings


@pytest.mark.parametrize("is_reaped", [False, True])
def test_ledgers_left_open_between_batches_may_be_sealed_and_their_writers_end(
    is_reaped: bool,
    spark: SparkSession,
    client: BlockingClient,
    numbers: Numbers,
    log_name: str,
    log: Callable[[], BlockingLog],
) -> None:
    query: Any = numbers.start(log_name, forever=True)
    try:
        for batch in range(BATCHES):
            numbers.add(100)
            query.processAllAvailable()
            if is_reaped:
                reap_idle_workers(spark)
            if batch or not is_reaped:  # a ledger that gets no more writes may stay open
                BlockingLogs(client).seal(ledgers(log())[-1])
    finally:
        query.stop()
    assert len(set(ledgers(log()))) == BATCHES
    assert values(spark, log_name) == list(range(BATCHES * 100))
    assert not log().check(every_entry=True).findings
