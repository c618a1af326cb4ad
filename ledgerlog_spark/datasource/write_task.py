"""The task's part of a write: batches to entries of ledgers of its own (design 6.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledgerlog_spark.arrow.conform import Conformer
from ledgerlog_spark.arrow.entry_splitter import EntrySplitter
from ledgerlog_spark.arrow.spark_types import arrow_schema_of
from ledgerlog_spark.datasource.cluster import logs_at
from ledgerlog_spark.datasource.schemas import spark_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from ledgerlog_spark.arrow.entry_splitter import EncodedEntry
    from ledgerlog_spark.log.blocking import BlockingLog, BlockingRangeWriter
    from ledgerlog_spark.log.job import Job
    from ledgerlog_spark.protocol.log_records import StagedRange


def stage_ranges(
    uri: str,
    job: Job,
    batches: Iterable[pa.RecordBatch],
    *,
    compression: str,
    target_entry_bytes: int,
) -> tuple[StagedRange, ...]:
    """Write the rows of one task attempt; no ledger at all without rows.

    The entries are on their ack quorums and the ledgers closed when this returns.

    Raises:
        LocalProtocolError: A row is larger than an entry can be; names its size.
        SchemaMismatchError: A batch cannot become the log's schema.
        LedgerLogError: The attempt failed; what it wrote is listed nowhere.
    """
    writer = _Ranges(logs_at(uri).open_job(job), job, compression, target_entry_bytes)
    try:
        for batch in batches:
            writer.add(batch)
        return writer.finish()
    except BaseException:
        writer.abandon()
        raise


class _Ranges:
    """The ranges of one attempt, one open at a time."""

    def __init__(
        self, log: BlockingLog, job: Job, compression: str, target_entry_bytes: int
    ) -> None:
        self._log = log
        self._job = job
        self._compression = compression
        self._target_entry_bytes = target_entry_bytes
        self._schema = arrow_schema_of(spark_schema(job.schema))
        self._conformer = Conformer(self._schema)
        self._splitter = self._new_splitter()
        self._writer: BlockingRangeWriter | None = None
        self._index_entry: bytes | None = None
        self._ranges: list[StagedRange] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Take in rows; full entries are sent on the way."""
        self._append(self._splitter.add(self._conformer.conform(batch)))
        if self._writer is not None and self._writer.is_full:
            self._finish_range()

    def finish(self) -> tuple[StagedRange, ...]:
        """All ranges, acknowledged."""
        self._finish_range()
        return tuple(self._ranges)

    def abandon(self) -> None:
        """Stop; the ledger is left to the sweeper."""
        if self._writer is not None:
            self._writer.abandon()

    def _new_splitter(self) -> EntrySplitter:
        return EntrySplitter(
            self._schema,
            compression=self._compression,
            target_entry_bytes=self._target_entry_bytes,
        )

    def _append(self, entries: Iterator[EncodedEntry]) -> None:
        for payload, rows in entries:
            if not rows:
                self._index_entry = payload
                continue
            if self._writer is None:
                self._writer = self._log.open_range(self._job)
            self._writer.append(payload, rows)

    def _finish_range(self) -> None:
        self._append(self._splitter.finish())
        if self._writer is None:
            return
        staged = self._writer.finish(self._index_entry, statistics=self._splitter.statistics)
        self._writer, self._index_entry = None, None
        self._splitter = self._new_splitter()
        if staged is not None:
            self._ranges.append(staged)
