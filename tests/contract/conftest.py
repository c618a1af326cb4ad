from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ledgerlog_spark.metadata.stores import MetadataStores
from tests.fixtures.loops import ASYNCIO, BOTH, LoopFactories
from tests.fixtures.metadata_worlds import MemoryWorld, World, ZookeeperWorld, cluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ledgerlog_spark.metadata.tree import ZnodeTree


def pytest_asyncio_loop_factories(item: pytest.Item) -> LoopFactories:
    """Transports are tested on both loops; the metadata stores have no timers of their own."""
    return BOTH if item.path.stem == "test_transport" else ASYNCIO


@pytest.fixture(params=["memory", pytest.param("zookeeper", marks=pytest.mark.zookeeper)])
async def world(request: pytest.FixtureRequest, ledgers_root: str) -> AsyncIterator[World]:
    """A metadata store without a cluster in it yet."""
    world: World
    if request.param == "memory":
        world = MemoryWorld(ledgers_root)
    else:
        world = ZookeeperWorld(ledgers_root, request.getfixturevalue("zookeeper").port)
    yield world
    await world.close()


@pytest.fixture
async def tree(world: World) -> ZnodeTree:
    """A session whose part of the tree contains only the root's parent."""
    tree = await world.session()
    await tree.create(world.root, make_parents=True)
    return tree


@pytest.fixture
async def two(world: World) -> AsyncIterator[tuple[MetadataStores, MetadataStores]]:
    """Two sessions with one cluster."""
    first = await cluster(world)
    second = MetadataStores.on(await world.session(), world.root)
    yield first, second
    await second.close()
    await first.close()
