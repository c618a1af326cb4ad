"""Sessions, stores and errors during failures of a real ZooKeeper."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING

import pytest

from ledgerlog_spark.errors import (
    ConfigurationError,
    MetadataFormatError,
    MetadataUnavailableError,
    MetadataUnknownError,
    MetadataVersionError,
)
from ledgerlog_spark.metadata.ledgers.layout import LONG_HIERARCHICAL
from ledgerlog_spark.metadata.stores import MetadataStores, open_metadata
from ledgerlog_spark.metadata.zookeeper.session import ZookeeperSession
from ledgerlog_spark.model import BookieInfo, Fragment, LedgerMetadata, Quorum
from tests.fixtures.metadata_worlds import PATIENCE_SECONDS, Signal, ZookeeperWorld
from tests.fixtures.ports import free_port

if TYPE_CHECKING:
    from ledgerlog_spark.local.zookeeper import ZooKeeperProcess

pytestmark = pytest.mark.zookeeper

METADATA = LedgerMetadata(
    quorum=Quorum(1, 1, 1), fragments=(Fragment(0, ("127.0.0.1:3181",)),), token=77
)


async def opened(process: ZooKeeperProcess) -> MetadataStores:
    stores = await open_metadata(
        process.service_uri, session_timeout_ms=8_000, request_timeout_ms=15_000
    )
    await stores.initialize()
    return stores


async def test_reads_outlive_a_broken_connection(
    zookeeper: ZooKeeperProcess, ledgers_root: str
) -> None:
    world = ZookeeperWorld(ledgers_root, zookeeper.port)
    tree = await world.session()
    await tree.create(ledgers_root, make_parents=True)
    session = tree.session_id
    for n in range(5):
        await tree.create(f"{ledgers_root}/n{n}")
        world.cut(tree)
        assert len(await tree.children(ledgers_root)) == n + 1
        await tree.sync()
    assert tree.session_id == session
    await world.close()


async def test_watches_outlive_a_broken_connection(
    zookeeper: ZooKeeperProcess, ledgers_root: str
) -> None:
    world = ZookeeperWorld(ledgers_root, zookeeper.port)
    tree, other = await world.session(), await world.session()
    await tree.create(ledgers_root, make_parents=True)
    changed = Signal()
    tree.watch_children(ledgers_root, changed)
    world.cut(tree)
    await other.create(f"{ledgers_root}/a")
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await tree.children(ledgers_root) != ["a"]:
            await changed.called()
    await world.close()


async def test_nothing_listening_is_unavailable_in_time_and_says_where() -> None:
    port = free_port()
    with pytest.raises(MetadataUnavailableError, match=f"127.0.0.1:{port}") as away:
        await open_metadata(f"zk://127.0.0.1:{port}/ledgers", connect_timeout_ms=300)
    assert away.value.definite
    assert away.value.retriable
    assert "doctor" in str(away.value)


async def test_host_that_does_not_resolve_is_unavailable() -> None:
    with pytest.raises(MetadataUnavailableError, match=r"nowhere\.invalid:2181"):
        await open_metadata("zk://nowhere.invalid/ledgers", connect_timeout_ms=300)


def with_timeout(stores: MetadataStores, seconds: float) -> None:
    """Set the time that each further request may take."""
    assert isinstance(stores.tree, ZookeeperSession)
    stores.tree._request_timeout = seconds


async def test_killed_server_makes_requests_fail_in_time_and_restart_brings_all_back(
    own_zookeeper: ZooKeeperProcess,
) -> None:
    stores = await opened(own_zookeeper)
    patient = await opened(own_zookeeper)
    created = await stores.ledgers.create(5, METADATA)
    await stores.registration.register(BookieInfo("bookie-0", "127.0.0.1", 3181))
    with_timeout(stores, 1)
    own_zookeeper.kill()
    failures = await asyncio.gather(
        stores.ledgers.load(5),
        stores.ledgers.sync(),
        stores.ledgers.write(5, METADATA.in_recovery(), created.version),
        return_exceptions=True,
    )
    assert isinstance(failures[0], MetadataUnavailableError)
    assert isinstance(failures[1], MetadataUnavailableError)
    assert isinstance(failures[2], MetadataUnavailableError | MetadataUnknownError)
    waiting = asyncio.create_task(patient.ledgers.load(5))
    await asyncio.to_thread(own_zookeeper.start)
    assert await waiting == created
    assert await patient.registration.writable() == ["bookie-0"]
    await patient.close()
    await stores.close()


async def test_paused_server_leaves_a_write_unknown_until_it_is_settled(
    own_zookeeper: ZooKeeperProcess,
) -> None:
    stores = await opened(own_zookeeper)
    created = await stores.ledgers.create(5, METADATA)
    with_timeout(stores, 2)
    pid = own_zookeeper.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    stopped = os.WSTOPPED | os.WEXITED | os.WNOWAIT
    await asyncio.to_thread(os.waitid, os.P_PID, pid, stopped)  # all its threads stand
    with pytest.raises(MetadataUnavailableError):
        await stores.ledgers.load(5)
    with pytest.raises(MetadataUnknownError):
        # After the read of the incarnation, which a silent server would not answer either.
        await stores.tree.set(stores.ledgers.path(5), b"", None)
    os.kill(pid, signal.SIGCONT)
    with_timeout(stores, PATIENCE_SECONDS)
    await stores.ledgers.sync()
    found = await stores.tree.get(stores.ledgers.path(5))
    assert (found.value, found.version.number) == (b"", created.version.number + 1)
    with pytest.raises(MetadataVersionError):
        await stores.ledgers.write(5, METADATA.in_recovery(), created.version)
    await stores.close()


async def test_close_ends_while_the_server_is_away(own_zookeeper: ZooKeeperProcess) -> None:
    stores = await opened(own_zookeeper)
    own_zookeeper.kill()
    waiting = asyncio.create_task(stores.ledgers.load(5))
    await asyncio.sleep(0)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await stores.close()
        with pytest.raises(MetadataUnavailableError):
            await waiting


async def test_bookie_is_announced_by_its_present_session_after_the_server_was_away(
    own_zookeeper: ZooKeeperProcess,
) -> None:
    """This holds whether or not its session has ended."""
    bookie = await open_metadata(own_zookeeper.service_uri, session_timeout_ms=1_000)
    reader = await opened(own_zookeeper)
    await bookie.registration.register(BookieInfo("bookie-0", "127.0.0.1", 3181))
    own_zookeeper.kill()
    await asyncio.to_thread(own_zookeeper.start)
    changed = Signal()
    reader.tree.watch("/ledgers/available/bookie-0", changed)
    bookie.tree.watch_session(changed)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            await bookie.tree.sync()
            await reader.tree.sync()
            stat = await reader.tree.stat("/ledgers/available/bookie-0")
            if stat is not None and stat.owner == bookie.tree.session_id:
                break
            await changed.called()
    await reader.close()
    await bookie.close()


async def test_layout_of_the_cluster_is_taken_and_another_refused(
    zookeeper: ZooKeeperProcess, ledgers_root: str
) -> None:
    hosts = zookeeper.connect_string
    made = await open_metadata(f"zk+longhierarchical://{hosts}{ledgers_root}")
    await made.initialize()
    await made.close()
    for scheme in ("zk", "zk+longhierarchical"):
        found = await open_metadata(f"{scheme}://{hosts}{ledgers_root}")
        assert found.layout == LONG_HIERARCHICAL
        await found.close()
    with pytest.raises(ConfigurationError, match="LongHierarchical"):
        await open_metadata(f"zk+hierarchical://{hosts}{ledgers_root}")


async def test_layout_that_only_apache_reads_is_refused_at_opening(
    zookeeper: ZooKeeperProcess, ledgers_root: str
) -> None:
    tree = await ZookeeperSession.connect(zookeeper.connect_string)
    for record in (b"nonsense", b"2\norg.apache.bookkeeper.meta.MSLedgerManagerFactory:1"):
        await tree.create(f"{ledgers_root}/LAYOUT", record, make_parents=True)
        with pytest.raises(MetadataFormatError, match="LAYOUT"):
            await open_metadata(f"zk://{zookeeper.connect_string}{ledgers_root}")
        await tree.delete(f"{ledgers_root}/LAYOUT")
    await tree.close()
