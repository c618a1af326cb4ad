"""The lease of upkeep during a pass. It is released in whatever way the pass ends."""

from __future__ import annotations

import asyncio
import contextlib
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.errors import LedgerLogError
from ledgerlog_spark.upkeep.upkeep import LEASE, leased
from tests.sim.log.stores.world import StoreCall

if TYPE_CHECKING:
    from tests.sim.log.stores.world import StoreProcess

HARM = 8
CANCELLED_SECONDS_MAX = 10
"""A cancelled pass ends within this time during an outage: after one more request, with a stall."""


async def hold(process: StoreProcess) -> None:
    """Make passes that end, fail, get no lease, or are cancelled during an outage."""
    world, random = process.world, process.world.random
    services = SimpleNamespace(leases=process.stores.leases)
    client = SimpleNamespace(services=services)
    for _ in range(5):
        await process.sleep(200)
        call = StoreCall(process)
        process.tree.harm = HARM
        task = asyncio.ensure_future(_pass(process, client))
        if random.random() < 0.3:
            await asyncio.sleep(random.random())
            await _cancelled(process, task)
            continue
        with call:
            await task
        _is_given_back(process)
        world.counts["passes"] += 1


async def _pass(process: StoreProcess, client: Any) -> None:
    async with leased(client) as is_held:
        if is_held:
            await process.sleep(300)
            if process.world.random.random() < 0.3:
                await process.logs.names()  # this call may fail


async def _cancelled(process: StoreProcess, task: asyncio.Future[None]) -> None:
    world = process.world
    process.tree.disconnect()
    began = world.loop.time()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError, LedgerLogError):
        await task
    seconds = world.loop.time() - began
    is_soon = seconds < CANCELLED_SECONDS_MAX
    world.require(is_soon, f"a pass that was cancelled went on for {seconds:.0f} s")
    process.tree.connect()
    process.tree.expire_session()  # as if a cancelled process had ended


def _is_given_back(process: StoreProcess) -> None:
    """Check that the lease was released, unless its creation was late and came after that."""
    world, path = process.world, f"{process.world.root}-leases/{LEASE}"
    node = world.nodes.current.nodes.get(path)
    if node is not None and node.owner == process.tree.session_id:
        came = world.history[path][-1][0]
        is_late = came > process.tree.synced
        world.require(is_late, f"{process.name} ended its pass, and has the lease")
