"""What garbage collection asks the metadata store (the `LedgerListing` port)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bookie_server.service.logging import get_logger
from ledgerlog_spark.errors import LedgerNotFoundError, MetadataError, MetadataFormatError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledgerlog_spark.metadata.bookies.registration import Registration
    from ledgerlog_spark.metadata.ledgers.store import LedgerStore

_logger = get_logger("collector")


class StoreLedgerListing:
    """Answers from the ledgers' records.

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
