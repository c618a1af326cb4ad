"""The promises of the `KnownBookies` store, in memory and on a real ZooKeeper."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ledgerlog_spark.errors import (
    ConfigurationError,
    MetadataFormatError,
    MetadataUnknownError,
    MetadataVersionError,
)
from ledgerlog_spark.metadata.stores import MetadataStores
from ledgerlog_spark.testing.cluster import memory_metadata
from ledgerlog_spark.testing.memory.nodes import MemoryNodes
from ledgerlog_spark.testing.memory.tree import MemoryTree
from ledgerlog_spark.wire.known_bookie import KnownBookie, KnownDirectory
from tests.fixtures.metadata_worlds import World, cluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

BOOKIE_ID = "127.0.0.1:3181"
FIRST = KnownBookie((KnownDirectory("aa" * 8, 1, 1),))
SECOND = KnownBookie((KnownDirectory("aa" * 8, 1, 2),))
THIRD = KnownBookie((KnownDirectory("aa" * 8, 2, 3),))
COOKIE, OTHER_COOKIE = b"5\ncookie", b"5\nother"


@pytest.fixture
async def stores(world: World) -> AsyncIterator[MetadataStores]:
    stores = await cluster(world)
    yield stores
    await stores.close()


@pytest.fixture
async def other(world: World, stores: MetadataStores) -> AsyncIterator[MetadataStores]:
    """The same cluster, in another session."""
    other = MetadataStores.on(await world.session(), world.root)
    yield other
    await other.close()


async def record_in(stores: MetadataStores) -> KnownBookie | None:
    found = await stores.known_bookies.read(BOOKIE_ID)
    return None if found is None else found.value


async def test_a_record_is_created_read_and_replaced(
    stores: MetadataStores, other: MetadataStores
) -> None:
    known = stores.known_bookies
    assert await known.read(BOOKIE_ID) is None
    version = await known.write(BOOKIE_ID, FIRST, None)
    found = await other.known_bookies.read(BOOKIE_ID)
    assert found is not None
    assert (found.value, found.version) == (FIRST, version)
    await other.known_bookies.write(BOOKIE_ID, SECOND, found.version)
    assert await record_in(stores) == SECOND


async def test_a_server_that_is_behind_does_not_hide_the_newest_record() -> None:
    nodes = MemoryNodes()
    stores, other = memory_metadata(nodes), memory_metadata(nodes)
    await stores.initialize()
    version = await other.known_bookies.write(BOOKIE_ID, FIRST, None)
    assert isinstance(stores.tree, MemoryTree)
    stores.tree.hold_reads()
    await other.known_bookies.write(BOOKIE_ID, SECOND, version)
    assert await record_in(stores) == SECOND
    await stores.close()
    await other.close()


async def test_of_two_writers_one_loses_and_changes_nothing(
    stores: MetadataStores, other: MetadataStores
) -> None:
    version = await stores.known_bookies.write(BOOKIE_ID, FIRST, None)
    with pytest.raises(MetadataVersionError, match="another process") as refused:
        await other.known_bookies.write(BOOKIE_ID, SECOND, None)
    assert refused.value.bookie_id == BOOKIE_ID
    await other.known_bookies.write(BOOKIE_ID, SECOND, version)
    with pytest.raises(MetadataVersionError):
        await stores.known_bookies.write(BOOKIE_ID, THIRD, version)
    assert await record_in(stores) == SECOND


async def test_many_writers_at_once_leave_one_record(
    stores: MetadataStores, other: MetadataStores
) -> None:
    ended = await asyncio.gather(
        stores.known_bookies.write(BOOKIE_ID, FIRST, None),
        other.known_bookies.write(BOOKIE_ID, SECOND, None),
        return_exceptions=True,
    )
    assert [isinstance(each, MetadataVersionError) for each in ended].count(True) == 1
    winner = FIRST if not isinstance(ended[0], BaseException) else SECOND
    assert await record_in(stores) == winner


async def test_a_lost_request_is_repeated_and_a_lost_answer_counts(
    world: World, stores: MetadataStores
) -> None:
    known = stores.known_bookies
    version = await known.write(BOOKIE_ID, FIRST, None)
    world.lose_next_reply(stores.tree)
    version = await known.write(BOOKIE_ID, SECOND, version)
    assert await record_in(stores) == SECOND
    world.lose_next_request(stores.tree)
    await known.write(BOOKIE_ID, THIRD, version)
    assert await record_in(stores) == THIRD


async def test_after_a_lost_answer_the_record_of_another_process_is_not_ours(
    world: World, stores: MetadataStores, other: MetadataStores
) -> None:
    version = await stores.known_bookies.write(BOOKIE_ID, FIRST, None)
    await other.known_bookies.write(BOOKIE_ID, SECOND, version)
    world.lose_next_reply(stores.tree)
    with pytest.raises(MetadataVersionError):
        await stores.known_bookies.write(BOOKIE_ID, THIRD, version)
    assert await record_in(stores) == SECOND


async def test_a_record_and_a_cookie_are_written_together(
    stores: MetadataStores, other: MetadataStores
) -> None:
    known, registration = stores.known_bookies, stores.registration
    await known.write_with_cookie(BOOKIE_ID, FIRST, None, COOKIE, None)
    record, cookie = await known.read(BOOKIE_ID), await registration.read_cookie(BOOKIE_ID)
    assert record is not None
    assert cookie is not None
    assert (record.value, cookie.value) == (FIRST, COOKIE)
    await known.write_with_cookie(BOOKIE_ID, SECOND, record.version, OTHER_COOKIE, cookie.version)
    assert await record_in(other) == SECOND
    for version, cookie_version in ((record.version, None), (None, cookie.version)):
        with pytest.raises(MetadataVersionError, match="nothing was changed"):
            await known.write_with_cookie(BOOKIE_ID, THIRD, version, COOKIE, cookie_version)
    newest = await known.read(BOOKIE_ID)
    assert newest is not None
    with pytest.raises(MetadataVersionError):
        await known.write_with_cookie(BOOKIE_ID, THIRD, newest.version, COOKIE, cookie.version)
    assert await record_in(stores) == SECOND
    found = await registration.read_cookie(BOOKIE_ID)
    assert found is not None
    assert found.value == OTHER_COOKIE


async def test_a_cookie_is_deleted_with_a_retired_record(stores: MetadataStores) -> None:
    known, registration = stores.known_bookies, stores.registration
    await registration.write_cookie(BOOKIE_ID, COOKIE, None)
    cookie = await registration.read_cookie(BOOKIE_ID)
    assert cookie is not None
    retired = replace(FIRST, is_retired=True)
    overtaken = await known.write(BOOKIE_ID, FIRST, None)
    current = await known.write(BOOKIE_ID, SECOND, overtaken)
    with pytest.raises(MetadataVersionError, match="nothing was changed"):
        await known.write_with_cookie(BOOKIE_ID, retired, overtaken, None, cookie.version)
    assert await registration.read_cookie(BOOKIE_ID) == cookie
    await known.write_with_cookie(BOOKIE_ID, retired, current, None, cookie.version)
    assert await registration.read_cookie(BOOKIE_ID) is None
    assert await record_in(stores) == retired
    record = await known.read(BOOKIE_ID)
    assert record is not None
    await known.write_with_cookie(BOOKIE_ID, FIRST, record.version, None, None)
    assert await record_in(stores) == FIRST


async def test_the_records_are_outside_the_ledgers_root(
    world: World, stores: MetadataStores
) -> None:
    """Apache's tools list the nodes below the root, and its garbage collection reads all names."""
    before = await stores.tree.children(world.root)
    await stores.known_bookies.write(BOOKIE_ID, FIRST, None)
    assert await stores.tree.children(world.root) == before
    assert await stores.tree.children(f"{world.root}-bookies") == [BOOKIE_ID]


async def test_another_node_is_no_record(world: World, stores: MetadataStores) -> None:
    path = f"{world.root}-bookies/{BOOKIE_ID}"
    await stores.tree.create(path, b"garbage", make_parents=True)
    with pytest.raises(MetadataFormatError, match="cannot be read") as refused:
        await stores.known_bookies.read(BOOKIE_ID)
    assert refused.value.path == path


async def test_a_name_that_no_bookie_can_have_is_refused(stores: MetadataStores) -> None:
    with pytest.raises(ConfigurationError, match="cannot be a bookie id"):
        await stores.known_bookies.read("../cookies")


async def test_a_lost_answer_of_a_transaction_is_reported(
    world: World, stores: MetadataStores
) -> None:
    await stores.known_bookies.write_with_cookie(BOOKIE_ID, FIRST, None, COOKIE, None)
    record = await stores.known_bookies.read(BOOKIE_ID)
    assert record is not None
    world.lose_next_reply(stores.tree)
    with pytest.raises(MetadataUnknownError):
        await stores.known_bookies.write_with_cookie(BOOKIE_ID, SECOND, record.version, None, None)
