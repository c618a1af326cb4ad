"""The batch writer that Spark calls: one job, the ranges of its tasks, and one commit."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from ledgerlog_spark.datasource.cluster import client_of
from ledgerlog_spark.datasource.options.values import SourceOptions
from ledgerlog_spark.datasource.schemas import task_ignores_case
from ledgerlog_spark.datasource.write.job import begin_job, delete_log_of
from ledgerlog_spark.datasource.write.task import stage_ranges
from ledgerlog_spark.log.blocking.logs import BlockingLog
from ledgerlog_spark.protocol.log.state.records import StagedRange

_logger = logging.getLogger(__name__)


class StagedRanges(WriterCommitMessage):
    """The ranges that one task attempt wrote, each in its own ledger. There may be no ranges."""

    def __init__(self, ranges: tuple[StagedRange, ...]) -> None:
        self.ranges = ranges


class BatchWriter(DataSourceArrowWriter):
    """Appends rows to a log, or replaces all its rows, atomically.

    Spark creates the writer on the driver. At its creation, the writer begins a run of its
    producer, which becomes the current run of the producer. Then Spark pickles the writer, and
    sends it to the tasks and to the commit. Each task attempt writes its own ledgers. If an attempt
    fails or its result is not used, no version lists its ledgers, and the sweeper deletes them.
    """

    def __init__(
        self, uri: str, options: SourceOptions, schema_json: str, *, overwrite: bool
    ) -> None:
        """Compare the schema of the rows with the log's schema, and begin the job."""
        self._uri = uri
        self._compression = options.compression
        self._target_entry_bytes = options.target_entry_bytes
        self._job = begin_job(client_of(uri), options, schema_json, overwrite=overwrite)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRanges:
        """Write the rows of one task attempt, and wait until each entry is on its ack quorum."""
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
        """Make the job's rows visible. Do nothing if the job is already committed.

        Raises:
            ConcurrentCommitError: Another commit conflicts with this job. Nothing was committed.
            ProducerFencedError: A later run with the same `txnAppId` took over. Nothing was
                committed.
            CommitUnknownError: The connection to ZooKeeper was lost, and the result is unknown. Run
                the job again with the same `txnAppId` and `txnVersion`. If the job has no such
                options, first check in the history of the log whether the log has the rows.
        """
        ranges = [staged for message in messages for staged in message.ranges]
        result = self._log().commit(self._job, ranges, is_last=True)
        _logger.info("log %s: %s, version %s", self._job.log, result.status.value, result.version)

    def _log(self) -> BlockingLog:
        return client_of(self._uri).logs.open_by_id(self._job.log, self._job.log_id)

    def abort(self, messages: Sequence[Any]) -> None:  # noqa: ARG002 (Spark's)
        """Delete the log if this write created it, and nothing else uses it.

        No version lists the ranges of a job that was not committed, so the sweeper deletes their
        ledgers. Spark may also call this method after a commit that succeeded. In this case, the
        log has a version, so nothing is deleted.
        """
        if self._job.is_log_new:
            delete_log_of(self._log(), self._job)
