"""The promises of `ZnodeTree`, in memory and on a real ZooKeeper."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from ledgerlog_spark.errors import (
    LedgerLogError,
    LocalProtocolError,
    MetadataUnavailableError,
    MetadataUnknownError,
    MetadataVersionError,
)
from ledgerlog_spark.metadata.tree import (
    NODE_SIZE_BYTES_MAX,
    CheckNode,
    Created,
    CreateNode,
    DeleteNode,
    NodeExistsError,
    NodeKind,
    NodeMissingError,
    NodeNotEmptyError,
    NodeOperation,
    SetNode,
    TransactionFailedError,
    ZnodeTree,
)
from ledgerlog_spark.model import Version
from tests.fixtures.metadata_worlds import Signal, World

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


async def test_created_node_reads_back_at_its_first_version(world: World, tree: ZnodeTree) -> None:
    path = f"{world.root}/a"
    created = await tree.create(path, b"data")
    assert created.path == path
    record = await tree.get(path)
    assert (record.value, record.version) == (b"data", created.version)
    stat = await tree.stat(path)
    assert stat is not None
    assert (stat.version, stat.owner, stat.size_bytes, stat.children_count) == (
        created.version, 0, 4, 0,
    )  # fmt: skip
    assert stat.created_ms == stat.changed_ms > 1_600_000_000_000


async def test_each_write_raises_the_version_number_by_one(world: World, tree: ZnodeTree) -> None:
    path = f"{world.root}/a"
    version = (await tree.create(path)).version
    for expected in range(1, 4):
        version = await tree.set(path, b"%d" % expected, version)
        assert version.number == expected
    assert (await tree.get(path)).version == version


async def test_write_at_an_old_version_is_refused_and_changes_nothing(
    world: World, tree: ZnodeTree
) -> None:
    path = f"{world.root}/a"
    first = (await tree.create(path, b"0")).version
    second = await tree.set(path, b"1", first)
    with pytest.raises(MetadataVersionError) as refused:
        await tree.set(path, b"2", first)
    assert refused.value.definite
    with pytest.raises(MetadataVersionError):
        await tree.delete(path, first)
    record = await tree.get(path)
    assert (record.value, record.version) == (b"1", second)


async def test_write_without_a_version_replaces_whatever_is_there(
    world: World, tree: ZnodeTree
) -> None:
    path = f"{world.root}/a"
    await tree.create(path, b"0")
    assert (await tree.set(path, b"1", None)).number == 1
    await tree.delete(path)
    assert await tree.stat(path) is None


async def test_old_version_never_matches_a_path_that_was_deleted_and_made_again(
    world: World, tree: ZnodeTree
) -> None:
    path = f"{world.root}/a"
    old = (await tree.create(path, b"old")).version
    await tree.delete(path, old)
    new = (await tree.create(path, b"new")).version
    assert old.number == new.number
    assert old != new
    with pytest.raises(MetadataVersionError):
        await tree.set(path, b"lost", old)
    with pytest.raises(MetadataVersionError):
        await tree.delete(path, old)
    assert (await tree.get(path)).value == b"new"


async def test_missing_nodes_are_named_in_the_error(world: World, tree: ZnodeTree) -> None:
    path = f"{world.root}/missing"
    version = Version(1, 0)
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: tree.get(path),
        lambda: tree.children(path),
        lambda: tree.set(path, b"", None),
        lambda: tree.set(path, b"", version),
        lambda: tree.delete(path),
        lambda: tree.delete(path, version),
        lambda: tree.create(f"{path}/below"),
    ]
    for call in calls:
        with pytest.raises(NodeMissingError, match=path):
            await call()
    assert await tree.stat(path) is None


async def test_path_that_is_taken_cannot_be_created(world: World, tree: ZnodeTree) -> None:
    path = f"{world.root}/a"
    await tree.create(path, b"first")
    with pytest.raises(NodeExistsError):
        await tree.create(path, b"second")
    assert (await tree.get(path)).value == b"first"


async def test_node_with_children_cannot_be_deleted(world: World, tree: ZnodeTree) -> None:
    await tree.create(f"{world.root}/a/b", make_parents=True)
    with pytest.raises(NodeNotEmptyError):
        await tree.delete(f"{world.root}/a")
    assert await tree.children(f"{world.root}/a") == ["b"]


async def test_children_come_sorted(world: World, tree: ZnodeTree) -> None:
    for name in ("c", "a", "b"):
        await tree.create(f"{world.root}/{name}")
    await tree.create(f"{world.root}/b/deeper")
    assert await tree.children(world.root) == ["a", "b", "c"]


async def test_sequential_names_count_creations_and_not_deletions(
    world: World, tree: ZnodeTree
) -> None:
    prefix = f"{world.root}/s-"
    first = await tree.create(prefix, kind=NodeKind.EPHEMERAL_SEQUENTIAL)
    await tree.delete(first.path)
    await tree.create(f"{world.root}/other")
    third = await tree.create(prefix, kind=NodeKind.EPHEMERAL_SEQUENTIAL)
    assert [first.path, third.path] == [f"{prefix}0000000000", f"{prefix}0000000002"]


async def test_ephemeral_node_goes_when_its_session_is_closed(
    world: World, tree: ZnodeTree
) -> None:
    other = await world.session()
    await other.create(f"{world.root}/e", kind=NodeKind.EPHEMERAL)
    await tree.sync()
    stat = await tree.stat(f"{world.root}/e")
    assert stat is not None
    assert stat.owner == other.session_id != 0
    await other.close()
    await tree.sync()
    assert await tree.stat(f"{world.root}/e") is None


async def test_ephemeral_node_has_no_children(world: World, tree: ZnodeTree) -> None:
    await tree.create(f"{world.root}/e", kind=NodeKind.EPHEMERAL)
    with pytest.raises(LocalProtocolError):
        await tree.create(f"{world.root}/e/below")


async def test_expired_session_loses_its_nodes_and_is_replaced(
    world: World, tree: ZnodeTree
) -> None:
    before = tree.session_id
    await tree.create(f"{world.root}/e", kind=NodeKind.EPHEMERAL)
    replaced = Signal()
    tree.watch_session(replaced)
    await world.expire(tree)
    await replaced.called()
    assert tree.session_id not in (0, before)
    assert await tree.stat(f"{world.root}/e") is None
    await tree.create(f"{world.root}/e", kind=NodeKind.EPHEMERAL)


async def test_session_ended_by_its_secret_loses_its_nodes_and_its_owner_gets_another(
    world: World, tree: ZnodeTree
) -> None:
    other = await world.session()
    await other.create(f"{world.root}/e", kind=NodeKind.EPHEMERAL)
    await tree.create(f"{world.root}/mine", kind=NodeKind.EPHEMERAL)
    before, replaced = other.session_id, Signal()
    other.watch_session(replaced)
    await tree.end_session(other.session_secret)
    await tree.sync()
    assert await tree.children(world.root) == ["mine"]
    await replaced.called()
    assert other.session_id not in (0, before)


async def test_ending_a_session_that_ended_before_changes_nothing(
    world: World, tree: ZnodeTree
) -> None:
    other = await world.session()
    secret = other.session_secret
    await other.close()
    await tree.create(f"{world.root}/mine", kind=NodeKind.EPHEMERAL)
    mine = tree.session_id
    await tree.end_session(secret)
    await tree.sync()
    assert tree.session_id == mine
    assert await tree.children(world.root) == ["mine"]


async def test_transaction_carries_out_all_operations_in_order(
    world: World, tree: ZnodeTree
) -> None:
    root = world.root
    kept = (await tree.create(f"{root}/kept")).version
    changed = (await tree.create(f"{root}/changed")).version
    gone = (await tree.create(f"{root}/gone")).version
    outcomes = await tree.transact(
        [
            CheckNode(f"{root}/kept", kept),
            CreateNode(f"{root}/parent", b"p"),
            CreateNode(f"{root}/parent/s-", b"c", NodeKind.EPHEMERAL_SEQUENTIAL),
            SetNode(f"{root}/changed", b"2", changed),
            DeleteNode(f"{root}/gone", gone),
        ]
    )
    assert outcomes[0] is None
    assert isinstance(outcomes[1], Created)
    assert isinstance(outcomes[2], Created)
    assert outcomes[2].path == f"{root}/parent/s-0000000000"
    assert outcomes[3] == Version(changed.incarnation, 1)
    assert outcomes[4] is None
    for created in (outcomes[1], outcomes[2]):
        assert (await tree.get(created.path)).version == created.version
    assert await tree.children(root) == ["changed", "kept", "parent"]


async def test_failed_transaction_changes_nothing_and_names_its_culprit(
    world: World, tree: ZnodeTree
) -> None:
    root = world.root
    version = (await tree.create(f"{root}/a", b"0")).version
    stale = Version(version.incarnation, 7)
    culprits: list[tuple[NodeOperation, type[LedgerLogError]]] = [
        (CheckNode(f"{root}/a", stale), MetadataVersionError),
        (SetNode(f"{root}/a", b"1", stale), MetadataVersionError),
        (DeleteNode(f"{root}/missing"), NodeMissingError),
        (CreateNode(f"{root}/a"), NodeExistsError),
        (CreateNode(f"{root}/x/y"), NodeMissingError),
    ]
    for culprit, cause in culprits:
        with pytest.raises(TransactionFailedError) as failed:
            await tree.transact(
                [CreateNode(f"{root}/b"), SetNode(f"{root}/a", b"2", version), culprit,
                 CreateNode(f"{root}/c")]
            )  # fmt: skip
        assert failed.value.index == 2
        assert isinstance(failed.value.cause, cause)
        assert failed.value.definite
        assert await tree.children(root) == ["a"]
        assert (await tree.get(f"{root}/a")).version == version


async def test_transaction_without_operations_does_nothing(tree: ZnodeTree) -> None:
    assert await tree.transact([]) == []


async def test_one_of_many_writers_at_one_version_wins(world: World, tree: ZnodeTree) -> None:
    path = f"{world.root}/a"
    version = (await tree.create(path)).version
    sessions = [tree, await world.session()]
    outcomes = await asyncio.gather(
        *(sessions[i % 2].set(path, b"%d" % i, version) for i in range(20)),
        return_exceptions=True,
    )
    winners = [i for i, outcome in enumerate(outcomes) if isinstance(outcome, Version)]
    assert len(winners) == 1
    assert all(isinstance(o, Version | MetadataVersionError) for o in outcomes)
    await tree.sync()
    assert (await tree.get(path)).value == b"%d" % winners[0]


async def test_sync_shows_what_another_session_wrote_before(world: World, tree: ZnodeTree) -> None:
    other = await world.session()
    for n in range(5):
        await other.create(f"{world.root}/n{n}")
        await tree.sync(world.root)
        assert (await tree.children(world.root))[-1] == f"n{n}"


async def test_lost_reply_is_unknown_and_the_write_happened(world: World, tree: ZnodeTree) -> None:
    path = f"{world.root}/a"
    version = (await tree.create(path, b"before")).version
    world.lose_next_reply(tree)
    with pytest.raises(MetadataUnknownError) as unknown:
        await tree.set(path, b"after", version)
    assert not unknown.value.definite
    await tree.sync()
    assert (await tree.get(path)).value == b"after"


async def test_lost_request_is_unknown_and_the_write_did_not_happen(
    world: World, tree: ZnodeTree
) -> None:
    path = f"{world.root}/a"
    world.lose_next_request(tree)
    with pytest.raises(MetadataUnknownError):
        await tree.transact([CreateNode(path)])
    await tree.sync()
    assert await tree.stat(path) is None


async def test_refusal_whose_reply_is_lost_is_unknown(world: World, tree: ZnodeTree) -> None:
    path = f"{world.root}/a"
    await tree.create(path)
    world.lose_next_reply(tree)
    with pytest.raises(MetadataUnknownError):
        await tree.create(path)


async def test_watch_is_called_when_the_node_is_made_changed_and_deleted(
    world: World, tree: ZnodeTree
) -> None:
    path = f"{world.root}/a"
    other = await world.session()
    changed = Signal()
    other.watch(path, changed)
    assert await other.stat(path) is None
    await tree.create(path, b"0")
    await changed.called()
    assert (await other.get(path)).value == b"0"
    await tree.set(path, b"1", None)
    await changed.called()
    assert (await other.get(path)).value == b"1"
    await tree.delete(path)
    await changed.called()
    assert await other.stat(path) is None


async def test_watch_of_children_is_called_when_they_come_and_go(
    world: World, tree: ZnodeTree
) -> None:
    other = await world.session()
    changed = Signal()
    other.watch_children(world.root, changed)
    assert await other.children(world.root) == []
    await tree.create(f"{world.root}/a")
    await changed.called()
    assert await other.children(world.root) == ["a"]
    await tree.delete(f"{world.root}/a")
    await changed.called()
    assert await other.children(world.root) == []


async def test_watch_of_children_begins_before_their_parent_does(
    world: World, tree: ZnodeTree
) -> None:
    parent = f"{world.root}/later"
    changed = Signal()
    tree.watch_children(parent, changed)
    await tree.create(parent)
    await tree.create(f"{parent}/a")
    while await tree.stat(f"{parent}/a") is None or not changed.count:
        await changed.called()
    before = changed.count
    await tree.stat(parent)
    await tree.create(f"{parent}/b")
    while changed.count == before:
        await changed.called()


async def test_watch_lasts_through_many_changes(world: World, tree: ZnodeTree) -> None:
    """If the last read state is not the final state, another call follows."""
    path = f"{world.root}/a"
    other = await world.session()
    await tree.create(path, b"0")
    changed = Signal()
    other.watch(path, changed)
    seen = (await other.get(path)).value

    async def write() -> None:
        for n in range(1, 51):
            await tree.set(path, b"%d" % n, None)

    writer = asyncio.create_task(write())
    while seen != b"50":
        await changed.called()
        seen = (await other.get(path)).value
    await writer


async def test_cancelled_watch_is_not_called(world: World, tree: ZnodeTree) -> None:
    path = f"{world.root}/a"
    cancelled, kept = Signal(), Signal()
    cancel = tree.watch(path, cancelled)
    tree.watch(path, kept)
    cancel()
    cancel()
    await tree.create(path)
    await kept.called()
    assert cancelled.count == 0


async def test_wait_for_the_end_of_a_node_ends_with_the_node(world: World, tree: ZnodeTree) -> None:
    path = f"{world.root}/a"
    other = await world.session()
    assert await other.until_gone(path)
    await tree.create(path)
    await other.sync()
    waiting = asyncio.ensure_future(other.until_gone(path))
    await asyncio.sleep(0)  # its request is the first one
    await other.stat(path)
    assert not waiting.done()
    await tree.delete(path)
    async with asyncio.timeout(20):
        assert await waiting


async def test_wait_for_the_end_of_a_node_ends_with_a_change_and_with_the_own_session(
    world: World, tree: ZnodeTree
) -> None:
    path = f"{world.root}/a"
    await tree.create(path)
    other = await world.session()
    waiting = asyncio.ensure_future(other.until_gone(path))
    await asyncio.sleep(0)  # its request is the first one
    await other.stat(path)
    await tree.set(path, b"1", None)
    async with asyncio.timeout(20):
        assert not await waiting
    waiting = asyncio.ensure_future(other.until_gone(path))
    await asyncio.sleep(0)  # its request is the first one
    await other.stat(path)
    await world.expire(other)
    async with asyncio.timeout(20):
        assert not await waiting


async def test_wait_for_the_end_of_a_node_ends_with_the_node_of_a_lost_session(
    world: World, tree: ZnodeTree
) -> None:
    path = f"{world.root}/a"
    owner = await world.session()
    await owner.create(path, kind=NodeKind.EPHEMERAL)
    await tree.sync()
    waiting = asyncio.ensure_future(tree.until_gone(path))
    await asyncio.sleep(0)  # its request is the first one
    await tree.stat(path)
    await world.expire(owner)
    async with asyncio.timeout(20):
        assert await waiting


async def test_watches_are_called_after_the_session_was_replaced(
    world: World, tree: ZnodeTree
) -> None:
    await tree.create(f"{world.root}/a")
    node, children = Signal(), Signal()
    tree.watch(f"{world.root}/a", node)
    tree.watch_children(world.root, children)
    await world.expire(tree)
    await node.called()
    await children.called()
    await tree.delete(f"{world.root}/a")
    await node.called()
    await children.called()


@pytest.mark.parametrize("path", ["", "a", "/a/", "//a", "/a//b", "/a/../b", "/a/."])
async def test_malformed_path_is_refused_before_anything_is_sent(
    tree: ZnodeTree, path: str
) -> None:
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: tree.get(path),
        lambda: tree.stat(path),
        lambda: tree.create(path),
        lambda: tree.set(path, b"", None),
        lambda: tree.delete(path),
        lambda: tree.transact([CreateNode(path)]),
        lambda: tree.sync(path),
    ]
    for call in calls:
        with pytest.raises(LocalProtocolError, match="not an absolute path"):
            await call()
    with pytest.raises(LocalProtocolError):
        tree.watch(path, Signal())


async def test_data_that_zookeeper_would_hang_up_on_is_refused(
    world: World, tree: ZnodeTree
) -> None:
    path = f"{world.root}/a"
    fits = bytes(NODE_SIZE_BYTES_MAX - len(path))
    with pytest.raises(LocalProtocolError, match="1,000,000"):
        await tree.create(path, fits + bytes(len(path) + 1))
    with pytest.raises(LocalProtocolError, match="1,000,000"):
        await tree.transact([CreateNode(path, fits), CreateNode(f"{path}b", b"one")])
    await tree.transact([CreateNode(path, fits)])
    await tree.set(path, fits, None)
    assert (await tree.get(path)).value == fits


async def test_closed_session_says_so_and_may_be_closed_again(
    world: World, tree: ZnodeTree
) -> None:
    await tree.close()
    await tree.close()
    for call in (tree.get, tree.create, tree.sync):
        with pytest.raises(MetadataUnavailableError, match="closed") as closed:
            await call(world.root)
        assert not closed.value.retriable
