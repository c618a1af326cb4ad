"""Reads and touches ledger metadata in the metadata store, for storage and garbage collection."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from bookie_server.core.doubt import standing_of
from bookie_server.ports import MetadataAnswer, Standing
from bookie_server.service.logging import fields_of, get_logger
from ledgerlog_spark.errors import LedgerNotFoundError, MetadataError, MetadataFormatError
from ledgerlog_spark.metadata.ledgers.store import LedgerStore
from ledgerlog_spark.metadata.registration import Registration
from ledgerlog_spark.metadata.replication.ports import LedgerLocks
from ledgerlog_spark.model import LedgerMetadata, Version, Versioned

_logger = get_logger("collector")
_metadata_logger = get_logger("metadata")


class StoreMetadataCheck:
    """Implements `MetadataCheck`. It reads the ledger metadata after a sync.

    If the bookie may have lost the state of ledgers, the first regular add of a ledger waits for
    the result of `check` for a limited time (PROTOCOL.md#F7).
    """

    def __init__(self, ledgers: LedgerStore, bookie_id: str, timeout_ms: int) -> None:
        self._ledgers = ledgers
        self._bookie_id = bookie_id
        self._timeout_s = timeout_ms / 1_000

    async def check(self, ledger_id: int) -> MetadataAnswer:
        """Return the state of the ledger in its metadata, or UNKNOWN if that cannot be read."""
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._ledgers.sync()
                found = await self._ledgers.load(ledger_id)
        except LedgerNotFoundError:
            return MetadataAnswer(standing_of(None, self._bookie_id))
        except (MetadataError, TimeoutError) as error:
            _metadata_logger.warning(
                "metadata_check_failed", **{**fields_of(error), "ledger_id": ledger_id}
            )
            return MetadataAnswer(Standing.UNKNOWN)
        # `incarnation` is the id of the transaction that created the ledger's node.
        return MetadataAnswer(standing_of(found.value, self._bookie_id), found.version.incarnation)


class StoreLedgerListing:
    """Implements `LedgerListing` with ledger metadata.

    If the store has no cookie of this bookie, the store has lost its data or is another store. In
    this case, `unlisted` returns None.
    """

    def __init__(self, ledgers: LedgerStore, registration: Registration, bookie_id: str) -> None:
        self._ledgers = ledgers
        self._registration = registration
        self._bookie_id = bookie_id

    async def unlisted(self, ledger_ids: Sequence[int]) -> Sequence[int] | None:
        """Return the `ledger_ids` that are not in a new listing, or None if the listing failed."""
        left = set(ledger_ids)
        try:
            if await self._registration.read_cookie(self._bookie_id) is None:
                _logger.error("cookie_is_gone", bookie_id=self._bookie_id)
                return None
            async for ledger_id in self._ledgers.ids():
                left.discard(ledger_id)
        except MetadataError as error:
            _logger.warning("listing_failed", **fields_of(error))
            return None
        return sorted(left)

    async def deleted(self, ledger_ids: Sequence[int]) -> Sequence[int]:
        """Return the `ledger_ids` that have no metadata after a sync, or no ids after a failure."""
        try:
            await self._ledgers.sync()
            return [i for i in ledger_ids if await self._is_deleted(i)]
        except MetadataError as error:
            _logger.warning("lookup_failed", **fields_of(error))
            return ()

    async def _is_deleted(self, ledger_id: int) -> bool:
        try:
            await self._ledgers.load(ledger_id)
        except LedgerNotFoundError:
            return True
        except MetadataFormatError:
            return False
        return False


class StoreLedgerRecords:
    """Implements `LockableRecords` with ledger metadata and the locks of re-replication."""

    def __init__(self, ledgers: LedgerStore, locks: LedgerLocks, bookie_id: str) -> None:
        self._ledgers = ledgers
        self._locks = locks
        self._bookie_id = bookie_id

    async def lock(self, ledger_id: int) -> bool:
        """Take the lock of a ledger. If this fails, return False."""
        try:
            return await self._locks.acquire(ledger_id, self._bookie_id) is not None
        except MetadataError as error:
            _log_failed_release(ledger_id, error)
            return False

    async def unlock(self, ledger_id: int) -> None:
        """Release the lock of a ledger. If this fails, a later `release_left` releases it."""
        try:
            await self._locks.release(ledger_id)
        except MetadataError as error:
            _log_failed_release(ledger_id, error)

    async def release_left(self) -> None:
        """Release some of the locks that `unlock` could not release."""
        await self._locks.release_left()

    async def peek(self, ledger_id: int) -> Versioned[LedgerMetadata] | None:
        """Return the record of a ledger without a sync."""
        try:
            return await self._ledgers.load(ledger_id)
        except LedgerNotFoundError:
            return None
        except MetadataError as error:
            _log_failed_release(ledger_id, error)
            return None

    async def load(self, ledger_id: int) -> Versioned[LedgerMetadata] | None:
        """Return the record of a ledger after a sync."""
        try:
            await self._ledgers.sync()
        except MetadataError as error:
            _log_failed_release(ledger_id, error)
            return None
        return await self.peek(ledger_id)

    async def touch(self, ledger_id: int, version: Version) -> bool:
        """Write the same record again. Return False if it has changed, or if the write failed."""
        try:
            await self._ledgers.touch(ledger_id, version)
        except MetadataError as error:
            _log_failed_release(ledger_id, error)
            return False
        return True


def _log_failed_release(ledger_id: int, error: MetadataError) -> None:
    _logger.warning("release_failed", **{**fields_of(error), "ledger_id": ledger_id})
