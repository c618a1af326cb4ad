"""The candidates of leader logs, on the tree in memory and on ZooKeeper."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ledgerlog_spark.errors import MetadataError
from ledgerlog_spark.metadata.stores import MetadataStores
from tests.contract.test_log_store import new_log, stores
from tests.fixtures.metadata_worlds import Signal

if TYPE_CHECKING:
    from tests.fixtures.metadata_worlds import World

__all__ = ["stores"]


async def test_a_candidate_is_there_until_it_leaves(world: World, stores: MetadataStores) -> None:
    head = await new_log(stores)
    mine = stores.logs.candidates(head.log_id)
    other = MetadataStores.on(await world.session(), world.root).logs.candidates(head.log_id)
    assert not (await mine.look("a")).is_there
    await mine.join("a")
    await other.join("b")
    await stores.logs.sync()
    assert (await mine.look("a")).is_there
    assert (await mine.look("b")).is_there
    assert not (await mine.look("")).is_there
    await mine.join("a")
    await mine.leave("a")
    assert not (await mine.look("a")).is_there
    assert (await mine.look("b")).is_there
    await mine.leave("a")


async def test_a_candidate_ends_with_its_session_and_joins_again(
    world: World, stores: MetadataStores
) -> None:
    head = await new_log(stores)
    session = await world.session()
    theirs = MetadataStores.on(session, world.root).logs
    candidates = theirs.candidates(head.log_id)
    replaced = Signal()
    theirs.watch_session(replaced)
    await candidates.join("a")
    before = await candidates.look("a")
    assert before.is_there
    assert before.session_timeout_ms > 0
    await world.expire(session)
    await replaced.called()
    await theirs.sync()
    after = await candidates.look("a")
    assert not after.is_there
    assert after.session_id != before.session_id
    await candidates.join("a")
    await stores.logs.sync()
    assert (await stores.logs.candidates(head.log_id).look("a")).is_there


async def test_a_join_whose_reply_is_lost_makes_one_node(
    world: World, stores: MetadataStores
) -> None:
    head = await new_log(stores)
    candidates = stores.logs.candidates(head.log_id)
    await candidates.join("other")
    world.lose_next_reply(stores.tree)
    await candidates.join("mine")
    directory = f"{world.root}-logs/ids/{head.log_id}/candidates"
    assert len(await stores.tree.children(directory)) == 2


async def test_no_candidate_joins_a_log_that_is_gone(world: World, stores: MetadataStores) -> None:
    with pytest.raises(MetadataError):
        await stores.logs.candidates("0" * 32).join("a")
    assert await stores.logs.ids() == []
