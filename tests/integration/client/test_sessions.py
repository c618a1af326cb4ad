"""All sessions with a real ZooKeeper end under load: bookies and clients go on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest

from ledgerlog_spark.local.zookeeper import ZooKeeperProcess
from ledgerlog_spark.log.clients import BlockingLogClient
from ledgerlog_spark.metadata.stores import open_metadata
from ledgerlog_spark.metadata.tree import ZnodeTree
from tests.fixtures.bookie_cluster import BookieCluster
from tests.fixtures.bookie_process import BookieProcess
from tests.fixtures.owners import owners

pytestmark = [pytest.mark.zookeeper, pytest.mark.processes]

PATIENCE_SECONDS = 40


def tree_of(client: BlockingLogClient) -> ZnodeTree:
    assert client._client is not None
    leases = client._client.services.leases
    assert leases is not None
    return leases._tree


async def end_all(cluster: BookieCluster, client: BlockingLogClient) -> None:
    """End the sessions of all bookies and of the client, and wait until all are replaced."""
    stores = await open_metadata(cluster.uri)
    changed = asyncio.Event()
    cancel = stores.registration.watch_writable(changed.set)
    names = list(cluster.bookies)
    before = await owners(stores, names)
    assert set(before) == set(names)
    session_id = tree_of(client).session_id
    secrets = [
        bytes.fromhex(json.loads((bookie.directory / "SESSION").read_text())["secret"])
        for bookie in cluster.bookies.values()
    ]
    for secret in (*secrets, tree_of(client).session_secret):
        await stores.tree.end_session(secret)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            changed.clear()
            now = await owners(stores, names)
            if set(now) == set(names) and not set(now.values()) & set(before.values()):
                break
            await changed.wait()
        while tree_of(client).session_id == session_id:
            await asyncio.to_thread(client.list_ledgers)  # waits for an answer of the store
    cancel()
    await stores.close()


def test_writers_and_bookies_go_on_after_all_sessions_have_ended(
    own_zookeeper: ZooKeeperProcess, make_bookie: Callable[..., BookieProcess]
) -> None:
    cluster = BookieCluster(make_bookie, own_zookeeper.service_uri)
    cluster.start(4)
    with cluster.connect() as client:
        ledger = client.create_ledger(ack_quorum=3)  # an append needs the ensemble change
        assert ledger.append_batch([b"before"] * 10) == range(10)
        for number in range(1, 3):
            asyncio.run(end_all(cluster, client))
            first = 10 * number
            assert ledger.append_batch([b"after"] * 10) == range(first, first + 10)
        # The new sessions work: an ensemble change, a close and a new ledger need them.
        (name,) = {*client.ledger_metadata(ledger.id).last_fragment.ensemble[:1]}
        cluster.bookies[name].kill()
        assert ledger.append_batch([b"changed"] * 10) == range(30, 40)
        assert ledger.close().last_entry_id == 39
        assert name not in client.ledger_metadata(ledger.id).last_fragment.ensemble
        other = client.create_ledger()
        assert other.append(b"new") == 0
        assert other.close().last_entry_id == 0
        assert len(list(client.open_ledger(ledger.id).read())) == 40
