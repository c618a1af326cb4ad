"""Layouts, ranges, pages and walks of the `LedgerStore` port, in memory and on a real ZooKeeper."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace

import pytest

from ledgerlog_spark.errors import (
    MetadataFormatError,
    MetadataUnavailableError,
    RemoteProtocolError,
)
from ledgerlog_spark.metadata import tree as znodes
from ledgerlog_spark.metadata.ledgers.layout import BY_NAME, FLAT, LONG_HIERARCHICAL
from ledgerlog_spark.metadata.ledgers.walk import WalkedLedger
from ledgerlog_spark.metadata.stores import MetadataStores
from ledgerlog_spark.model import Fragment, LedgerMetadata, Quorum, Versioned
from ledgerlog_spark.wire.znodes import HIERARCHICAL, Layout
from tests.fixtures.metadata_worlds import World

LAYOUTS = tuple(BY_NAME.values())
METADATA = LedgerMetadata(Quorum(1, 1, 1), (Fragment(0, ("b1",)),))
IDS = [
    0,
    5,
    9_999,
    10_000,
    12_345,
    100_000_000,
    2_147_483_646,
    2_147_483_647,
    1 << 40,
    (1 << 63) - 1,
]


async def opened(world: World, layout: Layout) -> MetadataStores:
    stores = MetadataStores.on(await world.session(), world.root, layout)
    await stores.initialize()
    return stores


async def filled(world: World, layout: Layout, ids: list[int] = IDS) -> MetadataStores:
    stores = await opened(world, layout)
    await asyncio.gather(*(stores.ledgers.create(each, METADATA) for each in ids))
    return stores


@pytest.mark.parametrize(
    ("layout", "path"),
    [
        (HIERARCHICAL, "00/0000/L0005"),
        (LONG_HIERARCHICAL, "000/0000/0000/0000/L0005"),
        (FLAT, "L0000000005"),
    ],
)
async def test_a_layout_has_apaches_paths(world: World, layout: Layout, path: str) -> None:
    stores = await filled(world, layout, [5])
    assert await stores.tree.stat(f"{world.root}/{path}") is not None
    await stores.close()


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_ids_are_listed_by_ranges(world: World, layout: Layout) -> None:
    stores = await filled(world, layout)
    ledgers = stores.ledgers
    assert [each async for each in ledgers.ids()] == IDS
    for index, after in enumerate(IDS):
        assert [each async for each in ledgers.ids(after)] == IDS[index + 1 :]
        assert [each async for each in ledgers.ids(after - 1, after)] == [after]
        assert [each async for each in ledgers.ids(last=after)] == IDS[: index + 1]
    assert [each async for each in ledgers.ids(5, 12_345)] == [9_999, 10_000, 12_345]
    assert [each async for each in ledgers.ids(6, 5)] == []
    await stores.close()


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_pages_follow_each_other(world: World, layout: Layout) -> None:
    stores = await filled(world, layout)
    found: list[int] = []
    sizes = []
    while page := await stores.ledgers.page(found[-1] if found else -1, 4):
        found.extend(page)
        sizes.append(len(page))
    assert found == IDS
    assert sizes == [4, 4, 2]
    await stores.close()


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_a_walk_has_all_records_and_continues(world: World, layout: Layout) -> None:
    stores = await filled(world, layout)
    walked = [each async for each in stores.ledgers.walk()]
    assert [each.ledger_id for each in walked] == IDS
    for each in walked:
        assert isinstance(each.found, Versioned)
        assert each.found.value == METADATA
    rest = [each.ledger_id async for each in stores.ledgers.walk(12_345, 1 << 40, depth=2)]
    assert rest == IDS[5:9]
    await stores.close()


async def test_a_walk_omits_deleted_ledgers_and_reports_damaged_records(world: World) -> None:
    stores = await filled(world, HIERARCHICAL, [1, 2, 3])
    path = stores.ledgers.path(2)
    found = await stores.tree.get(path)
    await stores.tree.set(path, b"BookieMetadataFormatVersion\t9\n", found.version)
    walked: dict[int, WalkedLedger] = {}
    walk = stores.ledgers.walk(depth=1)
    async for each in walk:
        walked[each.ledger_id] = each
        if each.ledger_id == 2:
            await stores.ledgers.delete(3)
            await stores.tree.sync()
    assert list(walked) == [1, 2]
    assert isinstance(walked[2].found, MetadataFormatError)
    assert walked[2].found.ledger_id == 2
    await stores.close()


async def test_equal_ensembles_of_a_walk_are_one_object(world: World) -> None:
    stores = await opened(world, HIERARCHICAL)
    two = replace(METADATA, fragments=(Fragment(0, ("b1",)), Fragment(9, ("b2",))))
    for ledger_id in (1, 2):
        await stores.ledgers.create(ledger_id, two)
    ensembles = []
    async for each in stores.ledgers.walk():
        assert isinstance(each.found, Versioned)
        ensembles.append([fragment.ensemble for fragment in each.found.value.fragments])
    assert ensembles[0] == ensembles[1] == [("b1",), ("b2",)]
    assert all(a is b for a, b in zip(*ensembles, strict=True))
    await stores.close()


async def test_an_error_of_the_store_ends_a_walk(world: World) -> None:
    stores = await filled(world, HIERARCHICAL, [1, 2, 3])
    walk = stores.ledgers.walk(depth=1)
    assert (await anext(walk)).ledger_id == 1
    await stores.close()
    with pytest.raises(MetadataUnavailableError):
        _ = [each async for each in walk]


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_new_ids_come_from_the_counter_of_the_layout(world: World, layout: Layout) -> None:
    stores = await opened(world, layout)
    ids = [*await stores.ledgers.new_ids(3), *await stores.ledgers.new_ids()]
    assert ids == sorted(set(ids))
    await asyncio.gather(*(stores.ledgers.create(each, METADATA) for each in ids))
    more = await stores.ledgers.new_ids(2)
    assert min(more) > max(ids)
    assert [each async for each in stores.ledgers.ids()] == ids
    names = await stores.tree.children(world.root)
    assert ("idgen" in names) == (layout != FLAT)
    await stores.close()


async def test_many_that_need_an_id_at_the_same_time_get_different_ones(world: World) -> None:
    stores = await opened(world, HIERARCHICAL)
    got = await asyncio.gather(*(stores.ledgers.new_ids(1 + index % 3) for index in range(200)))
    ids = [each for group in got for each in group]
    assert len(set(ids)) == len(ids)
    assert all(list(group) == sorted(group) for group in got)
    await stores.close()


async def test_a_flat_root_has_other_nodes_too(world: World) -> None:
    stores = await filled(world, FLAT, [5])
    for name in ("ID-0000000003", "L5", "Lx", "underreplication", "00"):
        await stores.tree.create(f"{world.root}/{name}", b"")
    assert [each async for each in stores.ledgers.ids()] == [5]
    await stores.close()


async def test_a_flat_name_above_all_ids_is_an_error(world: World) -> None:
    stores = await filled(world, FLAT, [5])
    await stores.tree.create(f"{world.root}/L{1 << 63}", b"")
    with pytest.raises(MetadataFormatError, match="is not a ledger"):
        _ = [each async for each in stores.ledgers.ids()]
    await stores.close()


async def test_a_listing_can_end_early(world: World) -> None:
    stores = await filled(world, HIERARCHICAL)
    walk = stores.ledgers.walk()
    async with aclosing(walk):  # type: ignore[type-var]
        async for each in walk:
            assert each.ledger_id == 0
            break
    await stores.close()


class _Overflowing:
    """A tree whose counters of sequential nodes are at their end."""

    def __init__(self, tree: znodes.ZnodeTree) -> None:
        self._tree = tree

    def __getattr__(self, name: str) -> object:
        return getattr(self._tree, name)

    async def transact(self, operations: list[znodes.NodeOperation]) -> list[znodes.Created | None]:
        outcomes = await self._tree.transact(operations)
        return [
            replace(each, path=f"{each.path[:-10]}2147483647")
            if isinstance(each, znodes.Created)
            else None
            for each in outcomes
        ]


async def test_the_flat_layout_has_no_ids_above_its_counter(world: World) -> None:
    stores = await opened(world, FLAT)
    tree = _Overflowing(stores.tree)
    full = MetadataStores.on(tree, world.root, FLAT)  # type: ignore[arg-type]
    with pytest.raises(RemoteProtocolError, match="flat layout"):
        await full.ledgers.new_ids()
    await stores.close()
