"""The promises of the `LedgerStore` port, in memory and on a real ZooKeeper."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ledgerlog_spark.errors import (
    LedgerExistsError,
    LedgerNotFoundError,
    LocalProtocolError,
    MetadataError,
    MetadataFormatError,
    MetadataUnknownError,
    MetadataVersionError,
)
from ledgerlog_spark.metadata.ledgers.layout import LONG_HIERARCHICAL
from ledgerlog_spark.metadata.stores import MetadataStores
from ledgerlog_spark.model import Fragment, LedgerMetadata, LedgerState, Quorum, Version
from ledgerlog_spark.testing.cluster import memory_metadata
from ledgerlog_spark.testing.memory.nodes import MemoryNodes
from ledgerlog_spark.testing.memory.tree import Fault, MemoryTree
from tests.fixtures.metadata_worlds import Signal, World, cluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

BOOKIES = ("127.0.0.1:3181", "127.0.0.1:3182", "127.0.0.1:3183")


def metadata_with(token: int | None = 77, **changes: Any) -> LedgerMetadata:
    plain = LedgerMetadata(
        quorum=Quorum(3, 3, 2),
        fragments=(Fragment(0, BOOKIES),),
        password=b"secret",
        created_ms=1_700_000_000_000,
        custom={"application": b"test", "log": b"\x00\xff"},
        token=token,
    )
    return replace(plain, **changes)


@pytest.fixture
async def stores(world: World) -> AsyncIterator[MetadataStores]:
    stores = await cluster(world)
    yield stores
    await stores.close()


async def test_created_record_reads_back_whole(stores: MetadataStores) -> None:
    [ledger_id] = await stores.ledgers.new_ids()
    created = await stores.ledgers.create(ledger_id, metadata_with())
    assert created.value == metadata_with()
    assert await stores.ledgers.load(ledger_id) == created


async def test_write_at_the_version_replaces_and_custom_metadata_survive(
    stores: MetadataStores,
) -> None:
    [ledger_id] = await stores.ledgers.new_ids()
    created = await stores.ledgers.create(ledger_id, metadata_with())
    closing = created.value.closed(last_entry_id=9, length=1000)
    written = await stores.ledgers.write(ledger_id, closing, created.version)
    assert written.version.number == created.version.number + 1
    loaded = await stores.ledgers.load(ledger_id)
    assert loaded == written
    assert loaded.value.custom == metadata_with().custom
    assert loaded.value.state is LedgerState.CLOSED


async def test_write_at_an_old_version_loses_and_changes_nothing(stores: MetadataStores) -> None:
    [ledger_id] = await stores.ledgers.new_ids()
    created = await stores.ledgers.create(ledger_id, metadata_with())
    recovering = created.value.in_recovery()
    won = await stores.ledgers.write(ledger_id, recovering, created.version)
    closed = created.value.closed(last_entry_id=0, length=1)
    with pytest.raises(MetadataVersionError) as lost:
        await stores.ledgers.write(ledger_id, closed, created.version)
    assert lost.value.definite
    assert await stores.ledgers.load(ledger_id) == won


async def test_record_made_again_never_matches_a_version_of_the_first(
    stores: MetadataStores,
) -> None:
    first = await stores.ledgers.create(5, metadata_with())
    await stores.ledgers.delete(5, first.version)
    again = await stores.ledgers.create(5, metadata_with(token=78))
    assert again.version != first.version
    with pytest.raises(MetadataVersionError):
        await stores.ledgers.write(5, metadata_with().in_recovery(), first.version)
    with pytest.raises(MetadataVersionError):
        await stores.ledgers.delete(5, first.version)
    assert await stores.ledgers.load(5) == again


async def test_absent_ledger_is_not_found_by_any_call(stores: MetadataStores) -> None:
    version = Version(1, 0)
    for call in (
        stores.ledgers.load(8),
        stores.ledgers.write(8, metadata_with(), version),
        stores.ledgers.delete(8, version),
    ):
        with pytest.raises(LedgerNotFoundError) as absent:
            await call
        assert absent.value.ledger_id == 8
    await stores.ledgers.delete(8)


async def test_id_taken_by_another_creator_is_refused(stores: MetadataStores) -> None:
    created = await stores.ledgers.create(5, metadata_with(token=1))
    for token in (2, None):
        with pytest.raises(LedgerExistsError):
            await stores.ledgers.create(5, metadata_with(token=token))
    assert await stores.ledgers.load(5) == created


async def test_create_repeated_with_its_own_token_finds_its_record(stores: MetadataStores) -> None:
    created = await stores.ledgers.create(5, metadata_with(token=1))
    assert await stores.ledgers.create(5, metadata_with(token=1)) == created


async def test_lost_reply_to_a_create_is_settled_by_the_token(
    world: World, stores: MetadataStores
) -> None:
    await stores.ledgers.create(4, metadata_with())  # makes the directories
    world.lose_next_reply(stores.tree)
    created = await stores.ledgers.create(5, metadata_with())
    assert created.version.number == 0
    assert await stores.ledgers.load(5) == created


async def test_lost_request_of_a_create_is_sent_again(world: World, stores: MetadataStores) -> None:
    await stores.ledgers.create(4, metadata_with())
    world.lose_next_request(stores.tree)
    created = await stores.ledgers.create(5, metadata_with())
    assert await stores.ledgers.load(5) == created


async def test_lost_reply_to_a_refused_create_is_settled_as_taken(
    world: World, stores: MetadataStores
) -> None:
    await stores.ledgers.create(5, metadata_with(token=1))
    world.lose_next_reply(stores.tree)
    with pytest.raises(LedgerExistsError):
        await stores.ledgers.create(5, metadata_with(token=2))


async def test_lost_reply_to_a_create_without_token_stays_unknown(
    world: World, stores: MetadataStores
) -> None:
    await stores.ledgers.create(4, metadata_with())
    world.lose_next_reply(stores.tree)
    with pytest.raises(MetadataUnknownError):
        await stores.ledgers.create(5, metadata_with(token=None))


async def test_lost_reply_to_a_write_is_unknown_and_left_to_the_caller(
    world: World, stores: MetadataStores
) -> None:
    created = await stores.ledgers.create(5, metadata_with())
    recovering = created.value.in_recovery()
    world.lose_next_reply(stores.tree)
    with pytest.raises(MetadataUnknownError):
        await stores.ledgers.write(5, recovering, created.version)
    await stores.ledgers.sync()
    assert (await stores.ledgers.load(5)).value == recovering
    world.lose_next_request(stores.tree)
    with pytest.raises(MetadataUnknownError):
        await stores.ledgers.delete(5)
    await stores.ledgers.sync()
    assert (await stores.ledgers.load(5)).value == recovering


async def test_ids_of_two_sessions_never_meet(world: World, stores: MetadataStores) -> None:
    other = MetadataStores.on(await world.session(), world.root)
    blocks = await asyncio.gather(
        *(each.ledgers.new_ids(64) for each in (stores, other) for _ in range(5))
    )
    await other.close()
    ids = [ledger_id for block in blocks for ledger_id in block]
    assert len(set(ids)) == 640
    assert all(list(block) == sorted(block) for block in blocks)
    assert min(ids) == 0


async def test_names_of_ids_given_out_are_removed(world: World, stores: MetadataStores) -> None:
    await stores.ledgers.new_ids(64)
    await stores.ledgers.close()
    await stores.tree.sync()
    assert await stores.tree.children(f"{world.root}/idgen") == []
    assert await stores.ledgers.new_ids() == [64]


async def test_lost_reply_to_new_ids_loses_ids_and_repeats_none(
    world: World, stores: MetadataStores
) -> None:
    first = await stores.ledgers.new_ids(3)
    await stores.ledgers.close()
    world.lose_next_reply(stores.tree)
    second = await stores.ledgers.new_ids(3)
    assert list(first) == [0, 1, 2]
    assert list(second) == [6, 7, 8]


@pytest.mark.parametrize("count", [0, -1, 65])
async def test_number_of_new_ids_is_bounded(stores: MetadataStores, count: int) -> None:
    with pytest.raises(LocalProtocolError, match="1 to 64"):
        await stores.ledgers.new_ids(count)


async def test_two_thousand_ledgers_are_listed_in_order(stores: MetadataStores) -> None:
    far_ones = [12_345, 2_147_483_646, 2_147_483_647, 1 << 40, (1 << 63) - 1]
    wanted = [*range(2_000), *far_ones]
    for start in range(0, len(wanted), 500):
        await asyncio.gather(
            *(stores.ledgers.create(n, metadata_with()) for n in wanted[start : start + 500])
        )
    assert [ledger_id async for ledger_id in stores.ledgers.ids()] == wanted


async def test_cluster_without_ledgers_lists_none(stores: MetadataStores) -> None:
    assert [ledger_id async for ledger_id in stores.ledgers.ids()] == []


async def test_name_that_is_no_ledger_ends_the_listing_loudly(
    world: World, stores: MetadataStores
) -> None:
    await stores.ledgers.create(5, metadata_with())
    await stores.tree.create(f"{world.root}/00/0000/surprise")
    ids = stores.ledgers.ids()
    assert await anext(ids) == 5
    with pytest.raises(MetadataFormatError, match="surprise"):
        await anext(ids)


async def test_record_of_an_unknown_format_is_refused_and_left_alone(
    world: World, stores: MetadataStores
) -> None:
    record = b"BookieMetadataFormatVersion\t9\nfrom the future"
    path = f"{world.root}/00/0000/L0005"
    await stores.tree.create(path, record, make_parents=True)
    with pytest.raises(MetadataFormatError, match="ledger 5"):
        await stores.ledgers.load(5)
    with pytest.raises(LedgerExistsError):
        await stores.ledgers.create(5, metadata_with())
    assert (await stores.tree.get(path)).value == record


async def test_watch_tells_of_changes_deletion_and_replaced_sessions(
    world: World, stores: MetadataStores
) -> None:
    other = MetadataStores.on(await world.session(), world.root)
    created = await stores.ledgers.create(5, metadata_with())
    changed = Signal()
    cancel = other.ledgers.watch(5, changed)
    await other.ledgers.sync()
    await stores.ledgers.write(5, created.value.in_recovery(), created.version)
    await changed.called()
    assert (await other.ledgers.load(5)).value.state is LedgerState.IN_RECOVERY
    await world.expire(other.tree)
    await changed.called()
    await stores.ledgers.delete(5)
    await changed.called()
    with pytest.raises(LedgerNotFoundError):
        await other.ledgers.load(5)
    cancel()
    await other.close()


async def test_root_without_a_cluster_is_named(world: World) -> None:
    stores = MetadataStores.on(await world.session(), world.root)
    calls = [stores.ledgers.new_ids(), stores.ledgers.create(5, metadata_with())]
    for call in calls:
        with pytest.raises(MetadataError, match=f"no cluster at {world.root}"):
            await call
    with pytest.raises(MetadataError, match="no cluster"):
        _ = [n async for n in stores.ledgers.ids()]
    assert await stores.tree.stat(world.root) is None
    await stores.close()


async def test_long_layout_keeps_small_ids_in_long_paths(world: World) -> None:
    stores = MetadataStores.on(await world.session(), world.root, LONG_HIERARCHICAL)
    await stores.initialize()
    wanted = [5, 2_147_483_646, 1 << 40]
    for ledger_id in wanted:
        await stores.ledgers.create(ledger_id, metadata_with())
    assert [n async for n in stores.ledgers.ids()] == wanted
    path = f"{world.root}/000/0000/0000/0000/L0005"
    assert await stores.tree.stat(path) is not None
    await stores.close()


# These tests need a store that fails on command.


async def test_stale_reads_last_until_a_sync() -> None:
    nodes = MemoryNodes()
    writer, reader = memory_metadata(nodes), memory_metadata(nodes)
    await writer.initialize()
    created = await writer.ledgers.create(5, metadata_with())
    assert isinstance(reader.tree, MemoryTree)
    reader.tree.hold_reads()
    changed = Signal()
    reader.ledgers.watch(5, changed)
    written = await writer.ledgers.write(5, created.value.in_recovery(), created.version)
    await writer.ledgers.create(6, metadata_with())
    assert await reader.ledgers.load(5) == created
    assert [n async for n in reader.ledgers.ids()] == [5]
    with pytest.raises(MetadataVersionError):
        await reader.ledgers.write(5, created.value, created.version)
    assert changed.count == 0
    await reader.ledgers.sync()
    await changed.called()
    assert await reader.ledgers.load(5) == written
    assert [n async for n in reader.ledgers.ids()] == [5, 6]
    await writer.ledgers.delete(6)
    assert [n async for n in reader.ledgers.ids()] == [5, 6]
    reader.tree.release_reads()
    assert [n async for n in reader.ledgers.ids()] == [5]


async def test_settling_a_create_does_not_trust_stale_reads() -> None:
    stores = memory_metadata()
    await stores.initialize()
    await stores.ledgers.create(4, metadata_with())
    assert isinstance(stores.tree, MemoryTree)
    stores.tree.hold_reads()
    stores.tree.inject(Fault.REPLY_LOST)
    created = await stores.ledgers.create(5, metadata_with())
    assert created.value == metadata_with()


async def test_create_that_lands_late_is_met_by_its_own_repetition() -> None:
    stores = memory_metadata()
    await stores.initialize()
    await stores.ledgers.create(4, metadata_with())
    assert isinstance(stores.tree, MemoryTree)
    stores.tree.inject(Fault.DELAYED)
    created = await stores.ledgers.create(5, metadata_with())
    stores.tree.deliver_delayed()
    assert await stores.ledgers.load(5) == created


async def test_create_whose_every_request_is_lost_stays_unknown() -> None:
    stores = memory_metadata()
    await stores.initialize()
    await stores.ledgers.create(4, metadata_with())
    assert isinstance(stores.tree, MemoryTree)
    stores.tree.inject(*[Fault.REQUEST_LOST] * 10)
    with pytest.raises(MetadataUnknownError):
        await stores.ledgers.create(5, metadata_with())


async def test_create_lost_and_then_cut_off_is_unknown_and_not_unavailable() -> None:
    stores = memory_metadata()
    await stores.initialize()
    await stores.ledgers.create(4, metadata_with())
    assert isinstance(stores.tree, MemoryTree)
    stores.tree.inject(Fault.REPLY_LOST, Fault.NOT_SENT)
    with pytest.raises(MetadataUnknownError):
        await stores.ledgers.create(5, metadata_with())


async def test_ids_go_on_in_the_long_counter_when_the_short_one_is_used_up() -> None:
    nodes = MemoryNodes()
    stores = memory_metadata(nodes)
    await stores.initialize()
    await stores.ledgers.new_ids()

    def use_up(path: str, number: int) -> None:
        nodes.current.put(path, replace(nodes.current.node(path), children_made=number))

    use_up("/ledgers/idgen", 2_147_483_645)
    assert await stores.ledgers.new_ids(2) == [2_147_483_645, 2_147_483_646]
    assert await stores.ledgers.new_ids(2) == [1 << 32, (1 << 32) + 1]
    other = memory_metadata(nodes)
    assert await other.ledgers.new_ids() == [(1 << 32) + 2]
    use_up("/ledgers/idgen-long/HOB-0000000001", 2_147_483_647)
    assert await other.ledgers.new_ids() == [2 << 32]
    assert await stores.ledgers.new_ids() == [(2 << 32) + 1]
