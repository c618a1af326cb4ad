"""The promises of the `ReplicationLocks` port, in memory and on a real ZooKeeper."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from ledgerlog_spark.errors import LedgerNotFoundError, MetadataVersionError
from ledgerlog_spark.metadata.stores import MetadataStores
from ledgerlog_spark.model import Fragment, LedgerMetadata, Quorum
from tests.fixtures.metadata_worlds import World

if TYPE_CHECKING:
    pass

LEDGER = 7
METADATA = LedgerMetadata(Quorum(1, 1, 1), (Fragment(0, ("b1",)),))


Two = tuple[MetadataStores, MetadataStores]


async def test_a_free_lock_is_taken_with_apaches_path_and_data(two: Two) -> None:
    first, second = two
    assert await first.replication_locks.acquire(LEDGER, "b1:3181")
    await second.tree.sync()
    path = f"{first.root}/underreplication/locks/urL0000000007"
    assert (await second.tree.get(path)).value == b'bookieId: "b1:3181"\n'
    stat = await second.tree.stat(path)
    assert stat is not None
    assert stat.owner == first.tree.session_id


async def test_a_held_lock_is_refused_to_other_sessions_and_to_others_of_its_session(
    two: Two,
) -> None:
    first, second = two
    assert await first.replication_locks.acquire(LEDGER, "b1")
    assert not await second.replication_locks.acquire(LEDGER, "b2")
    # A worker and the collector of a bookie share a session, or two jobs of a worker.
    assert not await first.replication_locks.acquire(LEDGER, "b1")
    assert await second.replication_locks.acquire(8, "b2")
    await first.replication_locks.release(LEDGER)
    assert await first.replication_locks.acquire(LEDGER, "b1")


async def test_a_cancelled_caller_keeps_no_lock_from_the_next_one(two: Two) -> None:
    first, _ = two
    task = asyncio.create_task(first.replication_locks.acquire(LEDGER, "b1"))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert await first.replication_locks.acquire(LEDGER, "b1")


async def test_of_many_that_ask_one_gets_the_lock(two: Two) -> None:
    first, second = two
    got = await asyncio.gather(
        first.replication_locks.acquire(LEDGER, "b1"),
        second.replication_locks.acquire(LEDGER, "b2"),
    )
    assert sorted(map(bool, got)) == [False, True]


async def test_a_lock_that_is_given_back_is_free_again(two: Two) -> None:
    first, second = two
    assert await first.replication_locks.acquire(LEDGER, "b1")
    await second.replication_locks.release(LEDGER)
    assert not await second.replication_locks.acquire(LEDGER, "b2")
    await first.replication_locks.release(LEDGER)
    await first.replication_locks.release(LEDGER)
    assert await second.replication_locks.acquire(LEDGER, "b2")


async def test_a_lock_ends_with_its_session_and_the_old_holder_deletes_no_new_one(
    world: World, two: Two
) -> None:
    first, second = two
    assert await first.replication_locks.acquire(LEDGER, "b1")
    await world.expire(first.tree)
    assert await second.replication_locks.acquire(LEDGER, "b2")
    await first.replication_locks.release(LEDGER)
    assert not await first.replication_locks.acquire(LEDGER, "b1")


async def test_after_a_lost_answer_the_owner_of_the_node_decides(world: World, two: Two) -> None:
    first, second = two
    assert await first.replication_locks.acquire(8, "b1")  # creates the parents
    world.lose_next_reply(first.tree)
    assert await first.replication_locks.acquire(LEDGER, "b1")
    assert not await second.replication_locks.acquire(LEDGER, "b2")


async def test_locks_are_not_listed_as_ledgers(two: Two) -> None:
    first, _ = two
    await first.ledgers.create(LEDGER, METADATA)
    assert await first.replication_locks.acquire(LEDGER, "b1")
    assert [ledger_id async for ledger_id in first.ledgers.ids()] == [LEDGER]


# The touch of the metadata, which a release makes under the lock.


async def test_a_touch_keeps_the_bytes_and_fails_the_writes_of_others(two: Two) -> None:
    first, second = two
    created = await first.ledgers.create(LEDGER, METADATA)
    path = first.ledgers.path(LEDGER)
    before = await first.tree.get(path)
    touched = await second.ledgers.touch(LEDGER, created.version)
    await first.tree.sync()
    after = await first.tree.get(path)
    assert (after.value, after.version) == (before.value, touched)
    with pytest.raises(MetadataVersionError):
        await first.ledgers.write(LEDGER, METADATA, created.version)
    with pytest.raises(MetadataVersionError):
        await first.ledgers.touch(LEDGER, created.version)


async def test_deleted_metadata_cannot_be_touched(two: Two) -> None:
    first, _ = two
    created = await first.ledgers.create(LEDGER, METADATA)
    await first.ledgers.delete(LEDGER)
    with pytest.raises(LedgerNotFoundError):
        await first.ledgers.touch(LEDGER, created.version)
