"""The release of ledgers over real storage, with a metadata store in memory."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from bookie_server.core.settings import StorageSettings
from bookie_server.service import releaser as releaser_module
from bookie_server.service.membership.ledger_records import StoreLedgerRecords, StoreMetadataCheck
from bookie_server.service.releaser import Released, Releaser
from bookie_server.storage.device.filesystem import OsFileSystem
from bookie_server.storage.device.runtime import OsClock, OsTasks
from bookie_server.storage.files.manifest import initialize_directory
from bookie_server.storage.ledger_storage import LedgerStorage
from bookie_server.storage.shared import Shared
from ledgerlog_spark.metadata.stores import MetadataStores
from ledgerlog_spark.model import Code, Fragment, LedgerMetadata, LedgerState, Quorum, Version
from ledgerlog_spark.testing.cluster import memory_metadata
from ledgerlog_spark.testing.memory.tree import Fault
from tests.crash.machine import add_request
from tests.fixtures.metadata_worlds import memory_tree

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

ME, OTHER = "b1", "b2"
WAIT_MS = 60_000
OPEN = LedgerMetadata(Quorum(1, 1, 1), (Fragment(0, (OTHER,)),))
CLOSED = replace(OPEN, state=LedgerState.CLOSED, last_entry_id=0, length=7)


class ShiftedClock(OsClock):
    """A clock that a test moves forward."""

    shift_ms = 0

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self.shift_ms


class World:
    """A bookie that releases ledgers, and its metadata store."""

    def __init__(
        self, storage: LedgerStorage, stores: MetadataStores, tasks: OsTasks, clock: ShiftedClock
    ) -> None:
        self.storage = storage
        self.stores = stores
        self.clock = clock
        self.records = StoreLedgerRecords(stores.ledgers, stores.replication_locks, ME)
        self.releaser = Releaser(storage, self.records, tasks, ME, pause_ms=0)

    async def add(self, ledger_id: int) -> Code:
        answered: asyncio.Future[Code] = asyncio.get_running_loop().create_future()
        self.storage.add(add_request(ledger_id, (0,)), answered.set_result)
        return await answered

    async def new_ledger(self, ledger_id: int, metadata: LedgerMetadata) -> None:
        await self.stores.ledgers.create(ledger_id, metadata)
        assert await self.add(ledger_id) is Code.OK

    async def wait(self) -> None:
        await self.storage.releasable()
        self.clock.shift_ms += WAIT_MS
        await self.storage.releasable()
        self.clock.shift_ms += WAIT_MS

    async def held(self) -> list[int]:
        return [i for i in sorted(self.storage._states) if await self.storage.entries_held(i, 100)]

    async def version(self, ledger_id: int) -> int:
        return (await self.stores.ledgers.load(ledger_id)).version.number


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with a_world(tmp_path) as made:
        yield made


@asynccontextmanager
async def a_world(directory: Path) -> AsyncIterator[World]:
    stores = memory_metadata()
    await stores.initialize()
    tasks, files, clock = OsTasks(), OsFileSystem(directory), ShiftedClock()
    await files.lock()
    await initialize_directory(files)
    settings = StorageSettings(
        1 << 20, 64 << 20, free_bytes_min=0, open_files_max=64, release_wait_ms=WAIT_MS
    )
    check = StoreMetadataCheck(stores.ledgers, ME, 1_000)
    storage = await LedgerStorage.open(Shared(files, clock, tasks, settings, check))
    try:
        yield World(storage, stores, tasks, clock)
    finally:
        await storage.close()
        await tasks.aclose()
        await stores.close()


async def test_only_closed_ledgers_without_the_bookie_are_released(world: World) -> None:
    mine = replace(CLOSED, fragments=(Fragment(0, (ME,)),))
    await world.new_ledger(1, CLOSED)
    await world.new_ledger(2, mine)
    await world.new_ledger(3, OPEN)
    await world.new_ledger(4, replace(OPEN, state=LedgerState.IN_RECOVERY))
    await world.new_ledger(5, CLOSED)
    assert await world.releaser.release_some() == Released()
    await world.wait()
    assert await world.releaser.release_some() == Released(looked_up=5, released=2)
    assert await world.held() == [2, 3, 4]
    assert [await world.version(i) for i in (1, 2, 3, 4, 5)] == [1, 0, 0, 0, 1]
    assert await world.releaser.release_some() == Released(looked_up=3)


async def test_the_locks_are_given_back(world: World) -> None:
    await world.new_ledger(1, CLOSED)
    await world.wait()
    await world.releaser.release_some()
    other = memory_metadata(memory_tree(world.stores).nodes)
    assert await other.replication_locks.acquire(1, OTHER)
    await other.close()


async def test_a_lock_that_is_left_after_a_failure_is_released_by_the_next_pass(
    world: World,
) -> None:
    assert await world.records.lock(1)
    memory_tree(world.stores).inject(*[Fault.REQUEST_LOST] * 4)
    await world.records.unlock(1)
    other = memory_metadata(memory_tree(world.stores).nodes)
    assert await other.replication_locks.acquire(1, OTHER) is None
    await world.releaser.release_some()
    assert await other.replication_locks.acquire(1, OTHER)
    await other.close()


async def test_a_ledger_whose_lock_is_held_stays_for_the_next_pass(world: World) -> None:
    await world.new_ledger(1, CLOSED)
    await world.wait()
    other = memory_metadata(memory_tree(world.stores).nodes)
    assert await other.replication_locks.acquire(1, OTHER)
    assert await world.releaser.release_some() == Released(looked_up=1, kept=1)
    assert await world.held() == [1]
    assert await world.version(1) == 0
    await other.close()
    assert await world.releaser.release_some() == Released(looked_up=1, released=1)


async def test_a_conflict_keeps_the_entries(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.new_ledger(1, CLOSED)
    await world.wait()
    touch = world.stores.ledgers.touch

    async def write_and_touch(ledger_id: int, version: Version) -> object:
        record = await world.stores.ledgers.load(ledger_id)
        named = replace(record.value, fragments=(Fragment(0, (ME,)),))
        await world.stores.ledgers.write(ledger_id, named, record.version)
        return await touch(ledger_id, record.version)

    monkeypatch.setattr(world.stores.ledgers, "touch", write_and_touch)
    assert await world.releaser.release_some() == Released(looked_up=1, kept=1)
    assert await world.held() == [1]


async def test_a_record_that_names_the_bookie_after_the_sync_keeps_the_entries(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.new_ledger(1, CLOSED)
    await world.wait()
    sync = world.stores.ledgers.sync

    async def write_and_sync() -> None:
        record = await world.stores.ledgers.load(1)
        named = replace(record.value, fragments=(Fragment(0, (ME,)),))
        await world.stores.ledgers.write(1, named, record.version)
        await sync()

    monkeypatch.setattr(world.stores.ledgers, "sync", write_and_sync)
    assert await world.releaser.release_some() == Released(looked_up=1, kept=1)
    assert await world.held() == [1]
    assert await world.version(1) == 1


async def test_an_unknown_outcome_of_the_touch_keeps_the_entries(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.new_ledger(1, CLOSED)
    await world.wait()
    touch = world.stores.ledgers.touch

    async def touch_unheard(ledger_id: int, version: Version) -> object:
        memory_tree(world.stores).inject(Fault.REPLY_LOST)
        return await touch(ledger_id, version)

    monkeypatch.setattr(world.stores.ledgers, "touch", touch_unheard)
    released = await world.releaser.release_some()
    assert released == Released(looked_up=1, kept=1)
    assert await world.held() == [1]


async def test_nothing_is_released_while_the_store_is_away(world: World) -> None:
    await world.new_ledger(1, CLOSED)
    await world.wait()
    memory_tree(world.stores).disconnect()
    assert await world.releaser.release_some() == Released(looked_up=1)
    memory_tree(world.stores).connect()
    assert await world.held() == [1]
    assert await world.releaser.release_some() == Released(looked_up=1, released=1)


async def test_a_deleted_ledger_is_not_released(world: World) -> None:
    await world.new_ledger(1, CLOSED)
    await world.stores.ledgers.delete(1)
    await world.wait()
    assert await world.releaser.release_some() == Released(looked_up=1)
    assert await world.held() == [1]


async def test_a_pass_ends_at_its_limits_and_the_next_one_continues(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(releaser_module, "LOOKUPS_PER_PASS_MAX", 3)
    monkeypatch.setattr(releaser_module, "RELEASES_PER_PASS_MAX", 2)
    for ledger_id in (1, 2):
        await world.new_ledger(ledger_id, OPEN)
    for ledger_id in (3, 4, 5, 6):
        await world.new_ledger(ledger_id, CLOSED)
    await world.wait()
    assert await world.releaser.release_some() == Released(looked_up=3, released=1)
    assert await world.releaser.release_some() == Released(looked_up=2, released=2)
    assert await world.releaser.release_some() == Released(looked_up=3, released=1)
    assert await world.held() == [1, 2]


async def test_a_releaser_that_is_stopped_releases_nothing(world: World) -> None:
    await world.new_ledger(1, CLOSED)
    await world.wait()
    world.releaser.stop()
    assert await world.releaser.release_some() == Released()
    assert await world.held() == [1]


async def test_a_released_ledger_that_is_named_again_gets_its_adds_checked(world: World) -> None:
    await world.new_ledger(1, CLOSED)
    await world.wait()
    await world.releaser.release_some()
    assert await world.add(1) is Code.FENCED
    assert world.storage.is_fenced(1)
