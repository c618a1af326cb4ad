"""Runs the vacations of a cluster, while this process is the auditor."""

from __future__ import annotations

import asyncio
import logging

from ledgerlog_spark.autorecovery.vacate.runner import VacationRunner
from ledgerlog_spark.errors import LedgerLogError
from ledgerlog_spark.metadata.stores import MetadataStores
from ledgerlog_spark.protocol.autorecovery.vacate.vacating import VacatingSettings

LOOK_SECONDS = 5.0

_logger = logging.getLogger(__name__)


async def run_vacations(stores: MetadataStores, settings: VacatingSettings | None = None) -> None:
    """Look for vacations, and run each of them to its end. Runs until the caller cancels it.

    Several processes may run this at once, because each write compares versions. One vacation runs
    at a time, in the order of the bookies' ids.
    """
    while True:
        try:
            await _run_next(stores, settings)
        except LedgerLogError as error:
            _logger.warning("vacations cannot be read: %s", error)
        await asyncio.sleep(LOOK_SECONDS)


async def _run_next(stores: MetadataStores, settings: VacatingSettings | None) -> None:
    for bookie_id, found in sorted((await stores.vacations.all()).items()):
        if not found.value.is_over:
            end = await VacationRunner(stores, bookie_id, settings).run()
            _logger.info("vacation of bookie %s: %s", bookie_id, end.value)
            return
