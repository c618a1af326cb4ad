"""The blocking API of a leader: appends from any thread, one wake-up of the loop for many."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledgerlog_spark.client.blocking.add_future import AddFuture, completed
from ledgerlog_spark.client.blocking.writer import BlockingAppends
from ledgerlog_spark.errors import LocalProtocolError
from ledgerlog_spark.log.records import Positions

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    import pyarrow as pa

    from ledgerlog_spark.client.blocking.loop_thread import LoopThread
    from ledgerlog_spark.client.blocking.writer import Inbox
    from ledgerlog_spark.log.leader.leader import Leader
    from ledgerlog_spark.model import Position


class BlockingLeader(BlockingAppends):
    """`Leader` without `await`; safe to use from several threads of one process.

    Attributes:
        name: Of the log.
        log_id: Of the log.
    """

    def __init__(self, leader: Leader, thread: LoopThread, inbox: Inbox) -> None:
        super().__init__(leader, thread, inbox)
        self.name = leader.name
        self.log_id = leader.log_id
        self._leader = leader

    @property
    def end_offset(self) -> int:
        """Behind the last acknowledged record."""
        return self._leader.end_offset

    @property
    def is_leading(self) -> bool:
        """Whether appends are taken: no failure so far, and no close."""
        return self._leader.is_leading

    @property
    def schema(self) -> pa.Schema | None:
        """Of a log of rows; None of one of records."""
        return self._leader.schema

    def append(self, record: bytes | bytearray | memoryview) -> Position:
        """The record's position, once it is on the disks of Qa bookies; see `Leader.append`."""
        return self.append_async(record).result()

    def append_async(self, record: bytes | bytearray | memoryview) -> AddFuture[Position]:
        """A `concurrent.futures.Future` of the position; blocks only while the backlog is full."""
        return self._append(self._leader.content.record(record))

    def append_many(self, records: Sequence[bytes | bytearray | memoryview]) -> Positions:
        """The positions of all records; see `Leader.append_many`."""
        return self.append_many_async(records).result()

    def append_many_async(
        self, records: Sequence[bytes | bytearray | memoryview]
    ) -> AddFuture[Positions]:
        """A future of the positions; blocks only while the backlog is full."""
        return self._append_checked(self._leader.content.records(records))

    def append_rows(self, rows: pa.Table | pa.RecordBatch) -> Positions:
        """The positions of all rows; see `Leader.append_rows`."""
        return self.append_rows_async(rows).result()

    def append_rows_async(self, rows: pa.Table | pa.RecordBatch) -> AddFuture[Positions]:
        """A future of the positions; blocks while the rows are encoded and the backlog is full."""
        return self._append_checked(self._leader.content.pieces(rows))

    def _append_checked(self, records: Sequence[Any]) -> AddFuture[Positions]:
        if not records:
            return completed(self._inbox.condition, Positions(self.log_id, range(0), ()))
        return self._append_all([*records])

    def flush(self) -> None:
        """Wait until each append so far was acknowledged or failed."""
        self._call(self._leader.flush)

    def roll(self) -> None:
        """Go on in a new ledger; see `Leader.roll`."""
        self._call(self._leader.roll)

    def truncate(self, position: Position | int) -> None:
        """Drop every record before `position`; see `Leader.truncate`."""
        self._call(lambda: self._leader.truncate(position))

    def close(self) -> int:
        """The log's end, everything in it closed and listed; see `Leader.close`."""
        return self._call(self._leader.close)

    def _forked(self) -> LocalProtocolError:
        return LocalProtocolError(
            f"log {self.name!r} is led by the process that opened it: open it in this process to "
            "lead it here",
            log=self.name,
        )

    def __repr__(self) -> str:
        return f"BlockingLeader({self.name!r}, end_offset={self.end_offset})"
