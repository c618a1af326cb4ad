"""Leader logs on real bookies and a real ZooKeeper, from one process and from several threads."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import pytest

import ledgerlog_spark as ll
from ledgerlog_spark.errors import (
    ConfigurationError,
    LeaderDeposedError,
    LocalProtocolError,
    LogKindError,
    LogNotFoundError,
    PositionNotAvailableError,
)
from ledgerlog_spark.log.blocking.logs import BlockingLogs
from tests.fixtures.bookie_cluster import BookieCluster
from tests.integration.leader.conftest import PATIENCE_SECONDS, Tailing, of

APPENDS_UNTIL_TOLD_MAX = 20_000

pytestmark = [pytest.mark.zookeeper, pytest.mark.processes]


def test_positions_survive_rolls_a_new_leader_and_truncation(cluster: BookieCluster) -> None:
    with cluster.connect() as client:
        log = client.open_log("orders", lead=True)
        first = log.append(b"record 0")
        many = log.append_many(of(1, 1000))
        log.roll()
        assert log.append(b"record 1000").offset == 1000
        assert log.close() == 1001
    with cluster.connect() as client:
        with client.open_log("orders", lead=True) as log:
            last = log.append(b"record 1001")
            assert [record.value for record in client.open_log("orders").read(many[9], 20)] == (
                of(10, 20)
            )
            log.truncate(many[499])
        reader = client.open_log("orders")
        records = list(reader.read())
        assert [record.value for record in records] == of(500, 1002)
        assert [record.position for record in records[:500]] == list(many[499:])
        assert records[-1].position == last > first
        with pytest.raises(PositionNotAvailableError, match="oldest position is 500"):
            list(reader.read(first))
        assert reader.state().head.open_ledgers == ()


def test_last_record_of_an_idle_leader_is_seen_by_another_client_without_a_later_append(
    cluster: BookieCluster,
) -> None:
    with cluster.connect() as writing, cluster.connect() as reading:
        log = writing.open_log("orders", lead=True)
        tailing = Tailing(reading.open_log("orders").tail(0))
        for number in range(5):
            log.append(b"record %d" % number)
            assert tailing.has(number + 1) == of(0, number + 1)
        log.append_many(of(5, 3000))
        assert tailing.has(3000) == of(0, 3000)
        reading.close()
        tailing.ends()
        log.close()


def test_new_leader_takes_over_and_the_old_one_is_told_what_is_safe(
    cluster: BookieCluster,
) -> None:
    with cluster.connect() as one, cluster.connect() as other:
        old = one.open_log("orders", lead=True)
        old.append_many(of(0, 100))
        new = other.open_log("orders", lead=True)
        with pytest.raises(LeaderDeposedError) as caught:
            old.append(b"lost")
        assert caught.value.end_offset == 100
        with pytest.raises(LeaderDeposedError) as caught:
            old.append_many([b"lost too"])
        assert caught.value.definite
        assert new.append(b"record 100").offset == 100
        assert new.close() == 101
        assert [record.value for record in other.open_log("orders").read()] == of(0, 101)
        with pytest.raises(LeaderDeposedError):
            old.close()


def test_leader_of_a_deleted_log_is_told_and_never_writes_to_the_next_one_of_its_name(
    cluster: BookieCluster,
) -> None:
    with cluster.connect() as one, cluster.connect() as other:
        old = one.open_log("orders", lead=True)
        old.append_many(of(0, 100))
        BlockingLogs(other).delete("orders")
        new = other.open_log("orders", lead=True)

        def append_until_told() -> None:
            for _ in range(APPENDS_UNTIL_TOLD_MAX):
                old.append(b"into the deleted log")

        with pytest.raises(LogNotFoundError, match="lead=True again"):
            append_until_told()
        with pytest.raises(LogNotFoundError) as caught:
            old.append(b"later")
        assert caught.value.definite
        assert caught.value.end_offset >= 100
        assert new.append(b"record 0").offset == 0
        with pytest.raises(LogNotFoundError):
            old.close()
        assert new.close() == 1
        assert [record.value for record in other.open_log("orders").read()] == of(0, 1)


def test_tail_of_a_deleted_log_ends_while_its_leader_has_a_ledger_open(
    cluster: BookieCluster,
) -> None:
    with cluster.connect() as writing, cluster.connect() as reading:
        log = writing.open_log("orders", lead=True)
        log.append(b"record 0")
        tail = reading.open_log("orders").tail(0)
        assert next(tail).value == b"record 0"
        with ThreadPoolExecutor(1) as pool:
            following = pool.submit(next, tail)
            BlockingLogs(writing).delete("orders")
            assert isinstance(following.exception(PATIENCE_SECONDS), LogNotFoundError)


def test_closed_client_says_that_it_is_closed(cluster: BookieCluster) -> None:
    client = cluster.connect()
    client.open_log("orders", lead=True).close()
    log = client.open_log("orders")
    client.close()
    for ask in (log.state, log.snapshot, lambda: next(log.read()), lambda: next(log.tail(0))):
        with pytest.raises(LocalProtocolError, match="client is closed"):
            ask()


def test_records_of_a_leader_that_died_are_kept_by_the_next(cluster: BookieCluster) -> None:
    dead = cluster.connect()
    log = dead.open_log("orders", lead=True)
    acknowledged = log.append_many(of(0, 500))
    dead.close()
    with pytest.raises(LocalProtocolError, match="closed"):
        log.append(b"late")
    with cluster.connect() as client, client.open_log("orders", lead=True) as log:
        assert log.end_offset == len(acknowledged)
        log.append_many(of(500, 600))
        log.close()
        assert [record.value for record in client.open_log("orders").read()] == of(0, 600)


@pytest.mark.parametrize("on_bookie_failure", ["change_ensemble", "roll_ledger"])
def test_killed_bookies_cost_no_record_and_no_position(
    cluster: BookieCluster, on_bookie_failure: str
) -> None:
    cluster.start(1)
    with cluster.connect(add_timeout_ms=2_000) as client, cluster.connect() as reading:
        properties = {"onBookieFailure": on_bookie_failure}
        log = client.open_log("orders", lead=True, properties=properties)
        tailing = Tailing(reading.open_log("orders").tail(0))
        first = log.append(b"record 0")
        ensemble = client.ledger_metadata(first.ledger_id).last_fragment.ensemble
        cluster.bookies[ensemble[first.ledger_id % 3]].kill()  # the one that is watched
        appended = 1
        while True:
            positions = log.append_many(of(appended, appended + 100))
            assert positions.offsets.start == appended
            appended += 100
            metadata = client.ledger_metadata(positions[-1].ledger_id)
            if on_bookie_failure == "roll_ledger":
                assert len(metadata.fragments) == 1
                is_over = positions[-1].ledger_id != first.ledger_id
            else:
                is_over = len(metadata.fragments) == 2
            if is_over:
                break
        log.append(b"record %d" % appended)
        assert tailing.has(appended + 1) == of(0, appended + 1)
        log.close()
        assert [record.value for record in client.open_log("orders").read()] == of(0, appended + 1)


FORKS_BESIDE_A_TAIL = """
import subprocess, sys, threading
import ledgerlog_spark as ll

def follow(log):
    for record in log.tail(0):
        if record.value == b"end":
            break

with ll.connect(sys.argv[1]) as client, client.open_log("orders", lead=True) as log:
    following = threading.Thread(target=follow, args=(client.open_log("orders"),))
    following.start()
    ends = []
    for _ in range(60):
        log.append_async(b"record")
        ends.append(subprocess.Popen(["true"], preexec_fn=lambda: None).wait())
    log.append(b"end")
    following.join()
print(sum(end != 0 for end in ends), "of", len(ends), "failed")
"""


def test_programs_started_beside_a_tail_start_although_that_forks(cluster: BookieCluster) -> None:
    """Spark starts its gateway to Java in this way.

    gRPC reads its environment once in a process.
    """
    done = subprocess.run(
        [sys.executable, "-c", FORKS_BESIDE_A_TAIL, cluster.uri],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "0 of 60 failed\n"


def test_frozen_bookie_that_was_watched_does_not_hold_up_a_tail(cluster: BookieCluster) -> None:
    cluster.start(1)
    with cluster.connect(add_timeout_ms=1_000) as client, cluster.connect() as reading:
        log = client.open_log("orders", lead=True)
        tailing = Tailing(reading.open_log("orders").tail(0))
        first = log.append(b"record 0")
        assert tailing.has(1) == of(0, 1)
        ensemble = client.ledger_metadata(first.ledger_id).last_fragment.ensemble
        frozen = cluster.bookies[ensemble[first.ledger_id % 3]].process
        assert frozen is not None
        frozen.send_signal(signal.SIGSTOP)
        log.append(b"record 1")
        assert tailing.has(2) == of(0, 2)
        late = Tailing(reading.open_log("orders").tail(0))
        assert late.has(2) == of(0, 2)
        log.close()
        frozen.send_signal(signal.SIGCONT)


def test_appends_of_many_threads_are_each_acknowledged_with_their_own_position(
    cluster: BookieCluster,
) -> None:
    with cluster.connect() as client:
        log = client.open_log("orders", lead=True)
        futures: dict[int, list[Future[Any]]] = {}

        def append(thread: int) -> None:
            futures[thread] = [
                log.append_many_async([b"%d %d" % (thread, number)])
                if number % 3
                else log.append_async(b"%d %d" % (thread, number))
                for number in range(2_000)
            ]

        threads = [threading.Thread(target=append, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        log.flush()
        wait([future for some in futures.values() for future in some])
        assert log.close() == 8_000
        values = {record.offset: record.value for record in client.open_log("orders").read()}
        for of_thread, some in futures.items():
            for number, future in enumerate(some):
                found = future.result()
                position = found[0] if number % 3 else found
                assert values[position.offset] == b"%d %d" % (of_thread, number)


def test_opening_says_what_is_wrong(cluster: BookieCluster) -> None:
    with cluster.connect() as client:
        with pytest.raises(LogNotFoundError):
            client.open_log("orders")
        with pytest.raises(LogNotFoundError):
            client.open_log("orders", lead=True, create_if_missing=False)
        with pytest.raises(ConfigurationError, match="rollBytes"):
            client.open_log("orders", lead=True, properties={"rollByte": "5"})
        with pytest.raises(ConfigurationError):
            client.open_log("or/ders", lead=True)
        with pytest.raises(LocalProtocolError, match="lead=True"):
            client.open_log("orders", properties={})  # type: ignore[call-overload]  # as users may
        BlockingLogs(client).create("rows")
        with pytest.raises(LogKindError, match="transactional"):
            client.open_log("rows", lead=True)
        rows = client.open_log("rows")
        assert rows.state().head.end_offset == 0
        with pytest.raises(LogKindError, match="with Spark"):
            rows.read_batches()


def test_properties_that_a_log_does_not_have_are_an_error_and_change_nothing(
    cluster: BookieCluster,
) -> None:
    properties = {"rollBytes": "30000"}
    with cluster.connect() as client:
        log = client.open_log("orders", lead=True, properties=properties)
        with pytest.raises(ConfigurationError, match="did you mean rollBytes"):
            client.open_log("orders", lead=True, properties={"rollByte": "30000"})
        for create_if_missing in (True, False):
            with pytest.raises(ConfigurationError, match=r"ledgerlog logs set orders rollMs=5"):
                client.open_log(
                    "orders",
                    lead=True,
                    create_if_missing=create_if_missing,
                    properties={**properties, "rollMs": "5"},
                )
        assert log.append(b"still led").offset == 0
        with client.open_log("orders", lead=True, properties=properties) as again:
            assert again.append(b"the same properties").offset == 1


async def test_the_asyncio_face_does_the_same(cluster: BookieCluster) -> None:
    async with await ll.aio.connect(cluster.uri) as client:
        log = await client.open_log("orders", lead=True)
        positions = await asyncio.gather(*(log.append(record) for record in of(0, 50)))
        assert [position.offset for position in positions] == list(range(50))
        reader = await client.open_log("orders")
        tail = reader.tail(0)
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert [(await anext(tail)).value for _ in range(50)] == of(0, 50)
            last = asyncio.ensure_future(anext(tail))
            await log.append(b"record 50")
            assert (await last).value == b"record 50"
        await tail.aclose()
        assert await log.close() == 51
