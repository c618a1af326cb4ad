"""What storage and garbage collection read of ledgers in the metadata store."""

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
    """The `MetadataCheck` port: answers from a ledger's record, read after a sync: it is not stale.

    After state may have been lost, the first regular add of a ledger waits for this answer
    (PROTOCOL.md#F7); storage bounds the wait.

    Args:
        ledgers: The store.
        bookie_id: Of this bookie.
        timeout_ms: After so long without an answer nothing is known.
    """

    def __init__(self, ledgers: LedgerStore, bookie_id: str, timeout_ms: int) -> None:
        self._ledgers = ledgers
        self._bookie_id = bookie_id
        self._timeout_s = timeout_ms / 1_000

    async def check(self, ledger_id: int) -> Standing:
        """What the record says; UNKNOWN when it cannot be read now, which refuses nothing."""
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
    """The `LedgerListing` port: answers from the ledgers' records.

    A store that does not know this bookie's cookie is not believed: it was emptied, or is another
    one.

    Args:
        ledgers: The records.
        registration: Has the cookie.
        bookie_id: Of this bookie.
    """

    def __init__(self, ledgers: LedgerStore, registration: Registration, bookie_id: str) -> None:
        self._ledgers = ledgers
        self._registration = registration
        self._bookie_id = bookie_id

    async def unlisted(self, ledger_ids: Sequence[int]) -> Sequence[int] | None:
        """See `LedgerListing.unlisted`."""
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
        """See `LedgerListing.deleted`."""
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
