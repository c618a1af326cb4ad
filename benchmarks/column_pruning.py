"""What does a scan of one of 20 equal columns read, and how fast is it beside a scan of all?

The columns are numbers of random bits, so every compression leaves them equal. Bytes are those of
the bookies' own metrics. Entries with and without slices in their index are written in turn, by one
process without Spark.
"""

from __future__ import annotations

import json
import os
import random
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from unittest.mock import patch

import pyarrow as pa

from benchmarks.machine import median
from benchmarks.options import parsed
from benchmarks.report import Figure, show
from benchmarks.spark_engines import SETTING
from benchmarks.spark_session import WARM_UP_ROUNDS, session
from ledgerlog_spark.arrow import entry_cutter
from ledgerlog_spark.datasource.options.values import SourceOptions
from ledgerlog_spark.datasource.write.writer import BatchWriter
from ledgerlog_spark.local.cluster import Cluster
from ledgerlog_spark.local.zookeeper import free_port

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOG = "wide"
COLUMNS = [f"c{number}" for number in range(20)]
ROWS = 2_000_000
BATCH_ROWS = 20_000
BOOKIES = 3
PORT_SETTING = "LEDGERLOG_METRICS_PORT"
BYTES_OUT = "ledgerlog_bookie_read_bytes_total"


@contextmanager
def measured_cluster(directory: Path | None) -> Iterator[tuple[Cluster, list[int]]]:
    """A cluster, and the ports of its bookies' metrics."""
    with TemporaryDirectory() as folder:
        cluster = Cluster(directory or Path(folder))
        ports = [free_port() for _ in range(BOOKIES)]
        try:
            for number, port in enumerate(ports, 1):
                os.environ[PORT_SETTING] = str(port)
                cluster.up(bookies=number)
            del os.environ[PORT_SETTING]
            yield cluster, ports
        finally:
            cluster.down()


def bytes_out(ports: list[int]) -> int:
    """Bytes of entries that the bookies have sent to readers."""
    total = 0.0
    for port in ports:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            for line in answer.read().decode().splitlines():
                if line.startswith(f"{BYTES_OUT} "):
                    total += float(line.split()[1])
    return int(total)


def batches(rows: int) -> Iterator[pa.RecordBatch]:
    """Rows of random numbers, each batch with other values."""
    source = random.Random(rows)
    noise = pa.py_buffer(source.randbytes(8 * (BATCH_ROWS + len(COLUMNS) + rows // BATCH_ROWS)))
    for number in range(rows // BATCH_ROWS):
        arrays = [
            pa.Array.from_buffers(pa.int64(), BATCH_ROWS, [None, noise.slice(8 * (number + place))])
            for place in range(len(COLUMNS))
        ]
        yield pa.RecordBatch.from_arrays(arrays, names=COLUMNS)


def written(uri: str, rows: int, *, log: str) -> tuple[float, int]:
    """Seconds of a write, and its stored bytes."""
    fields = [{"name": name, "type": "long", "nullable": True, "metadata": {}} for name in COLUMNS]
    text = json.dumps({"type": "struct", "fields": fields})
    rows_to_write = list(batches(rows))
    begun = time.perf_counter()
    writer = BatchWriter(uri, SourceOptions.parse({"log": log}).for_write(), text, overwrite=True)
    staged = writer.write(iter(rows_to_write))
    writer.commit([staged])
    took = time.perf_counter() - begun
    return took, sum(each.size_bytes for each in staged.ranges)


def writes(uri: str, rounds: int) -> list[Figure]:
    """Throughput and stored bytes with slices, beside those without."""
    rows = ROWS // 4
    ratios, shares = [], []
    for number in range(1 + rounds):
        with patch.object(entry_cutter, "buffer_counts", lambda _schema: None):
            without, plain_bytes = written(uri, rows, log="plain")
        took, size_bytes = written(uri, rows, log="sliced")
        if number:
            ratios.append(without / took)
            shares.append(100 * (size_bytes / plain_bytes - 1))
    return [
        Figure("write with slices, to one without", median(ratios), "x", tuple(ratios), goal=0.95),
        Figure(
            "stored bytes, more than without", median(shares), "%", tuple(shares),
            goal=2.0, lower_is_better=True,
        ),
    ]  # fmt: skip


def scans(spark: SparkSession, ports: list[int], engine: str, rounds: int) -> list[Figure]:
    """Seconds and bytes of a scan of one column beside those of all columns."""
    spark.conf.set(SETTING, engine)
    queries: dict[str, Callable[[], DataFrame]] = {
        "all": lambda: spark.read.format("ledger").load(LOG),
        "one": lambda: spark.read.format("ledger").option("columns", COLUMNS[7]).load(LOG),
    }
    seconds: dict[str, list[float]] = {name: [] for name in queries}
    sent: dict[str, list[float]] = {name: [] for name in queries}
    for number in range(WARM_UP_ROUNDS + rounds):
        for name, frame in queries.items():
            before, begun = bytes_out(ports), time.perf_counter()
            frame().write.format("noop").mode("overwrite").save()
            took = time.perf_counter() - begun
            if number >= WARM_UP_ROUNDS:
                seconds[name].append(took)
                sent[name].append(bytes_out(ports) - before)
    spark.conf.unset(SETTING)
    ratios = [one / other for one, other in zip(seconds["all"], seconds["one"], strict=True)]
    shares = [100 * one / all_ for one, all_ in zip(sent["one"], sent["all"], strict=True)]
    return [
        Figure(f"all columns, {engine}", median(seconds["all"]), "s", tuple(seconds["all"])),
        Figure(f"one column, {engine}", median(seconds["one"]), "s", tuple(seconds["one"])),
        Figure(f"all to one, {engine}", median(ratios), "x", tuple(ratios), goal=4.0),
        Figure(
            f"bytes of one, {engine}", median(shares), "% of all", tuple(shares),
            goal=8.0, lower_is_better=True,
        ),
    ]  # fmt: skip


def main() -> None:
    """Measure writes first, then scans with both engines."""
    options = parsed(__doc__)
    with measured_cluster(options.directory) as (cluster, ports):
        found = writes(cluster.metadata_service_uri, options.rounds)
        written(cluster.metadata_service_uri, ROWS, log=LOG)
        os.environ["LEDGERLOG_METADATA_SERVICE_URI"] = cluster.metadata_service_uri
        with session() as spark:
            for engine in ("python", "jvm"):
                found += scans(spark, ports, engine, options.rounds)
    show("column_pruning", found, as_json=options.json)


if __name__ == "__main__":
    main()
