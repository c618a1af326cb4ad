"""A client with real bookies and a real ZooKeeper."""

from __future__ import annotations

import threading
from concurrent.futures import as_completed, wait
from itertools import chain

import pytest

import ledgerlog_spark as ll
from ledgerlog_spark.errors import (
    LedgerFencedError,
    LedgerNotFoundError,
    LocalProtocolError,
    NotEnoughBookiesError,
    UnauthorizedError,
)
from ledgerlog_spark.model import LedgerState
from tests.fixtures.bookie_cluster import BookieCluster

pytestmark = [pytest.mark.zookeeper, pytest.mark.processes]


def test_what_was_appended_is_read_back_after_the_ledger_was_closed_and_opened_again(
    cluster: BookieCluster,
) -> None:
    large = bytes(range(256)) * 4096
    with cluster.connect() as client:
        ledger = client.create_ledger(custom_metadata={"made-by": b"a test"})
        assert ledger.append(b"first") == 0
        assert ledger.append_batch([b"%d" % number for number in range(1000)]) == range(1, 1001)
        assert ledger.append(large) == 1001
        assert ledger.append(b"") == 1002
        metadata = ledger.close()
        assert (metadata.state, metadata.last_entry_id) == (LedgerState.CLOSED, 1002)
        assert metadata.custom == {"made-by": b"a test"}
    with cluster.connect() as client:
        assert list(client.list_ledgers()) == [ledger.id]
        reader = client.open_ledger(ledger.id)
        payloads = [entry.payload for entry in reader.read()]
        assert payloads == [b"first", *(b"%d" % n for n in range(1000)), large, b""]
        assert reader.length == sum(map(len, payloads)) == metadata.length
        assert reader.read_entry(1001).payload == large
        client.delete_ledger(ledger.id)
        assert list(client.list_ledgers()) == []
        with pytest.raises(LedgerNotFoundError):
            client.open_ledger(ledger.id)


def test_bookies_killed_while_appending_are_replaced_and_every_acknowledged_entry_is_read_back(
    cluster: BookieCluster,
) -> None:
    cluster.start(1)
    with cluster.connect() as client:
        ledger = client.create_ledger()
        futures = [ledger.append_async(b"entry %d" % number) for number in range(5_000)]
        futures[0].result()  # else the first fragment itself would be replaced in place
        killed = ledger.metadata.last_fragment.ensemble[0]
        cluster.bookies[killed].kill()
        futures += [ledger.append_async(b"entry %d" % number) for number in range(5_000, 20_000)]
        assert [future.result() for future in futures] == list(range(20_000))
        # Two of three bookies are enough, so a close can precede the change. Write until the
        # change.
        written = 20_000
        while killed in ledger.metadata.last_fragment.ensemble and written < 40_000:
            assert ledger.append(b"entry %d" % written) == written
            written += 1
        metadata = ledger.close()
        assert len(metadata.fragments) == 2
        assert killed not in metadata.last_fragment.ensemble
        entries = list(client.open_ledger(ledger.id).read())
        assert [entry.payload for entry in entries] == [b"entry %d" % n for n in range(written)]


def test_the_ledger_of_a_dead_writer_is_sealed_with_all_that_it_acknowledged(
    cluster: BookieCluster,
) -> None:
    dead = cluster.connect()
    ledger = dead.create_ledger(password=b"secret")
    acknowledged = ledger.append_batch([b"x" * 100] * 500)
    dead.close()
    with cluster.connect() as client:
        sealed = client.seal(ledger.id, password=b"secret")
        assert sealed.state is LedgerState.CLOSED
        assert sealed.last_entry_id == acknowledged[-1]
        assert client.seal(ledger.id, password=b"secret") == sealed
        reader = client.open_ledger(ledger.id, password=b"secret")
        assert len(list(reader.read())) == 500


def test_of_two_writers_the_fenced_one_acknowledges_nothing_more(cluster: BookieCluster) -> None:
    with cluster.connect() as first, cluster.connect() as second:
        old = first.create_ledger()
        old.append(b"before")
        sealed = second.seal(old.id)
        new = second.create_ledger()
        with pytest.raises(LedgerFencedError) as failed:
            old.append(b"after")
        assert not failed.value.definite
        assert new.append(b"the new writer's") == 0
        assert [entry.payload for entry in second.open_ledger(old.id).read()] == [b"before"]
        assert sealed.last_entry_id == 0


def test_a_wrong_password_and_too_few_bookies_are_said_at_once(cluster: BookieCluster) -> None:
    with cluster.connect() as client:
        with pytest.raises(NotEnoughBookiesError) as few:
            client.create_ledger(ensemble_size=9, write_quorum=3, ack_quorum=2)
        assert few.value.wanted == 9
        # Bookies of other tests, which are away, may be named too: at most one in a write set.
        assert 3 <= few.value.available < 9
        ledger = client.create_ledger(password=b"secret")
        ledger.append(b"x")
        for call in (client.open_ledger, client.seal):
            with pytest.raises(UnauthorizedError):
                call(ledger.id, password=b"wrong")
        assert ledger.append(b"still mine") == 1


def test_entries_are_read_although_two_of_three_bookies_are_gone(cluster: BookieCluster) -> None:
    with cluster.connect(read_timeout_ms=2_000) as client:
        ledger = client.create_ledger(ack_quorum=3)
        ledger.append_batch([b"%d" % number for number in range(5_000)])
        ledger.close()
        for name in ("bookie-0", "bookie-1"):
            cluster.bookies[name].kill()
        reader = client.open_ledger(ledger.id)
        assert [entry.payload for entry in reader.read()] == [b"%d" % n for n in range(5_000)]


def test_several_threads_append_to_one_ledger_and_each_keeps_its_order(
    cluster: BookieCluster,
) -> None:
    with cluster.connect(backlog_entries_max=500) as client:
        ledger = client.create_ledger()
        ids: dict[int, list[int]] = {}

        def append(thread: int) -> None:
            futures = [ledger.append_async(b"%d %d" % (thread, n)) for n in range(3_000)]
            ids[thread] = [future.result() for future in futures]

        threads = [threading.Thread(target=append, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(found == sorted(found) for found in ids.values())
        assert sorted(chain.from_iterable(ids.values())) == list(range(12_000))
        ledger.close()
        entries = list(client.open_ledger(ledger.id).read())
        for number, found in ids.items():
            mine = [entries[entry_id].payload for entry_id in found]
            assert mine == [b"%d %d" % (number, n) for n in range(3_000)]


def test_futures_of_the_blocking_face_work_with_the_standard_library(
    cluster: BookieCluster,
) -> None:
    with cluster.connect() as client:
        ledger = client.create_ledger()
        called: list[int] = []
        futures = [ledger.append_async(b"x") for _ in range(100)]
        futures[7].add_done_callback(lambda future: called.append(future.result()))
        assert not futures[0].cancel()
        assert {future.result() for future in as_completed(futures, 20)} == set(range(100))
        assert not wait(futures, 20).not_done
        ledger.flush()
        assert called == [7]


def test_a_read_that_is_given_up_leaves_the_client_usable(cluster: BookieCluster) -> None:
    with cluster.connect() as client:
        ledger = client.create_ledger()
        ledger.append_batch([bytes(10_000)] * 5_000)
        ledger.close()
        reader = client.open_ledger(ledger.id)
        for entry in reader.read():
            if entry.entry_id == 10:
                break
        assert reader.read_entry(4_999).entry_id == 4_999
        reader.close()
        with pytest.raises(LocalProtocolError, match="open the ledger again"):
            reader.read_entry(0)


async def test_the_asyncio_face_appends_reads_and_seals(cluster: BookieCluster) -> None:
    async with await ll.aio.connect(cluster.uri) as client:
        ledger = await client.create_ledger()
        assert await ledger.append(b"a") == 0
        assert await ledger.append_batch([b"b", b"c"]) == range(1, 3)
        sealed = await client.seal(ledger.id)
        assert sealed.last_entry_id == 2
        reader = await client.open_ledger(ledger.id)
        assert [entry.payload async for entry in reader.read()] == [b"a", b"b", b"c"]
        assert [ledger_id async for ledger_id in client.list_ledgers()] == [ledger.id]
