"""Reads ledger metadata in the metadata store for storage and garbage collection."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from bookie_server.ports import Standing
from bookie_server.service.logging import get_logger
from ledgerlog_spark.errors import LedgerNotFoundError, MetadataError, MetadataFormatError
from ledgerlog_spark.metadata.bookies.registration import Registration
from ledgerlog_spark.metadata.ledgers.store import LedgerStore
from ledgerlog_spark.model import LedgerState

_logger = get_logger("collector")
_metadata_logger = get_logger("metadata")


class StoreMetadataCheck:
    """The `MetadataCheck` port: answers from ledger metadata that is read after a sync.

    After state may have been lost, the first regular add of a ledger waits for this answer
    (PROTOCOL.md#F7); storage bounds the wait.
    """

    def __init__(self, ledgers: LedgerStore, bookie_id: str, timeout_ms: int) -> None:
        self._ledgers = ledgers
        self._bookie_id = bookie_id
        self._timeout_s = timeout_ms / 1_000

    async def check(self, ledger_id: int) -> Standing:
        """Return the state by the metadata; UNKNOWN, which refuses nothing, if unreadable."""
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._ledgers.sync()
                metadata = (await self._ledgers.load(ledger_id)).value
        except LedgerNotFoundError:
            return Standing.NOT_WRITABLE
        except (MetadataError, TimeoutError) as error:
            _metadata_logger.warning(
                "metadata_check_failed", ledger_id=ledger_id, reason=str(error)
            )
            return Standing.UNKNOWN
        if metadata.state is not LedgerState.OPEN:
            return Standing.NOT_WRITABLE
        if self._bookie_id not in metadata.last_fragment.ensemble:
            return Standing.OPEN_WITHOUT_ME
        return Standing.OPEN_WITH_ME


class StoreLedgerListing:
    """The `LedgerListing` port: answers from ledger metadata.

    A store without this bookie's cookie was emptied, or is another store. Its answers are ignored.
    """

    def __init__(self, ledgers: LedgerStore, registration: Registration, bookie_id: str) -> None:
        self._ledgers = ledgers
        self._registration = registration
        self._bookie_id = bookie_id

    async def unlisted(self, ledger_ids: Sequence[int]) -> Sequence[int] | None:
        """Return those of `ledger_ids` that a new listing lacks."""
        left = set(ledger_ids)
        try:
            if await self._registration.read_cookie(self._bookie_id) is None:
                _logger.error("cookie_is_gone", bookie_id=self._bookie_id)
                return None
            async for ledger_id in self._ledgers.ids():
                left.discard(ledger_id)
        except MetadataError as error:
            _logger.warning("listing_failed", reason=str(error))
            return None
        return sorted(left)

    async def deleted(self, ledger_ids: Sequence[int]) -> Sequence[int]:
        """Return those of `ledger_ids` without metadata, after a sync."""
        try:
            await self._ledgers.sync()
            return [i for i in ledger_ids if await self._is_deleted(i)]
        except MetadataError as error:
            _logger.warning("lookup_failed", reason=str(error))
            return ()

    async def _is_deleted(self, ledger_id: int) -> bool:
        try:
            await self._ledgers.load(ledger_id)
        except LedgerNotFoundError:
            return True
        except MetadataFormatError:
            return False
        return False
