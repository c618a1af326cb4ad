"""Waiters of a write handle are woken, and failed calls may be repeated."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from ledgerlog_spark.client.settings import ClientSettings
from ledgerlog_spark.errors import LedgerLogError, MetadataUnavailableError
from ledgerlog_spark.protocol.ledger.write.add_pipeline import Window
from ledgerlog_spark.protocol.ledger.write.settings import WriterSettings
from ledgerlog_spark.retry import RetryPolicy
from ledgerlog_spark.testing.memory.tree import MemoryTree
from tests.fixtures.client_world import ClientWorld
from tests.fixtures.metadata_worlds import memory_tree

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ledgerlog_spark.client.handles.writer import WriteHandle

SETTINGS = ClientSettings(
    backlog_entries_max=10,
    writer=WriterSettings(
        window=Window(entries_max=1),
        add_quorum_timeout_ms=8_000,
        metadata=RetryPolicy(attempts_max=2),
    ),
)
WITH_SETTINGS = pytest.mark.world(bookies=3, settings=SETTINGS)
WAITS: dict[str, Callable[[WriteHandle], Awaitable[object]]] = {
    "drain": lambda handle: handle.drain(),
    "flush": lambda handle: handle.flush(),
    "close": lambda handle: handle.close(),
}


@WITH_SETTINGS
@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize("end", ["answers", "failure", "client"])
async def test_every_wait_ends_with_the_answers_with_a_failure_and_with_the_client(
    world: ClientWorld, wait: str, end: str
) -> None:
    client = world.client()
    handle = await client.create_ledger()
    world.transport.held |= set(world.names)
    appended = [handle.append_async(b"x")]
    await asyncio.sleep(0.1)
    appended += [handle.append_async(b"x") for _ in range(40)]
    waiting = asyncio.ensure_future(WAITS[wait](handle))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    if end == "answers":
        for name in world.names:
            world.transport.release(name)
    elif end == "client":
        await client.aclose()
    async with asyncio.timeout(60):
        (outcome,) = await asyncio.gather(waiting, return_exceptions=True)
        outcomes = await asyncio.gather(*appended, return_exceptions=True)
    assert outcome is None or wait == "close"
    is_failed = [isinstance(one, LedgerLogError) for one in outcomes]
    assert all(is_failed) if end != "answers" else not any(is_failed)


@WITH_SETTINGS
async def test_a_close_that_failed_in_an_outage_is_made_anew_by_the_next_one(
    world: ClientWorld,
) -> None:
    client, stores = world.client_and_stores()
    handle = await client.create_ledger()
    await handle.append(b"x")
    assert isinstance(stores.tree, MemoryTree)
    memory_tree(stores).disconnect()
    with pytest.raises(MetadataUnavailableError) as failed:
        await handle.close()
    assert failed.value.retriable
    memory_tree(stores).connect()
    assert (await handle.close()).last_entry_id == 0


@WITH_SETTINGS
async def test_a_bookie_that_came_a_moment_ago_makes_a_ledger_possible(world: ClientWorld) -> None:
    """The known list of bookies is as old as the last notification of its watch."""
    client = world.client()
    bookies = client.services.bookies.writable
    bookies._names = list(await bookies.refreshed())[:2]
    handle = await client.create_ledger()
    assert len(handle.metadata.last_fragment.ensemble) == 3
