"""The API for reading a log in any Python program."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from ledgerlog_spark.log.reading.ledger_entries import RecordCursor
from ledgerlog_spark.log.reading.record_reader import RecordReader
from ledgerlog_spark.log.records import check_holds, offset_of
from ledgerlog_spark.protocol.log.state.records import LogContent

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    import pyarrow as pa

    from ledgerlog_spark.log.log import Log
    from ledgerlog_spark.log.reading.row_cursor import RowBatch
    from ledgerlog_spark.log.records import Record
    from ledgerlog_spark.model import Position
    from ledgerlog_spark.protocol.log.read.versions import LogState
    from ledgerlog_spark.protocol.log.state.records import LogKind, LogSnapshot

T = TypeVar("T")


class RecordLog:
    """One log without its writer; all methods on the client's event loop.

    Leader logs are read here: those of records with `read` and `tail`, those of rows with
    `read_rows` and `tail_rows`. A log that Spark wrote is read with Spark.

    Attributes:
        name: The name it was opened under.
        log_id: Its id; a later log of the same name has another id.
        kind: Kind of its writers: jobs that commit, or one leader at a time.
        content: Rows or records.
    """

    def __init__(
        self, log: Log, kind: LogKind, content: LogContent, schema: bytes | None = None
    ) -> None:
        """An open log; `schema` is its schema record, None while it has none."""
        self.name = log.name
        self.log_id = log.log_id
        self.kind = kind
        self.content = content
        self._log = log
        self._schema = schema

    @property
    def schema(self) -> pa.Schema | None:
        """Schema of the rows when the log was opened; None for records."""
        if self._schema is None:
            return None
        from ledgerlog_spark.arrow.stream_codec import decode_schema

        return decode_schema(self._schema)

    async def state(self) -> LogState:
        """The present head and schemas.

        Raises:
            LogNotFoundError: The log was deleted.
            MetadataFormatError: A later ledgerlog wrote it.
            MetadataUnavailableError: It could not be read.
        """
        return await self._log.state()

    async def snapshot(self) -> LogSnapshot:
        """The records or rows that are readable now, as ranges of ledgers.

        Each open ledger of a leader log is a range that ends at its last add confirmed.

        Raises:
            LogNotFoundError: The log was deleted.
            EntryUnknownError: Too few bookies of an open ledger answered; retriable.
            MetadataUnavailableError: The log could not be read.
        """
        return await self._log.snapshot()

    async def read(
        self, start: Position | int | None = None, end: Position | int | None = None
    ) -> AsyncGenerator[Record, None]:
        """The records from `start` (inclusive) to `end` (exclusive), in order.

        Args:
            start: A position or an offset; None for the oldest record.
            end: The same; None for the present end.

        Raises:
            PositionNotAvailableError: `start` was truncated, or the next record was truncated
                before the caller took it; or one of them is after the present end. Has
                `oldest_offset` and `end_offset`.
            LogKindError: A log of rows, or one that Spark wrote.
            DataLossError: A listed record cannot be found.
            EntryUnknownError: Some replica could not answer, and none had the entry; retriable.
        """
        async with contextlib.aclosing(_each(self.read_batches(start, end))) as records:
            async for record in records:
                yield record

    async def tail(self, start: Position | int | None = None) -> AsyncGenerator[Record, None]:
        """All records from `start` on, and each later one soon after it was acknowledged.

        Waits by watches; ends with an error or when closed. A record is delivered within 100 ms of
        its acknowledgement, also when nothing is appended after it.

        Args:
            start: A position or an offset; one after the end is waited for. None for the present
                end.

        Raises:
            PositionNotAvailableError: `start` was truncated, or the next record was truncated
                before the caller took it; has `oldest_offset`.
            LogNotFoundError: The log was deleted.
            LogKindError: A log of rows, or one that Spark wrote.
            DataLossError: A listed record cannot be found.
            EntryUnknownError: Some replica could not answer, and none had the entry; retriable.
        """
        async with contextlib.aclosing(_each(self.tail_batches(start))) as records:
            async for record in records:
                yield record

    def read_rows(
        self, start: Position | int | None = None, end: Position | int | None = None
    ) -> AsyncGenerator[RowBatch, None]:
        """The rows from `start` (inclusive) to `end` (exclusive), in order, cut to the row.

        A batch has the rows of one entry. Arguments and errors as of `read`, for a log of rows.
        """
        return _each(self._row_reader().read(self._offset(start), self._offset(end)))

    def tail_rows(self, start: Position | int | None = None) -> AsyncGenerator[RowBatch, None]:
        """All rows from `start` on, and each later one soon after it was acknowledged.

        Waits by watches; ends with an error or when closed. Arguments and errors as of `tail`, for
        a log of rows.
        """
        return _each(self._row_reader().tail(self._offset(start)))

    def read_batches(
        self, start: Position | int | None = None, end: Position | int | None = None
    ) -> AsyncGenerator[list[Record], None]:
        """The same as `read`, in batches; arguments and errors as of `read`."""
        return self._reader().read(self._offset(start), self._offset(end))

    def tail_batches(
        self, start: Position | int | None = None
    ) -> AsyncGenerator[list[Record], None]:
        """The same as `tail`, in batches; arguments and errors as of `tail`."""
        return self._reader().tail(self._offset(start))

    def _reader(self) -> RecordReader[Record]:
        check_holds(self.name, self.kind, self.content, LogContent.RECORDS)
        return RecordReader(self._log.host, RecordCursor)

    def _row_reader(self) -> RecordReader[RowBatch]:
        check_holds(self.name, self.kind, self.content, LogContent.ROWS)
        from ledgerlog_spark.log.reading.row_cursor import RowCursor

        # A log without a schema has no entries either.
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
