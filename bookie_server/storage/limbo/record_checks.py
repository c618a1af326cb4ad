"""Reads the metadata of a ledger, with a time limit."""

from __future__ import annotations

from bookie_server.ports import Future, MetadataAnswer, Standing
from bookie_server.storage.shared import Shared
from bookie_server.storage.wake_ups import resolve


async def check_in_time(shared: Shared, ledger_id: int) -> MetadataAnswer:
    """Return the answer of the metadata store, or UNKNOWN if it does not answer in time."""
    answer: Future[MetadataAnswer] = shared.tasks.future()

    async def check() -> None:
        resolve(answer, await shared.metadata.check(ledger_id))

    async def time_out() -> None:
        await shared.tasks.sleep(shared.settings.metadata_check_ms)
        resolve(answer, MetadataAnswer(Standing.UNKNOWN))

    shared.tasks.spawn("metadata read", check())
    shared.tasks.spawn("metadata deadline", time_out())
    return await answer
