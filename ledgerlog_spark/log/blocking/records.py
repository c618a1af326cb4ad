"""The blocking API of a log that is read without Spark: one thread hop for each batch."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeVar

from ledgerlog_spark.client.blocking.batch_queue import BatchQueue
from ledgerlog_spark.errors import LocalProtocolError
from ledgerlog_spark.log.reading.record_log import RecordLog

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
    from typing import Any

    import pyarrow as pa

    from ledgerlog_spark.client.blocking.loop_thread import LoopThread
    from ledgerlog_spark.log.reading.row_cursor import RowBatch
    from ledgerlog_spark.log.records import Record
    from ledgerlog_spark.model import Position
    from ledgerlog_spark.protocol.log.read.versions import LogState
    from ledgerlog_spark.protocol.log.state.records import LogSnapshot

T = TypeVar("T")

RECORDS_LOOKED_AT = 4
"""Of a batch, for what it holds: looking at all of them costs more than it is worth."""


class BlockingRecordLog:
    """`RecordLog` without `await`.

    Attributes:
        name: The name it was opened under.
        log_id: Its id.
        kind: Who writes it.
        content: What its entries hold.
    """

    def __init__(self, log: RecordLog, thread: LoopThread) -> None:
        self.name = log.name
        self.log_id = log.log_id
        self.kind = log.kind
        self.content = log.content
        self._log = log
        self._thread = thread

    @property
    def schema(self) -> pa.Schema | None:
        """See `RecordLog.schema`."""
        return self._log.schema

    def state(self) -> LogState:
        """See `RecordLog.state`."""
        return self._call(self._log.state)

    def snapshot(self) -> LogSnapshot:
        """See `RecordLog.snapshot`."""
        return self._call(self._log.snapshot)

    def read(
        self, start: Position | int | None = None, end: Position | int | None = None
    ) -> Iterator[Record]:
        """The records from `start` (inclusive) to `end` (exclusive); see `RecordLog.read`."""
        for batch in self.read_batches(start, end):
            yield from batch

    def tail(self, start: Position | int | None = None) -> Iterator[Record]:
        """All records from `start` on, waiting for each that is not there yet.

        Ends when the iterator is closed or the thread is interrupted; see `RecordLog.tail`.
        """
        for batch in self.tail_batches(start):
            yield from batch

    def read_batches(
        self, start: Position | int | None = None, end: Position | int | None = None
    ) -> Iterator[list[Record]]:
        """The same as `read`, in batches."""
        return self._taken(self._log.read_batches(start, end), _size_bytes_of_records)

    def tail_batches(self, start: Position | int | None = None) -> Iterator[list[Record]]:
        """The same as `tail`, in batches."""
        return self._taken(self._log.tail_batches(start), _size_bytes_of_records)

    def read_rows(
        self, start: Position | int | None = None, end: Position | int | None = None
    ) -> Iterator[RowBatch]:
        """The rows from `start` (inclusive) to `end` (exclusive); see `RecordLog.read_rows`."""
        return self._taken(self._log.read_rows(start, end), _size_bytes_of_rows)

    def tail_rows(self, start: Position | int | None = None) -> Iterator[RowBatch]:
        """All rows from `start` on, waiting for what is not there yet; see `RecordLog.tail_rows`.

        Ends when the iterator is closed or the thread is interrupted.
        """
        return self._taken(self._log.tail_rows(start), _size_bytes_of_rows)

    def _taken(
        self, batches: AsyncGenerator[T, None], size_bytes_of: Callable[[T], int]
    ) -> Iterator[T]:
        self._check_process()
        for batch in BatchQueue(batches, self._thread, size_bytes_of).taken():
            yield batch
            self._check_process()

    def _call(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        self._check_process()
        return self._thread.call(work())

    def _check_process(self) -> None:
        if self._thread.pid != os.getpid():
            raise LocalProtocolError(
                f"log {self.name!r} was opened by another process: open it again in this one",
                log=self.name,
            )

    def __repr__(self) -> str:
        return f"BlockingRecordLog({self.name!r}, {self.kind.name}, {self.content.name})"


def _size_bytes_of_records(records: list[Record]) -> int:
    """About: an entry of many records holds a MiB at most, so its first ones stand for all."""
    looked_at = records[:RECORDS_LOOKED_AT]
    return sum(len(record.value) for record in looked_at) * len(records) // len(looked_at)


def _size_bytes_of_rows(batch: RowBatch) -> int:
    return int(batch.rows.nbytes)
