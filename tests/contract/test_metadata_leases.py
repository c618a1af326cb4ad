"""The promises of the `Leases` port, in memory and on a real ZooKeeper."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from ledgerlog_spark.errors import ConfigurationError
from ledgerlog_spark.metadata.stores import MetadataStores
from tests.fixtures.metadata_worlds import Signal, World

if TYPE_CHECKING:
    from ledgerlog_spark.model import Version

ME = {"host": "a", "pid": "1"}
OTHER = {"host": "b", "pid": "2"}


Two = tuple[MetadataStores, MetadataStores]


async def test_free_lease_is_taken_and_its_holder_known(two: Two) -> None:
    first, second = two
    assert await second.leases.holder("auditor") is None
    assert await first.leases.acquire("auditor", ME)
    await second.tree.sync()
    assert await second.leases.holder("auditor") == ME


async def test_held_lease_is_refused_to_others_and_confirmed_to_its_holder(two: Two) -> None:
    first, second = two
    assert await first.leases.acquire("auditor", ME)
    assert not await second.leases.acquire("auditor", OTHER)
    assert await first.leases.acquire("auditor", ME)
    assert await second.leases.acquire("other", OTHER)


async def test_of_many_that_ask_one_gets_the_lease(two: Two) -> None:
    first, second = two
    got = await asyncio.gather(
        first.leases.acquire("auditor", ME), second.leases.acquire("auditor", OTHER)
    )
    assert sorted(got) == [False, True]


async def test_released_lease_is_free_again(two: Two) -> None:
    first, second = two
    await first.leases.release("auditor")
    assert await first.leases.acquire("auditor", ME)
    await second.leases.release("auditor")
    assert not await second.leases.acquire("auditor", OTHER)
    await first.leases.release("auditor")
    assert await second.leases.acquire("auditor", OTHER)


async def test_lease_ends_with_its_session(world: World, two: Two) -> None:
    first, second = two
    assert await first.leases.acquire("auditor", ME)
    changed = Signal()
    cancel = second.tree.watch(f"{world.root}-leases/auditor", changed)
    await second.tree.sync()
    assert await second.leases.holder("auditor") == ME
    await world.expire(first.tree)
    await changed.called()
    assert await second.leases.acquire("auditor", OTHER)
    assert not await first.leases.acquire("auditor", ME)
    await first.leases.release("auditor")
    assert await second.leases.holder("auditor") == OTHER
    cancel()


async def test_lost_reply_is_settled_by_whose_the_lease_is(world: World, two: Two) -> None:
    first, second = two
    assert await second.leases.acquire("warm-up", OTHER)
    for lose in (world.lose_next_reply, world.lose_next_request):
        lose(first.tree)
        assert await first.leases.acquire("auditor", ME)
        lose(second.tree)
        assert not await second.leases.acquire("auditor", OTHER)
        lose(first.tree)
        await first.leases.release("auditor")
        await second.tree.sync()
        assert await second.leases.holder("auditor") is None


async def test_release_that_comes_late_leaves_the_lease_of_the_next_holder(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two tasks of a session release the lease, and between them another session takes it."""
    first, second = two
    assert await first.leases.acquire("auditor", ME)
    delete = first.tree.delete

    async def after_the_other_release(path: str, version: Version | None = None) -> None:
        await delete(path)
        assert await second.leases.acquire("auditor", OTHER)
        await delete(path, version)

    monkeypatch.setattr(first.tree, "delete", after_the_other_release)
    await first.leases.release("auditor")
    await second.tree.sync()
    assert await second.leases.holder("auditor") == OTHER


@pytest.mark.parametrize("name", ["", "a/b", "..", "x" * 201, "a b"])
async def test_impossible_name_is_refused(two: Two, name: str) -> None:
    with pytest.raises(ConfigurationError, match="lease"):
        await two[0].leases.acquire(name, ME)
