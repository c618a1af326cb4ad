"""Seals what replaced query runs left open (LOGS.md#P6).

A run that was replaced cannot commit any more, and once its ledgers are sealed it cannot have an
append acknowledged either. Sealing never closes a ledger below what the log lists of it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NamedTuple

from ledgerlog_spark.errors import LedgerLogError, LedgerNotFoundError
from ledgerlog_spark.protocol.log.seal import FloorMachine, since_offset

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledgerlog_spark.log.driver import Driver
    from ledgerlog_spark.log.ports import Ledgers
    from ledgerlog_spark.model import LedgerMetadata

SEALS_AT_ONCE = 4

_logger = logging.getLogger(__name__)


class Sealed(NamedTuple):
    """What became of ledgers that were to be sealed.

    Attributes:
        sealed: So many were open and are sealed now.
        left: So many may be open still.
    """

    sealed: int = 0
    left: int = 0


async def seal_open(
    ledger_ids: Sequence[int], *, log: str, driver: Driver, ledgers: Ledgers
) -> Sealed:
    """Seal those of the ledgers that are open.

    One that cannot be sealed now is left for another time, with a warning.

    Args:
        ledger_ids: Of one transactional log.
        log: Its name.
        driver: Of the log.
        ledgers: The client.

    Raises:
        MetadataError: The list of the log could not be read.
    """
    gate = asyncio.Semaphore(SEALS_AT_ONCE)
    found: dict[int, LedgerMetadata] = {}
    unread: list[int] = []

    async def look(ledger_id: int) -> None:
        async with gate:
            try:
                metadata = await ledgers.ledger_metadata(ledger_id)
                if not metadata.is_closed:
                    found[ledger_id] = metadata
            except LedgerNotFoundError:
                return
            except LedgerLogError as error:
                _logger.warning("log %s: ledger %s may be open: %s", log, ledger_id, error)
                unread.append(ledger_id)

    await asyncio.gather(*map(look, ledger_ids))
    if not found:
        return Sealed(left=len(unread))
    # The list after the ledgers: what a later commit adds is of other ledgers, or of entries that
    # are acknowledged by now.
    machine = FloorMachine(log, {i: since_offset(one.custom) for i, one in found.items()})
    floors = await driver.run(machine)

    async def seal(ledger_id: int, metadata: LedgerMetadata) -> Sealed:
        async with gate:
            try:
                await ledgers.seal(
                    ledger_id, password=metadata.password, floor_entry_id=floors[ledger_id]
                )
            except LedgerNotFoundError:
                return Sealed()
            except LedgerLogError as error:
                _logger.warning("log %s: ledger %s stays open: %s", log, ledger_id, error)
                return Sealed(left=1)
        return Sealed(sealed=1)

    done = await asyncio.gather(*(seal(i, found[i]) for i in ledger_ids if i in found))
    left = sum(each.left for each in done) + len(unread)
    return Sealed(sum(each.sealed for each in done), left)
