"""Writes one range of rows into a ledger of its own (DESIGN 6.4; docs/LOGS.md K1, K4).

A range belongs to one attempt of one task. Its ledger is created and registered in one transaction
that checks the producer record; whatever is never committed is let go by the sweeper, so an attempt
that fails simply stops.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import TYPE_CHECKING

from ledgerlog_spark.errors import LocalProtocolError
from ledgerlog_spark.log.failpoints import reach
from ledgerlog_spark.model import NO_ENTRY
from ledgerlog_spark.protocol.log_records import StagedRange

if TYPE_CHECKING:
    from ledgerlog_spark.log.ports import LedgerWriterHandle
    from ledgerlog_spark.protocol.log_properties import LogProperties

PENDING_SIZE_BYTES_MAX = 32 << 20
"""Payload bytes appended and not acknowledged before `append` waits."""


class RangeWriter:
    """The entries of one range, in order; entry 0 of the ledger is the schema message.

    Not for use by several tasks at once. Any error ends it: start the attempt again.

    Attributes:
        ledger_id: The range's ledger.
        rows: Appended so far.
        size_bytes: Payload appended so far, the schema message left out.
    """

    def __init__(self, handle: LedgerWriterHandle, properties: LogProperties) -> None:
        """A writer on a ledger that was just created; `start` comes first."""
        self.ledger_id = handle.id
        self.rows = 0
        self.size_bytes = 0
        self._handle = handle
        self._properties = properties
        self._created = time.monotonic()
        self._first_entry_id = 0
        self._entries = 0
        self._pending: deque[tuple[asyncio.Future[int], int]] = deque()
        self._pending_size_bytes = 0
        self._is_finished = False

    @property
    def is_full(self) -> bool:
        """Whether the task should finish this range and go on in a new one."""
        age_ms = (time.monotonic() - self._created) * 1e3
        rolled = self.size_bytes >= self._properties.roll_size_bytes
        return rolled or age_ms >= self._properties.roll_age_ms

    async def start(self, schema_message: bytes) -> None:
        """Append the schema message as entry 0; rows follow.

        Args:
            schema_message: Of the stream of record batches; empty for a log of records.
        """
        if schema_message:
            await self._append(schema_message)
            self._first_entry_id = 1

    async def append(self, payload: bytes | bytearray | memoryview, rows: int) -> None:
        """Append one record batch; returns when it was sent, not when it is acknowledged.

        Waits while more than 32 MiB are on their way.

        Args:
            payload: The entry; must not change until `finish` returned.
            rows: That the entry holds, at least 1.

        Raises:
            LedgerError: The ledger cannot be written any more. The attempt has failed.
            QuorumError: The same.
        """
        if self._is_finished or rows < 1:
            raise LocalProtocolError(
                "the range is finished" if self._is_finished else f"an entry of {rows} rows",
                ledger_id=self.ledger_id,
            )
        await self._append(payload)
        reach("range.rows_sent")
        self.rows += rows
        self.size_bytes += len(payload)

    async def finish(
        self, index: bytes | None = None, *, statistics: bytes = b""
    ) -> StagedRange | None:
        """The range, every entry of it on its ack quorum, and the ledger closed.

        Args:
            index: The range's index entry, appended last; None for none.
            statistics: As `log_statistics.encode_statistics` made them.

        Returns:
            None when no row was appended.

        Raises:
            LedgerError: Not everything was acknowledged. The attempt has failed.
            QuorumError: The same.
        """
        self._is_finished = True
        has_index = index is not None and self.rows > 0
        if has_index:
            assert index is not None
            await self._append(index)
            self.size_bytes += len(index)
        while self._pending:
            await self._acknowledged()
        reach("range.acknowledged")
        await self._handle.close()
        reach("ledger.closed")
        if not self.rows:
            return None
        last_entry_id = self._entries - 1
        return StagedRange(
            ledger_id=self.ledger_id,
            first_entry_id=self._first_entry_id,
            last_entry_id=last_entry_id,
            index_entry_id=last_entry_id if has_index else NO_ENTRY,
            rows=self.rows,
            size_bytes=self.size_bytes,
            statistics=statistics,
        )

    def abandon(self) -> None:
        """Stop at once. The ledger is left to the sweeper; nothing of it was or will be listed."""
        self._is_finished = True
        for future, _ in self._pending:
            future.cancel()
        self._pending.clear()
        self._handle.abandon()

    async def _append(self, payload: bytes | bytearray | memoryview) -> None:
        while self._pending and self._pending_size_bytes + len(payload) > PENDING_SIZE_BYTES_MAX:
            await self._acknowledged()
        future = self._handle.append_async(payload)
        # The first failure is the attempt's; those behind it say the same and are not waited for.
        future.add_done_callback(_seen)
        self._pending.append((future, len(payload)))
        self._pending_size_bytes += len(payload)
        self._entries += 1
        while self._pending and self._pending[0][0].done():
            await self._acknowledged()

    async def _acknowledged(self) -> None:
        """The oldest pending entry is; an entry with another id than its place is our bug."""
        future, size_bytes = self._pending.popleft()
        expected = self._entries - len(self._pending) - 1
        entry_id = await future
        assert entry_id == expected, (self.ledger_id, entry_id, expected)
        self._pending_size_bytes -= size_bytes


def _seen(future: asyncio.Future[int]) -> None:
    if not future.cancelled():
        future.exception()
