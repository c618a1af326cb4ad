"""A ledger that this process writes ranges into, one after the other.

One transaction created the ledger's metadata and its registration. The ledger may stay open between
batches. It may also stay open forever, because writers often end without closing it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ledgerlog_spark.log.failpoints import reach

if TYPE_CHECKING:
    from ledgerlog_spark.log.ports import LedgerWriterHandle
    from ledgerlog_spark.protocol.log.properties import LogProperties


class StagedLedger:
    """One ledger: entry 0 is the schema message, and ranges follow.

    One range is written at a time, on the thread of the client's loop. `entries` is the number of
    appended entries, including the schema message; `size_bytes` is their payload.
    """

    def __init__(self, handle: LedgerWriterHandle, properties: LogProperties) -> None:
        """A ledger that was just created. `start` sends its first entry."""
        self.ledger_id = handle.id
        self.entries = 0
        self.size_bytes = 0
        self._handle = handle
        self._roll_bytes = properties.roll_bytes
        # A commit needs the registration, which the sweeper may end after `stagingTtlMs`.
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
        """Whether no append failed so far. Another client may still have fenced the ledger."""
        return self._handle.is_writable

    def start(self, schema_message: bytes) -> None:
        """Send the schema message as entry 0, unless the message is empty (a log of records).

        The message is acknowledged no later than the first range.
        """
        if schema_message:
            self.send(schema_message)

    def send(self, payload: bytes | bytearray | memoryview) -> asyncio.Future[int]:
        """Append an entry. Returns a future of its id; until then the payload must not change."""
        future = self._handle.append_async(payload)
        # The attempt fails with the first failure. Later failures have the same cause and are not
        # awaited.
        future.add_done_callback(_seen)
        self.entries += 1
        self.size_bytes += len(payload)
        return future

    def note_range(self, batch_id: int, size_bytes: int) -> None:
        """Note that a range of the batch `batch_id` is complete."""
        if batch_id != self._last_batch_id:
            self._last_batch_id, self._last_batch_size_bytes = batch_id, 0
        self._last_batch_size_bytes += size_bytes
        self._ranges_size_bytes += size_bytes

    def is_mostly_unlisted(self, batch_id: int) -> bool:
        """Whether less than half of the ledger is listed before `batch_id`, if batches overwrite.

        The writer then continues in a new ledger. Otherwise a log in complete mode would keep all
        its batches on disk.
        """
        is_replaced = self._last_batch_id < batch_id - 1
        listed_size_bytes = 0 if is_replaced else self._last_batch_size_bytes
        return 2 * listed_size_bytes < self._ranges_size_bytes

    async def close(self) -> None:
        """Close the ledger after the appended entries. Raises the errors of the client's handle."""
        await self._handle.close()
        reach("ledger.closed")

    def abandon(self) -> None:
        """Stop immediately. Listed entries stay readable, and the sweeper deletes other entries."""
        self._handle.abandon()


def _seen(future: asyncio.Future[int]) -> None:
    if not future.cancelled():
        future.exception()
