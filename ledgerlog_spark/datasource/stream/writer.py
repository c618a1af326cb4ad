"""The stream writer that Spark calls. The writer commits each micro-batch exactly once.

Spark creates one writer for each micro-batch in the process that plans the batch, and sends this
writer to the tasks. Spark creates another writer in the process that commits. The second writer
gets only the messages of the tasks and the batch id.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from ledgerlog_spark.datasource.cluster import client_of
from ledgerlog_spark.datasource.options.values import SourceOptions
from ledgerlog_spark.datasource.schemas import task_ignores_case
from ledgerlog_spark.datasource.stream.job import StreamWrite, commit_stream
from ledgerlog_spark.datasource.write.task import stage_ranges
from ledgerlog_spark.errors import ConfigurationError, LocalProtocolError
from ledgerlog_spark.log.blocking.stream import BlockingStream
from ledgerlog_spark.log.committing.job import Job
from ledgerlog_spark.protocol.log.commit.epoch import JobKind
from ledgerlog_spark.protocol.log.state.records import StagedRange

COMMITTER = "pyspark.sql.worker.python_streaming_sink_runner"
"""Name of a module of Spark that runs only in the process that commits."""

_logger = logging.getLogger(__name__)


class StreamedRanges(WriterCommitMessage):
    """The message of a task attempt to the driver: its job, and the ranges that the attempt wrote.

    A task without rows also sends this message, without ranges.
    """

    def __init__(self, job: Job, ranges: tuple[StagedRange, ...]) -> None:
        self.job = job
        self.ranges = ranges


class StreamWriter(DataSourceStreamArrowWriter):
    """Appends each micro-batch to a log, or replaces the log's rows with the batch, exactly once.

    A task attempt writes its own ranges. The Python worker may keep the ledgers of these ranges
    open for later batches. One transaction makes the whole batch visible. If Spark runs a batch
    again after it was committed, nothing changes.
    """

    def __init__(
        self, uri: str, options: SourceOptions, schema_json: str, *, overwrite: bool
    ) -> None:
        """Compare the rows' schema with the log. In the process that commits, send no request."""
        self._write = StreamWrite(uri, options, schema_json, overwrite)
        self._plan = None if COMMITTER in sys.modules else self._write.plan()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StreamedRanges:
        """Write the rows of one task attempt, and wait until each entry is on its ack quorum.

        Raises:
            StaleCheckpointError: The log has later batches of this query. Nothing is committed.
            ProducerFencedError: A later run of the query took over. Nothing is committed.
            LogNotFoundError: The log was deleted, or replaced by a new log, while the query ran.
            LocalProtocolError: A row is too large for an entry. The error message contains its
                size.
            LedgerLogError: The bookies or ZooKeeper failed. Spark retries the task.
        """
        if self._plan is None:
            raise LocalProtocolError("this writer can commit, but not write")
        batch = running_batch()
        options = self._write.options
        job = self._write.plan_of_batch(self._plan, batch.batch_id).job(
            app=options.txn_app_id or batch.query_id,
            run=f"{batch.query_id}/{batch.run_id}" if options.txn_app_id else batch.run_id,
            batch_id=batch.batch_id,
            kind=JobKind.STREAM,
        )
        stream = BlockingStream(client_of(self._write.uri), job)
        if stream.join().last_batch_id >= batch.batch_id:
            for _ in iterator:  # the rows must be consumed, although the log already has them
                pass
            return StreamedRanges(job, ())
        return StreamedRanges(
            job,
            stage_ranges(
                stream.open_range,
                job.schema,
                iterator,
                compression=options.compression,
                target_entry_bytes=options.target_entry_bytes,
                ignores_case=task_ignores_case(),
            ),
        )

    def commit(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803 (Spark's name)
        """Make the micro-batch visible. Do nothing if the micro-batch is already committed.

        Raises:
            ProducerFencedError: A later run of the query took over. Nothing was committed.
            ConcurrentCommitError: Another commit conflicts with this batch. Nothing was committed.
            CommitUnknownError: The connection to ZooKeeper was lost, so the result is unknown.
                Restart the query.
        """
        job: Job = messages[0].job
        strangers = [m for m in messages if m.job != job]
        if strangers or job.batch_id != batchId:
            raise LocalProtocolError(
                f"the messages are not all of batch {batchId} of run {job.run!r}",
                batch_id=batchId,
                run=job.run,
            )
        ranges = [staged for message in messages for staged in message.ranges]
        result = commit_stream(client_of(self._write.uri), job, ranges)
        _logger.info(
            "log %s, batch %s: %s, version %s",
            *(job.log, batchId, result.status.value, result.version),
        )

    def abort(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803 (Spark's name)
        """Do nothing: Spark also calls `abort` after a successful commit, and when a query stops.

        If a batch was not committed, no version lists its ledgers, and the sweeper deletes them.
        """


class RunningBatch(NamedTuple):
    """The micro-batch of a task."""

    query_id: str  # the same as long as the checkpoint exists
    run_id: str  # another value after each start of the query
    batch_id: int


def running_batch() -> RunningBatch:
    """Return the micro-batch of the running task, from Spark's properties of the task."""
    context = TaskContext.get()
    names = ("sql.streaming.queryId", "spark.jobGroup.id", "streaming.sql.batchId")
    values = [context.getLocalProperty(name) if context else None for name in names]
    missing = [name for name, value in zip(names, values, strict=True) if not value]
    if missing:
        raise ConfigurationError(
            f"Spark did not name the streaming query ({', '.join(missing)} is not set): "
            "write with writeStream",
            missing=tuple(missing),
        )
    query_id, run_id, batch_id = (str(value) for value in values)
    return RunningBatch(query_id, run_id, int(batch_id))
