"""A query that stores the rows that it reads, batch by batch."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from tests.fixtures import patience

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery


class CrashError(Exception):
    """Ends a query in the middle of a batch."""


class Reading:
    """Runs of one query, with the same options and checkpoint.

    Attributes:
        batches: Rows by batch id, as tuples; a batch that is read again replaces its rows.
        during: Called with the batch id after a batch was read and before it is committed.
    """

    def __init__(self, spark: SparkSession, checkpoint: Path, **options: str) -> None:
        self.spark = spark
        self.checkpoint = checkpoint
        self.options = options
        self.schema: str | None = None
        self.batches: dict[int, list[Any]] = {}
        self.attempts: Counter[int] = Counter()
        self.during: Callable[[int], None] = lambda _: None
        self.last: StreamingQuery | None = None

    @property
    def rows(self) -> list[Any]:
        """All rows in the order of the batches."""
        return [row for number in sorted(self.batches) for row in self.batches[number]]

    @property
    def ids(self) -> list[int]:
        return [row[0] for row in self.rows]

    def start(self, *, available_now: bool = False, **options: str) -> StreamingQuery:
        reader = self.spark.readStream.format("ledger").options(**{**self.options, **options})
        if self.schema is not None:
            reader = reader.schema(self.schema)
        trigger = {"availableNow": True} if available_now else {"processingTime": "0 seconds"}
        writer = reader.load().writeStream.foreachBatch(self._take)
        self.last = (
            writer.option("checkpointLocation", str(self.checkpoint)).trigger(**trigger).start()
        )
        return self.last

    def run(self, **options: str) -> list[Any]:
        """Read all existing rows, and return the rows of this run."""
        before = set(self.batches)
        self.start(available_now=True, **options).awaitTermination()
        return [row for n in sorted(set(self.batches) - before) for row in self.batches[n]]

    def until(self, count: int) -> None:
        """Wait until a running query has read `count` rows."""
        query = self.last
        assert query is not None

        def have_come() -> bool:
            query.processAllAvailable()
            return len(self.rows) >= count

        patience.until(have_come, what=f"{count} rows")

    def offsets(self, number: int) -> dict[str, Any]:
        """The end of a batch in the checkpoint."""
        text = (self.checkpoint / "offsets" / str(number)).read_text()
        found: dict[str, Any] = json.loads(text.splitlines()[-1])
        return found

    def write_offsets(self, number: int, offsets: dict[str, Any]) -> None:
        """Change the checkpoint without Spark."""
        path = self.checkpoint / "offsets" / str(number)
        lines = [*path.read_text().splitlines()[:-1], json.dumps(offsets)]
        path.write_text("\n".join(lines))
        (path.parent / f".{number}.crc").unlink(missing_ok=True)

    def _take(self, frame: DataFrame, number: int) -> None:
        self.attempts[number] += 1
        self.batches[number] = sorted(map(tuple, frame.collect()), key=repr)
        self.during(number)
