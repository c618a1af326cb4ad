"""Baselines of Spark: a Python sink that drops rows, and a Python source with rows in memory."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

SCHEMA = "a long, b long, c double, d string"


class DroppingSink(DataSource):
    """`format("benchmark_drop")`: takes Arrow batches and drops them."""

    @classmethod
    def name(cls) -> str:
        return "benchmark_drop"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return _DroppingWriter()


class _DroppingWriter(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


class MemorySource(DataSource):
    """`format("benchmark_memory")`, with the options `rows`, `batchRows` and `partitions`."""

    @classmethod
    def name(cls) -> str:
        return "benchmark_memory"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return _MemoryReader(
            int(self.options["rows"]),
            int(self.options["batchRows"]),
            int(self.options["partitions"]),
        )


class _MemoryReader(DataSourceReader):
    def __init__(self, rows: int, batch_rows: int, partitions: int) -> None:
        self.rows, self.batch_rows, self.parts = rows, batch_rows, partitions

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(n) for n in range(self.parts)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        yield from memory_batches(self.rows // self.parts, self.batch_rows)


def memory_batches(rows: int, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Yield `rows` rows in batches of `batch_rows`. The last batch may be smaller."""
    batch = memory_batch(batch_rows)
    for first in range(0, rows, batch_rows):
        yield batch if rows - first >= batch_rows else batch.slice(0, rows - first)


@cache
def memory_batch(rows: int) -> pa.RecordBatch:
    """Return a batch of rows with four columns. Each worker process creates the batch only once."""
    ids = pa.array(range(rows), pa.int64())
    texts = pa.array([str(n).rjust(20, "x") for n in range(rows)], pa.string())
    return pa.RecordBatch.from_arrays(
        [ids, ids, ids.cast(pa.float64()), texts], names=["a", "b", "c", "d"]
    )
