"""The batch writer that Spark sees: one job, its tasks' ranges, one commit."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from ledgerlog_spark.datasource.case_rule import task_ignores_case
from ledgerlog_spark.datasource.cluster import client_of, logs_at
from ledgerlog_spark.datasource.options.values import SourceOptions
from ledgerlog_spark.datasource.write.job import begin_job
from ledgerlog_spark.datasource.write.task import stage_ranges
from ledgerlog_spark.log.blocking.logs import BlockingLog
from ledgerlog_spark.protocol.log.state.records import StagedRange

_logger = logging.getLogger(__name__)


class StagedRanges(WriterCommitMessage):
    """The ranges that one task attempt wrote, each in its own ledger; there may be none."""

    def __init__(self, ranges: tuple[StagedRange, ...]) -> None:
        self.ranges = ranges


class BatchWriter(DataSourceArrowWriter):
    """Appends rows to a log or replaces them, atomically.

    It is created on the driver, where it takes over as the job's producer. Then it is pickled to
    the tasks and to the commit. A task attempt writes its own ledgers. An attempt that fails or is
    superfluous leaves ledgers that no version lists; the sweeper deletes them.
    """

    def __init__(
        self, uri: str, options: SourceOptions, schema_json: str, *, overwrite: bool
    ) -> None:
        """Check the rows' schema against the log's, and begin the job."""
        self._uri = uri
        self._compression = options.compression
        self._target_entry_bytes = options.target_entry_bytes
        self._job = begin_job(client_of(uri), options, schema_json, overwrite=overwrite)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRanges:
        """The ranges of one task attempt, acknowledged on their ack quorums when this returns."""
        if self._job.is_replay:
            for _ in iterator:  # the rows must be consumed, although the log already has them
                pass
            return StagedRanges(())
        log = self._log()
        return StagedRanges(
            stage_ranges(
                lambda: log.open_range(self._job),
                self._job.schema,
                iterator,
                compression=self._compression,
                target_entry_bytes=self._target_entry_bytes,
                ignores_case=task_ignores_case(),
            )
        )

    def commit(self, messages: Sequence[Any]) -> None:
        """Make the job's rows visible; does nothing if the job was committed before.

        Raises:
            ConcurrentCommitError: Another commit conflicts with this job. Definite.
            ProducerFencedError: A later run of the same `txnAppId` took over. Definite.
            CommitUnknownError: The connection to ZooKeeper was lost; run the job again with the
                same `txnAppId` and `txnVersion`.
        """
        ranges = [staged for message in messages for staged in message.ranges]
        result = self._log().commit(self._job, ranges, is_last=True)
        _logger.info("log %s: %s, version %s", self._job.log, result.status.value, result.version)

    def _log(self) -> BlockingLog:
        return logs_at(self._uri).open_by_id(self._job.log, self._job.log_id)

    def abort(self, messages: Sequence[Any]) -> None:
        """Does nothing: Spark also calls this after a successful commit.

        No version lists the ranges of a job that was not committed; the sweeper deletes them.
        """
