"""Baselines of streams: a Python source with rows in memory, and a sink that drops rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from benchmarks.spark_baselines import SCHEMA, memory_batches

BATCH_ROWS = 65_536


class StreamFloor(DataSource):
    """`format("benchmark_floor")` with the options `batches`, `rows` (per batch), `partitions`."""

    @classmethod
    def name(cls) -> str:
        return "benchmark_floor"

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return _Reader(*(int(self.options[name]) for name in ("batches", "rows", "partitions")))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        return _Writer()


class _Reader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, batches: int, rows: int, partitions: int) -> None:
        self.batches, self.rows, self.parts = batches, rows, partitions

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        pass

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self.rows)

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"batch": 0}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        return {"batch": min(start["batch"] + 1, self.batches)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(self.parts)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        rows = self.rows // self.parts
        yield from memory_batches(rows, min(rows, BATCH_ROWS))


class _Writer(DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803
        pass

    def abort(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803
        pass
