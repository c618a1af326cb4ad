"""What storage asks the metadata store when its own memory of a ledger may be incomplete.

After state may have been lost, the first regular add of a ledger waits for this answer
(PROTOCOL.md#F7); storage calls it through its port and bounds the wait.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from bookie_server.ports import Standing
from bookie_server.service.logging import get_logger
from ledgerlog_spark.errors import LedgerNotFoundError, MetadataError
from ledgerlog_spark.model import LedgerState

if TYPE_CHECKING:
    from ledgerlog_spark.metadata.ledgers.store import LedgerStore

_logger = get_logger("metadata")


class StoreMetadataCheck:
    """Answers from the ledger's record, read after a sync so that it is not stale.

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
            _logger.warning("metadata_check_failed", ledger_id=ledger_id, reason=str(error))
            return Standing.UNKNOWN
        if metadata.state is not LedgerState.OPEN:
            return Standing.NOT_WRITABLE
        if self._bookie_id not in metadata.last_fragment.ensemble:
            return Standing.OPEN_WITHOUT_ME
        return Standing.OPEN_WITH_ME
