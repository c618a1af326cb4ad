"""Seals open ledgers of replaced query runs (LOGS.md#P6).

A replaced run cannot commit any more. After its ledgers are sealed, no append of the run can be
acknowledged. A sealed ledger has all entries that the log lists.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from typing import NamedTuple

from ledgerlog_spark.errors import LedgerLogError, LedgerNotFoundError
from ledgerlog_spark.log.host import LogHost
from ledgerlog_spark.model import LedgerMetadata
from ledgerlog_spark.protocol.log.seal import FloorMachine, since_offset

SEALS_AT_ONCE = 4

_logger = logging.getLogger(__name__)


class Sealed(NamedTuple):
    """The result of `seal_open`.

    `sealed` is the number of ledgers that were open and are now sealed. `left` is the number of
    ledgers that may still be open.
    """

    sealed: int = 0
    left: int = 0


async def seal_open(ledger_ids: Sequence[int], host: LogHost) -> Sealed:
    """Seal the open ledgers among `ledger_ids`.

    All given ledgers must belong to one transactional log.

    A ledger that cannot be sealed now stays open, and a warning is logged. Raises MetadataError if
    the list of the log could not be read.
    """
    gate = asyncio.Semaphore(SEALS_AT_ONCE)
    left: list[int] = []

    async def tried(
        ledger_id: int, work: Awaitable[LedgerMetadata], failed: str
    ) -> LedgerMetadata | None:
        async with gate:
            try:
                return await work
            except LedgerNotFoundError:
                pass
            except LedgerLogError as error:
                _logger.warning("log %s: ledger %s %s: %s", host.name, ledger_id, failed, error)
                left.append(ledger_id)
        return None

    read = await asyncio.gather(
        *(tried(i, host.ledgers.ledger_metadata(i), "may be open") for i in ledger_ids)
    )
    found = {i: one for i, one in zip(ledger_ids, read, strict=True) if one and not one.is_closed}
    if not found:
        return Sealed(left=len(left))
    # The list is read after the metadata. A later commit may list more entries of these ledgers.
    # But all entries that a commit lists are acknowledged, and a recovery never loses acknowledged
    # entries.
    machine = FloorMachine(host.name, {i: since_offset(one.custom) for i, one in found.items()})
    floors = await host.run(machine)
    seal = host.ledgers.seal
    done = await asyncio.gather(
        *(
            tried(i, seal(i, password=one.password, floor_entry_id=floors[i]), "stays open")
            for i, one in found.items()
        )
    )
    return Sealed(len(done) - done.count(None), len(left))
