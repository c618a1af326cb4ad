"""How fast is a scan of one of 20 columns, and how many bytes does it read?

All columns contain random numbers, which cannot be compressed, so all columns have the same size.
The numbers of bytes come from the metrics of the bookies. The script also compares writes with and
without slices in the index. These writes alternate in one process without Spark. The scans run
twice: with direct connections to the bookies of this machine, and through a link that carries 100
MB/s.
"""

from __future__ import annotations

import json
import os
import random
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from unittest.mock import patch

import pyarrow as pa

from benchmarks.machine import median
from benchmarks.metered_link import ADDRESS, metered_link
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
    from pyspark.sql import SparkSession

LOG = "wide"
COLUMNS = [f"c{number}" for number in range(20)]
ROWS = 3_000_000
BATCH_ROWS = 20_000
BOOKIES = 3
PORT_SETTING = "LEDGERLOG_METRICS_PORT"
ADDRESS_SETTING = "LEDGERLOG_ADVERTISED_ADDRESS"
ENGINES = {"jvm": "shim", "python": "python"}
LINKS = {"direct": None, "100 MB/s": 100e6}
GOALS = {"direct": 4.0, "100 MB/s": 8.0}
"""Goal for each link: minimum of the time of a scan of all columns, divided by the time for one
column."""
BYTES_OUT = "bookie_READ_BYTES"


@contextmanager
def measured_cluster(directory: Path | None, rate: float | None) -> Iterator[tuple[str, list[int]]]:
    """Run a cluster. Yield its URI, and the ports of its bookies' metrics.

    All bookies together send at most `rate` bytes per second. None means no limit.
    """
    with TemporaryDirectory(dir=directory) as folder, ExitStack() as stack:
        cluster = Cluster(Path(folder))
        stack.callback(cluster.down)
        ports = [free_port() for _ in range(BOOKIES)]
        settings = {} if rate is None else {ADDRESS_SETTING: ADDRESS}
        for number, port in enumerate(ports, 1):
            with patch.dict(os.environ, {**settings, PORT_SETTING: str(port)}):
                cluster.up(bookies=number)
        if rate is not None:
            bookies = cluster.members.bookies
            links = [port for each in bookies for port in (each.port, each.grpc_port) if port]
            stack.enter_context(metered_link(links, rate))
        yield cluster.metadata_service_uri, ports


def bytes_out(ports: list[int]) -> int:
    """Return the number of bytes of entries that the bookies have sent to readers."""
    total = 0.0
    for port in ports:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            for line in answer.read().decode().splitlines():
                if line.startswith(f"{BYTES_OUT} "):
                    total += float(line.split()[1])
    return int(total)


def batches(rows: int) -> Iterator[pa.RecordBatch]:
    """Yield batches with `rows` rows of random numbers in total. The batches differ."""
    source = random.Random(rows)
    noise = pa.py_buffer(source.randbytes(8 * (BATCH_ROWS + len(COLUMNS) + rows // BATCH_ROWS)))
    for number in range(rows // BATCH_ROWS):
        arrays = [
            pa.Array.from_buffers(pa.int64(), BATCH_ROWS, [None, noise.slice(8 * (number + place))])
            for place in range(len(COLUMNS))
        ]
        yield pa.RecordBatch.from_arrays(arrays, names=COLUMNS)


def written(uri: str, rows: int, *, log: str) -> tuple[float, int]:
    """Write the rows to a log. Return the time of the write in s, and its stored bytes."""
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
    """Return speed and stored bytes of writes with slices, compared with writes without slices."""
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
        Figure(
            "rate of writes with slices, divided by the rate without", median(ratios), "x",
            tuple(ratios), goal=0.95,
        ),
        Figure(
            "additional stored bytes with slices", median(shares), "%", tuple(shares),
            goal=2.0, lower_is_better=True,
        ),
    ]  # fmt: skip


def scans(spark: SparkSession, ports: list[int], link: str, rounds: int) -> list[Figure]:
    """Return seconds and bytes of scans of one column and of all columns.

    Both engines alternate.
    """
    seconds: dict[tuple[str, str], list[float]] = {}
    sent: dict[tuple[str, str], list[float]] = {}
    for number in range(WARM_UP_ROUNDS + rounds):
        for engine in ENGINES:
            spark.conf.set(SETTING, engine)
            for columns in ("all", "one"):
                reader = spark.read.format("ledger")
                frame = (reader.option("columns", COLUMNS[7]) if columns == "one" else reader).load(
                    LOG
                )
                before, begun = bytes_out(ports), time.perf_counter()
                frame.write.format("noop").mode("overwrite").save()
                took = time.perf_counter() - begun
                if number >= WARM_UP_ROUNDS:
                    seconds.setdefault((engine, columns), []).append(took)
                    sent.setdefault((engine, columns), []).append(bytes_out(ports) - before)
            spark.conf.unset(SETTING)
    found = []
    for engine, name in ENGINES.items():
        every, one = seconds[engine, "all"], seconds[engine, "one"]
        ratios = [a / b for a, b in zip(every, one, strict=True)]
        pairs = zip(sent[engine, "one"], sent[engine, "all"], strict=True)
        shares = [100 * a / b for a, b in pairs]
        what = f"{name}, {link}"
        found += [
            Figure(f"all columns, {what}", median(every), "s", tuple(every), lower_is_better=True),
            Figure(f"one column, {what}", median(one), "s", tuple(one), lower_is_better=True),
            Figure(f"all to one, {what}", median(ratios), "x", tuple(ratios), goal=GOALS[link]),
            Figure(
                f"bytes for one column, {what}", median(shares), "% of all", tuple(shares),
                goal=8.0, lower_is_better=True,
            ),
        ]  # fmt: skip
    return found


def main() -> None:
    """Measure writes first, then scans with both engines."""
    options = parsed(__doc__)
    found: list[Figure] = []
    for link, rate in LINKS.items():
        with measured_cluster(options.directory, rate) as (uri, ports):
            if rate is None:
                found += writes(uri, options.rounds)
            written(uri, ROWS, log=LOG)
            with (
                patch.dict(os.environ, {"LEDGERLOG_METADATA_SERVICE_URI": uri}),
                session() as spark,
            ):
                found += scans(spark, ports, link, options.rounds)
    show("column_pruning", found, as_json=options.json)


if __name__ == "__main__":
    main()
