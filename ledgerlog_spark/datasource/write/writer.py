"""The batch writer that Spark sees: one job, its tasks' ranges, one commit."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

if TYPE_CHECKING:
    import pyarrow as pa

    from ledgerlog_spark.datasource.options.values import WriteOptions
    from ledgerlog_spark.protocol.log.state.records import StagedRange

_logger = logging.getLogger(__name__)


class StagedRanges(WriterCommitMessage):
    """What one task attempt wrote: none, one or several ranges, each in a ledger of its own."""

    def __init__(self, ranges: tuple[StagedRange, ...]) -> None:
        self.ranges = ranges


class BatchWriter(DataSourceArrowWriter):
    """Appends rows to a log or replaces them, visible at once and whole, or not at all.

    Made on the driver, where it takes over as the job's producer; then pickled to the tasks and to
    the commit. A task attempt writes ledgers of its own: an attempt that fails, or one too many,
    leaves ledgers that nothing lists and that the sweeper lets go.
    """

    def __init__(
        self, uri: str, options: WriteOptions, schema_json: str, *, overwrite: bool
    ) -> None:
        """Check the rows' schema against the log's, and begin the job."""
        from ledgerlog_spark.datasource.cluster import client_of
        from ledgerlog_spark.datasource.write.job import begin_job

        self._uri = uri
        self._compression = options.compression
        self._target_entry_bytes = options.target_entry_bytes
        self._job = begin_job(client_of(uri), options, schema_json, overwrite=overwrite)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRanges:
        """The ranges of one task attempt, acknowledged on their ack quorums when this returns."""
        from ledgerlog_spark.datasource.case_rule import task_ignores_case
        from ledgerlog_spark.datasource.cluster import logs_at
        from ledgerlog_spark.datasource.write.task import stage_ranges

        if self._job.is_replay:
            for _ in iterator:  # Spark's rows have to be taken, the log has them already
                pass
            return StagedRanges(())
        log = logs_at(self._uri).open_by_id(self._job.log, self._job.log_id)
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
        """Make the job's rows visible; a job that was committed before changes nothing.

        Raises:
            ConcurrentCommitError: Somebody committed what this job cannot stand with. Definite.
            ProducerFencedError: A later run of the same `txnAppId` took over. Definite.
            CommitUnknownError: ZooKeeper went away in the middle; run the job again with the same
                `txnAppId` and `txnVersion`.
        """
        from ledgerlog_spark.datasource.cluster import logs_at

        ranges = [staged for message in messages for staged in message.ranges]
        log = logs_at(self._uri).open_by_id(self._job.log, self._job.log_id)
        result = log.commit(self._job, ranges, is_last=True)
        _logger.info("log %s: %s, version %s", self._job.log, result.status.value, result.version)

    def abort(self, messages: Sequence[Any]) -> None:
        """Nothing: Spark also calls this after a commit that did land.

        The ranges of a job that was not committed are listed nowhere; the sweeper lets them go.
        """
