"""The batch reader that Spark calls: plans on the driver, and reads in tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from ledgerlog_spark.arrow.spark_types import arrow_schema_of
from ledgerlog_spark.datasource.case_rule import task_ignores_case
from ledgerlog_spark.datasource.cluster import logs_at, password_in
from ledgerlog_spark.datasource.options.values import SourceOptions
from ledgerlog_spark.datasource.scan.planning import tasks_of
from ledgerlog_spark.datasource.scan.task import ScanTask
from ledgerlog_spark.datasource.scan.task_rows import task_rows


class LogPartition(InputPartition):
    """One task of a scan, with the password of its ledgers."""

    def __init__(self, task: ScanTask, password: bytes) -> None:
        self.task = task
        self.password = password


class BatchReader(DataSourceReader):
    """Reads one or several logs.

    Spark pickles the reader before it calls `partitions`, so the plan travels in the partitions.
    """

    def __init__(
        self, uri: str, options: SourceOptions, schema_json: str, *, parallelism: int = 1
    ) -> None:
        """`schema_json` is the schema that Spark wants. Pass 1 if `parallelism` is unknown."""
        self._parallelism = parallelism
        self._uri = uri
        self._options = options
        self._schema_json = schema_json

    def partitions(self) -> Sequence[InputPartition]:
        """The plan of the scan, one partition for each task."""
        password = password_in(self._options.password_file)
        tasks = tasks_of(
            logs_at(self._uri),
            self._options,
            arrow_schema_of(self._schema_json),
            parallelism=self._parallelism,
            password=password,
        )
        return [LogPartition(task, password) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of one task, as Arrow batches."""
        if not isinstance(partition, LogPartition):
            return iter(())  # from an empty list, Spark creates one empty partition
        return rows_of_partition(
            self._uri, partition, self._schema_json, self._options.fail_on_data_loss
        )


def rows_of_partition(
    uri: str, partition: LogPartition, schema_json: str, fail_on_data_loss: bool
) -> Iterator[pa.RecordBatch]:
    """The rows of one task of a scan or of a stream, as Arrow batches."""
    return task_rows(
        logs_at(uri),
        partition.task,
        arrow_schema_of(schema_json),
        password=partition.password,
        fail_on_data_loss=fail_on_data_loss,
        ignores_case=task_ignores_case(),
    )
