"""Releases closed ledgers whose metadata no longer names this bookie, to free space (ADR 43).

A ledger is released in three steps:

1. Hide: the storage no longer lists the entries of the ledger. From now on, an add to the ledger
   ends the release.
2. Touch: under the lock of re-replication, the metadata record of the ledger is read after a sync.
   The record must have the state CLOSED and must not name this bookie. Then the record is rewritten
   without a change, with a compare-and-swap.
3. Drop: the storage deletes the entries, without a fence.

These steps ensure PROTOCOL.md#F8. A worker of re-replication may have listed the entries before
step 1. Such a worker has read the record before step 2, so its write of the record fails. A worker
that lists the entries later finds no entries. If a step fails, the entries stay.
"""

from __future__ import annotations

from dataclasses import dataclass

from bookie_server.core.release import is_released_by
from bookie_server.ports import Future, LockableRecords, Tasks
from bookie_server.storage.directories.opening import BookieStorage
from bookie_server.storage.wake_ups import resolve
from ledgerlog_spark.model import Code

LOOKUPS_PER_PASS_MAX = 2_000
RELEASES_PER_PASS_MAX = 200
PAUSE_MS = 50
"""Pause before each touch, in milliseconds. A touch notifies all clients that watch the ledger."""


@dataclass(frozen=True, slots=True)
class Released:
    """The result of one pass."""

    looked_up: int = 0  # number of records that were read
    released: int = 0  # number of ledgers whose entries were deleted durably
    kept: int = 0  # number of ledgers whose release ended without a deletion


class Releaser:
    """Releases a limited number of ledgers in each pass. The next pass continues with later ids."""

    def __init__(
        self,
        storage: BookieStorage,
        records: LockableRecords,
        tasks: Tasks,
        bookie_id: str,
        pause_ms: int = PAUSE_MS,
    ) -> None:
        self._storage = storage
        self._records = records
        self._tasks = tasks
        self._bookie_id = bookie_id
        self._pause_ms = pause_ms
        self._is_stopped = False
        self._last_ledger_id = -1  # id of the ledger whose record was read last

    def stop(self) -> None:
        """Release no further ledger."""
        self._is_stopped = True

    async def release_some(self) -> Released:
        """Read the records of further ledgers that got no add for a long time, and release some."""
        looked_up = released = kept = 0
        await self._records.release_left()
        for ledger_id in await self._next_ledgers():
            if self._is_stopped or released + kept >= RELEASES_PER_PASS_MAX:
                break
            self._last_ledger_id = ledger_id
            looked_up += 1
            record = await self._records.peek(ledger_id)
            if record is None or not is_released_by(record.value, self._bookie_id):
                continue
            is_released = await self._release(ledger_id)
            released += is_released
            kept += not is_released
        return Released(looked_up, released, kept)

    async def _next_ledgers(self) -> list[int]:
        """Return the ids of the ledgers to check in this pass, in ascending order.

        The first id is the next id after `_last_ledger_id`. The largest id is followed by the
        smallest.
        """
        quiet = await self._storage.releasable()
        later = [ledger_id for ledger_id in quiet if ledger_id > self._last_ledger_id]
        earlier = quiet[: len(quiet) - len(later)]
        return [*later, *earlier][:LOOKUPS_PER_PASS_MAX]

    async def _release(self, ledger_id: int) -> bool:
        """Hide, touch and drop one ledger. Return whether its entries are deleted."""
        await self._tasks.sleep(self._pause_ms)
        if self._is_stopped or not await self._records.lock(ledger_id):
            return False
        is_released = False
        if self._storage.hide(ledger_id):
            is_released = await self._touch(ledger_id) and await self._drop(ledger_id)
            self._storage.unhide(ledger_id)
        await self._records.unlock(ledger_id)
        return is_released

    async def _touch(self, ledger_id: int) -> bool:
        """Touch the record. Return whether the entries may be dropped.

        If they may be dropped, each write of the record that is running now fails.
        """
        record = await self._records.load(ledger_id)
        if record is None or not is_released_by(record.value, self._bookie_id):
            return False
        return await self._records.touch(ledger_id, record.version)

    async def _drop(self, ledger_id: int) -> bool:
        answered: Future[Code] = self._tasks.future()
        self._storage.release(ledger_id, lambda code: resolve(answered, code))
        return await answered is Code.OK
