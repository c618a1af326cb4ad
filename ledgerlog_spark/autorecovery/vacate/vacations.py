"""Runs the vacations of a cluster, in the process that has the lease of vacations.

The lease is separate from the election of Apache's auditors, so vacations also run while an auditor
of Apache is elected.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

from ledgerlog_spark.autorecovery.vacate.runner import VacationRunner, remove_orphan_moves
from ledgerlog_spark.errors import LedgerLogError
from ledgerlog_spark.metadata.stores import MetadataStores
from ledgerlog_spark.protocol.autorecovery.vacate.vacating import VacatingSettings

LEASE = "autorecovery-vacations"
LEASE_SECONDS = 10.0
LOOK_SECONDS = 5.0

_logger = logging.getLogger(__name__)


async def run_vacations(
    member_id: str, stores: MetadataStores, settings: VacatingSettings | None = None
) -> None:
    """Run each vacation to its end, and find new vacations, until this call is cancelled.

    The lease only avoids duplicate work. If a process that has lost the lease still runs vacations,
    this does no harm, because each write compares versions. One vacation runs at a time, in the
    order of the bookies' ids.
    """
    pause, swept_in = 0.0, 0
    try:
        while True:
            await asyncio.sleep(pause)
            pause = LEASE_SECONDS
            try:
                if await stores.leases.acquire(LEASE, {"id": member_id}):
                    pause = LOOK_SECONDS
                    if swept_in != stores.tree.session_id:
                        await remove_orphan_moves(stores)
                        swept_in = stores.tree.session_id
                    await _run_next(stores, settings)
            except LedgerLogError as error:
                _logger.warning("vacations cannot be read: %s", error)
    finally:
        with contextlib.suppress(LedgerLogError):
            await stores.leases.release(LEASE)


async def _run_next(stores: MetadataStores, settings: VacatingSettings | None) -> None:
    for bookie_id, found in sorted((await stores.vacations.all()).items()):
        if not found.value.is_over:
            end = await VacationRunner(stores, bookie_id, settings).run()
            _logger.info("vacation of bookie %s: %s", bookie_id, end.value)
            return
