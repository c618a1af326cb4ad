"""The blocking API of a leader: appends from any thread, with one wake-up of the loop for many."""

from __future__ import annotations

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
    from collections.abc import Sequence

    import pyarrow as pa


class BlockingLeader(BlockingAppends[Leader]):
    """Appends to one leader log; a record completes when it is acknowledged on Qa bookies.

    Safe to use from several threads of one process. Offsets are dense. Those of one thread are in
    the order of its calls. `with` closes the leader at its end.

    Attributes:
        name: The name that the log was opened under.
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
        """Waits for its future."""
        return self.append_async(record).result()

    def append_async(self, record: bytes | bytearray | memoryview) -> AddFuture[Position]:
        """A `concurrent.futures.Future` of the position; its errors are those of `append`.

        Blocks only while the settings' backlog of appends waits to be sent.

        Raises:
            LocalProtocolError: Not bytes, too large, or called in another process than the one
                that leads the log. Or called by a callback of an append, which cannot wait, while
                16 times the backlog waits. Nothing was appended.
            LogKindError: The log takes rows. Nothing was appended.
        """
        return self._append(self._twin.content.record(record))

    @documented_by(Leader.append_many)
    def append_many(self, records: Sequence[bytes | bytearray | memoryview]) -> Positions:
        """Waits for its future."""
        return self.append_many_async(records).result()

    def append_many_async(
        self, records: Sequence[bytes | bytearray | memoryview]
    ) -> AddFuture[Positions]:
        """A `concurrent.futures.Future` of the positions; like `append_async`."""
        return self._append_all(self._twin.content.records(records))

    @documented_by(Leader.append_rows)
    def append_rows(self, rows: pa.Table | pa.RecordBatch) -> Positions:
        """Waits for its future."""
        return self.append_rows_async(rows).result()

    def append_rows_async(self, rows: pa.Table | pa.RecordBatch) -> AddFuture[Positions]:
        """A `concurrent.futures.Future` of the positions; its errors are those of `append_rows`.

        Encodes immediately, which takes about 5 ms for each MiB. Then it blocks only while the
        settings' backlog of appends waits to be sent.

        Raises:
            LocalProtocolError: No rows, or one is too large; further errors as of `append_async`.
                Nothing was appended.
            LogKindError: The log takes records. Nothing was appended.
            SchemaMismatchError: The rows do not fit the log's schema. Nothing was appended.
        """
        return self._append_all([*self._twin.content.pieces(rows)])

    def _forked(self) -> LocalProtocolError:
        return LocalProtocolError(
            f"log {self.name!r} is led by the process that opened it: open it in this process to "
            "lead it here",
            log=self.name,
        )

    def __repr__(self) -> str:
        return f"BlockingLeader({self.name!r}, end_offset={self.end_offset})"
