"""A ledger that this process writes ranges into, one after the other.

Its metadata and its registration were created in one transaction. It may stay open between batches,
or
forever: an abandoned open ledger is the normal end of a writer.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ledgerlog_spark.log.failpoints import reach

if TYPE_CHECKING:
    from ledgerlog_spark.log.ports import LedgerWriterHandle
    from ledgerlog_spark.protocol.log.properties import LogProperties


class StagedLedger:
    """One ledger; entry 0 is the schema message, ranges follow.

    One range at a time, on the thread of the client's loop. `entries` counts the appended entries,
    the schema message included; `size_bytes` their payload.
    """

    def __init__(self, handle: LedgerWriterHandle, properties: LogProperties) -> None:
        """A ledger that was just created; call `start` first."""
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
        """Whether the next range belongs into a new ledger: by size or by age."""
        age_ms = (self._loop.time() - self._created) * 1e3
        return self.size_bytes >= self._roll_bytes or age_ms >= self._roll_ms

    @property
    def is_writable(self) -> bool:
        """Whether nothing has failed so far; another client may still have fenced it."""
        return self._handle.is_writable

    def start(self, schema_message: bytes) -> None:
        """Send the schema message as entry 0; acknowledged no later than the first range.

        The message is empty in a log of records.
        """
        if schema_message:
            self.send(schema_message)

    def send(self, payload: bytes | bytearray | memoryview) -> asyncio.Future[int]:
        """A future of the entry's id, in order; the payload must not change until it is done."""
        future = self._handle.append_async(payload)
        # The attempt fails with the first failure. Later ones have the same cause and are not
        # awaited.
        future.add_done_callback(_seen)
        self.entries += 1
        self.size_bytes += len(payload)
        return future

    def note_range(self, batch_id: int, size_bytes: int) -> None:
        """Note that a range of that batch is complete."""
        if batch_id != self._last_batch_id:
            self._last_batch_id, self._last_batch_size_bytes = batch_id, 0
        self._last_batch_size_bytes += size_bytes
        self._ranges_size_bytes += size_bytes

    def is_mostly_unlisted(self, batch_id: int) -> bool:
        """Whether less than half of it is listed before `batch_id`, when every batch overwrites.

        Such a ledger has to roll. Otherwise a log in complete mode would keep all its batches on
        disk.
        """
        is_replaced = self._last_batch_id < batch_id - 1
        listed_size_bytes = 0 if is_replaced else self._last_batch_size_bytes
        return 2 * listed_size_bytes < self._ranges_size_bytes

    async def close(self) -> None:
        """Close it after the appended entries; errors as of the client's handle."""
        await self._handle.close()
        reach("ledger.closed")

    def abandon(self) -> None:
        """Stop immediately. Its listed entries stay readable. The sweeper deletes the rest."""
        self._handle.abandon()


def _seen(future: asyncio.Future[int]) -> None:
    if not future.cancelled():
        future.exception()
