"""The failures of a tree in memory on command. The contract suite tests its promises."""

from __future__ import annotations

import pytest

from ledgerlog_spark.errors import MetadataUnavailableError, MetadataUnknownError
from ledgerlog_spark.metadata.tree import NodeKind
from ledgerlog_spark.testing.memory.nodes import MemoryNodes
from ledgerlog_spark.testing.memory.tree import Fault, MemoryTree


async def test_write_that_was_not_sent_is_definite() -> None:
    tree = MemoryTree()
    tree.inject(Fault.NOT_SENT)
    with pytest.raises(MetadataUnavailableError) as away:
        await tree.create("/a")
    assert away.value.definite
    assert await tree.stat("/a") is None
    await tree.create("/a")


async def test_delayed_write_lands_when_it_is_delivered() -> None:
    tree = MemoryTree()
    version = (await tree.create("/a", b"0")).version
    tree.inject(Fault.DELAYED)
    with pytest.raises(MetadataUnknownError):
        await tree.set("/a", b"1", version)
    assert (await tree.get("/a")).value == b"0"
    tree.deliver_delayed()
    assert (await tree.get("/a")).value == b"1"


async def test_delayed_write_at_an_old_version_changes_nothing() -> None:
    tree = MemoryTree()
    version = (await tree.create("/a", b"0")).version
    tree.inject(Fault.DELAYED)
    with pytest.raises(MetadataUnknownError):
        await tree.set("/a", b"late", version)
    await tree.set("/a", b"1", version)
    tree.deliver_delayed()
    assert (await tree.get("/a")).value == b"1"


async def test_delayed_write_of_an_expired_session_never_lands() -> None:
    tree = MemoryTree()
    tree.inject(Fault.DELAYED)
    with pytest.raises(MetadataUnknownError):
        await tree.create("/a")
    tree.expire_session()
    tree.deliver_delayed()
    assert await tree.stat("/a") is None


async def test_disconnected_session_is_unavailable_and_keeps_its_nodes() -> None:
    nodes = MemoryNodes()
    tree, other = MemoryTree(nodes), MemoryTree(nodes)
    await tree.create("/e", kind=NodeKind.EPHEMERAL)
    tree.disconnect()
    for call in (tree.get, tree.create, tree.sync):
        with pytest.raises(MetadataUnavailableError):
            await call("/e")
    assert await other.stat("/e") is not None
    tree.connect()
    assert await tree.stat("/e") is not None


async def test_own_writes_are_seen_even_while_reads_are_held() -> None:
    nodes = MemoryNodes()
    tree, other = MemoryTree(nodes), MemoryTree(nodes)
    tree.hold_reads()
    await other.create("/theirs")
    assert await tree.children("/") == []
    await tree.create("/ours")
    assert await tree.children("/") == ["ours", "theirs"]
