"""Creation and deletion of whole clusters, in memory and on a real ZooKeeper."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from ledgerlog_spark.errors import (
    BookieError,
    ConfigurationError,
    MetadataError,
    MetadataVersionError,
)
from ledgerlog_spark.metadata.clusters import NAMES_BELOW_ROOT, OWN_TREES
from ledgerlog_spark.metadata.ledgers.layout import BY_NAME, LONG_HIERARCHICAL, read_layout
from ledgerlog_spark.metadata.stores import MetadataStores
from ledgerlog_spark.model import BookieInfo, Fragment, LedgerMetadata, Quorum
from ledgerlog_spark.wire.znodes import HIERARCHICAL, Layout
from tests.architecture.trees import modules, text
from tests.fixtures.metadata_worlds import World

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from ledgerlog_spark.metadata.tree import NodeOperation

RECORD = LedgerMetadata(Quorum(1, 1, 1), (Fragment(0, ("b1",)),))
INFO = BookieInfo("b1", "127.0.0.1", 3181)


@pytest.fixture
async def stores(world: World) -> AsyncIterator[MetadataStores]:
    """The stores of a root without a node."""
    stores = MetadataStores.on(await world.session(), world.root)
    yield stores
    await stores.close()


async def test_a_new_cluster_has_an_id_and_its_layout(stores: MetadataStores) -> None:
    created = await stores.clusters.create(LONG_HIERARCHICAL)
    assert await stores.registration.instance_id() == created
    assert await read_layout(stores.tree, stores.root) == LONG_HIERARCHICAL
    assert await stores.registration.writable() == []
    assert await stores.registration.known() == []


async def test_a_cluster_is_created_once(stores: MetadataStores) -> None:
    created = await stores.clusters.create(HIERARCHICAL)
    await stores.tree.create(f"{stores.root}-bookies/b1", make_parents=True)
    with pytest.raises(MetadataError, match=f"its instance id is {created}; nothing") as refused:
        await stores.clusters.create(HIERARCHICAL)
    assert refused.value.definite
    assert await stores.registration.instance_id() == created


async def test_a_part_of_a_cluster_is_no_place_for_a_new_one(stores: MetadataStores) -> None:
    await stores.tree.create(f"{stores.root}/cookies", make_parents=True)
    with pytest.raises(MetadataError, match="no INSTANCEID, but the nodes cookies"):
        await stores.clusters.create(HIERARCHICAL)


@pytest.mark.parametrize("suffix", OWN_TREES)
async def test_a_tree_of_an_earlier_cluster_would_name_the_ledgers_of_the_new_one(
    stores: MetadataStores, suffix: str
) -> None:
    await stores.tree.create(f"{stores.root}{suffix}/names/x", make_parents=True)
    with pytest.raises(MetadataError, match="use the same ledger ids again"):
        await stores.clusters.create(HIERARCHICAL)
    assert await stores.tree.stat(stores.root) is None


async def test_a_creation_with_a_lost_answer_has_happened(
    world: World, stores: MetadataStores, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stores.tree.create(stores.root, make_parents=True)
    _lose_answers(world, stores, monkeypatch)
    created = await stores.clusters.create(HIERARCHICAL)
    assert await stores.registration.instance_id() == created


async def test_a_deletion_leaves_no_node(stores: MetadataStores) -> None:
    instance_id = await _full_cluster(stores)
    found = await stores.clusters.check(instance_id)
    assert (found.logs, found.bookies, found.is_being_deleted) == (["flights"], ["b1"], False)
    counts: list[int] = []
    deleted = await stores.clusters.delete(instance_id, counts.append)
    assert counts == sorted(counts)
    assert counts[-1] == deleted
    assert deleted > 200
    for suffix in ("", *OWN_TREES):
        assert await stores.tree.stat(stores.root + suffix) is None
    await stores.clusters.create(HIERARCHICAL)


@pytest.mark.parametrize("layout", BY_NAME.values(), ids=BY_NAME)
async def test_a_cluster_of_each_layout_is_deleted(world: World, layout: Layout) -> None:
    stores = MetadataStores.on(await world.session(), world.root, layout)
    instance_id = await stores.clusters.create(layout)
    for ledger_id in await stores.ledgers.new_ids(3):
        await stores.ledgers.create(ledger_id, RECORD)
    await stores.clusters.delete(instance_id, lambda _: None)
    assert await stores.tree.stat(stores.root) is None
    await stores.close()


async def test_another_instance_id_deletes_nothing(stores: MetadataStores) -> None:
    instance_id = await _full_cluster(stores)
    for wrong in ("", instance_id[:-1], "0" * 36):
        with pytest.raises(ConfigurationError, match=f"has the instance id {instance_id}"):
            await stores.clusters.delete(wrong, _never)
    assert await stores.registration.instance_id() == instance_id
    assert len([each async for each in stores.ledgers.ids()]) == 250


@pytest.mark.parametrize("read_only", [False, True])
async def test_a_registered_bookie_keeps_its_cluster(
    stores: MetadataStores, read_only: bool
) -> None:
    instance_id = await _full_cluster(stores)
    await stores.registration.register(INFO, read_only=read_only)
    with pytest.raises(BookieError, match=r"b1 of the cluster .* registered") as refused:
        await stores.clusters.delete(instance_id, _never)
    assert (refused.value.definite, refused.value.retriable) == (True, True)
    await stores.registration.unregister("b1")
    await stores.clusters.delete(instance_id, lambda _: None)


async def test_a_bookie_that_registers_at_the_last_moment_keeps_its_cluster(
    world: World, stores: MetadataStores
) -> None:
    instance_id = await _full_cluster(stores)
    found = await stores.clusters.check(instance_id)
    other = MetadataStores.on(await world.session(), world.root)
    await other.registration.register(INFO)
    with pytest.raises(BookieError, match="nothing was deleted"):
        await stores.clusters._mark(found.instance)
    assert await stores.registration.instance_id() == instance_id
    await other.close()


async def test_a_held_lease_keeps_the_cluster(stores: MetadataStores) -> None:
    instance_id = await _full_cluster(stores)
    await stores.leases.acquire("upkeep", {"pid": "1"})
    with pytest.raises(MetadataError, match="holds the lease upkeep"):
        await stores.clusters.delete(instance_id, _never)


async def test_a_node_of_another_program_keeps_the_cluster(stores: MetadataStores) -> None:
    instance_id = await _full_cluster(stores)
    await stores.tree.create(f"{stores.root}/kafka")
    with pytest.raises(MetadataError, match=r"nodes kafka below .* belong to neither"):
        await stores.clusters.delete(instance_id, _never)


async def test_an_interrupted_deletion_is_continued_and_no_bookie_starts_meanwhile(
    stores: MetadataStores,
) -> None:
    instance_id = await _full_cluster(stores)

    def interrupt(_count: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await stores.clusters.delete(instance_id, interrupt)
    with pytest.raises(MetadataError, match=f"nuke --instance-id {instance_id} --delete"):
        await stores.registration.instance_id()
    await stores.registration.initialize()  # as the start of a bookie does
    with pytest.raises(MetadataError, match="is being deleted"):
        await stores.registration.instance_id()
    assert (await stores.clusters.check(instance_id)).is_being_deleted
    await stores.clusters.delete(instance_id, lambda _: None)
    assert await stores.tree.stat(stores.root) is None


async def test_a_node_that_appears_during_the_end_is_reported(stores: MetadataStores) -> None:
    await stores.tree.create(f"{stores.root}/INSTANCEID", b"deleting x", make_parents=True)
    await stores.tree.create(f"{stores.root}/idgen")
    with pytest.raises(MetadataVersionError, match="only in part") as refused:
        await stores.clusters._end()
    assert not refused.value.definite
    assert (await stores.tree.get(f"{stores.root}/INSTANCEID")).value == b"deleting x"


async def test_a_deletion_whose_end_lost_its_answer_has_happened(
    world: World, stores: MetadataStores, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stores.clusters.create(HIERARCHICAL)
    for name in ("available/readonly", "available", "cookies"):
        await stores.tree.delete(f"{stores.root}/{name}")
    _lose_answers(world, stores, monkeypatch)
    assert await stores.clusters._end() == 3


async def test_a_root_without_a_cluster_is_said_to_have_none(stores: MetadataStores) -> None:
    with pytest.raises(MetadataError, match="no cluster at"):
        await stores.clusters.check("x")
    await stores.tree.create(f"{stores.root}/cookies", make_parents=True)
    with pytest.raises(MetadataError, match="has no INSTANCEID"):
        await stores.clusters.check("x")


def test_every_tree_of_a_cluster_is_deleted() -> None:
    """The source names each tree as `<root>-<suffix>` and each node as `<root>/<name>`."""
    source = "\n".join(map(text, modules("ledgerlog_spark/metadata")))
    suffixes = set(re.findall(r"root\}(-[a-z]+)", source))
    assert len(suffixes) > 3
    assert suffixes <= set(OWN_TREES)
    names = set(re.findall(r"root\}/([A-Za-z-]+)", source))
    assert len(names) > 3
    assert {name for name in names if not NAMES_BELOW_ROOT.fullmatch(name)} == set()


async def _full_cluster(stores: MetadataStores) -> str:
    """A cluster with 250 ledgers, a log, a cookie, and nodes of Apache's auto-recovery."""
    instance_id = await stores.clusters.create(HIERARCHICAL)
    for ledger_id in range(250):
        await stores.ledgers.create(ledger_id, RECORD)
    await stores.registration.write_cookie("b1", b"cookie", None)
    above = f"{stores.root}-logs"
    await stores.tree.create(f"{above}/names/flights", b"id", make_parents=True)
    await stores.tree.create(f"{above}/ids/id/pages/token/0", b"page", make_parents=True)
    await stores.tree.create(f"{stores.root}/underreplication/ledgers/0000", make_parents=True)
    return instance_id


def _never(count: int) -> None:
    raise AssertionError(f"{count} nodes were deleted")


def _lose_answers(world: World, stores: MetadataStores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lose the answer to each transaction."""
    transact = stores.tree.transact

    async def losing(operations: Sequence[NodeOperation]) -> object:
        world.lose_next_reply(stores.tree)
        return await transact(operations)

    monkeypatch.setattr(stores.tree, "transact", losing)
