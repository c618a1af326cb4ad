"""Seals open ledgers of replaced query runs (LOGS.md#P6).

A replaced run cannot commit any more. After its ledgers are sealed, no append of the run can be
acknowledged. A seal never closes a ledger below the entries that the log lists.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import NamedTuple

from ledgerlog_spark.errors import LedgerLogError, LedgerNotFoundError
from ledgerlog_spark.log.host import LogHost
from ledgerlog_spark.model import LedgerMetadata
from ledgerlog_spark.protocol.log.seal import FloorMachine, since_offset

SEALS_AT_ONCE = 4

_logger = logging.getLogger(__name__)


class Sealed(NamedTuple):
    """The result of sealing ledgers.

    `sealed` is the number of open ledgers that are sealed now. `left` ledgers may still be open.
    """

    sealed: int = 0
    left: int = 0


async def seal_open(ledger_ids: Sequence[int], host: LogHost) -> Sealed:
    """Seal the ledgers of a transactional log, if they are open.

    A ledger that cannot be sealed now stays open, with a warning. Raises MetadataError if the list
    of the log could not be read.
    """
    gate = asyncio.Semaphore(SEALS_AT_ONCE)
    found: dict[int, LedgerMetadata] = {}
    unread: list[int] = []

    async def look(ledger_id: int) -> None:
        async with gate:
            try:
                metadata = await host.ledgers.ledger_metadata(ledger_id)
                if not metadata.is_closed:
                    found[ledger_id] = metadata
            except LedgerNotFoundError:
                return
            except LedgerLogError as error:
                _logger.warning("log %s: ledger %s may be open: %s", host.name, ledger_id, error)
                unread.append(ledger_id)

    await asyncio.gather(*map(look, ledger_ids))
    if not found:
        return Sealed(left=len(unread))
    # The list is read after the ledgers. Later commits list other ledgers, or entries that are
    # already acknowledged.
    machine = FloorMachine(host.name, {i: since_offset(one.custom) for i, one in found.items()})
    floors = await host.run(machine)

    async def seal(ledger_id: int, metadata: LedgerMetadata) -> Sealed:
        async with gate:
            try:
                await host.ledgers.seal(
                    ledger_id, password=metadata.password, floor_entry_id=floors[ledger_id]
                )
            except LedgerNotFoundError:
                return Sealed()
            except LedgerLogError as error:
                _logger.warning("log %s: ledger %s stays open: %s", host.name, ledger_id, error)
                return Sealed(left=1)
        return Sealed(sealed=1)

    done = await asyncio.gather(*(seal(i, found[i]) for i in ledger_ids if i in found))
    left = sum(each.left for each in done) + len(unread)
    return Sealed(sum(each.sealed for each in done), left)
