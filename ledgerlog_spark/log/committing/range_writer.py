"""Writes ranges of rows into ledgers (LOGS.md#K1, LOGS.md#K4, LOGS.md#K12).

A range belongs to one attempt of one task. A failed attempt needs no cleanup, because the sweeper
deletes ranges that are never committed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ledgerlog_spark.client.append_queue import PENDING_ENDS
from ledgerlog_spark.client.arguments import check_optional, check_type
from ledgerlog_spark.errors import LocalProtocolError
from ledgerlog_spark.log.failpoints import reach
from ledgerlog_spark.log.ports import LedgerWriterHandle
from ledgerlog_spark.model import NO_ENTRY
from ledgerlog_spark.protocol.ledger.messages import Payload
from ledgerlog_spark.protocol.log.properties import LogProperties
from ledgerlog_spark.protocol.log.state.records import StagedRange
from ledgerlog_spark.waits import forever


class StagedLedger:
    """A ledger that contains the schema message as entry 0, and then the entries of ranges.

    One transaction created the ledger's metadata and its registration. The ledger may stay open
    between batches. If its writer ends without closing it, it stays open until it is sealed. One
    range is written at a time, on the thread of the client's loop. `entries` is the number of
    appended entries, including the schema message; `size_bytes` is the size of their payloads.
    """

    def __init__(self, handle: LedgerWriterHandle, properties: LogProperties) -> None:
        """Create the object for a new ledger. `start` sends the first entry."""
        self.ledger_id = handle.id
        self.entries = 0
        self.size_bytes = 0
        self._handle = handle
        self._roll_bytes = properties.roll_bytes
        # A commit needs the ledger's registration, which the sweeper may delete after
        # `stagingTtlMs`.
        self._roll_ms = min(properties.roll_ms, properties.staging_ttl_ms // 2)
        self._loop = asyncio.get_running_loop()
        self._created = self._loop.time()
        self._ranges_size_bytes = 0
        self._last_batch_id = -1
        self._last_batch_size_bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether the ledger is so large or old that the next range needs a new ledger."""
        age_ms = (self._loop.time() - self._created) * 1e3
        return self.size_bytes >= self._roll_bytes or age_ms >= self._roll_ms

    @property
    def is_writable(self) -> bool:
        """Whether no append has failed.

        Even so, another client may have fenced the ledger already.
        """
        return self._handle.is_writable

    def start(self, schema_message: bytes) -> None:
        """Send the schema message as entry 0, unless the message is empty (a log of records).

        When the first range is acknowledged, the message is acknowledged too.
        """
        if schema_message:
            self.send(schema_message)

    def send(self, payload: bytes | bytearray | memoryview) -> asyncio.Future[int]:
        """Append an entry, and return a future of its id.

        The payload must not change until the future is done.
        """
        future = self._handle.append_async(payload)
        # The first failed append ends the attempt. Later appends fail for the same reason, and
        # nothing awaits their futures. Without `_seen`, asyncio would log these errors.
        future.add_done_callback(_seen)
        self.entries += 1
        self.size_bytes += len(payload)
        return future

    def note_range(self, batch_id: int, size_bytes: int) -> None:
        """Record that a range of the batch `batch_id` is complete."""
        if batch_id != self._last_batch_id:
            self._last_batch_id, self._last_batch_size_bytes = batch_id, 0
        self._last_batch_size_bytes += size_bytes
        self._ranges_size_bytes += size_bytes

    def is_mostly_unlisted(self, batch_id: int) -> bool:
        """Whether the version before `batch_id` lists less than half of the ledger.

        Call this method only if each batch overwrites the batches before it, as in complete mode.
        If the result is true, the writer continues in a new ledger. Otherwise the overwritten
        batches would stay on disk, because they would be in the same ledger as the listed batch.
        """
        is_replaced = self._last_batch_id < batch_id - 1
        listed_size_bytes = 0 if is_replaced else self._last_batch_size_bytes
        return 2 * listed_size_bytes < self._ranges_size_bytes

    async def close(self) -> None:
        """Close the ledger after the appended entries. Raises the errors of the client's handle."""
        await self._handle.close()
        reach("ledger.closed")

    def abandon(self) -> None:
        """Stop writing immediately, without closing the ledger. Listed entries stay readable.

        If no entry is listed, the sweeper deletes the ledger.
        """
        self._handle.abandon()


def _seen(future: asyncio.Future[int]) -> None:
    if not future.cancelled():
        future.exception()


PENDING_SIZE_BYTES_MAX = 32 << 20
"""Maximum bytes of unacknowledged payload. While there are more, `append` waits."""


@dataclass(frozen=True, slots=True)
class _Sent:
    """An entry that was sent and is perhaps not acknowledged. For the index entry, `rows` is 0."""

    payload: Payload
    rows: int
    entry_id: int
    future: asyncio.Future[int]


class RangeWriter:
    """Writes the entries of one range, in order.

    Several tasks must not use one writer at the same time. After an error, the writer accepts no
    more entries. If the ledger was fenced, the task can call `cut` and continue. After any other
    error, the task must start again.

    Attributes:
        ledger_id: The id of the ledger that contains the range.
        rows: Number of rows appended so far.
        size_bytes: Bytes of payload appended so far.
    """

    def __init__(
        self, ledger: StagedLedger, on_finished: Callable[[RangeWriter], Awaitable[None]]
    ) -> None:
        """Create a writer of the next range of `ledger`.

        `on_finished` closes the ledger or keeps it open.
        """
        self.ledger_id = ledger.ledger_id
        self.rows = 0
        self.size_bytes = 0
        self._ledger = ledger
        self._on_finished = on_finished
        self._first_entry_id = ledger.entries
        self._pending: deque[_Sent] = deque()
        self._pending_size_bytes = 0
        self._confirmed_entries = 0
        self._confirmed_rows = 0
        self._confirmed_size_bytes = 0
        self._is_index_confirmed = False
        self._is_finished = False

    @property
    def is_full(self) -> bool:
        """Whether the task should finish this range and continue in a new range."""
        return self._ledger.is_full

    async def append(self, payload: Payload, rows: int) -> None:
        """Append one record batch as an entry. The call does not wait until it is acknowledged.

        The call waits while more than 32 MiB are not acknowledged.

        Args:
            payload: The bytes of the entry, which must not change until `finish` has returned.
            rows: Number of rows in the entry, at least 1.

        Raises:
            LedgerFencedError: Another client recovers the ledger. `cut` returns the acknowledged
                part.
            LedgerClosedError: Another client closed the ledger. `cut` returns the acknowledged
                part.
            LedgerError: The ledger cannot be written any more. The attempt has failed.
            QuorumError: Too few bookies can store entries. The attempt has failed.
        """
        check_type("rows", rows, int)
        if self._is_finished or rows < 1:
            raise LocalProtocolError(
                "the range is finished, so it accepts no more entries"
                if self._is_finished
                else f"an entry must have at least 1 row, got {rows}",
                ledger_id=self.ledger_id,
            )
        self._send(payload, rows)
        self.rows += rows
        reach("range.rows_sent")
        while self._pending_size_bytes > PENDING_SIZE_BYTES_MAX:
            await self._acknowledged()
        while self._pending and self._pending[0].future.done():
            await self._acknowledged()

    async def finish(
        self, index: bytes | None = None, *, statistics: bytes = b""
    ) -> StagedRange | None:
        """Wait until every entry of the range is acknowledged, and return the range.

        Args:
            index: The range's index entry, which is appended last; if it is None, the range gets no
                index entry.
            statistics: The result of `encode_statistics` of `protocol.log.state.statistics`.

        Returns:
            The range; None if no row was appended.

        Raises:
            LedgerFencedError: Not all entries were acknowledged. `cut` returns the acknowledged
                part.
            LedgerClosedError: Not all entries were acknowledged. `cut` returns the acknowledged
                part.
            LedgerError: Not all entries were acknowledged. The attempt has failed.
            QuorumError: Not all entries were acknowledged. The attempt has failed.
        """
        check_optional("index", index, bytes)
        check_type("statistics", statistics, bytes)
        self._is_finished = True
        if index is not None and self.rows:
            self._send(index, 0)
        while self._pending:
            await self._acknowledged()
        reach("range.acknowledged")
        await self._on_finished(self)
        return self._confirmed(statistics)

    async def cut(self) -> tuple[StagedRange | None, tuple[Payload, ...]]:
        """Split a range after its ledger was fenced in the middle of the range.

        The first part, which stays in this ledger, ends with the last acknowledged entry. The
        caller writes the remaining entries to a range in another ledger.

        Returns:
            Two values: a range of the acknowledged entries (None if no entry was acknowledged), and
            the entries that must be written to another ledger, in order.
        """
        # The range of the acknowledged entries has no index entry (LOGS.md#K12).
        self._is_finished = True
        if self._pending:
            pending = [sent.future for sent in self._pending]
            await forever(asyncio.wait(pending), PENDING_ENDS)
        while self._pending and _is_confirmed(self._pending[0].future):
            await self._acknowledged()
        again = tuple(sent.payload for sent in self._pending if sent.rows)
        self.abandon()
        return self._confirmed(b""), again

    def abandon(self) -> None:
        """Stop writing immediately, and abandon the ledger.

        No entry of this range will be listed.
        """
        self._is_finished = True
        for sent in self._pending:
            sent.future.cancel()
        self._pending.clear()
        self._ledger.abandon()

    def _send(self, payload: Payload, rows: int) -> None:
        entry_id = self._ledger.entries
        self._pending.append(_Sent(payload, rows, entry_id, self._ledger.send(payload)))
        self._pending_size_bytes += len(payload)
        self.size_bytes += len(payload)

    async def _acknowledged(self) -> None:
        """Wait until the oldest pending entry is acknowledged. Another entry id would be a bug."""
        sent = self._pending[0]
        entry_id = await forever(sent.future, PENDING_ENDS)
        assert entry_id == sent.entry_id, (self.ledger_id, entry_id, sent.entry_id)
        self._pending.popleft()
        self._pending_size_bytes -= len(sent.payload)
        self._confirmed_entries += 1
        self._confirmed_rows += sent.rows
        self._is_index_confirmed = not sent.rows
        self._confirmed_size_bytes += len(sent.payload)

    def _confirmed(self, statistics: bytes) -> StagedRange | None:
        if not self._confirmed_rows:
            return None
        last_entry_id = self._first_entry_id + self._confirmed_entries - 1
        return StagedRange(
            ledger_id=self.ledger_id,
            first_entry_id=self._first_entry_id,
            last_entry_id=last_entry_id,
            index_entry_id=last_entry_id if self._is_index_confirmed else NO_ENTRY,
            rows=self._confirmed_rows,
            size_bytes=self._confirmed_size_bytes,
            statistics=statistics,
        )


def _is_confirmed(future: asyncio.Future[int]) -> bool:
    return not future.cancelled() and future.exception() is None
