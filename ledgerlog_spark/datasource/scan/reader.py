"""The batch readers that Spark calls, for logs and for one ledger (`ledgerId`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from ledgerlog_spark.arrow.conform import Conformer
from ledgerlog_spark.arrow.spark_types import arrow_schema_of
from ledgerlog_spark.datasource.cluster import client_of, password_in
from ledgerlog_spark.datasource.options.values import SourceOptions
from ledgerlog_spark.datasource.scan.pinned import last_entry_in, logs_in
from ledgerlog_spark.datasource.scan.plan import NO_FILTERS
from ledgerlog_spark.datasource.scan.planning import PlannedScan, planned_scan
from ledgerlog_spark.datasource.scan.task import ScanTask
from ledgerlog_spark.datasource.scan.task_rows import task_rows
from ledgerlog_spark.datasource.schemas import reject_unknown_raw_columns, task_ignores_case
from ledgerlog_spark.datasource.skipping.needs import Needs


class LogPartition(InputPartition):
    """One task of a scan, with the password of its ledgers."""

    def __init__(self, task: ScanTask, password: bytes) -> None:
        self.task = task
        self.password = password


class BatchReader(DataSourceReader):
    """Reads one or several logs.

    Spark pickles the reader for the tasks before it calls `partitions`. So the reader in a task has
    no plan, and each partition contains the input of its task.
    """

    def __init__(
        self,
        uri: str,
        options: SourceOptions,
        schema_json: str,
        *,
        parallelism: int = 1,
        pinned: str | None = None,
    ) -> None:
        """Make a reader. `schema_json` is the schema that Spark requires, as JSON.

        `pinned` is the text of the rows that an earlier scan of the JVM engine chose
        (`scan.pinned`).
        """
        self._parallelism = parallelism
        self._pinned = pinned
        self._schema_json = schema_json
        self.uri = uri
        self.options = options

    def planned(self, password: bytes, needs: Needs = NO_FILTERS) -> PlannedScan:
        """Take a snapshot of each log, and plan the scan.

        Only requests of the JVM engine contain `needs`.
        """
        return planned_scan(
            client_of(self.uri).logs,
            self.options,
            self.columns,
            parallelism=self._parallelism,
            password=password,
            needs=needs,
            pinned=None if self._pinned is None else logs_in(self._pinned),
        )

    @property
    def columns(self) -> pa.Schema:
        """The columns that Spark requires."""
        return arrow_schema_of(self._schema_json)

    def partitions(self) -> Sequence[InputPartition]:
        """Return the plan of the scan, one partition for each task."""
        password = password_in(self.options.password_file)
        tasks = self.planned(password).tasks(include_metadata=self.options.include_metadata)
        return [LogPartition(task, password) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Return the rows of one task, as Arrow batches."""
        if not isinstance(partition, LogPartition):
            return iter(())  # if there are no partitions, Spark passes one empty partition
        return rows_of_partition(
            self.uri, partition, self._schema_json, self.options.fail_on_data_loss
        )


def rows_of_partition(
    uri: str, partition: LogPartition, schema_json: str, fail_on_data_loss: bool
) -> Iterator[pa.RecordBatch]:
    """Return the rows of one task of a scan or of a stream, as Arrow batches."""
    return task_rows(
        client_of(uri).logs,
        partition.task,
        arrow_schema_of(schema_json),
        password=partition.password,
        fail_on_data_loss=fail_on_data_loss,
        ignores_case=task_ignores_case(),
    )


BATCH_SIZE_BYTES = 4 << 20
BATCH_ROWS_MAX = 32_768


class RawPartition(InputPartition):
    """Consecutive entries for one task. Both entry ids are inclusive."""

    def __init__(self, first_entry_id: int, last_entry_id: int) -> None:
        self.first_entry_id = first_entry_id
        self.last_entry_id = last_entry_id


class RawReader(DataSourceReader):
    """Reads one ledger, and returns a row `(ledger_id, entry_id, payload)` for each entry.

    The scan ends at the LAC that the driver read when it planned the scan.
    The reader never fences the ledger, so it does not disturb the writer of an open ledger.
    """

    def __init__(
        self, uri: str, options: SourceOptions, schema_json: str, *, pinned: str | None = None
    ) -> None:
        """Make a reader. For `schema_json` and `pinned`, see `BatchReader`."""
        self._uri = uri
        self._pinned = pinned
        self._options = options
        self._schema_json = schema_json

    def partitions(self) -> Sequence[InputPartition]:
        """Cut the ledger into partitions with about equal numbers of entries."""
        reject_unknown_raw_columns(arrow_schema_of(self._schema_json))
        with self._open() as ledger:
            last = self._last_of(ledger)
            count = max(
                self._options.min_partitions or 1,
                -(-ledger.length // self._options.max_bytes_per_partition),
            )
        if self._options.max_records_per_partition is not None:
            count = max(count, -(-(last + 1) // self._options.max_records_per_partition))
        count = min(count, last + 1)
        edges = [(last + 1) * number // count for number in range(count + 1)] if count else []
        return [RawPartition(first, end - 1) for first, end in pairwise(edges)]

    def last_entry_id(self) -> int:
        """Return the id of the last entry that the scan reads, or -1 if there is no entry."""
        with self._open() as ledger:
            return self._last_of(ledger)

    def _last_of(self, ledger: Any) -> int:
        return ledger.last_add_confirmed if self._pinned is None else last_entry_in(self._pinned)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Return the entries of one task, as Arrow batches."""
        if not isinstance(partition, RawPartition):
            return iter(())  # if there are no partitions, Spark passes one empty partition
        return self._read(partition)

    def _open(self) -> Any:
        assert self._options.ledger_id is not None, "a raw reader is made for a ledger"
        return client_of(self._uri).open_ledger(
            self._options.ledger_id, password=password_in(self._options.password_file)
        )

    def _read(self, partition: RawPartition) -> Iterator[pa.RecordBatch]:
        target = arrow_schema_of(self._schema_json)
        conformer = Conformer(target, ignores_case=task_ignores_case())
        ids: list[int] = []
        payloads: list[bytes] = []
        size_bytes = 0
        with self._open() as ledger:
            # The LAC that the driver read confirms these entries, but some bookies may not have
            # received this LAC yet.
            first, last = partition.first_entry_id, partition.last_entry_id
            for batch in ledger.read_batches(first, last, is_listed=True):
                for entry in batch:
                    ids.append(entry.entry_id)
                    payloads.append(entry.payload)
                    size_bytes += len(entry.payload)
                if size_bytes >= BATCH_SIZE_BYTES or len(ids) >= BATCH_ROWS_MAX:
                    yield conformer.conform(_raw_batch(ledger.id, ids, payloads))
                    ids, payloads, size_bytes = [], [], 0
            if ids:
                yield conformer.conform(_raw_batch(ledger.id, ids, payloads))


def _raw_batch(ledger_id: int, ids: list[int], payloads: list[bytes]) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "ledger_id": pa.repeat(pa.scalar(ledger_id, pa.int64()), len(ids)),
            "entry_id": pa.array(ids, pa.int64()),
            "payload": pa.array(payloads, pa.binary()),
        }
    )
