"""The blocking API to read a log without Spark. It switches threads once for each batch."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

from ledgerlog_spark.client.blocking.batch_queue import BatchQueue
from ledgerlog_spark.client.blocking.derived import BlockingHandle, Shown, derived, documented_by
from ledgerlog_spark.client.blocking.loop_thread import LoopThread
from ledgerlog_spark.errors import LocalProtocolError
from ledgerlog_spark.log.reading.record_log import RecordLog
from ledgerlog_spark.log.records import Record
from ledgerlog_spark.model import Position

if TYPE_CHECKING:
    from ledgerlog_spark.log.reading.row_cursor import RowBatch

T = TypeVar("T")

RECORDS_LOOKED_AT = 4
"""Number of records of a batch whose sizes are added to estimate the size of the batch.

To add the sizes of all records would take too long."""


class BlockingRecordLog(BlockingHandle[RecordLog]):
    """One log that was opened for reading. All threads of the process may use it.

    `read` and `tail` read a leader log of records. `read_rows` and `tail_rows` read a leader log of
    rows. A log that Spark wrote can only be read with Spark. A read or tail ends when its iterator
    is closed or its thread is interrupted. At most 8 batches are read ahead. While the batches that
    were read ahead have 16 MiB or more, no further batch is read.

    Attributes:
        name: The name under which the log was opened.
        log_id: The log's id; a later log of the same name has another id.
        kind: The kind of the log's writers: jobs that commit, or one leader at a time.
        content: The content of the log: rows or records.
    """

    def __init__(self, log: RecordLog, thread: LoopThread) -> None:
        super().__init__(log, thread)
        self.name = log.name
        self.log_id = log.log_id
        self.kind = log.kind
        self.content = log.content

    schema = Shown(RecordLog.schema)
    state = derived(RecordLog.state)
    snapshot = derived(RecordLog.snapshot)

    @documented_by(RecordLog.read)
    def read(
        self, start: Position | int | None = None, end: Position | int | None = None
    ) -> Iterator[Record]:
        """Yield the records of `read_batches` one by one."""
        for batch in self.read_batches(start, end):
            yield from batch

    @documented_by(RecordLog.tail)
    def tail(self, start: Position | int | None = None) -> Iterator[Record]:
        """Yield the records of `tail_batches` one by one."""
        for batch in self.tail_batches(start):
            yield from batch

    @documented_by(RecordLog.read_batches)
    def read_batches(
        self, start: Position | int | None = None, end: Position | int | None = None
    ) -> Iterator[list[Record]]:
        """Some batches are read ahead."""
        return self._taken(self._twin.read_batches(start, end), _size_bytes_of_records)

    @documented_by(RecordLog.tail_batches)
    def tail_batches(self, start: Position | int | None = None) -> Iterator[list[Record]]:
        """Some batches are read ahead."""
        return self._taken(self._twin.tail_batches(start), _size_bytes_of_records)

    @documented_by(RecordLog.read_rows)
    def read_rows(
        self, start: Position | int | None = None, end: Position | int | None = None
    ) -> Iterator[RowBatch]:
        """Some batches are read ahead."""
        return self._taken(self._twin.read_rows(start, end), _size_bytes_of_rows)

    @documented_by(RecordLog.tail_rows)
    def tail_rows(self, start: Position | int | None = None) -> Iterator[RowBatch]:
        """Some batches are read ahead."""
        return self._taken(self._twin.tail_rows(start), _size_bytes_of_rows)

    def _taken(
        self, batches: AsyncGenerator[T, None], size_bytes_of: Callable[[T], int]
    ) -> Iterator[T]:
        self._check_process()
        for batch in BatchQueue(batches, self._thread, size_bytes_of).taken():
            yield batch
            self._check_process()

    def _forked(self) -> LocalProtocolError:
        return LocalProtocolError(
            f"log {self.name!r} was opened by another process: open it again in this process",
            log=self.name,
        )

    def __repr__(self) -> str:
        return f"BlockingRecordLog({self.name!r}, {self.kind.name}, {self.content.name})"


def _size_bytes_of_records(records: list[Record]) -> int:
    """Estimate the size of a batch from its first records.

    The error of the estimate is small, because a batch has the records of one entry, and an entry
    with several records has at most 256 KiB.
    """
    looked_at = records[:RECORDS_LOOKED_AT]
    return sum(len(record.value) for record in looked_at) * len(records) // len(looked_at)


def _size_bytes_of_rows(batch: RowBatch) -> int:
    return int(batch.rows.nbytes)
