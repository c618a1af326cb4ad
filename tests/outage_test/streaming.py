"""A Spark query that copies the leader log of the load to another log. It is always restarted."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from tests.exactly_once.query import session
from tests.limbo_test.load import LOG

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

COPY = "copy"
POLL_SECONDS = 0.1
RESTART_SECONDS = 1.0
ENDINGS_MAX = 100


class Streaming(threading.Thread):
    """Keeps the query running. A query that fails is started again from its checkpoint.

    Attributes:
        batches: Number of micro-batches with rows that were committed.
        rows: Number of rows that these batches copied.
        endings: The errors with which the query ended.
    """

    def __init__(self, uri: str, directory: Path) -> None:
        super().__init__(name="streaming", daemon=True)
        self.batches = 0
        self.rows = 0
        self.endings: list[str] = []
        self._spark: SparkSession = session(uri)
        self._checkpoint = directory / "checkpoint"
        self._must_end = threading.Event()

    def run(self) -> None:
        """Copy until `stop`."""
        last, query = -1, None
        while not self._must_end.wait(POLL_SECONDS) and len(self.endings) < ENDINGS_MAX:
            query = query or self._begin_or_note()
            if query is None:
                continue
            progress = query.lastProgress
            if progress is not None and progress["batchId"] > last:
                last = progress["batchId"]
                self.batches += progress["numInputRows"] > 0
                self.rows += progress["numInputRows"]
            if not query.isActive:
                self._note_ending(query.exception())
                query = None
        if query is not None:
            query.stop()

    def stop(self) -> None:
        """End the query between two batches or within one."""
        self._must_end.set()
        self.join()

    def finish(self) -> list[bytes]:
        """Copy what is left, and return the values of the copy in its order."""
        self._begin(all_available=True).awaitTermination()
        copied = self._spark.read.format("ledger").option("includeMetadata", "true").load(COPY)
        rows = copied.orderBy("_offset").select("value").collect()
        return [bytes(row["value"]) for row in rows]

    def close(self) -> None:
        """End Spark, and with it the writers of the query."""
        self._spark.stop()

    def _begin_or_note(self) -> StreamingQuery | None:
        try:
            return self._begin()
        except Exception as error:  # noqa: BLE001 - Spark wraps errors of Python and of Java
            self._note_ending(error)
            return None

    def _note_ending(self, error: object) -> None:
        self.endings.append(str(error))
        self._must_end.wait(RESTART_SECONDS)

    def _begin(self, *, all_available: bool = False) -> StreamingQuery:
        source = self._spark.readStream.format("ledger").option("startingOffsets", "earliest")
        writer = source.load(LOG).writeStream.format("ledger")
        writer = writer.option("checkpointLocation", str(self._checkpoint))
        if all_available:
            writer = writer.trigger(availableNow=True)
        return writer.start(COPY)
