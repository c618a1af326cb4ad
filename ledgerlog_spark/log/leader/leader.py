"""The leader of a log: appends records and returns their positions (LOGS.md#J1-J15).

The leader gathers records until they form an entry. The entry is sent when it has the maximum size
or number of records, when the linger has ended, or when no entry is in flight. Therefore a single
append is sent immediately. The linger is the longest time for which a record waits for further
records. Each entry is compressed only once. The machine assigns an offset and a ledger to the
entry. If this ledger fails, the machine assigns another ledger to the entry.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ledgerlog_spark.client.append_queue import AppendQueue, Gathered
from ledgerlog_spark.client.settings import ClientSettings
from ledgerlog_spark.errors import LeaderTimeoutError, LedgerLogError, LocalProtocolError
from ledgerlog_spark.log.host import LogHost
from ledgerlog_spark.log.leader.entries_in_flight import EntriesInFlight, error_of_append
from ledgerlog_spark.log.leader.host import LeaderHost
from ledgerlog_spark.log.records import Positions, offset_of
from ledgerlog_spark.model import Position
from ledgerlog_spark.protocol.leader.leader import LeaderLog
from ledgerlog_spark.protocol.leader.messages import (
    AppendEntry,
    AppendRequested,
    AppendsAcknowledged,
    GiveUp,
    LeaderClosed,
    LeaderIndication,
    LeaderOpened,
    LeaderSettings,
    LeaderStopped,
    LedgerRolled,
    ListChanged,
    RollRequested,
)
from ledgerlog_spark.protocol.ledger.messages import CloseRequested
from ledgerlog_spark.protocol.log.state.records import LogHead
from ledgerlog_spark.waits import Deadline, forever

if TYPE_CHECKING:
    import pyarrow as pa

    from ledgerlog_spark.log.leader.content import LeaderRecords
    from ledgerlog_spark.log.leader.rows import LeaderRows

ENTRY_RECORDS_MAX = 8_192
"""Maximum number of records, or of pieces of appended rows, in one entry."""


REQUESTS_END = "the machine ends, because each of its requests has a deadline"
"""The reason why a wait for the end of the machine needs no time limit."""


class Leader:
    """Appends to one leader log. An append is acknowledged when Qa bookies have its records.

    All methods must run on the thread of the client's event loop. Offsets have no gaps and are in
    the order of the calls. If the future of an append is cancelled, the append still happens.

    Attributes:
        name: Name of the log.
        log_id: Id of the log.
        queue: The appends that are not acknowledged. Other APIs of this leader use this object.
        content: The object that checks appends. Other APIs of this leader use this object.
    """

    def __init__(
        self,
        log: LogHost,
        settings: ClientSettings,
        content: LeaderRecords | LeaderRows,
        truncate: Callable[[int], Awaitable[object]],
    ) -> None:
        """Create a leader, which leads after a successful call of `open`.

        `log` runs the machines that read and change the nodes of the log. `settings` contains the
        linger and the backlog, as for ledgers. `truncate` deletes the records of the log before an
        offset.
        """
        self.name = log.name
        self.log_id = log.log_id
        self.content = content
        self._log = log
        self._truncate = truncate
        self._machine = machine = LeaderLog(
            log.name,
            token=uuid.uuid4().hex,
            settings=LeaderSettings(open_timeout_ms=settings.open_timeout_ms),
        )
        self._roll_timeout_ms = settings.close_timeout_ms
        self.queue = AppendQueue(
            machine,
            self._send,
            settings,
            few_in_flight=settings.entries_in_flight_min,
            nothing=Positions(self.log_id, range(0), ()),
            entries_max=ENTRY_RECORDS_MAX,
            size_bytes_max=content.entry_size_bytes_max,
        )
        self._sent = EntriesInFlight(self.log_id, self.queue)
        self._head: LogHead | None = None
        self._ledger_id = -1
        self._is_ledger_empty = True
        self._error: LedgerLogError | None = None
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # Set after each indication of the machine, and after a failure.
        self._changed = asyncio.Event()
        self._host = LeaderHost(
            machine,
            log,
            entry_of=self._entry_of,
            on_indication=self._on_indication,
            on_crash=self._on_crash,
            send_appends=self.queue.send_now,
        )

    @property
    def end_offset(self) -> int:
        """The offset after the last acknowledged record."""
        return self._machine.end_offset

    @property
    def is_leading(self) -> bool:
        """Whether appends are accepted.

        They are if the leader has neither failed nor been closed.
        """
        return self.queue.refusal is None

    @property
    def schema(self) -> pa.Schema | None:
        """Schema of a log of rows; None if this is a log of records."""
        return self.content.schema

    @property
    def records_pending(self) -> int:
        """Number of unacknowledged records or rows.

        Rows that were not sent yet are counted by pieces of an append.
        """
        return self.queue.entries + self._sent.records

    async def open(self) -> None:
        """Become the leader: seal the open ledgers of the earlier leader, and list a new ledger.

        The call takes at most `open_timeout_ms` of the settings, 120 s by default.

        Raises:
            LeaderDeposedError: Another client became the leader during this call; definite.
            LeaderTimeoutError: The call took longer than this limit; retriable. The error is not
                definite if the list may contain the new ledger, because this client may then be the
                leader.
            LogKindError: The log is not a leader log.
            LogNotFoundError: The log was deleted.
            ConcurrentCommitError: Other clients became the leader at every attempt; retriable.
            LedgerRecoveryError: An earlier leader's ledger could not be sealed; retriable.
            NotEnoughBookiesError: There are too few bookies for a ledger; retriable.
            MetadataUnavailableError: The list cannot be read or changed; retriable.
        """
        self._log.ledgers.ends_first(self)
        self._host.start()
        try:
            while self._head is None and self._error is None:
                await self._next_change()
        except BaseException:  # the caller gets no leader, so end it here
            self.abandon()
            raise
        if self._error is not None:
            raise self._error

    async def append(self, record: bytes | bytearray | memoryview) -> Position:
        """Append a record. Return its position when the record is on disk at Qa bookies.

        Args:
            record: The bytes of the record, at most a little less than 5 MiB. If this is a
                read-only view, the memory that it shows must not change until the call returns.

        Raises:
            LocalProtocolError: The record is not bytes or is too large, or the leader was closed;
                definite.
            LeaderDeposedError: Another leader took over. The error is definite if the record was
                never sent. All records before the field `end_offset` of the error are safe.
            LogNotFoundError: The log was deleted. The error is definite if the record was never
                sent.
            LedgerLogError: This leader can no longer append. The error contains the reason.
        """
        future = self.queue.append(self.content.record(record), at_once=True)
        return await forever(future, REQUESTS_END)

    def append_async(self, record: bytes | bytearray | memoryview) -> asyncio.Future[Position]:
        """Append a record, and return a future of its position, with the errors of `append`.

        Records are appended in the order of the calls. The call never blocks, so the caller must
        await `drain` from time to time. If the unsent appends reach 16 times the settings' backlog,
        the future fails with a definite LocalProtocolError.
        """
        return self.queue.append(self.content.record(record))

    async def append_many(self, records: Sequence[bytes | bytearray | memoryview]) -> Positions:
        """Append records. Return their positions when all records are on disk at Qa bookies.

        The positions are in order, without gaps. If the call fails, the log may contain the first
        records without the other records. The errors are those of `append`.
        """
        future = self.queue.append_batch(self.content.records(records), at_once=True)
        return await forever(future, REQUESTS_END)

    def append_many_async(
        self, records: Sequence[bytes | bytearray | memoryview]
    ) -> asyncio.Future[Positions]:
        """Append records in the order of the calls. Return a future of `append_many`'s result."""
        return self.queue.append_batch(self.content.records(records))

    async def append_rows(self, rows: pa.Table | pa.RecordBatch) -> Positions:
        """Append rows. Return their positions when all rows are on disk at Qa bookies.

        The positions are in order, without gaps; `.offsets` is the half-open range of the offsets.
        If the call fails, the log may contain the first rows without the other rows.

        Args:
            rows: Rows with some or all columns of the log; missing columns become null. The memory
                of the rows must not change until the call returns. An encoded row must be a little
                smaller than 5 MiB.

        Raises:
            LogKindError: The log is a log of records; definite.
            SchemaMismatchError: The log does not have a column, or values cannot be converted to
                the type of the log's column. Definite; nothing was appended.
            LocalProtocolError: There are no rows, a row is too large, or the leader was closed;
                definite.
            LedgerLogError: The errors of `append`.
        """
        future = self.queue.append_batch(self.content.pieces(rows), at_once=True)
        return await forever(future, REQUESTS_END)

    def append_rows_async(self, rows: pa.Table | pa.RecordBatch) -> asyncio.Future[Positions]:
        """Append rows in the order of the calls. Return a future of `append_rows`'s result.

        The rows of a large append are encoded immediately, which takes about 5 ms for each MiB.
        """
        return self.queue.append_batch(self.content.pieces(rows))

    async def drain(self) -> None:
        """Wait until the number and size of the unsent appends are below the settings' backlog."""
        await self.queue.drain()

    async def flush(self) -> None:
        """Wait until each earlier append was acknowledged or failed."""
        await self.queue.flush()

    async def roll(self) -> None:
        """Continue in a new ledger.

        When the call returns, the log's list has the closed earlier ledger. The call does nothing
        if the current ledger is empty. The close and the change of the list take at most
        `close_timeout_ms` of the settings, 30 s by default. The call also raises the errors of
        `append`.

        Raises:
            LeaderTimeoutError: The roll took longer than this limit, and continues in the
                background; retriable. The error names the step that did not end, and the cause if
                this step failed. The leader still accepts appends.
        """
        await self.flush()
        left = self._ledger_id
        if not self.is_leading:
            raise self._refusal()
        assert self._head is not None
        if self._is_ledger_empty:
            # A roll may already be running. If so, the oldest open ledger of the list is the
            # earlier ledger, and this call waits for the end of the roll.
            left = self._head.open_ledgers[0].ledger_id
            if left == self._ledger_id:
                return
        else:
            self._host.post(RollRequested())
        async with Deadline(self._roll_timeout_ms / 1e3, lambda: self._not_rolled(left)):
            while self._lists(left) and self._error is None:
                await self._next_change()
        if self._lists(left):
            raise self._refusal()

    def _not_rolled(self, left: int) -> LedgerLogError:
        step, error = self._machine.roll_wait
        failed = "" if error is None else f" ({error.message})"
        late = LeaderTimeoutError(
            f"ledger {left} of log {self.name!r} was not closed and listed within "
            f"{self._roll_timeout_ms / 1e3:g} s: {step.value} did not end{failed}. The roll "
            "continues, and the leader accepts appends. Check that ZooKeeper and the bookies run "
            "(`ledgerlog doctor`), then roll again",
            definite=False,
            log=self.name,
            ledger_id=left,
            waited_for=step.value,
            timeout_ms=self._roll_timeout_ms,
        )
        late.__cause__ = error
        return late

    async def truncate(self, position: Position | int) -> None:
        """Delete every record before `position`. The change is durable when the call returns.

        Ledgers are deleted after `deletedRetentionMs`, so that running readers can finish. If
        `position` is in the current ledger, the leader rolls first.

        Args:
            position: The position or the offset of the first record to keep; at most the log's end.

        Raises:
            ConfigurationError: `position` is not in this log, or is after its end; nothing was
                changed.
            LeaderTimeoutError: The current ledger was not rolled in time, so nothing was truncated;
                retriable. The call also raises the other errors of `roll`.
            LogNotFoundError: The log was deleted.
            ConcurrentCommitError: Other changes of the list succeeded first at every attempt;
                retriable.
            MetadataUnknownError: The outcome is unknown; a retry is safe.
        """
        offset = offset_of(position, self.log_id, self.name)
        assert self._head is not None
        if self._head.end_offset < offset <= self.end_offset:
            await self.roll()
        await self._truncate(offset)

    async def close(self) -> int:
        """Close the leader, and return the end offset of the log.

        When the call returns, all earlier appends are in the log, and every ledger is closed and
        listed. A second call returns the same result.

        Raises:
            LeaderDeposedError: Another leader took over. All records before the field `end_offset`
                of the error are safe.
            LedgerLogError: The ledgers were not closed. The error contains the reason. The next
                leader seals the open ledgers.
        """
        if self.is_leading:
            await self.flush()
        if self.is_leading:  # the leader may have stopped during the flush
            self.queue.refusal = self._closed_error
            self._host.post(CloseRequested())
        await forever(asyncio.shield(self._ended), REQUESTS_END)
        await self._host.finish()
        if self._error is not None:
            raise self._error
        assert self._head is not None
        return self._head.end_offset  # another leader may have appended records meanwhile

    def abandon(self) -> None:
        """Stop the leader without closing its ledgers.

        Pending appends fail, and their outcome is unknown. The leader may have created a ledger for
        the next roll. This ledger is deleted if it is not listed, and no pending request can list
        it.
        """
        left = LocalProtocolError(
            f"the client of the leader of log {self.name!r} was closed: to find out which records "
            f"are in the log, read it from offset {self.end_offset}",
            log=self.name,
            end_offset=self.end_offset,
        )
        self._host.post(GiveUp(left))

    async def leave(self) -> None:
        """Abandon the leader before the client is closed, and wait until its work has ended."""
        self.abandon()
        try:
            await self._host.finish()
        finally:
            self._host.stop()

    def send_now(self) -> None:
        """Send waiting appends, as far as the window and the linger allow."""
        self.queue.send_now()

    def _send(self, gathered: Gathered) -> None:
        gathered.body = body = self.content.encode(gathered)
        gathered.payloads = []  # the body contains the payloads
        self._host.post(
            AppendRequested(body.count, body.entry_size_bytes, self._log.store.clock_ms())
        )

    # --- indications of the machine ---

    def _entry_of(self, order: AppendEntry) -> bytes:
        self._is_ledger_empty = False
        return self._sent.entry_of(order)

    def _on_indication(self, indication: LeaderIndication) -> None:
        if isinstance(indication, AppendsAcknowledged):
            self.queue.complete(self._sent.acknowledged(indication))
        elif isinstance(indication, LeaderOpened):
            self._head = indication.head
            self._ledger_id = indication.head.open_ledgers[-1].ledger_id
        elif isinstance(indication, LedgerRolled):
            self._ledger_id = indication.ledger_id
            self._is_ledger_empty = not indication.reordered
        elif isinstance(indication, ListChanged):
            self._head = indication.head
        elif isinstance(indication, LeaderStopped):
            self._on_stopped(indication)
        else:
            assert isinstance(indication, LeaderClosed), indication
            self._host.retire()
            if not self._ended.done():
                self._ended.set_result(None)
        self._changed.set()

    def _on_crash(self, crash: LedgerLogError) -> None:
        self._end(crash, 0, len(self.queue.in_flight))

    def _on_stopped(self, stopped: LeaderStopped) -> None:
        first_unknown, first_unsent = stopped.first_unknown_append, stopped.first_unsent_append
        if first_unknown is None:
            first_unknown = first_unsent
        self._end(stopped.error, first_unknown - self._sent.first, first_unsent - self._sent.first)
        self._host.retire()

    def _end(self, error: LedgerLogError, first_unknown: int, first_unsent: int) -> None:
        """End the sent appends with `error`, and the unsent appends with a definite error."""
        self._error = error
        self.queue.refusal = partial(error_of_append, error, is_definite=True)
        self._sent.cut = []
        self.queue.fail(
            error_of_append(error, is_definite=False), unknown=range(first_unknown, first_unsent)
        )
        if not self._ended.done():
            self._ended.set_result(None)
        self._changed.set()

    async def _next_change(self) -> None:
        self._changed.clear()
        await forever(self._changed.wait(), REQUESTS_END)

    def _refusal(self) -> LedgerLogError:
        assert self.queue.refusal is not None
        return self.queue.refusal()

    def _closed_error(self) -> LedgerLogError:
        return LocalProtocolError(
            f"this leader of log {self.name!r} was closed: open the log again to continue",
            log=self.name,
        )

    def _lists(self, ledger_id: int) -> bool:
        """Whether the list contains the ledger as an open ledger."""
        assert self._head is not None
        return any(ledger.ledger_id == ledger_id for ledger in self._head.open_ledgers)

    def __repr__(self) -> str:
        return f"Leader({self.name!r}, end_offset={self.end_offset})"
