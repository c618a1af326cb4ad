"""A log as any Python program reads it (DESIGN 6.3, 10)."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from ledgerlog_spark.log.record_access import check_holds_records
from ledgerlog_spark.log.records import offset_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ledgerlog_spark.log.log import Log
    from ledgerlog_spark.log.record_reader import RecordReader
    from ledgerlog_spark.log.records import Record
    from ledgerlog_spark.model import Position
    from ledgerlog_spark.protocol.log_read import LogState
    from ledgerlog_spark.protocol.log_records import LogContent, LogKind, LogSnapshot


class RecordLog:
    """One log without its writer; all methods on the client's event loop.

    Only leader logs of records can be read record by record: a log of rows is read with Spark.

    Attributes:
        name: The name it was opened under.
        log_id: Its id; another log of the same name later has another.
        kind: Who writes it.
        content: What its entries hold.
    """

    def __init__(self, log: Log, kind: LogKind, content: LogContent) -> None:
        self.name = log.name
        self.log_id = log.log_id
        self.kind = kind
        self.content = content
        self._log = log

    async def state(self) -> LogState:
        """Head and schemas as they are now; see `Log.state`."""
        return await self._log.state()

    async def snapshot(self) -> LogSnapshot:
        """What is readable now, as ranges of ledgers; see `Log.snapshot`."""
        return await self._log.snapshot()

    async def read(
        self, start: Position | int | None = None, end: Position | int | None = None
    ) -> AsyncGenerator[Record, None]:
        """The records from `start` (inclusive) to `end` (exclusive), in order.

        Args:
            start: A position or an offset; None for the oldest record there is.
            end: The same; None for all that is readable now.

        Raises:
            PositionNotAvailableError: `start` was truncated away, or one of them lies behind what
                is readable now; has `oldest_offset` and `end_offset`.
            LogKindError: A log of rows.
            DataLossError: A listed record cannot be found.
            EntryUnknownError: Some replica could not answer, and none had the entry; retriable.
        """
        async with contextlib.aclosing(self.read_batches(start, end)) as batches:
            async for batch in batches:
                for record in batch:
                    yield record

    async def tail(self, start: Position | int | None = None) -> AsyncGenerator[Record, None]:
        """All records from `start` on, and each later one soon after it was acknowledged.

        Waits by watches, and never ends by itself. A record is delivered within 100 ms of its
        acknowledgement, also when nothing is appended after it.

        Args:
            start: A position or an offset, which may lie behind the end; None for the end as it is
                now.

        Raises:
            PositionNotAvailableError: `start` was truncated away, or the next record was while the
                caller took its time; has `oldest_offset`.
            LogNotFoundError: The log was deleted.
            LogKindError: A log of rows.
            DataLossError: A listed record cannot be found.
            EntryUnknownError: Some replica could not answer, and none had the entry; retriable.
        """
        async with contextlib.aclosing(self.tail_batches(start)) as batches:
            async for batch in batches:
                for record in batch:
                    yield record

    def read_batches(
        self, start: Position | int | None = None, end: Position | int | None = None
    ) -> AsyncGenerator[list[Record], None]:
        """The same as `read`, in batches."""
        return self._reader().read(self._offset(start), self._offset(end))

    def tail_batches(
        self, start: Position | int | None = None
    ) -> AsyncGenerator[list[Record], None]:
        """The same as `tail`, in batches."""
        return self._reader().tail(self._offset(start))

    def _reader(self) -> RecordReader:
        check_holds_records(self.name, self.kind, self.content)
        return self._log.records()

    def _offset(self, place: Position | int | None) -> int | None:
        return None if place is None else offset_of(place, self.log_id, self.name)

    def __repr__(self) -> str:
        return f"RecordLog({self.name!r}, {self.kind.name}, {self.content.name})"
