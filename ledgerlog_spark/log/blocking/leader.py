"""The blocking API of a leader.

Any thread may append. After one wake-up, the event loop processes many appends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ledgerlog_spark.client.blocking.add_future import AddFuture
from ledgerlog_spark.client.blocking.derived import Shown, derived, documented_by
from ledgerlog_spark.client.blocking.loop_thread import LoopThread
from ledgerlog_spark.client.blocking.writer import BlockingAppends
from ledgerlog_spark.client.settings import ClientSettings
from ledgerlog_spark.errors import LocalProtocolError
from ledgerlog_spark.log.leader.leader import Leader
from ledgerlog_spark.log.records import Positions
from ledgerlog_spark.model import Position

if TYPE_CHECKING:
    import pyarrow as pa


class BlockingLeader(BlockingAppends[Leader]):
    """Appends to one leader log. An append is acknowledged when Qa bookies have its records.

    Several threads of one process may use the leader. Offsets have no gaps. The offsets of one
    thread's records are in the order of its calls. A `with` statement closes the leader at its end.

    Attributes:
        name: The name under which the log was opened.
        log_id: The log's id.
    """

    def __init__(self, leader: Leader, thread: LoopThread, settings: ClientSettings) -> None:
        super().__init__(leader, thread, settings)
        self.name = leader.name
        self.log_id = leader.log_id

    end_offset = Shown(Leader.end_offset)
    is_leading = Shown(Leader.is_leading)
    schema = Shown(Leader.schema)
    flush = derived(Leader.flush)
    roll = derived(Leader.roll)
    truncate = derived(Leader.truncate)
    close = derived(Leader.close)

    @documented_by(Leader.append)
    def append(self, record: bytes | bytearray | memoryview) -> Position:
        """Call `append_async`, and wait for the future."""
        return self.append_async(record).result()

    def append_async(self, record: bytes | bytearray | memoryview) -> AddFuture[Position]:
        """Append a record, and return a `concurrent.futures.Future` of its position.

        The call blocks only while the settings' backlog is full. The errors of the future are those
        of `append`.

        Raises:
            LocalProtocolError: The record is not bytes or is too large, or another process opened
                this leader. A call in a callback of an append cannot wait, so such a call also
                raises this error if the unsent appends reach 16 times the settings' backlog.
                Nothing was appended.
            LogKindError: The log is a log of rows. Nothing was appended.
        """
        return self._append(self._twin.content.record(record))

    @documented_by(Leader.append_many)
    def append_many(self, records: Sequence[bytes | bytearray | memoryview]) -> Positions:
        """Call `append_many_async`, and wait for the future."""
        return self.append_many_async(records).result()

    def append_many_async(
        self, records: Sequence[bytes | bytearray | memoryview]
    ) -> AddFuture[Positions]:
        """Append records like `append_async`, and return one future of all their positions."""
        return self._append_all(self._twin.content.records(records))

    @documented_by(Leader.append_rows)
    def append_rows(self, rows: pa.Table | pa.RecordBatch) -> Positions:
        """Call `append_rows_async`, and wait for the future."""
        return self.append_rows_async(rows).result()

    def append_rows_async(self, rows: pa.Table | pa.RecordBatch) -> AddFuture[Positions]:
        """Append rows, and return a `concurrent.futures.Future` of their positions.

        The rows are encoded immediately, which takes about 5 ms for each MiB. After that, the call
        blocks only while the settings' backlog is full. The errors of the future are those of
        `append_rows`.

        Raises:
            LocalProtocolError: There are no rows, a row is too large, or the call fails for a
                reason that `append_async` lists. Nothing was appended.
            LogKindError: The log is a log of records. Nothing was appended.
            SchemaMismatchError: The rows do not fit the log's schema. Nothing was appended.
        """
        return self._append_all([*self._twin.content.pieces(rows)])

    def _forked(self) -> LocalProtocolError:
        return LocalProtocolError(
            f"another process opened log {self.name!r} and is its leader: to append in this "
            "process, open the log here with lead=True",
            log=self.name,
        )

    def __repr__(self) -> str:
        return f"BlockingLeader({self.name!r}, end_offset={self.end_offset})"
