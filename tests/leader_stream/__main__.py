"""`python -m tests.leader_stream --rows 5000000`: a stream of a leader log.

A Spark query copies the leader log to a transactional log. The stream begins at the earliest
record. Meanwhile, the leader continues to append, with three rolls and a killed bookie. At the end,
the copy must have the appended records at the same offsets.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from rich.progress import Progress

import ledgerlog_spark as ll
from benchmarks.options import positive
from ledgerlog_spark.local.cluster import Cluster, local_cluster
from tests.exactly_once.query import session

SOURCE, COPY = "led", "copy"
ROLLS = 3
BATCH = 2_000
RECORD_BYTES = 100
NUMBER_BYTES = 20
KILLED = "bookie-1"


def record(number: int) -> bytes:
    """The record at this offset."""
    return b"%0*d" % (NUMBER_BYTES, number) + bytes(RECORD_BYTES - NUMBER_BYTES)


class Appender(threading.Thread):
    """The leader: half of the records before the stream starts, the rest while it runs."""

    def __init__(self, cluster: Cluster, rows: int, progress: Progress) -> None:
        super().__init__(name="appender", daemon=True)
        self._cluster = cluster
        self._rows = rows
        self._progress = progress
        self._bar = progress.add_task("appended", total=rows)
        self.is_half_done = threading.Event()
        self.may_go_on = threading.Event()
        self.rolls = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        """Append everything. An error is stored for the main thread."""
        try:
            self._append()
        except BaseException as failure:  # noqa: BLE001 - the main thread reports it
            self.failure = failure
            self.is_half_done.set()

    def _append(self) -> None:
        half = self._rows // 2 // BATCH * BATCH
        rolls = [half + (self._rows - half) * part // (ROLLS + 1) for part in range(1, ROLLS + 1)]
        kill_at: int | None = rolls[1] + BATCH
        pending: list[Any] = []
        with (
            ll.connect(self._cluster.metadata_service_uri) as client,
            client.open_log(SOURCE, lead=True) as log,
        ):
            for first in range(0, self._rows, BATCH):
                if first == half:
                    self.is_half_done.set()
                    self.may_go_on.wait()
                while rolls and first >= rolls[0]:
                    rolls.pop(0)
                    log.roll()
                    self.rolls += 1
                if kill_at is not None and first >= kill_at:
                    self._cluster.kill(KILLED)
                    kill_at = None
                end = min(first + BATCH, self._rows)
                pending.append(log.append_many_async([record(n) for n in range(first, end)]))
                if len(pending) > 8:
                    pending.pop(0).result()
                    self._progress.update(self._bar, completed=first)
            for last in pending:
                last.result()
            self._progress.update(self._bar, completed=self._rows)


def stream(spark: SparkSession, directory: str) -> Any:
    """Start the copy."""
    rows = spark.readStream.format("ledger").option("startingOffsets", "earliest").load(SOURCE)
    return rows.writeStream.format("ledger").option("checkpointLocation", directory).start(COPY)


def copied_to(query: Any) -> int:
    """The offset after the newest completed batch; 0 before the first one."""
    progress = query.lastProgress
    end = progress["sources"][0]["endOffset"] if progress else None
    if not end:
        return 0
    offsets = json.loads(end) if isinstance(end, str) else end
    return int(offsets[SOURCE]["offset"])


def differences(spark: SparkSession, rows: int) -> dict[str, int]:
    """The number of copied rows, and the number of wrong rows."""
    copied = spark.read.format("ledger").option("includeMetadata", "true").load(COPY)
    number = f.substring(f.col("value").cast("string"), 1, NUMBER_BYTES).cast("long")
    written = f.concat(
        f.lpad(f.col("_offset").cast("string"), NUMBER_BYTES, "0").cast("binary"),
        f.lit(bytearray(RECORD_BYTES - NUMBER_BYTES)),
    )
    counted = copied.agg(
        f.count("*").alias("rows"),
        f.countDistinct(number).alias("distinct"),
        f.sum((number != f.col("_offset")).cast("long")).alias("misplaced"),
        f.sum((f.col("value") != written).cast("long")).alias("changed"),
    ).first()
    assert counted is not None
    return {**counted.asDict(), "lost": rows - counted["distinct"]}


def main() -> int:
    """Return 0 if the copy has exactly the appended records."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=positive, default=5_000_000)
    rows = parser.parse_args().rows
    with (
        tempfile.TemporaryDirectory(prefix="leader-stream-") as directory,
        local_cluster(bookies=4) as cluster,
        Progress() as progress,
    ):
        spark = session(cluster.metadata_service_uri)
        appender = Appender(cluster, rows, progress)
        appender.start()
        appender.is_half_done.wait()
        query = stream(spark, str(Path(directory) / "checkpoint"))
        appender.may_go_on.set()
        bar = progress.add_task("copied", total=rows)
        copied = 0
        while copied < rows and query.isActive and appender.failure is None:
            query.awaitTermination(1)
            copied = copied_to(query)
            progress.update(bar, completed=copied)
        appender.join()
        if query.exception() is not None or appender.failure is not None:
            print(f"the stream: {query.exception()}; the leader: {appender.failure!r}")
            return 1
        query.stop()
        found = differences(spark, rows)
        with ll.connect(cluster.metadata_service_uri) as client:
            snapshot = client.open_log(SOURCE).snapshot()
            ledgers = len({item.ledger_id for item in snapshot.items})
        spark.stop()
    print(
        f"{rows:,} records appended, {ledgers} ledgers, {appender.rolls} rolls, {KILLED} killed, "
        f"{found['rows']:,} copied, {found['lost']} lost, {found['rows'] - found['distinct']} "
        f"duplicated, {found['misplaced']} misplaced, {found['changed']} changed"
    )
    is_equal = found["rows"] == rows == found["distinct"] and appender.rolls == ROLLS < ledgers
    return 0 if is_equal and not found["misplaced"] and not found["changed"] else 1


if __name__ == "__main__":
    sys.exit(main())
