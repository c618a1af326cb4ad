"""The promises of `LogStore`, on a tree in memory and on a real ZooKeeper."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ledgerlog_spark.errors import (
    LedgerExistsError,
    LedgerNotFoundError,
    LogExistsError,
    LogNotFoundError,
    MetadataError,
    MetadataUnknownError,
    MetadataVersionError,
)
from ledgerlog_spark.metadata.stores import MetadataStores
from ledgerlog_spark.model import Fragment, LedgerMetadata, Quorum
from ledgerlog_spark.protocol.log.commit.plan import created
from ledgerlog_spark.protocol.log.messages import WriteHead
from ledgerlog_spark.protocol.log.state.codec import encode_page
from ledgerlog_spark.protocol.log.state.pages import PageRequest
from ledgerlog_spark.protocol.log.state.records import (
    Item,
    LogContent,
    LogHead,
    LogKind,
    PageRef,
    ProducerRecord,
)
from ledgerlog_spark.protocol.log.state.rows import ITEMS
from ledgerlog_spark.testing.cluster import memory_metadata
from ledgerlog_spark.testing.memory.nodes import MemoryNodes
from ledgerlog_spark.testing.memory.tree import Fault, MemoryTree
from tests.fixtures.metadata_worlds import Signal, cluster

if TYPE_CHECKING:
    from ledgerlog_spark.model import Version, Versioned
    from tests.fixtures.metadata_worlds import World

METADATA = LedgerMetadata(
    quorum=Quorum(3, 3, 2), fragments=(Fragment(0, ("a:1", "b:1", "c:1")),), token=77
)


@pytest.fixture
async def stores(world: World) -> MetadataStores:
    return await cluster(world)


async def new_log(stores: MetadataStores, name: str = "flights", number: int = 1) -> LogHead:
    head, pages = created(
        log_id=f"{number:032x}",
        name=name,
        kind=LogKind.TRANSACTIONAL,
        content=LogContent.ROWS,
        now_ms=1,
        token=f"{number:032x}",
    )
    await stores.logs.create_log(head, pages)
    return head


async def new_producer(stores: MetadataStores, head: LogHead, app: str = "app") -> Version:
    record = ProducerRecord(epoch=1, runs=("run",))
    return await stores.logs.producers.write(head.log_id, app, record, None)


async def head_of(stores: MetadataStores, log_id: str) -> Versioned[LogHead]:
    found = await stores.logs.read_head(log_id)
    assert found is not None
    return found


async def test_created_log_is_found_by_name_and_reads_back(stores: MetadataStores) -> None:
    head = await new_log(stores)
    assert await stores.logs.find("flights") == head.log_id
    assert (await head_of(stores, head.log_id)).value == head
    assert list(await stores.logs.names()) == ["flights"]
    assert list(await stores.logs.ids()) == [head.log_id]


async def test_log_that_is_looked_for_without_a_cluster_is_answered_with_the_missing_cluster(
    world: World,
) -> None:
    stores = MetadataStores.on(await world.session(), world.root)
    with pytest.raises(MetadataError, match=f"no cluster at {world.root}"):
        await stores.logs.find("flights")
    await stores.close()


async def test_second_log_of_a_name_is_refused_and_the_first_stays(stores: MetadataStores) -> None:
    head = await new_log(stores)
    with pytest.raises(LogExistsError):
        await new_log(stores, number=2)
    assert await stores.logs.find("flights") == head.log_id
    assert list(await stores.logs.ids()) == [head.log_id]


async def test_log_whose_creation_lost_its_reply_is_recognised_by_its_id(
    world: World, stores: MetadataStores
) -> None:
    await new_log(stores, "warm-up", number=9)
    world.lose_next_reply(stores.tree)
    head = await new_log(stores)
    assert (await head_of(stores, head.log_id)).value == head


async def test_log_that_a_replica_does_not_show_yet_is_found_and_known_again() -> None:
    nodes = MemoryNodes()
    made, stores = memory_metadata(nodes), memory_metadata(nodes)
    await made.initialize()
    assert isinstance(stores.tree, MemoryTree)
    stores.tree.hold_reads()
    head = await new_log(made)
    assert await stores.logs.find("flights") == head.log_id
    stores.tree.hold_reads()
    stores.tree.inject(Fault.REPLY_LOST)
    ours = await new_log(stores, "trains", number=2)
    assert await made.logs.find("trains") == ours.log_id


async def test_missing_log_is_not_found(stores: MetadataStores) -> None:
    with pytest.raises(LogNotFoundError):
        await stores.logs.find("nothing")
    assert await stores.logs.read_head("f" * 32) is None
    assert await stores.logs.producers.read("f" * 32, "app") is None
    assert list(await stores.logs.names()) == []


async def test_head_and_producer_change_together_or_not_at_all(stores: MetadataStores) -> None:
    head = await new_log(stores)
    at = await head_of(stores, head.log_id)
    producer_version = await new_producer(stores, head)
    record = ProducerRecord(epoch=1, runs=("run",), last_batch_id=0, token="1" * 32)
    write = WriteHead(
        request=0,
        token="1" * 32,
        head=replace(head, token="1" * 32),
        head_version=at.version,
        app="app",
        producer=record,
        producer_version=producer_version,
    )
    moved = await stores.logs.producers.write(
        head.log_id, "app", ProducerRecord(epoch=2, runs=("run", "later")), producer_version
    )
    with pytest.raises(MetadataVersionError):
        await stores.logs.write_head(head.log_id, write)
    assert (await head_of(stores, head.log_id)) == at
    await stores.logs.write_head(head.log_id, replace(write, producer_version=moved))
    assert (await head_of(stores, head.log_id)).value.token == "1" * 32
    found = await stores.logs.producers.read(head.log_id, "app")
    assert found is not None
    assert found.value == record
    with pytest.raises(MetadataVersionError):
        await stores.logs.write_head(head.log_id, replace(write, producer_version=found.version))


async def test_commit_fails_once_its_pages_were_touched(stores: MetadataStores) -> None:
    head = await new_log(stores)
    at = await head_of(stores, head.log_id)
    token = "2" * 32
    version = await stores.logs.write_pages(head.log_id, token, [b"page 0", b"page 1"])
    write = WriteHead(
        request=0,
        token=token,
        head=replace(head, token=token),
        head_version=at.version,
        pages_version=version,
    )
    await stores.logs.touch_pages(head.log_id, token)
    with pytest.raises(MetadataVersionError):
        await stores.logs.write_head(head.log_id, write)
    with pytest.raises(MetadataVersionError):
        await stores.logs.write_pages(head.log_id, token, [b"again"])
    assert list(await stores.logs.page_nodes(head.log_id)) == [token]
    await stores.logs.delete_pages(head.log_id, token, kept=(1,))
    assert len(await stores.logs.page_nodes(head.log_id)) == 1
    await stores.logs.delete_pages(head.log_id, token, kept=())
    assert await stores.logs.page_nodes(head.log_id) == {}
    with pytest.raises(MetadataVersionError):
        await stores.logs.touch_pages(head.log_id, token)


async def test_pages_of_more_than_one_transaction_read_back_in_order(
    stores: MetadataStores,
) -> None:
    head = await new_log(stores)
    items = [Item(i, 1, 5, 5, 10, 1000, i * 10, 0, bytes([i % 251]) * 900) for i in range(1400)]
    pages = [encode_page(ITEMS, items[i : i + 200]) for i in range(0, 1400, 200)]
    big = [page + bytes(250_000 - len(page)) for page in pages]
    assert sum(map(len, big)) > 1_500_000
    await stores.logs.write_pages(head.log_id, "3" * 32, big)
    await stores.logs.write_pages(head.log_id, "4" * 32, pages)
    refs = [PageRef("4" * 32, n, n * 2000, n * 2000 + 2000, 200, 9) for n in range(7)]
    read = await stores.logs.read_pages(head.log_id, [PageRequest(ITEMS, r) for r in refs])
    assert read is not None
    assert [item for page in read for item in page] == items
    missing = PageRequest(ITEMS, replace(refs[0], number=7))
    assert await stores.logs.read_pages(head.log_id, [PageRequest(ITEMS, refs[0]), missing]) is None


async def test_clock_of_the_store_is_known_from_the_answers_to_writes_and_never_ahead(
    stores: MetadataStores,
) -> None:
    head = await new_log(stores)
    seen_ms = stores.logs.clock_ms()
    version = await new_producer(stores, head)
    for ledger_id in (7, 8):
        made = await stores.logs.producers.register_ledger(
            head.log_id, "app", 1, version, ledger_id, replace(METADATA, token=ledger_id)
        )
        assert made.value.token == ledger_id
    for read in (stores.logs.recent_ms(), stores.logs.now_ms(head.log_id)):
        now_ms = await read
        assert 0 < seen_ms <= now_ms
        seen_ms = now_ms
    created = await stores.logs.producers.created_ms([7, 8, 9])
    assert created[2] is None
    assert all(made_ms is not None and made_ms <= seen_ms for made_ms in created[:2])
    await stores.logs.write_pages(head.log_id, "4" * 32, [b"page"])
    (pages_ms,) = (await stores.logs.page_nodes(head.log_id)).values()
    assert seen_ms <= pages_ms + 1_000


async def test_ledger_and_its_registration_appear_together(stores: MetadataStores) -> None:
    head = await new_log(stores)
    version = await new_producer(stores, head)
    made = await stores.logs.producers.register_ledger(head.log_id, "app", 1, version, 7, METADATA)
    assert await stores.ledgers.load(7) == made
    assert list(await stores.logs.producers.registered(head.log_id, "app")) == [7]
    older = [
        await stores.logs.producers.registered_before(head.log_id, "app", epoch) for epoch in (1, 2)
    ]
    assert older == [[], [7]]
    staged_ms = await stores.logs.producers.staged_ms(head.log_id, "app")
    assert list(staged_ms) == [7]
    assert abs(staged_ms[7] - await stores.logs.now_ms(head.log_id)) < 60_000
    with pytest.raises(LedgerExistsError):
        await stores.logs.producers.register_ledger(
            head.log_id, "app", 1, version, 7, replace(METADATA, token=78)
        )


async def test_registration_under_an_old_producer_version_creates_nothing(
    stores: MetadataStores,
) -> None:
    head = await new_log(stores)
    version = await new_producer(stores, head)
    record = ProducerRecord(epoch=2, runs=("run", "later"))
    await stores.logs.producers.write(head.log_id, "app", record, version)
    with pytest.raises(MetadataVersionError):
        await stores.logs.producers.register_ledger(head.log_id, "app", 1, version, 7, METADATA)
    assert list(await stores.logs.producers.registered(head.log_id, "app")) == []
    with pytest.raises(LedgerNotFoundError):
        await stores.ledgers.load(7)


@pytest.mark.parametrize("lost", ["request", "reply"])
async def test_registration_with_an_unknown_outcome_is_settled_by_its_token(
    world: World, stores: MetadataStores, lost: str
) -> None:
    head = await new_log(stores)
    version = await new_producer(stores, head)
    await stores.logs.producers.register_ledger(head.log_id, "app", 1, version, 6, METADATA)
    if lost == "request":
        world.lose_next_request(stores.tree)
    else:
        world.lose_next_reply(stores.tree)
    made = await stores.logs.producers.register_ledger(head.log_id, "app", 1, version, 7, METADATA)
    assert made.value.token == 77
    assert (await stores.ledgers.load(7)).version == made.version
    assert list(await stores.logs.producers.registered(head.log_id, "app")) == [6, 7]


async def test_ledger_whose_registration_ended_before_its_answer_came_is_not_made(
    world: World, stores: MetadataStores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweeper ends a registration that is too old. Then its ledger is never created."""
    head = await new_log(stores)
    version = await new_producer(stores, head)
    await stores.logs.producers.register_ledger(head.log_id, "app", 1, version, 6, METADATA)
    sweeper = await cluster(world)
    sync = stores.tree.sync

    async def ended_meanwhile(path: str = "/") -> None:
        monkeypatch.setattr(stores.tree, "sync", sync)
        record = ProducerRecord(epoch=1, runs=("run",))
        await sweeper.logs.sync()
        await sweeper.logs.producers.write(head.log_id, "app", record, version, [7])
        await sync(path)

    monkeypatch.setattr(stores.tree, "sync", ended_meanwhile)
    world.lose_next_reply(stores.tree)
    with pytest.raises(LedgerExistsError):
        await stores.logs.producers.register_ledger(head.log_id, "app", 1, version, 7, METADATA)
    assert [mark.ledger_id for mark in await stores.logs.producers.marked(head.log_id)] == [7]


@pytest.mark.parametrize("lost", ["nothing", "request", "reply"])
async def test_ledger_of_a_leader_is_marked_until_the_list_names_it(
    world: World, stores: MetadataStores, lost: str
) -> None:
    head = await new_log(stores)
    await stores.logs.producers.make_ledger(head.log_id, 6, METADATA)
    if lost == "request":
        world.lose_next_request(stores.tree)
    elif lost == "reply":
        world.lose_next_reply(stores.tree)
    made = await stores.logs.producers.make_ledger(head.log_id, 7, METADATA)
    assert await stores.ledgers.load(7) == made
    marks = await stores.logs.producers.marked(head.log_id)
    assert [(mark.ledger_id, mark.is_staged, mark.is_made) for mark in marks] == [
        (6, False, True),
        (7, False, True),
    ]
    with pytest.raises(LedgerExistsError):
        await stores.logs.producers.make_ledger(head.log_id, 7, replace(METADATA, token=78))
    at = await head_of(stores, head.log_id)
    write = WriteHead("6" * 32, replace(head, token="6" * 32), at.version, listed=(7,))
    await stores.logs.write_head(head.log_id, write)
    assert [mark.ledger_id for mark in await stores.logs.producers.marked(head.log_id)] == [6]
    listed = await head_of(stores, head.log_id)
    again = WriteHead("7" * 32, replace(head, token="7" * 32), at.version, listed=(7,))
    with pytest.raises(MetadataVersionError):
        await stores.logs.write_head(head.log_id, again)
    assert (await head_of(stores, head.log_id)) == listed


async def test_ledger_that_was_claimed_is_listed_by_nobody(stores: MetadataStores) -> None:
    head = await new_log(stores)
    await stores.logs.producers.make_ledger(head.log_id, 7, METADATA)
    for ledger_id in (7, 7, 8):
        await stores.logs.producers.claim_made(head.log_id, ledger_id)
    (mark,) = await stores.logs.producers.marked(head.log_id)
    assert (mark.ledger_id, mark.is_staged, mark.is_made) == (7, True, False)
    at = await head_of(stores, head.log_id)
    write = WriteHead("6" * 32, replace(head, token="6" * 32), at.version, listed=(7,))
    with pytest.raises(LedgerNotFoundError):
        await stores.logs.write_head(head.log_id, write)
    assert (await head_of(stores, head.log_id)) == at
    await stores.ledgers.delete(7)
    await stores.logs.producers.forget_mark(head.log_id, 7)
    with pytest.raises(LedgerNotFoundError):
        await stores.logs.write_head(head.log_id, write)
    assert (await head_of(stores, head.log_id)) == at
    moved = WriteHead("7" * 32, replace(head, token="7" * 32), at.version)
    await stores.logs.write_head(head.log_id, moved)
    with pytest.raises(MetadataVersionError):
        await stores.logs.write_head(head.log_id, write)


async def test_log_goes_only_when_nobody_can_make_a_ledger_for_it(stores: MetadataStores) -> None:
    head = await new_log(stores)
    await stores.logs.producers.make_ledger(head.log_id, 7, METADATA)
    assert not await stores.logs.remove_log(head.log_id)
    assert await stores.logs.read_head(head.log_id) is not None
    await stores.logs.producers.forget_mark(head.log_id, 7)
    assert await stores.logs.remove_log(head.log_id)
    with pytest.raises(LogNotFoundError):
        await stores.logs.producers.make_ledger(head.log_id, 8, METADATA)
    with pytest.raises(LedgerNotFoundError):
        await stores.ledgers.load(8)


async def test_write_of_a_head_whose_reply_is_lost_is_unknown(
    world: World, stores: MetadataStores
) -> None:
    head = await new_log(stores)
    at = await head_of(stores, head.log_id)
    write = WriteHead("5" * 32, replace(head, token="5" * 32), at.version)
    world.lose_next_reply(stores.tree)
    with pytest.raises(MetadataUnknownError):
        await stores.logs.write_head(head.log_id, write)
    await stores.logs.sync()
    assert (await head_of(stores, head.log_id)).value.token == "5" * 32


async def test_deregistering_bumps_the_producer_and_leaves_a_mark(stores: MetadataStores) -> None:
    head = await new_log(stores)
    version = await new_producer(stores, head)
    for ledger_id in (7, 8):
        await stores.logs.producers.register_ledger(
            head.log_id, "app", 1, version, ledger_id, METADATA
        )
    record = ProducerRecord(epoch=1, runs=("run",))
    bumped = await stores.logs.producers.write(head.log_id, "app", record, version, [7])
    assert bumped != version
    assert list(await stores.logs.producers.registered(head.log_id, "app")) == [8]
    again = await stores.logs.producers.write(head.log_id, "app", record, bumped, released=[8])
    assert again != bumped
    assert list(await stores.logs.producers.registered(head.log_id, "app")) == []
    (mark,) = await stores.logs.producers.marked(head.log_id)
    assert (mark.ledger_id, mark.is_staged) == (7, True)
    with pytest.raises(MetadataVersionError):
        await stores.logs.producers.register_ledger(head.log_id, "app", 1, version, 9, METADATA)
    await stores.logs.producers.forget_mark(head.log_id, 7)
    await stores.logs.producers.forget_mark(head.log_id, 7)
    assert list(await stores.logs.producers.marked(head.log_id)) == []


async def test_unlisting_marks_ledgers_in_the_same_transaction(stores: MetadataStores) -> None:
    head = await new_log(stores)
    at = await head_of(stores, head.log_id)
    write = WriteHead("6" * 32, replace(head, token="6" * 32), at.version, unlisted=(3, 4))
    await stores.logs.write_head(head.log_id, write)
    marks = await stores.logs.producers.marked(head.log_id)
    assert [(mark.ledger_id, mark.is_staged) for mark in marks] == [(3, False), (4, False)]
    with pytest.raises(MetadataVersionError):
        await stores.logs.write_head(head.log_id, replace(write, unlisted=(5,)))
    assert len(await stores.logs.producers.marked(head.log_id)) == 2


async def test_producers_of_any_name_are_kept_apart(stores: MetadataStores) -> None:
    head = await new_log(stores)
    names = ["a/b", "..", "%2E%2E", "ü ber", "app"]
    for epoch, name in enumerate(names):
        record = ProducerRecord(epoch=epoch, runs=(name,))
        await stores.logs.producers.write(head.log_id, name, record, None)
    assert list(await stores.logs.producers.names(head.log_id)) == sorted(names)
    for epoch, name in enumerate(names):
        found = await stores.logs.producers.read(head.log_id, name)
        assert found is not None
        assert (found.value.epoch, found.value.runs) == (epoch, (name,))
    with pytest.raises(MetadataVersionError):
        await stores.logs.producers.write(head.log_id, "app", ProducerRecord(), None)


async def test_deleted_log_frees_its_name_and_fails_what_was_on_its_way(
    stores: MetadataStores,
) -> None:
    head = await new_log(stores)
    at = await head_of(stores, head.log_id)
    await new_producer(stores, head)
    deleted = replace(head, token="7" * 32, deleted_ms=5)
    await stores.logs.delete_log(deleted, at.version)
    with pytest.raises(LogNotFoundError):
        await stores.logs.find("flights")
    with pytest.raises(MetadataVersionError):
        await stores.logs.write_head(head.log_id, WriteHead("8" * 32, head, at.version))
    assert (await stores.logs.deleted_ms(head.log_id)) is not None
    again = await new_log(stores, number=2)
    assert await stores.logs.find("flights") == again.log_id
    with pytest.raises(MetadataVersionError, match="is the name of another log"):
        await stores.logs.delete_log(deleted, (await head_of(stores, head.log_id)).version)
    assert await stores.logs.remove_log(head.log_id)
    assert await stores.logs.remove_log(head.log_id)
    assert list(await stores.logs.ids()) == [again.log_id]


async def test_log_without_producers_is_deleted_with_the_node_above_them(
    stores: MetadataStores,
) -> None:
    head = await new_log(stores)
    at = await head_of(stores, head.log_id)
    await new_producer(stores, head)
    deleted = replace(head, token="7" * 32, deleted_ms=5)
    found = await stores.logs.producers.read(head.log_id, "app")
    assert found is not None
    with pytest.raises(MetadataVersionError):
        await stores.logs.delete_log(deleted, at.version, producers={})
    assert await stores.logs.find("flights") == head.log_id
    assert await stores.logs.producers.read(head.log_id, "app") == found
    await stores.logs.delete_log(deleted, at.version, producers={"app": found.version})
    with pytest.raises(LogNotFoundError):
        await stores.logs.find("flights")
    with pytest.raises(LogNotFoundError, match="producer 'late' was deleted"):
        await stores.logs.producers.write(head.log_id, "late", ProducerRecord(), None)
    assert list(await stores.logs.producers.names(head.log_id)) == []
    assert await stores.logs.remove_log(head.log_id)
    assert list(await stores.logs.ids()) == []


async def test_log_with_a_marked_ledger_is_not_removed(stores: MetadataStores) -> None:
    head = await new_log(stores)
    deleted = replace(head, token="7" * 32, deleted_ms=5)
    await stores.logs.delete_log(deleted, (await head_of(stores, head.log_id)).version)
    at = await head_of(stores, head.log_id)
    write = WriteHead("8" * 32, replace(deleted, token="8" * 32), at.version, unlisted=(7,))
    await stores.logs.write_head(head.log_id, write)
    await new_producer(stores, head)
    assert not await stores.logs.remove_log(head.log_id)
    assert list(await stores.logs.ids()) == [head.log_id]
    assert list(await stores.logs.producers.names(head.log_id)) == ["app"], (
        "it goes whole or not at all"
    )
    assert [mark.ledger_id for mark in await stores.logs.producers.marked(head.log_id)] == [7]


async def test_log_with_a_registered_ledger_is_not_removed(stores: MetadataStores) -> None:
    head = await new_log(stores)
    version = await new_producer(stores, head)
    await stores.logs.producers.register_ledger(head.log_id, "app", 1, version, 7, METADATA)
    with pytest.raises(MetadataVersionError):
        await stores.logs.remove_log(head.log_id)
    assert list(await stores.logs.producers.registered(head.log_id, "app")) == [7]


async def test_members_of_a_queue_come_in_the_order_in_which_they_joined(
    world: World, stores: MetadataStores
) -> None:
    head = await new_log(stores)
    queue = stores.logs.queue(head.log_id)
    assert list(await queue.members()) == []
    other = MetadataStores.on(await world.session(), world.root).logs.queue(head.log_id)
    first, second, third = await queue.join("f"), await other.join("0"), await queue.join("5")
    await other.leave("unheard of")
    assert await other.members() == [first, second, third]
    waiting = asyncio.ensure_future(other.until_gone(first))
    await queue.leave(first)
    async with asyncio.timeout(20):
        assert await waiting
    assert await queue.members() == [second, third]


async def test_place_in_a_queue_ends_with_its_session_and_with_the_log(
    world: World, stores: MetadataStores
) -> None:
    head = await new_log(stores)
    session = await world.session()
    await MetadataStores.on(session, world.root).logs.queue(head.log_id).join("a")
    await stores.logs.queue(head.log_id).join("b")
    await session.close()
    await stores.logs.sync()
    (left,) = await stores.logs.queue(head.log_id).members()
    assert left.startswith("b-")
    found = await head_of(stores, head.log_id)
    await stores.logs.delete_log(replace(head, deleted_ms=5), found.version)
    await stores.logs.remove_log(head.log_id)
    assert await stores.logs.ids() == []
    with pytest.raises(MetadataError):
        await stores.logs.queue(head.log_id).join("c")
    assert await stores.logs.ids() == []


async def test_queue_of_a_log_of_an_earlier_release_is_made_by_the_first_that_joins(
    world: World, stores: MetadataStores
) -> None:
    head = await new_log(stores)
    tree = await world.session()
    await tree.delete(f"{world.root}-logs/ids/{head.log_id}/queue")
    await stores.logs.sync()
    name = await stores.logs.queue(head.log_id).join("a")
    assert await stores.logs.queue(head.log_id).members() == [name]


async def test_join_whose_reply_is_lost_is_found_by_its_token(
    world: World, stores: MetadataStores
) -> None:
    head = await new_log(stores)
    queue = stores.logs.queue(head.log_id)
    await queue.join("other")
    world.lose_next_reply(stores.tree)
    name = await queue.join("mine")
    assert (await queue.members())[1] == name
    assert len(await queue.members()) == 2


async def test_watcher_of_a_head_is_told_of_a_commit(world: World, stores: MetadataStores) -> None:
    head = await new_log(stores)
    other = await cluster(world)
    await other.logs.sync()
    changed = Signal()
    cancel = other.logs.watch_head(head.log_id, changed)
    seen = await head_of(other, head.log_id)
    write = WriteHead("9" * 32, replace(head, token="9" * 32), seen.version)
    await stores.logs.write_head(head.log_id, write)
    await changed.called()
    assert (await head_of(other, head.log_id)).value.token == "9" * 32
    cancel()


async def test_watcher_of_names_is_told_of_logs_that_come_and_go(
    world: World, stores: MetadataStores
) -> None:
    other = await cluster(world)
    changed = Signal()
    cancel = other.logs.watch_names(changed)
    head = await new_log(stores)
    while await other.logs.names() != ["flights"]:
        await changed.called()
    seen = await head_of(stores, head.log_id)
    await stores.logs.delete_log(replace(head, token="9" * 32, deleted_ms=1), seen.version)
    while await other.logs.names():
        await changed.called()
    cancel()
