"""The fakes for users' tests."""

from __future__ import annotations

import asyncio

import pytest

from ledgerlog_spark.client.blocking.loop_thread import loop_thread
from ledgerlog_spark.errors import EntryUnknownError, NotEnoughBookiesError
from ledgerlog_spark.testing import MemoryCluster, connect_in_memory
from tests.fixtures.autojump import run_in_virtual_time


def test_blocking_client_of_a_cluster_in_memory() -> None:
    with connect_in_memory() as client:
        with client.create_ledger() as ledger:
            assert ledger.append(b"one") == 0
            assert ledger.append_batch([b"two", b"three"]) == range(1, 3)
        assert [each.payload for each in client.open_ledger(ledger.id).read()] == [
            b"one", b"two", b"three",
        ]  # fmt: skip
        with client.open_log("orders", lead=True) as leader:
            leader.append_many([b"a", b"b"])
        assert [each.value for each in client.open_log("orders").read()] == [b"a", b"b"]
        assert list(client.logs.names()) == ["orders"]
    assert loop_thread().call(_keepers()) == []


async def _keepers() -> list[str]:
    """The tasks that keep the bookies of a cluster registered."""
    return [repr(task) for task in asyncio.all_tasks() if "Announcement" in repr(task)]


def test_two_clusters_in_memory_share_nothing() -> None:
    with connect_in_memory() as one, connect_in_memory() as other:
        one.open_log("orders", lead=True).close()
        assert list(other.logs.names()) == []


def test_stopped_bookies_keep_their_entries() -> None:
    async def inside() -> None:
        async with MemoryCluster(3) as cluster:
            client = cluster.client()
            ledger = await client.create_ledger(ack_quorum=3)
            await ledger.append(b"kept")
            await ledger.close()
            for bookie_id in list(cluster.bookies):
                await cluster.stop_bookie(bookie_id)
            with pytest.raises(NotEnoughBookiesError):
                await client.create_ledger()
            reader = await client.open_ledger(ledger.id)
            with pytest.raises(EntryUnknownError):
                await reader.read_entry(0)
            for number in range(4):
                await cluster.start_bookie(f"bookie-{number}")
            assert (await reader.read_entry(0)).payload == b"kept"
            assert not cluster.bookies["bookie-3"].ledgers

    run_in_virtual_time(inside())
