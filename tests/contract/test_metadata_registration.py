"""The promises of the `Registration` port, in memory and on a real ZooKeeper."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from bookie_server.config import BookieSettings
from ledgerlog_spark.errors import (
    BookieUnavailableError,
    ConfigurationError,
    LocalProtocolError,
    MetadataError,
    MetadataFormatError,
    MetadataVersionError,
)
from ledgerlog_spark.metadata.registration import Registration
from ledgerlog_spark.metadata.stores import MetadataStores
from ledgerlog_spark.metadata.tree import NodeMissingError, make_node
from ledgerlog_spark.model import BookieInfo, Version
from ledgerlog_spark.testing import MemoryCluster
from tests.fixtures.metadata_worlds import PATIENCE_SECONDS, Signal, World, cluster, delete_cookie

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

BOOKIE = BookieInfo(
    bookie_id="127.0.0.1:3181",
    host="127.0.0.1",
    port=3181,
    grpc_port=4181,
    properties={"ledgerlog.ops": "ADD_RUN/1"},
)
NAMED = BookieInfo(bookie_id="bookie-0", host="10.0.0.7", port=3181)


@pytest.fixture
async def stores(world: World) -> AsyncIterator[MetadataStores]:
    stores = await cluster(world)
    yield stores
    await stores.close()


@pytest.fixture
async def reader(world: World, stores: MetadataStores) -> AsyncIterator[MetadataStores]:
    """The same cluster, in another session."""
    reader = MetadataStores.on(await world.session(), world.root)
    yield reader
    await reader.close()


async def until_writable(reader: MetadataStores, wanted: list[str]) -> None:
    changed = Signal()
    cancel = reader.registration.watch_writable(changed)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await reader.registration.writable() != wanted:
            await changed.called()
    cancel()


async def test_initialized_cluster_has_the_nodes_of_a_real_one(
    world: World, stores: MetadataStores
) -> None:
    assert await stores.tree.children(world.root) == [
        "INSTANCEID", "LAYOUT", "available", "cookies",
    ]  # fmt: skip
    layout = await stores.tree.get(f"{world.root}/LAYOUT")
    assert layout.value == b"2\norg.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1"
    assert await stores.tree.children(f"{world.root}/available") == ["readonly"]
    uuid.UUID(await stores.registration.instance_id())


async def test_initializing_again_changes_nothing(
    stores: MetadataStores, reader: MetadataStores
) -> None:
    instance_id = await stores.registration.instance_id()
    await asyncio.gather(stores.initialize(), reader.initialize())
    assert await stores.registration.instance_id() == instance_id


async def test_initializing_over_a_layout_of_others_is_refused(world: World) -> None:
    stores = MetadataStores.on(await world.session(), world.root)
    foreign = b"2\norg.apache.bookkeeper.meta.MSLedgerManagerFactory:1"
    await stores.tree.create(f"{world.root}/LAYOUT", foreign, make_parents=True)
    with pytest.raises(MetadataFormatError, match="MSLedgerManagerFactory"):
        await stores.initialize()
    assert await stores.tree.children(world.root) == ["LAYOUT"]
    await stores.close()


async def test_registered_bookies_are_seen_as_they_described_themselves(
    stores: MetadataStores, reader: MetadataStores
) -> None:
    await stores.registration.register(NAMED)
    await stores.registration.register(BOOKIE)
    await reader.registration.sync()
    assert await reader.registration.writable() == ["127.0.0.1:3181", "bookie-0"]
    assert await reader.registration.read_only() == []
    assert await reader.registration.info("127.0.0.1:3181") == BOOKIE
    assert (await reader.registration.info("bookie-0")).host == "10.0.0.7"


async def test_bookie_becomes_read_only_and_writable_again(
    stores: MetadataStores, reader: MetadataStores
) -> None:
    for read_only in (True, False, True):
        await stores.registration.register(BOOKIE, read_only=read_only)
        await reader.registration.sync()
        places = await reader.registration.writable(), await reader.registration.read_only()
        assert places == (([], [BOOKIE.bookie_id]) if read_only else ([BOOKIE.bookie_id], []))
        assert await reader.registration.info(BOOKIE.bookie_id) == BOOKIE


class ChangingTree:
    """A tree that changes after each read that found no node."""

    def __init__(self, tree: Any, between: list[Callable[[], Awaitable[None]]]) -> None:
        self._tree = tree
        self._between = between

    async def get(self, path: str) -> Any:
        try:
            return await self._tree.get(path)
        except NodeMissingError:
            if self._between:
                await self._between.pop(0)()
                await self._tree.sync(path)
            raise


@pytest.mark.parametrize("read_only", [True, False], ids=["read-only", "writable"])
async def test_a_bookie_that_moves_between_two_looks_is_found(
    world: World, stores: MetadataStores, reader: MetadataStores, *, read_only: bool
) -> None:
    async def move() -> None:
        await stores.registration.register(BOOKIE, read_only=not read_only)

    await stores.registration.register(BOOKIE, read_only=read_only)
    await reader.registration.sync()
    tree: Any = ChangingTree(reader.tree, [move])
    assert await Registration(tree, world.root).info(BOOKIE.bookie_id) == BOOKIE


async def test_registering_again_changes_what_is_announced(
    stores: MetadataStores, reader: MetadataStores
) -> None:
    await stores.registration.register(NAMED)
    moved = BookieInfo(bookie_id="bookie-0", host="10.0.0.8", port=3181)
    await stores.registration.register(moved)
    await reader.registration.sync()
    assert await reader.registration.info("bookie-0") == moved


async def test_unregistered_bookie_is_gone_and_unavailable(
    stores: MetadataStores, reader: MetadataStores
) -> None:
    await stores.registration.register(BOOKIE)
    await stores.registration.unregister(BOOKIE.bookie_id)
    await stores.registration.unregister(BOOKIE.bookie_id)
    await reader.registration.sync()
    assert await reader.registration.writable() == []
    with pytest.raises(BookieUnavailableError, match=BOOKIE.bookie_id):
        await reader.registration.info(BOOKIE.bookie_id)


async def test_bookie_goes_with_its_session(world: World, reader: MetadataStores) -> None:
    bookie = MetadataStores.on(await world.session(), world.root)
    await bookie.registration.register(BOOKIE)
    await until_writable(reader, [BOOKIE.bookie_id])
    await bookie.close()
    await until_writable(reader, [])


async def test_watch_tells_of_bookies_that_come_change_and_go(
    stores: MetadataStores, reader: MetadataStores
) -> None:
    changed = Signal()
    cancel = reader.registration.watch_writable(changed)
    assert await reader.registration.writable() == []
    await stores.registration.register(BOOKIE)
    await changed.called()
    await until_writable(reader, [BOOKIE.bookie_id])
    await stores.registration.register(BOOKIE, read_only=True)
    await until_writable(reader, [])
    assert await reader.registration.read_only() == [BOOKIE.bookie_id]
    cancel()


@pytest.mark.parametrize("read_only", [False, True])
async def test_second_live_registrant_of_a_bookie_id_is_refused(
    stores: MetadataStores, reader: MetadataStores, read_only: bool
) -> None:
    await stores.registration.register(BOOKIE, read_only=read_only)
    refusals = await asyncio.gather(
        *(reader.registration.register(BOOKIE, read_only=r) for r in (False, True)),
        reader.registration.wait_until_alone(BOOKIE.bookie_id),
        return_exceptions=True,
    )
    for refusal in refusals:
        assert isinstance(refusal, LocalProtocolError)
        assert "registered by another session" in str(refusal)
    assert await reader.registration.sight(BOOKIE.bookie_id) is not None
    assert await reader.registration.read_only() == [BOOKIE.bookie_id] * read_only


@pytest.mark.parametrize("read_only", [False, True])
async def test_a_wait_for_other_sessions_announces_nothing(
    world: World, stores: MetadataStores, reader: MetadataStores, read_only: bool
) -> None:
    older = MetadataStores.on(await world.session(), world.root)
    await older.registration.register(BOOKIE, read_only=read_only)
    waiting = asyncio.create_task(stores.registration.wait_until_alone(BOOKIE.bookie_id))
    await stores.tree.sync()
    assert not waiting.done()
    await older.close()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await waiting
    assert await reader.registration.sight(BOOKIE.bookie_id) is None
    await stores.registration.register(BOOKIE)
    await stores.registration.wait_until_alone(BOOKIE.bookie_id)  # its own session counts not


async def test_node_left_by_an_older_session_is_waited_out(
    world: World, stores: MetadataStores
) -> None:
    older = MetadataStores.on(await world.session(), world.root)
    await older.registration.register(BOOKIE)
    registering = asyncio.create_task(stores.registration.register(BOOKIE))
    looked = Signal()
    stores.tree.watch(f"{world.root}/available/{BOOKIE.bookie_id}", looked)
    await stores.tree.sync()
    assert not registering.done()
    await older.close()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await registering
    stat = await stores.tree.stat(f"{world.root}/available/{BOOKIE.bookie_id}")
    assert stat is not None
    assert stat.owner == stores.tree.session_id


@pytest.mark.parametrize("read_only", [False, True])
async def test_bookie_is_announced_again_after_its_session_expired(
    world: World, stores: MetadataStores, reader: MetadataStores, read_only: bool
) -> None:
    await stores.registration.register(BOOKIE, read_only=read_only)
    directory = f"{world.root}/available" + ("/readonly" if read_only else "")
    path = f"{directory}/{BOOKIE.bookie_id}"
    before = stores.tree.session_id
    changed = Signal()
    cancel = reader.tree.watch(path, changed)
    await world.expire(stores.tree)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (stat := await reader.tree.stat(path)) is None or stat.owner == before:
            await changed.called()
    assert stat.owner == stores.tree.session_id
    assert await reader.registration.info(BOOKIE.bookie_id) == BOOKIE
    cancel()


async def test_deleted_node_of_a_registered_bookie_is_made_again(
    world: World, stores: MetadataStores, reader: MetadataStores
) -> None:
    await stores.registration.register(BOOKIE)
    await reader.tree.delete(f"{world.root}/available/{BOOKIE.bookie_id}")
    await until_writable(reader, [BOOKIE.bookie_id])


async def test_unregistered_bookie_is_not_announced_after_its_session_expired(
    world: World, stores: MetadataStores, reader: MetadataStores
) -> None:
    await stores.registration.register(BOOKIE)
    await stores.registration.register(NAMED)
    await stores.registration.unregister(BOOKIE.bookie_id)
    await world.expire(stores.tree)
    await until_writable(reader, ["bookie-0"])


async def test_lost_reply_to_a_registration_is_settled_by_looking(
    world: World, stores: MetadataStores, reader: MetadataStores
) -> None:
    for lose in (world.lose_next_reply, world.lose_next_request):
        lose(stores.tree)
        await stores.registration.register(BOOKIE)
        await reader.registration.sync()
        assert await reader.registration.writable() == [BOOKIE.bookie_id]
        await stores.registration.unregister(BOOKIE.bookie_id)


async def test_lost_answer_to_a_first_start_is_settled_by_a_repetition(
    world: World, stores: MetadataStores, reader: MetadataStores
) -> None:
    """This includes the cookie, because the next start would accept the same cookie."""
    for count, lose in enumerate((world.lose_next_reply, world.lose_next_request)):
        lose(stores.tree)
        await make_node(stores.tree, f"{world.root}/made-{count}", b"data")
        assert (await reader.tree.get(f"{world.root}/made-{count}")).value == b"data"
        lose(stores.tree)
        await stores.registration.write_cookie(f"bookie-{count}", b"cookie", None)
        cookie = await reader.registration.read_cookie(f"bookie-{count}")
        assert cookie is not None
        assert cookie.value == b"cookie"


async def test_cookie_that_another_process_has_just_created_is_refused(
    stores: MetadataStores, reader: MetadataStores
) -> None:
    """Also if it is the same: two processes would be one bookie."""
    await reader.registration.write_cookie("bookie-7", b"cookie", None)
    with pytest.raises(MetadataVersionError):
        await stores.registration.write_cookie("bookie-7", b"cookie", None)


async def test_lost_reply_to_a_cookie_does_not_accept_the_cookie_of_another(
    world: World, stores: MetadataStores, reader: MetadataStores
) -> None:
    await reader.registration.write_cookie("bookie-7", b"other", None)
    world.lose_next_reply(stores.tree)
    with pytest.raises(MetadataVersionError):
        await stores.registration.write_cookie("bookie-7", b"cookie", None)


async def test_bookie_id_without_a_record_is_an_address(
    world: World, stores: MetadataStores
) -> None:
    """Bookies before release 4.11 registered in this manner."""
    await stores.tree.create(f"{world.root}/available/10.0.0.9:3181")
    info = await stores.registration.info("10.0.0.9:3181")
    assert (info.host, info.port, info.grpc_port) == ("10.0.0.9", 3181, None)


IMPOSSIBLE: list[Any] = ["", "a/b", ".", "..", "readonly", "a b", "x" * 256, None, 7]


@pytest.mark.parametrize("bookie_id", IMPOSSIBLE)
async def test_impossible_bookie_id_is_refused(stores: MetadataStores, bookie_id: Any) -> None:
    for call in (
        stores.registration.register(BookieInfo(bookie_id, "127.0.0.1", 3181)),
        stores.registration.info(bookie_id),
        stores.registration.unregister(bookie_id),
        stores.registration.write_cookie(bookie_id, b"", None),
    ):
        with pytest.raises(ConfigurationError, match="bookie id"):
            await call
    assert await stores.registration.writable() == []
    assert await stores.registration.known() == []


@pytest.mark.parametrize("bookie_id", IMPOSSIBLE)
async def test_cluster_in_memory_refuses_the_same_ids_before_anything_changes(
    bookie_id: Any,
) -> None:
    async with MemoryCluster(1) as cluster:
        await cluster.start_bookie("127.0.0.1:3181")
        before = dict(cluster.nodes.current.nodes), dict(cluster.bookies)
        with pytest.raises(ConfigurationError, match="bookie id"):
            await cluster.start_bookie(bookie_id)
        assert (dict(cluster.nodes.current.nodes), cluster.bookies) == before


@pytest.mark.parametrize("bookie_id", [each for each in IMPOSSIBLE if isinstance(each, str)])
def test_process_of_a_bookie_refuses_the_same_ids(bookie_id: str, tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="bookie id"):
        BookieSettings(directories=(tmp_path,), port=0, bookie_id=bookie_id)


async def test_cookie_is_written_once_and_replaced_only_at_its_version(
    stores: MetadataStores, reader: MetadataStores
) -> None:
    assert await stores.registration.read_cookie("bookie-0") is None
    await stores.registration.write_cookie("bookie-0", b"first", None)
    with pytest.raises(MetadataVersionError, match="already"):
        await stores.registration.write_cookie("bookie-0", b"second", None)
    first = await stores.registration.read_cookie("bookie-0")
    assert first is not None
    assert first.value == b"first"
    await stores.registration.write_cookie("bookie-0", b"second", first.version)
    with pytest.raises(MetadataVersionError):
        await stores.registration.write_cookie("bookie-0", b"third", first.version)
    await reader.registration.sync()
    second = await reader.registration.read_cookie("bookie-0")
    assert second is not None
    assert second.value == b"second"
    assert await reader.registration.known() == ["bookie-0"]
    await delete_cookie(stores, "bookie-0")
    assert await stores.registration.known() == []
    with pytest.raises(MetadataVersionError):
        await stores.registration.write_cookie("bookie-0", b"", second.version)


async def test_version_of_a_deleted_cookie_never_matches_the_next(stores: MetadataStores) -> None:
    await stores.registration.write_cookie("bookie-0", b"first", None)
    first = await stores.registration.read_cookie("bookie-0")
    assert first is not None
    await delete_cookie(stores, "bookie-0")
    await stores.registration.write_cookie("bookie-0", b"second", None)
    with pytest.raises(MetadataVersionError):
        await stores.registration.write_cookie("bookie-0", b"third", first.version)


async def test_root_without_a_cluster_is_named(world: World) -> None:
    stores = MetadataStores.on(await world.session(), world.root)
    for call in (
        stores.registration.writable(),
        stores.registration.known(),
        stores.registration.instance_id(),
        stores.registration.write_cookie("bookie-0", b"", None),
        stores.registration.write_cookie("bookie-0", b"", Version(1, 0)),
    ):
        with pytest.raises(MetadataError, match=f"no cluster at {world.root}"):
            await call
    await stores.close()
