"""The promises of the `TopologyStore`, in memory and on a real ZooKeeper."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ledgerlog_spark.errors import (
    MetadataFormatError,
    MetadataUnknownError,
    MetadataVersionError,
    WireFormatError,
)
from ledgerlog_spark.metadata.stores import MetadataStores
from ledgerlog_spark.metadata.topologies import place_of, policy_of
from ledgerlog_spark.model import BookieInfo
from ledgerlog_spark.protocol.placement.places import BookiePlace
from ledgerlog_spark.protocol.placement.policy import PlacementPolicy
from ledgerlog_spark.wire.topology import Topology
from tests.fixtures.metadata_worlds import World, cluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

TOPOLOGY = Topology({"b1": {"rack": "r1", "host": "h1"}}, {"enforce_racks": True})


@pytest.fixture
async def stores(world: World) -> AsyncIterator[MetadataStores]:
    stores = await cluster(world)
    yield stores
    await stores.close()


async def test_the_last_topology_is_read(stores: MetadataStores) -> None:
    assert await stores.topologies.read() is None
    await stores.topologies.write(TOPOLOGY, None)
    first = await stores.topologies.read()
    assert first is not None
    assert first.value == TOPOLOGY
    other = Topology({"b2": {"region": "east"}})
    await stores.topologies.write(other, first.version)
    second = await stores.topologies.read()
    assert second is not None
    assert second.value == other


async def test_of_two_changes_at_once_the_second_is_refused(stores: MetadataStores) -> None:
    await stores.topologies.write(TOPOLOGY, None)
    found = await stores.topologies.read()
    assert found is not None
    for version in (None, found.version):
        if version is not None:
            await stores.topologies.write(Topology(), version)
        with pytest.raises(MetadataVersionError, match="try again"):
            await stores.topologies.write(Topology(policy={"allow_same_host": True}), version)


async def test_apaches_tools_do_not_see_the_node(stores: MetadataStores) -> None:
    await stores.topologies.write(TOPOLOGY, None)
    assert await stores.tree.children(f"{stores.root}-repair") == ["topology"]
    assert not any("repair" in name for name in await stores.tree.children(stores.root))


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        (TOPOLOGY.encode().replace(b'"format":1', b'"format":2'), r"format 2.*newer release"),
        (b"{}", "not a topology"),
        (b"\xff", "not a topology"),
        (b'{"format":1,"bookies":{"b":{"floor":"3"}},"policy":{}}', "not a topology"),
        (b'{"format":1,"bookies":{"b":{"rack":3}},"policy":{}}', "not a topology"),
        (b'{"format":1,"bookies":{},"policy":{"min_racks":"2"}}', "not a topology"),
        (b'{"format":1,"bookies":[],"policy":{}}', "not a topology"),
    ],
)
async def test_what_cannot_be_read_is_refused(
    stores: MetadataStores, stored: bytes, message: str
) -> None:
    await stores.topologies.write(TOPOLOGY, None)
    await stores.tree.set(f"{stores.root}-repair/topology", stored, None)
    with pytest.raises(MetadataFormatError, match=message):
        await stores.topologies.read()


async def test_a_write_with_a_lost_answer_counts(
    stores: MetadataStores, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = stores.tree.create
    lost: list[object] = []

    async def lose(*arguments: object, **options: object) -> object:
        created = await create(*arguments, **options)  # type: ignore[arg-type]
        if not lost:
            lost.append(created)
            raise MetadataUnknownError("lost")
        return created

    monkeypatch.setattr(stores.tree, "create", lose)
    await stores.topologies.write(TOPOLOGY, None)
    found = await stores.topologies.read()
    assert found is not None
    assert found.value == TOPOLOGY


async def test_a_topology_that_is_too_large_is_not_written(stores: MetadataStores) -> None:
    large = Topology({f"b{number}": {"rack": "r" * 200} for number in range(3_000)})
    with pytest.raises(WireFormatError, match="at most 524288"):
        await stores.topologies.write(large, None)
    assert await stores.topologies.read() is None


def test_a_place_of_the_topology_replaces_the_registered_place() -> None:
    """AUTORECOVERY.md#Z2."""
    info = BookieInfo("b1", "10.0.0.1", 3181, None, {"ledgerlog.rack": "r9"})
    assert place_of(info, "b1", Topology()) == BookiePlace("10.0.0.1", "r9", None)
    assert place_of(info, "b1", TOPOLOGY) == BookiePlace("h1", "r1", None)
    assert place_of(None, "b1", TOPOLOGY) == BookiePlace("h1", "r1", None)
    assert place_of(None, "b2", TOPOLOGY) == BookiePlace()


def test_the_policy_of_the_topology_replaces_the_default() -> None:
    assert policy_of(Topology()) == PlacementPolicy()
    assert policy_of(TOPOLOGY) == PlacementPolicy(enforce_racks=True)
    assert policy_of(Topology(policy={"a_later_rule": 3})) == PlacementPolicy()
    with pytest.raises(MetadataFormatError, match="min_racks_per_write_quorum"):
        policy_of(Topology(policy={"min_racks_per_write_quorum": 0}))
