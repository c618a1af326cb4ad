"""The streaming reader that Spark calls (docs/STREAMING.md).

One instance runs in Spark's source process and provides offsets and partitions. Spark pickles
another instance and sends it to the tasks. In the tasks, this second instance reads the rows. A
partition contains the input of its task.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from ledgerlog_spark.arrow.spark_types import arrow_schema_of
from ledgerlog_spark.datasource.cluster import client_of, password_in
from ledgerlog_spark.datasource.options.values import SourceOptions
from ledgerlog_spark.datasource.scan.reader import LogPartition, rows_of_partition
from ledgerlog_spark.datasource.scan.slice_choice import SliceChoice
from ledgerlog_spark.datasource.stream.admission import Limits
from ledgerlog_spark.datasource.stream.position import json_of, offsets_of
from ledgerlog_spark.datasource.stream.source import LedgerStream
from ledgerlog_spark.errors import LedgerLogError

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
except ImportError as missing:
    raise ImportError("streams need Spark 4.2 or later, as all of ledgerlog does") from missing


class LedgerStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads logs as streams. Raises the errors of `LedgerStream`."""

    def __init__(
        self, uri: str, options: SourceOptions, schema_json: str, *, parallelism: int = 1
    ) -> None:
        """Make a reader. `schema_json` is the schema that Spark requires, as JSON."""
        self.uri = uri
        self.options = options
        self._schema_json = schema_json
        self._parallelism = parallelism
        self._opened: LedgerStream | None = None

    @property
    def columns(self) -> pa.Schema:
        """The columns that Spark requires."""
        return arrow_schema_of(self._schema_json)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state that Spark sends to tasks. The watches stay in the source process."""
        return {**self.__dict__, "_opened": None}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Read each log only up to its present end."""
        self._stream.fix_ends()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit of bytes.

        `_limits` adds the limit of rows, because Spark accepts only one limit.
        """
        return ReadMaxBytes(self.options.max_bytes_per_trigger)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the start of a query without a checkpoint."""
        return json_of(self._stream.initial())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the end of the next micro-batch, or `start` if there is nothing to read."""
        return json_of(self._stream.latest(offsets_of(start), self._limits(limit)))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """Return the ends of the logs, and the lag of the query in rows, bytes and milliseconds."""
        return self._stream.report() or None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return one partition for each task of a micro-batch."""
        password = password_in(self.options.password_file)
        tasks = self._stream.tasks(offsets_of(start), offsets_of(end))
        return [LogPartition(task, password) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Return the rows of one task, as Arrow batches."""
        assert isinstance(partition, LogPartition), partition
        task = partition.task
        choice = SliceChoice(task.schemas, self.columns.names)
        chosen = LogPartition(replace(task, ranges=choice.chosen(task.ranges)), partition.password)
        return rows_of_partition(
            self.uri, chosen, self._schema_json, self.options.fail_on_data_loss
        )

    def stop(self) -> None:
        """End the watches.

        Spark 4.3 does not call this method. It ends the process, which also ends the watches.
        """
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _limits(self, limit: ReadLimit) -> Limits | None:
        rows, size_bytes = self.options.max_rows_per_trigger, self.options.max_bytes_per_trigger
        if isinstance(limit, ReadAllAvailable):
            return None
        if isinstance(limit, ReadMaxRows):
            rows = limit.max_rows
        if isinstance(limit, ReadMaxBytes):
            size_bytes = limit.max_bytes
        return Limits(rows, size_bytes)

    @property
    def _stream(self) -> LedgerStream:
        if self._opened is None:
            self._opened = LedgerStream(
                client_of(self.uri),
                self.options,
                self._schema_json,
                parallelism=self._parallelism,
            )
        return self._opened


class FailedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A reader for a query with invalid options. Every method that Spark calls raises the error."""

    def __init__(self, error: LedgerLogError) -> None:
        """Make a reader that raises `error`."""
        self.error = error

    def _fail(self, *_: object) -> NoReturn:
        raise self.error

    prepareForTriggerAvailableNow = getDefaultReadLimit = _fail  # noqa: N815 - Spark's names
    initialOffset = latestOffset = partitions = read = _fail  # noqa: N815 - Spark's names
