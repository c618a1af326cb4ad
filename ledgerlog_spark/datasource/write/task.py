"""Writes the batches of one task attempt as entries. Each attempt has its own ledgers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial

import pyarrow as pa

from ledgerlog_spark.arrow.char_lengths import LengthCheck
from ledgerlog_spark.arrow.conform import Conformer
from ledgerlog_spark.arrow.entry_cutter import EncodedEntry, EntrySplitter
from ledgerlog_spark.arrow.spark_types import arrow_schema_of, spark_schema
from ledgerlog_spark.arrow.stream_codec import decode_entries
from ledgerlog_spark.errors import LedgerClosedError, LedgerFencedError
from ledgerlog_spark.log.blocking.logs import BlockingRangeWriter
from ledgerlog_spark.protocol.log.state.records import StagedRange

MOVES_MAX = 10
"""Maximum number of this attempt's ledgers that other clients may recover.

If they recover one more ledger, the attempt fails.
"""

_logger = logging.getLogger(__name__)


def stage_ranges(
    open_range: Callable[[], BlockingRangeWriter],
    schema: bytes,
    batches: Iterable[pa.RecordBatch],
    *,
    compression: str,
    target_entry_bytes: int,
    ignores_case: bool = True,
) -> tuple[StagedRange, ...]:
    """Write the rows of one task attempt. If there are no rows, no ledger is created.

    The entries are on their ack quorums when this function returns. `open_range` is called again
    when a range is full or its ledger was fenced. `schema` is the encoded schema of the job. If
    `ignores_case` is False, a column whose name differs from the name in the log only in case
    causes an error.
    """
    new_splitter = partial(
        EntrySplitter,
        arrow_schema_of(spark_schema(schema)),
        compression=compression,
        target_entry_bytes=target_entry_bytes,
    )
    writer = _Ranges(open_range, schema, new_splitter, ignores_case=ignores_case)
    try:
        for batch in batches:
            writer.add(batch)
        return writer.finish()
    except BaseException:
        writer.abandon()
        raise


class _Ranges:
    """Writes the ranges of one task attempt, one after another."""

    def __init__(
        self,
        open_range: Callable[[], BlockingRangeWriter],
        schema: bytes,
        new_splitter: Callable[[], EntrySplitter],
        *,
        ignores_case: bool,
    ) -> None:
        self._open_range = open_range
        self._schema = schema
        schema_json = spark_schema(schema)
        target = arrow_schema_of(schema_json)
        self._lengths = LengthCheck(schema_json)
        self._conformer = Conformer(target, ignores_case=ignores_case)
        self._new_splitter = new_splitter
        self._splitter = new_splitter()
        self._writer: BlockingRangeWriter | None = None
        self._index_entry: bytes | None = None
        self._ranges: list[StagedRange] = []
        self._moves = 0

    def add(self, batch: pa.RecordBatch) -> None:
        stored = self._lengths.checked(self._conformer.conform(batch))
        self._append(self._splitter.add(stored))
        if self._writer is not None and self._writer.is_full:
            self._finish_range()

    def finish(self) -> tuple[StagedRange, ...]:
        self._finish_range()
        return tuple(self._ranges)

    def abandon(self) -> None:
        if self._writer is not None:
            self._writer.abandon()

    def _append(self, entries: Iterator[EncodedEntry]) -> None:
        for payload, rows in entries:
            if not rows:
                self._index_entry = payload
                continue
            if self._writer is None:
                self._writer = self._open_range()
            try:
                self._writer.append(payload, rows)
            except (LedgerFencedError, LedgerClosedError) as error:
                self._move(error, entries)

    def _finish_range(self) -> None:
        while True:
            splitter = self._splitter
            self._append(splitter.finish())
            if splitter is not self._splitter:
                continue
            if self._writer is None:
                return
            try:
                staged = self._writer.finish(self._index_entry, statistics=splitter.statistics)
            except (LedgerFencedError, LedgerClosedError) as error:
                self._move(error, iter(()))
                continue
            self._next_range(staged)
            return

    def _move(self, error: Exception, entries: Iterator[EncodedEntry]) -> None:
        """Keep a fenced ledger's acknowledged entries, and write its other rows to a new ledger.

        This method implements LOGS.md#K12. The other rows are encoded again, because an entry
        contains the number of its first row in its range.
        """
        self._moves += 1
        if self._moves > MOVES_MAX:
            raise error
        _logger.warning("continuing in another ledger: %s: %s", type(error).__name__, error)
        assert self._writer is not None
        staged, unconfirmed = self._writer.cut()
        again = [*unconfirmed, *(payload for payload, rows in entries if rows)]
        released = self._splitter.release()
        self._next_range(staged)
        for decoded in decode_entries(self._schema, map(memoryview, again)):
            self._append(self._splitter.add(decoded.batch))
        for batch in released:
            self._append(self._splitter.add(batch))

    def _next_range(self, staged: StagedRange | None) -> None:
        self._writer, self._index_entry = None, None
        self._splitter = self._new_splitter()
        if staged is not None:
            self._ranges.append(staged)
