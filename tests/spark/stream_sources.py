"""A stream of numbers from files, each of which is one micro-batch: simple, exact, replayable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery


class Numbers:
    """The numbers from 0 on, as many as were added, and a checkpoint of the query over them."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self._spark = spark
        self._files = directory / "numbers"
        self._files.mkdir()
        self.checkpoint = directory / "checkpoint"
        self._count = 0
        self._batches = 0

    def add(self, count: int) -> None:
        """So many more, as the rows of one micro-batch."""
        numbers = range(self._count, self._count + count)
        path = self._files / f"{self._batches:06}.txt"
        hidden = self._files / f".{path.name}"
        hidden.write_text("".join(f"{number}\n" for number in numbers))
        hidden.rename(path)
        self._count += count
        self._batches += 1

    def frame(self) -> DataFrame:
        lines = self._spark.readStream.option("maxFilesPerTrigger", "1").text(str(self._files))
        return lines.selectExpr("cast(value AS long) AS value")

    def start(self, log: str, frame: DataFrame | None = None, **options: str) -> StreamingQuery:
        writer = (self.frame() if frame is None else frame).writeStream.format("ledger")
        mode = options.pop("outputMode", "append")
        checkpoint = options.pop("checkpoint", str(self.checkpoint))
        writer = writer.outputMode(mode).options(**options)
        started: Any = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
        return started.start(log)

    def copy_to(self, log: str, frame: DataFrame | None = None, **options: str) -> StreamingQuery:
        """Everything that is there, to the end."""
        query = self.start(log, frame, **options)
        query.awaitTermination()
        return query
