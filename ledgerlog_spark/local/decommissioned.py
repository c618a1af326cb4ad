"""The bookies of a local cluster that were decommissioned, so that they never start again."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor

from ledgerlog_spark.composition import metadata
from ledgerlog_spark.errors import LedgerLogError


def decommissioned(metadata_service_uri: str, bookie_ids: Collection[str]) -> frozenset[str]:
    """Return the bookies that were decommissioned. If this cannot be read, return none of them.

    The caller may run in an event loop, as in a notebook, so the store is read in a thread.
    """
    with ThreadPoolExecutor(1) as pool:
        try:
            return pool.submit(asyncio.run, _found(metadata_service_uri, bookie_ids)).result()
        except LedgerLogError:
            return frozenset()


async def _found(metadata_service_uri: str, bookie_ids: Collection[str]) -> frozenset[str]:
    async with metadata(metadata_service_uri) as stores:
        vacations = {one: await stores.vacations.load(one) for one in bookie_ids}
    return frozenset(
        one for one, found in vacations.items() if found is not None and found.value.forbids_starts
    )
