"""The calls that Spark makes to a streaming source, without Spark, so a crash can be anywhere."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ledgerlog_spark.datasource.cluster import client_of
from ledgerlog_spark.datasource.options.values import SourceOptions
from ledgerlog_spark.datasource.stream.reader import LedgerStreamReader
from ledgerlog_spark.datasource.write.job import begin_job
from ledgerlog_spark.datasource.write.task import stage_ranges

if TYPE_CHECKING:
    from collections.abc import Iterable

SCHEMA_JSON = (
    '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'
)


MOVED_BY_MERGING = {"_ledger", "_entry"}


class CrashError(Exception):
    """Raised in the middle of a batch to end a run."""


def write(uri: str, log: str, ids: Iterable[int], *, overwrite: bool = False) -> None:
    """Commit rows to a log, as one range in entries of four rows."""
    options = SourceOptions.parse({"log": log}).for_write()
    job = begin_job(client_of(uri), options, SCHEMA_JSON, overwrite=overwrite)
    handle = client_of(uri).logs.open_by_id(job.log, job.log_id)
    values = list(ids)
    batches = [
        pa.record_batch({"id": pa.array(values[first : first + 4], pa.int64())})
        for first in range(0, len(values), 4)
    ]
    ranges = stage_ranges(
        lambda: handle.open_range(job),
        job.schema,
        batches,
        compression="none",
        target_entry_bytes=4096,
    )
    handle.commit(job, ranges, is_last=True)


class Query:
    """A query and its checkpoint: the logged ends of batches, and the number of completed batches.

    Attributes:
        rows: The rows of each batch, by number. A batch that is read again must have the same rows.
    """

    def __init__(self, uri: str, schema_json: str = SCHEMA_JSON, **options: str) -> None:
        self.uri = uri
        self.options = options
        self.schema_json = schema_json
        self.logged: list[str] = []
        self.done = 0
        self.rows: dict[int, list[Any]] = {}
        self.reader: LedgerStreamReader | None = None

    @property
    def all_rows(self) -> list[Any]:
        return [row for number in sorted(self.rows) for row in self.rows[number]]

    def open(self, **options: str) -> LedgerStreamReader:
        """Begin a run of the query."""
        parsed = SourceOptions.parse({**self.options, **options}).for_stream()
        self.reader = LedgerStreamReader(self.uri, parsed, self.schema_json)
        return self.reader

    def run(self, *, crash_at: int | None = None, **options: str) -> list[Any]:
        """Read all available batches, one by one, and return the rows of this run.

        Args:
            crash_at: The batch in which the run ends: it is logged and read, but not completed.
            options: The options of this run.
        """
        reader = self.open(**options)
        try:
            reader.prepareForTriggerAvailableNow()
            first = self.done
            if len(self.logged) > self.done:
                self._batch(reader, crash_at)
            while self._plan(reader):
                self._batch(reader, crash_at)
        finally:
            reader.stop()
        return [row for n in range(first, self.done) for row in self.rows[n]]

    def _plan(self, reader: LedgerStreamReader) -> bool:
        start = self._offset(reader, len(self.logged) - 1)
        end = json.dumps(reader.latestOffset(start, reader.getDefaultReadLimit()))
        reader.reportLatestOffset()
        if self.logged and end == self.logged[-1]:
            return False
        self.logged.append(end)
        reader.commit(start)
        return True

    def _batch(self, reader: LedgerStreamReader, crash_at: int | None) -> None:
        number = self.done
        start, end = self._offset(reader, number - 1), self._offset(reader, number)
        read = [
            tuple(value for name, value in row.items() if name not in MOVED_BY_MERGING)
            for partition in reader.partitions(start, end)
            for batch in reader.read(partition)
            for row in batch.to_pylist()
        ]
        assert self.rows.setdefault(number, read) == read, f"batch {number} is another one now"
        if number == crash_at:
            raise CrashError
        self.done += 1

    def _offset(self, reader: LedgerStreamReader, number: int) -> dict[str, Any]:
        if number < 0:
            return reader.initialOffset()
        found: dict[str, Any] = json.loads(self.logged[number])
        return found
