"""A leader that was cut off from the metadata store for longer than `stagingTtlMs`."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from ledgerlog_spark.client.settings import ClientSettings
from ledgerlog_spark.errors import LedgerNotFoundError
from ledgerlog_spark.log.logs import Logs
from ledgerlog_spark.model import Fragment, LedgerMetadata, Quorum
from ledgerlog_spark.protocol.log.messages import WriteHead
from ledgerlog_spark.testing.cluster import memory_metadata
from ledgerlog_spark.testing.memory.nodes import MemoryNodes
from ledgerlog_spark.testing.memory.tree import MemoryTree
from tests.sim.leader.world import leader_head
from tests.unit.log.leader_world import LeaderWorld
from tests.unit.log.log_values import token

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ledgerlog_spark.metadata.logs.store import LogStore
    from ledgerlog_spark.model import Version

TTL_MS = 3_600_000
METADATA = LedgerMetadata(Quorum(3, 3, 2), (Fragment(0, ("a:1", "b:1", "c:1")),), token=77)


class Late:
    """A store whose user takes very long to list some ledgers.

    Attributes:
        happens: Functions that run before each of the next changes that list ledgers.
        listings: The ledgers that changes tried to list.
    """

    def __init__(self, store: LogStore) -> None:
        self._store = store
        self.happens: list[Callable[[Sequence[int]], Awaitable[None]]] = []
        self.listings: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def write_head(self, log_id: str, write: WriteHead) -> Version:
        if write.listed and self.happens:
            await self.happens.pop(0)(write.listed)
        self.listings += write.listed
        return await self._store.write_head(log_id, write)


class CutOff:
    """A world with one leader, whose store is late, and the rest of the cluster."""

    def __init__(self, world: LeaderWorld) -> None:
        client, stores = world.client_and_stores()
        self.world = world
        self.skipped_ms = 0
        clock_ms = world.nodes._clock_ms
        world.nodes._clock_ms = lambda: clock_ms() + self.skipped_ms
        self.store: Any = Late(stores.logs)
        self.logs = Logs(store=cast("LogStore", self.store), ledgers=client)

    async def lead(self) -> Any:
        await self.world.log(stagingTtlMs=str(TTL_MS))
        return await (await self.logs.open("orders")).lead(ClientSettings())

    async def claimed(self, ledger_ids: Sequence[int]) -> None:
        """Let a pass of upkeep in another process begin to delete the ledgers."""
        store = self.world.logs().store
        (log_id,) = await store.ids()
        for ledger_id in ledger_ids:
            await store.producers.claim_made(log_id, ledger_id)

    async def swept(self, ledger_ids: Sequence[int]) -> None:
        """Let passes of upkeep in another process delete the ledgers."""
        self.skipped_ms += 2 * TTL_MS
        logs = self.world.logs()
        (log_id,) = await logs.store.ids()
        for _ in range(2):
            await logs.sweeper().sweep(log_id)
        for ledger_id in ledger_ids:
            with pytest.raises(LedgerNotFoundError):
                await self.world.client().ledger_metadata(ledger_id)


@pytest.mark.parametrize("how", ["claimed", "swept"])
async def test_a_roll_goes_on_in_another_ledger(world: LeaderWorld, how: str) -> None:
    late = CutOff(world)
    leader = await late.lead()
    await leader.append(b"before")
    late.store.happens.append(getattr(late, how))
    late.store.listings.clear()
    await leader.roll()
    await leader.append(b"behind")
    assert len(late.store.listings) == 2, "one was in vain, and never tried again"
    assert len({*late.store.listings}) == 2
    assert await leader.close() == 2
    assert await world.values() == [b"before", b"behind"]
    (log_id,) = await late.store.ids()
    assert list(await late.store.producers.marked(log_id)) == []


@pytest.mark.parametrize("how", ["claimed", "swept"])
async def test_an_opening_makes_another_ledger(world: LeaderWorld, how: str) -> None:
    late = CutOff(world)
    late.store.happens.append(getattr(late, how))
    leader = await late.lead()
    assert len(late.store.listings) == len({*late.store.listings}) == 2
    await leader.append(b"record")
    assert await leader.close() == 1
    assert await world.values() == [b"record"]


@pytest.mark.parametrize("how", ["claimed", "swept"])
async def test_appends_that_wait_for_it_are_acknowledged_in_another_ledger(
    world: LeaderWorld, how: str
) -> None:
    late = CutOff(world)
    leader = await late.lead()
    await leader.append(b"before")
    late.store.happens.append(getattr(late, how))
    rolling = asyncio.ensure_future(leader.roll())
    await asyncio.sleep(0)
    positions = await asyncio.gather(*(leader.append(b"%d" % n) for n in range(5)))
    assert [position.offset for position in positions] == [1, 2, 3, 4, 5]
    await rolling
    assert await leader.close() == 6


async def test_a_mark_that_this_replica_does_not_have_yet_is_looked_for_again() -> None:
    nodes = MemoryNodes()
    leaders, behind = memory_metadata(nodes), memory_metadata(nodes)
    await leaders.initialize()
    head = leader_head({})
    await leaders.logs.create_log(head, ())
    at = await leaders.logs.read_head(head.log_id)
    assert at is not None
    assert isinstance(behind.tree, MemoryTree)
    behind.tree.hold_reads()
    await leaders.logs.producers.make_ledger(head.log_id, 7, METADATA)
    write = WriteHead(token(6), replace(head, token=token(6)), at.version, listed=(7,))
    await behind.logs.write_head(head.log_id, write)
    assert list(await leaders.logs.producers.marked(head.log_id)) == []
