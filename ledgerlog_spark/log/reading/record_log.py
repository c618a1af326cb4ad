"""The API for reading a log in any Python program."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from ledgerlog_spark.log.log import Log
from ledgerlog_spark.log.reading.ledger_entries import RecordCursor
from ledgerlog_spark.log.reading.record_reader import RecordReader
from ledgerlog_spark.log.records import Record, check_holds, offset_of
from ledgerlog_spark.model import Position
from ledgerlog_spark.protocol.log.read.versions import LogState
from ledgerlog_spark.protocol.log.state.records import LogContent, LogKind, LogSnapshot

if TYPE_CHECKING:
    import pyarrow as pa

    from ledgerlog_spark.log.reading.row_cursor import RowBatch

T = TypeVar("T")


class RecordLog:
    """One log that was opened for reading. All methods run on the client's event loop.

    `read` and `tail` read a leader log of records. `read_rows` and `tail_rows` read a leader log of
    rows. A log that Spark wrote can only be read with Spark.

    Attributes:
        name: The name under which the log was opened.
        log_id: The log's id; a later log of the same name has another id.
        kind: The kind of the log's writers: jobs that commit, or one leader at a time.
        content: The content of the log: rows or records.
    """

    def __init__(
        self, log: Log, kind: LogKind, content: LogContent, schema: bytes | None = None
    ) -> None:
        """Create a handle of `log`.

        `schema` is the log's encoded schema; None if it has no schema yet.
        """
        self.name = log.name
        self.log_id = log.log_id
        self.kind = kind
        self.content = content
        self._log = log
        self._schema = schema

    @property
    def schema(self) -> pa.Schema | None:
        """Schema of the rows when the log was opened; None if this is a log of records."""
        if self._schema is None:
            return None
        from ledgerlog_spark.arrow.stream_codec import decode_schema

        return decode_schema(self._schema)

    async def state(self) -> LogState:
        """Return the present head and schemas of the log.

        Raises:
            LogNotFoundError: The log was deleted.
            MetadataFormatError: The log was written by a later release of ledgerlog.
            MetadataUnavailableError: The log could not be read.
        """
        return await self._log.state()

    async def snapshot(self) -> LogSnapshot:
        """Return the ranges of ledgers with the records or rows that are readable now.

        Each open ledger of a leader log is a range that ends at its last add confirmed.

        Raises:
            LogNotFoundError: The log was deleted.
            EntryUnknownError: Too few bookies of an open ledger answered; retriable.
            MetadataUnavailableError: The log could not be read.
        """
        return await self._log.snapshot()

    def read(
        self, start: Position | int | None = None, end: Position | int | None = None
    ) -> AsyncGenerator[Record, None]:
        """Yield the records from `start` (inclusive) to `end` (exclusive), in order.

        Args:
            start: A position or an offset; if it is None, the read begins at the oldest record.
            end: A position or an offset; if it is None, the read ends at the present end of the
                log.

        Raises:
            PositionNotAvailableError: `start` or the next record was truncated, or `start` or `end`
                is after the present end. The error contains `oldest_offset` and `end_offset`.
            LogKindError: The log is a log of rows, or Spark wrote it.
            DataLossError: A listed record cannot be found.
            EntryUnknownError: At least one replica could not answer, and no other replica had the
                entry; retriable.
        """
        return _each(self.read_batches(start, end))

    def tail(self, start: Position | int | None = None) -> AsyncGenerator[Record, None]:
        """Yield all records from `start` on, and each new record soon after its acknowledgement.

        A tail waits until a watch notifies it of a change. It ends only with an error, or when the
        caller closes it. A record is delivered within 100 ms of its acknowledgement, even if no
        record is appended after it.

        Args:
            start: A position or an offset, which may be after the present end. If it is None, the
                tail begins at the present end.

        Raises:
            PositionNotAvailableError: `start` was truncated, or the next record was truncated
                before the caller took it. The error contains `oldest_offset`.
            LogNotFoundError: The log was deleted.
            LogKindError: The log is a log of rows, or Spark wrote it.
            DataLossError: A listed record cannot be found.
            EntryUnknownError: At least one replica could not answer, and no other replica had the
                entry; retriable.
        """
        return _each(self.tail_batches(start))

    def read_rows(
        self, start: Position | int | None = None, end: Position | int | None = None
    ) -> AsyncGenerator[RowBatch, None]:
        """Yield the rows from `start` (inclusive) to `end` (exclusive), in order.

        A batch contains rows of one entry, and no rows outside `start` and `end`. The arguments and
        errors are the same as for `read`, but the log must be a log of rows.
        """
        return _each(self._row_reader().read(self._offset(start), self._offset(end)))

    def tail_rows(self, start: Position | int | None = None) -> AsyncGenerator[RowBatch, None]:
        """Yield all rows from `start` on, and each new row soon after its acknowledgement.

        A tail waits until a watch notifies it of a change. It ends only with an error, or when the
        caller closes it. The arguments and errors are the same as for `tail`, but the log must be a
        log of rows.
        """
        return _each(self._row_reader().tail(self._offset(start)))

    def read_batches(
        self, start: Position | int | None = None, end: Position | int | None = None
    ) -> AsyncGenerator[list[Record], None]:
        """Yield the records of `read` in batches. The arguments and errors are those of `read`."""
        return self._reader().read(self._offset(start), self._offset(end))

    def tail_batches(
        self, start: Position | int | None = None
    ) -> AsyncGenerator[list[Record], None]:
        """Yield the records of `tail` in batches. The arguments and errors are those of `tail`."""
        return self._reader().tail(self._offset(start))

    def _reader(self) -> RecordReader[Record]:
        check_holds(self.name, self.kind, self.content, LogContent.RECORDS)
        return RecordReader(self._log.host, RecordCursor)

    def _row_reader(self) -> RecordReader[RowBatch]:
        check_holds(self.name, self.kind, self.content, LogContent.ROWS)
        from ledgerlog_spark.log.reading.row_cursor import RowCursor

        # A log without a schema has no entries, so the empty schema decodes nothing.
        return RecordReader(self._log.host, partial(RowCursor, self._schema or b""))

    def _offset(self, place: Position | int | None) -> int | None:
        return None if place is None else offset_of(place, self.log_id, self.name)

    def __repr__(self) -> str:
        return f"RecordLog({self.name!r}, {self.kind.name}, {self.content.name})"


async def _each(batches: AsyncGenerator[list[T], None]) -> AsyncGenerator[T, None]:
    async with contextlib.aclosing(batches):
        async for batch in batches:
            for one in batch:
                yield one
