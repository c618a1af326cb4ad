"""How long does a micro-batch from log to log take, compared with an almost empty micro-batch?

The time of an almost empty micro-batch (the floor) is measured with a query from a Python source
with rows in memory to a Python sink that drops them. This query runs in the same session, with the
same checkpoint manager and the same number of tasks. Each batch of the measured query copies one
commit of 200 rows from one log to another. The queries run in turn, so that other programs on the
machine affect all of them equally. The first batch of each start is reported separately. Another
query writes to a log whose ledgers are full after one range, so each batch of this query rolls the
ledgers of the sink.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import StructType

import ledgerlog_spark as ll
from benchmarks.machine import median
from benchmarks.options import parsed
from benchmarks.report import Figure, show
from benchmarks.spark_baselines import SCHEMA
from benchmarks.spark_session import cpu_seconds, session
from benchmarks.stream_baselines import StreamFloor
from ledgerlog_spark.arrow.spark_types import stored_schema
from ledgerlog_spark.datasource.write.task import stage_ranges
from ledgerlog_spark.log.blocking.logs import BlockingLogs
from ledgerlog_spark.log.blocking.stream import BlockingStream
from ledgerlog_spark.log.committing.job import plan_job
from ledgerlog_spark.protocol.log.commit.epoch import JobKind
from ledgerlog_spark.protocol.log.state.records import WriteMode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from ledgerlog_spark.client.blocking.client import BlockingClient
    from ledgerlog_spark.local.cluster import Cluster

INPUT, COPY, ROLLING = "input", "copy", "rolling"
FLOOR = "floor"
ROWS = 200
TASKS = 2
BATCHES = 60
COLD = 10
"""After each start of a query, this number of batches do not count as warm batches."""

POLL_SECONDS = 0.05
GOAL = 1.3


@dataclass
class Side:
    """The times of the batches of one query, with one value for each start of the query.

    Attributes:
        warm: Milliseconds of a warm batch: the median of the start.
        first: Milliseconds of the first batch of the start.
        cpu: CPU time of Spark and its workers for an average warm batch, in ms.
    """

    warm: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


def main() -> None:
    """Feed a log, then start each query `--rounds` times and let it run for 60 batches."""
    options = parsed(__doc__)
    scratch = Path(tempfile.mkdtemp(prefix="stream-latency-", dir=options.directory))
    try:
        with (
            ll.local_cluster(bookies=3, directory=scratch / "cluster") as cluster,
            session() as spark,
        ):
            spark.dataSource.register(StreamFloor)
            sides = run(spark, cluster, scratch, rounds=options.rounds)
    finally:
        shutil.rmtree(scratch)
    show("stream_latency", list(figures(sides)), as_json=options.json)


def run(spark: SparkSession, cluster: Cluster, scratch: Path, *, rounds: int) -> dict[str, Side]:
    """Run all queries in turn, `rounds` + 1 times. The first time only warms the JVM up."""
    sides = {name: Side() for name in (FLOOR, COPY, ROLLING)}
    with ll.connect(cluster.metadata_service_uri) as client:
        logs = BlockingLogs(client)
        schema = stored_schema(StructType.fromDDL(SCHEMA).json())
        logs.create(INPUT, schema=schema)
        logs.create(ROLLING, schema=schema, properties={"rollBytes": "1"})
        for number in range(rounds + 1):
            feed(client, schema, first_batch=number * BATCHES)
            for name, side in sides.items():
                query = started(spark, name, scratch / f"checkpoint-{name}", starts=number + 1)
                cpu = warm_cpu(query, cluster, first_batch=number * BATCHES)
                took = milliseconds(name, query)
                if number:
                    side.first.append(took[0])
                    side.warm.append(median(took[COLD:]))
                    side.cpu.append(cpu)
    return sides


def feed(client: BlockingClient, schema: bytes, *, first_batch: int) -> None:
    """Write the commits for one start. Each commit has as many ranges as its batch has tasks."""
    rows = range(ROWS // TASKS)
    batch = pa.record_batch(
        {
            "a": pa.array(rows, pa.int64()),
            "b": pa.array(rows, pa.int64()),
            "c": pa.array([float(row) for row in rows], pa.float64()),
            "d": pa.array([f"{row:020}" for row in rows], pa.string()),
        }
    )
    state = BlockingLogs(client).open(INPUT).state()
    plan = plan_job(state, schema=schema, mode=WriteMode.APPEND)
    for batch_id in range(first_batch, first_batch + BATCHES):
        job = plan.job(app="feeder", run="feeder", batch_id=batch_id, kind=JobKind.STREAM)
        stream = BlockingStream(client, job)
        stream.join()
        ranges = [
            staged
            for _ in range(TASKS)
            for staged in stage_ranges(
                stream.open_range, schema, [batch], compression="zstd", target_entry_bytes=1 << 20
            )
        ]
        stream.commit(ranges)


def started(spark: SparkSession, name: str, checkpoint: Path, *, starts: int) -> StreamingQuery:
    """Start a query. It continues from its checkpoint, and ends after 60 batches."""
    reader = spark.readStream
    if name == FLOOR:
        shape = {"batches": BATCHES * starts, "rows": ROWS, "partitions": TASKS}
        frame = reader.format("benchmark_floor").options(**shape).load()
    else:
        limits = {"maxRowsPerTrigger": ROWS, "minPartitions": TASKS}
        reader = reader.format("ledger").option("startingOffsets", "earliest").options(**limits)
        frame = reader.load(INPUT)
    writer: Any = frame.writeStream.option("checkpointLocation", str(checkpoint))
    writer = writer.format("benchmark_floor" if name == FLOOR else "ledger")
    query: StreamingQuery = writer.trigger(availableNow=True).start(
        *(() if name == FLOOR else (name,))
    )
    return query


def warm_cpu(query: StreamingQuery, cluster: Cluster, *, first_batch: int) -> float:
    """Wait for the end of the query. Return the CPU time of an average warm batch, in ms."""
    begun: tuple[float, int] | None = None
    while not query.awaitTermination(POLL_SECONDS):
        progress = query.lastProgress
        if begun is None and progress is not None and progress["batchId"] >= first_batch + COLD:
            begun = cpu_seconds(cluster)[0], progress["batchId"] + 1
    if begun is None:
        raise SystemExit("the query ended before it was warm")
    before, first_warm = begun
    return (cpu_seconds(cluster)[0] - before) * 1e3 / (first_batch + BATCHES - first_warm)


def milliseconds(name: str, query: StreamingQuery) -> list[float]:
    """Return the time of each batch of an ended query, in ms."""
    took = [p["durationMs"] for p in query.recentProgress if p["numInputRows"]]
    if len(took) != BATCHES:
        raise SystemExit(f"{name}: {len(took)} batches instead of {BATCHES}")
    parts = {part: median([one[part] for one in took[COLD:]]) for part in took[-1]}
    print(name, parts, file=sys.stderr)
    return [float(one["triggerExecution"]) for one in took]


def figures(sides: dict[str, Side]) -> Iterator[Figure]:
    """Yield the figures of warm batches, first batches and batches that roll, and of CPU time."""
    floor, copy, rolling = (sides[name] for name in (FLOOR, COPY, ROLLING))
    warm = "log to log, warm batch"
    for what, side, goal in ((warm, copy, GOAL), (f"{warm}, every ledger rolls", rolling, None)):
        shares = [a / b for a, b in zip(side.warm, floor.warm, strict=True)]
        yield Figure(f"{what}, times the floor", median(shares), "x", tuple(shares),
                     goal=goal, lower_is_better=True)  # fmt: skip
        yield beside_floor(what, side.warm, floor.warm)
    yield beside_floor("first batch of a start", copy.first, floor.first)
    yield beside_floor("CPU of Spark and its workers, a warm batch", copy.cpu, floor.cpu)


def beside_floor(what: str, ours: list[float], floor: list[float]) -> Figure:
    """Return the figure `what` in ms. The times of the floor are its limit."""
    return Figure(what, median(ours), "ms", tuple(ours), limit=median(floor), limit_of="the floor")


if __name__ == "__main__":
    main()
