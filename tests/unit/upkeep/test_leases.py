"""The lease of upkeep: waits, release and loss, on a clock that jumps."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ledgerlog_spark.errors import DataLossError, MetadataUnknownError
from ledgerlog_spark.testing.memory.tree import Fault
from ledgerlog_spark.upkeep.upkeep import RELEASE_SECONDS_MAX, holder, leased
from tests.unit.upkeep.upkeep_world import VirtualRowsWorld, tree_of


async def test_waiting_for_the_other_process_ends_when_it_is_done(world: VirtualRowsWorld) -> None:
    first, _ = world.opened()
    second, _ = world.opened()
    entered = asyncio.Event()

    async def other() -> bool:
        entered.set()
        async with leased(second, wait_seconds=60) as is_held:
            return is_held

    async with leased(first):
        waiting = asyncio.ensure_future(other())
        await entered.wait()
        assert not waiting.done()
    assert await waiting


@pytest.mark.parametrize("is_failed", [False, True])
async def test_the_lease_is_given_back_after_a_short_outage(
    world: VirtualRowsWorld, is_failed: bool
) -> None:
    first, _ = world.opened()
    second, _ = world.opened()
    tree = tree_of(first)

    async def one_pass() -> None:
        async with leased(first) as is_held:
            assert is_held
            tree.disconnect()
            if is_failed:
                raise DataLossError("gone")

    passing = asyncio.ensure_future(one_pass())
    await asyncio.sleep(RELEASE_SECONDS_MAX - 1)
    assert not passing.done()
    assert await holder(second) is not None
    tree.connect()
    await asyncio.sleep(1)
    assert await holder(second) is None
    assert isinstance(passing.exception(), DataLossError) == is_failed


async def test_a_pass_ends_in_an_outage_and_its_lease_ends_with_the_session(
    world: VirtualRowsWorld,
) -> None:
    first, _ = world.opened()
    tree = tree_of(first)
    async with asyncio.timeout(RELEASE_SECONDS_MAX + 1), leased(first):
        tree.disconnect()
    second, _ = world.opened()
    assert await holder(second) is not None
    tree.expire_session()
    assert await holder(second) is None


async def test_a_pass_that_is_cancelled_does_not_wait_for_an_outage_to_end(
    world: VirtualRowsWorld,
) -> None:
    first, _ = world.opened()
    tree = tree_of(first)

    async def one_pass() -> None:
        async with leased(first):
            tree.disconnect()
            await asyncio.Event().wait()

    passing = asyncio.ensure_future(one_pass())
    await asyncio.sleep(1)
    passing.cancel()
    await asyncio.wait({passing}, timeout=1)
    assert passing.cancelled()


async def test_a_lease_that_may_have_been_taken_is_given_back(world: VirtualRowsWorld) -> None:
    first, _ = world.opened()
    second, _ = world.opened()
    async with leased(first):
        pass
    tree_of(first).inject(*[Fault.REPLY_LOST] * 4)
    with pytest.raises(MetadataUnknownError):
        async with leased(first):
            raise AssertionError
    assert await holder(second) is None


async def test_a_lease_that_is_taken_as_its_pass_is_cancelled_is_given_back(
    world: VirtualRowsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise no other process could run upkeep until the client is closed."""
    first, _ = world.opened()
    second, _ = world.opened()
    async with leased(first):
        pass
    tree = tree_of(first)
    create = tree.create

    async def slow(*args: Any, **options: Any) -> None:
        await create(*args, **options)
        await asyncio.Event().wait()

    async def one_pass() -> None:
        async with leased(first):
            raise AssertionError

    monkeypatch.setattr(tree, "create", slow)
    passing = asyncio.ensure_future(one_pass())
    await asyncio.sleep(1)
    assert await holder(second) is not None
    passing.cancel()
    await asyncio.wait({passing}, timeout=1)
    assert passing.cancelled()
    assert await holder(second) is None
