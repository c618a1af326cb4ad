"""The blocking API of a log that is read without Spark: one thread switch for each batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ledgerlog_spark.client.blocking.batch_queue import BatchQueue
from ledgerlog_spark.client.blocking.derived import BlockingHandle, Shown, derived, documented_by
from ledgerlog_spark.client.blocking.loop_thread import LoopThread
from ledgerlog_spark.errors import LocalProtocolError
from ledgerlog_spark.log.reading.record_log import RecordLog

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator

    from ledgerlog_spark.log.reading.row_cursor import RowBatch
    from ledgerlog_spark.log.records import Record
    from ledgerlog_spark.model import Position

T = TypeVar("T")

RECORDS_LOOKED_AT = 4
"""Number of records of a batch whose size is measured. To measure all of them would be too
expensive."""


class BlockingRecordLog(BlockingHandle[RecordLog]):
    """One log without its writer; from any thread of one process.

    Leader logs are read here: those of records with `read` and `tail`, those of rows with
    `read_rows` and `tail_rows`. A log that Spark wrote is read with Spark. A read or tail ends
    when its iterator is closed or its thread is interrupted. At most 8 batches, or 16 MiB and one
    batch, are read ahead.

    Attributes:
        name: The name it was opened under.
        log_id: Its id; a later log of the same name has another id.
        kind: Kind of its writers: jobs that commit, or one leader at a time.
        content: Rows or records.
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
        """One by one."""
        for batch in self.read_batches(start, end):
            yield from batch

    @documented_by(RecordLog.tail)
    def tail(self, start: Position | int | None = None) -> Iterator[Record]:
        """One by one."""
        for batch in self.tail_batches(start):
            yield from batch

    @documented_by(RecordLog.read_batches)
    def read_batches(
        self, start: Position | int | None = None, end: Position | int | None = None
    ) -> Iterator[list[Record]]:
        """Some ahead."""
        return self._taken(self._twin.read_batches(start, end), _size_bytes_of_records)

    @documented_by(RecordLog.tail_batches)
    def tail_batches(self, start: Position | int | None = None) -> Iterator[list[Record]]:
        """Some ahead."""
        return self._taken(self._twin.tail_batches(start), _size_bytes_of_records)

    @documented_by(RecordLog.read_rows)
    def read_rows(
        self, start: Position | int | None = None, end: Position | int | None = None
    ) -> Iterator[RowBatch]:
        """Some ahead."""
        return self._taken(self._twin.read_rows(start, end), _size_bytes_of_rows)

    @documented_by(RecordLog.tail_rows)
    def tail_rows(self, start: Position | int | None = None) -> Iterator[RowBatch]:
        """Some ahead."""
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
            f"log {self.name!r} was opened by another process: open it again in this one",
            log=self.name,
        )

    def __repr__(self) -> str:
        return f"BlockingRecordLog({self.name!r}, {self.kind.name}, {self.content.name})"


def _size_bytes_of_records(records: list[Record]) -> int:
    """Estimated: an entry of many records has at most a MiB, so its first ones represent all."""
    looked_at = records[:RECORDS_LOOKED_AT]
    return sum(len(record.value) for record in looked_at) * len(records) // len(looked_at)


def _size_bytes_of_rows(batch: RowBatch) -> int:
    return int(batch.rows.nbytes)
