"""A stream of numbers from files, each of which is one micro-batch: simple, exact, replayable."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery


class Numbers:
    """The added numbers, from 0 on, and a checkpoint of the query over them."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self._spark = spark
        self._files = directory / "numbers"
        self._files.mkdir()
        self.checkpoint = directory / "checkpoint"
        self._count = 0
        self._batches = 0

    def add(self, count: int) -> None:
        """Add `count` numbers, as the rows of one micro-batch."""
        numbers = range(self._count, self._count + count)
        path = self._files / f"{self._batches:06}.txt"
        hidden = self._files / f".{path.name}"
        hidden.write_text("".join(f"{number}\n" for number in numbers))
        os.utime(hidden, (self._batches, self._batches))  # the order of the batches
        hidden.rename(path)
        self._count += count
        self._batches += 1

    def frame(self) -> DataFrame:
        lines = self._spark.readStream.option("maxFilesPerTrigger", "1").text(str(self._files))
        return lines.selectExpr("cast(value AS long) AS value")

    def start(
        self,
        log: str,
        frame: DataFrame | None = None,
        *,
        forever: bool = False,
        checkpoint: str = "",
        **options: str,
    ) -> StreamingQuery:
        """A query that runs until it has read everything, or forever."""
        writer: Any = (self.frame() if frame is None else frame).writeStream.format("ledger")
        writer = writer.outputMode(options.pop("outputMode", "append")).options(**options)
        if not forever:
            writer = writer.trigger(availableNow=True)
        started: StreamingQuery = writer.option(
            "checkpointLocation", checkpoint or str(self.checkpoint)
        ).start(log)
        return started

    def copy_to(self, log: str, frame: DataFrame | None = None, **how: Any) -> None:
        """Copy everything, to the end."""
        self.start(log, frame, **how).awaitTermination()

    def forget_commit(self, batch_id: int) -> None:
        """Do as if the driver had died between the sink's commit and Spark's commit."""
        for path in (f"{batch_id}", f".{batch_id}.crc"):
            (self.checkpoint / "commits" / path).unlink()
