"""Garbage collection over real storage, with a metadata store that can be stale or unavailable."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from bookie_server.core.settings import StorageSettings
from bookie_server.service.collector import Collected, Collector
from bookie_server.service.membership.ledger_records import (
    StoreLedgerListing,
    StoreLedgerRecords,
    StoreMetadataCheck,
)
from bookie_server.service.releaser import Releaser
from bookie_server.storage.device.filesystem import OsFileSystem
from bookie_server.storage.device.runtime import OsClock, OsTasks
from bookie_server.storage.files.manifest import initialize_directory
from bookie_server.storage.ledger_storage import LedgerStorage
from bookie_server.storage.shared import Shared
from ledgerlog_spark.metadata.stores import MetadataStores
from ledgerlog_spark.model import Code, Fragment, LedgerMetadata, Quorum
from ledgerlog_spark.testing.cluster import memory_metadata
from tests.crash.machine import Machine, add_request
from tests.fixtures.metadata_worlds import delete_cookie, memory_tree

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from bookie_server.ports import Tasks

BOOKIE = "b1"
METADATA = LedgerMetadata(Quorum(1, 1, 1), (Fragment(0, (BOOKIE,)),))


def releaser_of(storage: LedgerStorage, stores: MetadataStores, tasks: Tasks) -> Releaser:
    records = StoreLedgerRecords(stores.ledgers, stores.replication_locks, BOOKIE)
    return Releaser(storage, records, tasks, BOOKIE)


class World:
    """A bookie with its collector and its metadata store."""

    def __init__(self, storage: LedgerStorage, stores: MetadataStores, tasks: OsTasks) -> None:
        self.storage = storage
        self.stores = stores
        self.passes: list[Collected] = []
        self.collector = Collector(
            storage=storage,
            listing=StoreLedgerListing(stores.ledgers, stores.registration, BOOKIE),
            releaser=releaser_of(storage, stores, tasks),
            tasks=tasks,
            interval_ms=3_600_000,
            on_pass=self.passes.append,
        )

    async def add(self, ledger_id: int, size: int = 10) -> Code:
        answered: asyncio.Future[Code] = asyncio.get_running_loop().create_future()
        self.storage.add(add_request(ledger_id, (0,), bytes(size)), answered.set_result)
        return await answered

    async def new_ledger(self, ledger_id: int) -> None:
        await self.stores.ledgers.create(ledger_id, METADATA)
        assert await self.add(ledger_id) is Code.OK

    async def held(self) -> list[int]:
        return [i for i in sorted(self.storage._states) if await self.storage.entries_held(i, 100)]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with a_world(tmp_path) as made:
        yield made


@asynccontextmanager
async def a_world(directory: Path) -> AsyncIterator[World]:
    stores = memory_metadata()
    await stores.initialize()
    await stores.registration.write_cookie(BOOKIE, b"cookie", None)
    tasks = OsTasks()
    files = OsFileSystem(directory)
    await files.lock()
    await initialize_directory(files)
    storage = await LedgerStorage.open(
        Shared(
            files=files,
            clock=OsClock(),
            tasks=tasks,
            settings=StorageSettings(1 << 20, 64 << 20, free_bytes_min=0, open_files_max=64),
            metadata=StoreMetadataCheck(stores.ledgers, BOOKIE, 1_000),
        )
    )
    world = World(storage, stores, tasks)
    world.collector.start()
    try:
        yield world
    finally:
        world.collector.stop()
        await storage.close()
        await tasks.aclose()
        await stores.close()


async def test_pass_drops_deleted_ledgers_and_no_others(world: World) -> None:
    for ledger_id in (1, 2, 3):
        await world.new_ledger(ledger_id)
    await world.stores.ledgers.delete(2)
    collected = await world.collector.collect()
    assert collected == Collected(is_whole=True, ledgers_held=3, ledgers_dropped=1)
    assert await world.held() == [1, 3]
    assert await world.add(2) is Code.FENCED
    again = await world.collector.collect()
    assert again == Collected(is_whole=True, ledgers_held=2, ledgers_dropped=0)
    assert world.passes == [collected, again]


async def test_pass_drops_more_ledgers_than_fit_one_lookup(world: World) -> None:
    for ledger_id in range(300):
        assert await world.add(ledger_id) is Code.OK
    await world.stores.ledgers.create(77, METADATA)
    collected = await world.collector.collect()
    assert collected.ledgers_dropped == 299
    assert await world.held() == [77]


async def test_ledger_that_a_stale_listing_lacks_is_looked_up_and_kept(world: World) -> None:
    await world.new_ledger(1)
    other = memory_metadata(memory_tree(world.stores).nodes)
    memory_tree(world.stores).hold_reads()
    await other.ledgers.create(2, METADATA)
    assert await world.add(2) is Code.OK
    assert [i async for i in world.stores.ledgers.ids()] == [1]
    assert (await world.collector.collect()).ledgers_dropped == 0
    assert await world.held() == [1, 2]
    await other.close()


async def test_ledger_that_a_stale_listing_still_has_waits_for_the_next_pass(world: World) -> None:
    await world.new_ledger(1)
    other = memory_metadata(memory_tree(world.stores).nodes)
    memory_tree(world.stores).hold_reads()
    await other.ledgers.delete(1)
    assert (await world.collector.collect()).ledgers_dropped == 0
    memory_tree(world.stores).release_reads()
    assert (await world.collector.collect()).ledgers_dropped == 1
    await other.close()


async def test_nothing_is_dropped_while_the_store_is_away(world: World) -> None:
    await world.new_ledger(1)
    await world.stores.ledgers.delete(1)
    memory_tree(world.stores).disconnect()
    collected = await world.collector.collect()
    assert collected == Collected(is_whole=False, ledgers_held=1, ledgers_dropped=0)
    memory_tree(world.stores).connect()
    assert await world.held() == [1]
    assert (await world.collector.collect()).ledgers_dropped == 1


async def test_nothing_is_dropped_when_the_store_goes_away_after_the_listing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.new_ledger(1)
    await world.stores.ledgers.delete(1)
    sync = world.stores.ledgers.sync

    async def sync_and_leave() -> None:
        await sync()
        memory_tree(world.stores).disconnect()

    monkeypatch.setattr(world.stores.ledgers, "sync", sync_and_leave)
    assert (await world.collector.collect()).ledgers_dropped == 0
    memory_tree(world.stores).connect()
    assert await world.held() == [1]


async def test_store_that_does_not_know_this_bookie_is_not_believed(world: World) -> None:
    await world.new_ledger(1)
    await world.stores.ledgers.delete(1)
    await delete_cookie(world.stores, BOOKIE)
    assert not (await world.collector.collect()).is_whole
    assert await world.held() == [1]


async def test_record_that_cannot_be_read_is_not_a_deleted_one(world: World) -> None:
    await world.new_ledger(1)
    path = world.stores.ledgers.path(1)
    await world.stores.tree.set(path, b"garbage", None)
    listing = StoreLedgerListing(world.stores.ledgers, world.stores.registration, BOOKIE)
    assert await listing.deleted([1, 2]) == [2]


async def test_ledger_made_after_the_listing_began_is_not_a_candidate(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.new_ledger(1)
    ids = world.stores.ledgers.ids
    asked: list[int] = []

    async def ids_then_new_ledger() -> AsyncIterator[int]:
        async for ledger_id in ids():
            yield ledger_id
        await world.new_ledger(2)

    async def load(ledger_id: int) -> object:
        asked.append(ledger_id)
        raise AssertionError

    monkeypatch.setattr(world.stores.ledgers, "ids", ids_then_new_ledger)
    monkeypatch.setattr(world.stores.ledgers, "load", load)
    assert (await world.collector.collect()).ledgers_dropped == 0
    assert asked == []


async def test_collector_that_is_stopped_answers_and_drops_nothing(world: World) -> None:
    await world.new_ledger(1)
    await world.stores.ledgers.delete(1)
    asking = asyncio.ensure_future(world.collector.collect())
    await asyncio.sleep(0)
    world.collector.stop()
    assert (await asking).ledgers_dropped == 0
    assert await world.held() == [1]


class EverythingIsDeleted:
    async def unlisted(self, ledger_ids: Sequence[int]) -> Sequence[int]:
        return ledger_ids

    async def deleted(self, ledger_ids: Sequence[int]) -> Sequence[int]:
        return ledger_ids


def test_collector_passes_every_interval_without_being_asked() -> None:
    machine = Machine()
    storage = machine.start()
    passes: list[Collected] = []
    collector = Collector(
        storage=storage,
        listing=EverythingIsDeleted(),
        releaser=releaser_of(storage, memory_metadata(), machine.host),
        tasks=machine.host,
        interval_ms=60_000,
        on_pass=passes.append,
    )
    collector.start()
    assert machine.add(7, (0,)) is Code.OK
    machine.scheduler.run_for(59_000)
    assert passes == []
    machine.scheduler.run_for(2_000)
    assert passes == [Collected(is_whole=True, ledgers_held=1, ledgers_dropped=1)]
    assert machine.held(7) == []
    machine.scheduler.run_for(120_000)
    assert len(passes) == 3
    collector.stop()
    machine.scheduler.run_for(120_000)
    assert len(passes) == 3
