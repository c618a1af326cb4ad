"""After a lost answer, an outage does not prove that the request was not sent."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ledgerlog_spark.errors import MetadataUnavailableError, MetadataUnknownError
from ledgerlog_spark.metadata.stores import MetadataStores
from ledgerlog_spark.metadata.tree import MAKE_ATTEMPTS_MAX, NodeStat, make_node
from ledgerlog_spark.protocol.log.state.records import ProducerRecord
from ledgerlog_spark.testing.memory.tree import Fault, MemoryTree
from tests.sim.log.hosts.ledgers import metadata_of
from tests.unit.log.log_values import new_head, token

if TYPE_CHECKING:
    from ledgerlog_spark.model import Version


class Tree(MemoryTree):
    """A session whose reads can be made to fail."""

    def __init__(self) -> None:
        super().__init__()
        self.reads_nothing = False

    async def stat(self, path: str) -> NodeStat | None:
        if self.reads_nothing:
            raise MetadataUnavailableError("no answer")
        return await super().stat(path)


@pytest.fixture
async def stores() -> MetadataStores:
    stores = MetadataStores.on(Tree(), "/ledgers")
    await stores.initialize()
    await stores.logs.create_log(*new_head())
    return stores


def tree_of(stores: MetadataStores) -> Tree:
    assert isinstance(stores.tree, Tree)
    return stores.tree


async def new_producer(stores: MetadataStores) -> Version:
    """Create a producer after a ledger, so that the directory of ledgers exists."""
    await stores.ledgers.create(6, metadata_of(6))
    record = ProducerRecord(epoch=1, runs=("run",))
    return await stores.logs.producers.write(token(1), "app", record, None)


async def make(stores: MetadataStores, how: str, version: Version) -> None:
    if how == "made":
        await stores.logs.producers.make_ledger(token(1), 7, metadata_of(7))
    else:
        await stores.logs.producers.register_ledger(token(1), "app", 1, version, 7, metadata_of(7))


async def test_of_a_log_that_was_made(stores: MetadataStores) -> None:
    head, pages = new_head()
    head = replace(head, name="trains", log_id=token(7), token=token(7))
    tree_of(stores).inject(Fault.REPLY_LOST, Fault.NOT_SENT)
    with pytest.raises(MetadataUnknownError):
        await stores.logs.create_log(head, pages)
    assert await stores.logs.find("trains") == head.log_id


@pytest.mark.parametrize("how", ["registered", "made"])
async def test_of_a_ledger_that_was_made(stores: MetadataStores, how: str) -> None:
    version = await new_producer(stores)
    tree_of(stores).inject(Fault.REPLY_LOST, Fault.NOT_SENT)
    with pytest.raises(MetadataUnknownError):
        await make(stores, how, version)
    assert (await stores.ledgers.load(7)).value.token == metadata_of(7).token


@pytest.mark.parametrize("how", ["registered", "made"])
async def test_of_a_ledger_whose_proof_cannot_be_read(stores: MetadataStores, how: str) -> None:
    version = await new_producer(stores)
    tree_of(stores).inject(Fault.REPLY_LOST)
    tree_of(stores).reads_nothing = True
    with pytest.raises(MetadataUnknownError):
        await make(stores, how, version)


@pytest.mark.parametrize("fault", [Fault.REPLY_LOST, Fault.REQUEST_LOST])
async def test_of_each_write_of_a_new_cluster_does_not_end_a_start(fault: Fault) -> None:
    for count in range(1, 10):
        stores = MetadataStores.on(Tree(), "/cluster/ledgers")
        tree_of(stores).inject(*[fault] * min(count, MAKE_ATTEMPTS_MAX - 1))
        await stores.initialize()
        assert await stores.registration.instance_id()
        assert await stores.registration.known() == []


async def test_of_a_node_are_bounded(stores: MetadataStores) -> None:
    tree_of(stores).inject(*[Fault.REQUEST_LOST] * MAKE_ATTEMPTS_MAX)
    with pytest.raises(MetadataUnknownError):
        await make_node(stores.tree, "/ledgers/node")


async def test_of_a_node_that_was_made(stores: MetadataStores) -> None:
    tree_of(stores).inject(Fault.REPLY_LOST, Fault.NOT_SENT)
    await make_node(stores.tree, "/ledgers/node")
    assert await stores.tree.stat("/ledgers/node") is not None


async def test_of_a_record_whose_directory_is_missing(stores: MetadataStores) -> None:
    tree_of(stores).inject(Fault.DELAYED)
    tree_of(stores).reads_nothing = True
    with pytest.raises(MetadataUnknownError):
        await stores.ledgers.create(7, metadata_of(7))


async def test_of_a_lease_that_was_taken(stores: MetadataStores) -> None:
    assert await stores.leases.acquire("upkeep", {})  # creates the directory of leases
    await stores.leases.release("upkeep")
    tree_of(stores).inject(Fault.REPLY_LOST, Fault.NOT_SENT)
    with pytest.raises(MetadataUnknownError):
        await stores.leases.acquire("upkeep", {})
    assert await stores.leases.holder("upkeep") == {}


async def test_of_a_lease_whose_directory_is_missing(stores: MetadataStores) -> None:
    tree_of(stores).inject(Fault.DELAYED)
    tree_of(stores).reads_nothing = True
    with pytest.raises(MetadataUnknownError):
        await stores.leases.acquire("upkeep", {})


async def test_an_outage_alone_is_certain(stores: MetadataStores) -> None:
    tree_of(stores).reads_nothing = True
    with pytest.raises(MetadataUnavailableError):
        await stores.ledgers.create(7, metadata_of(7))
