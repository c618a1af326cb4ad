"""Leaders whose ledgers are recovered by other processes, and processes that die with a claim."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest

import ledgerlog_spark as ll
from ledgerlog_spark.errors import LeaderDeposedError
from ledgerlog_spark.log.leader.leader import Leader
from ledgerlog_spark.protocol.log.claim import claim_of
from tests.fixtures.bookie_cluster import BookieCluster
from tests.integration.leader.conftest import PATIENCE_SECONDS, Tailing, of

pytestmark = [pytest.mark.zookeeper, pytest.mark.processes]

SESSION_TIMEOUT_MS = 4_000
RECOVERIES = 4

DIES_BEFORE_ITS_FIRST_SEAL = """
import os, sys, ledgerlog_spark as ll
from ledgerlog_spark.log.leader.host import LeaderHost
LeaderHost._seal = lambda self, effect: os._exit(7)
settings = ll.ClientSettings(session_timeout_ms=int(sys.argv[2]))
with ll.connect(sys.argv[1], settings=settings) as client:
    client.open_log("orders", lead=True)
"""


def recover(cluster: BookieCluster, ledger_id: int) -> None:
    """Recover a ledger with the command of operators, in a process of its own."""
    command = [sys.executable, "-m", "ledgerlog_spark.cli", "ledgers", "seal", str(ledger_id)]
    subprocess.run(
        [*command, "--metadata-service-uri", cluster.uri],
        check=True,
        capture_output=True,
        timeout=PATIENCE_SECONDS,
    )


def test_idle_leader_whose_ledger_was_recovered_goes_on_after_one_roll(
    cluster: BookieCluster,
) -> None:
    with cluster.connect() as client, cluster.connect() as reading:
        log = client.open_log("orders", lead=True)
        tailing = Tailing(reading.open_log("orders").tail(0))
        positions = [log.append(b"record 0"), *log.append_many(of(1, 20))]
        for round_number in range(2):
            (open_ledger,) = client.open_log("orders").state().head.open_ledgers
            recover(cluster, open_ledger.ledger_id)
            positions.append(log.append(b"record %d" % (20 + round_number)))
            assert positions[-1].ledger_id != open_ledger.ledger_id
        assert [position.offset for position in positions] == list(range(22))
        assert log.is_leading
        assert tailing.has(22) == of(0, 22)
        assert log.close() == 22
        head = client.open_log("orders").state().head
        assert [item.rows for item in head.items.recent] == [20, 1, 1]
        assert [record.position for record in client.open_log("orders").read()] == positions
        reading.close()
        tailing.ends()


def test_busy_leader_whose_ledgers_are_recovered_loses_and_repeats_nothing(
    cluster: BookieCluster,
) -> None:
    with cluster.connect() as client, cluster.connect() as reading:
        log = client.open_log("orders", lead=True)
        tailing = Tailing(reading.open_log("orders").tail(0))
        is_over = threading.Event()
        recovered: list[int] = []

        def recover_often() -> None:
            try:
                for _ in range(RECOVERIES):
                    opened = reading.open_log("orders").state().head.open_ledgers
                    recover(cluster, opened[-1].ledger_id)
                    recovered.append(opened[-1].ledger_id)
            finally:
                is_over.set()

        recovering = threading.Thread(target=recover_often)
        recovering.start()
        positions: list[ll.Position] = []
        while not is_over.is_set():
            first = len(positions)
            futures = [log.append_async(record) for record in of(first, first + 50)]
            positions += [future.result(PATIENCE_SECONDS) for future in futures]
        recovering.join()
        assert len(recovered) == RECOVERIES
        end = len(positions)
        assert [position.offset for position in positions] == list(range(end))
        assert log.close() == end
        records = list(client.open_log("orders").read())
        assert [record.value for record in records] == of(0, end)
        assert [record.position for record in records] == positions
        assert tailing.has(end) == of(0, end)
        reading.close()
        tailing.ends()


async def _claim(leader: Leader) -> str:
    head = await leader._log.store.read_head(leader.log_id)
    assert head is not None
    return claim_of(head.value)


async def test_claimant_that_died_before_its_first_seal_deposes_nobody(
    cluster: BookieCluster,
) -> None:
    settings = ll.ClientSettings(session_timeout_ms=SESSION_TIMEOUT_MS)
    async with await ll.aio.connect(cluster.uri, settings=settings) as client:
        leader = await client.open_log("orders", lead=True)
        first = await leader.append(b"record 0")
        own = await _claim(leader)
        script = [sys.executable, "-c", DIES_BEFORE_ITS_FIRST_SEAL, cluster.uri]
        died = await asyncio.to_thread(
            subprocess.run, [*script, str(SESSION_TIMEOUT_MS)], timeout=PATIENCE_SECONDS
        )
        assert died.returncode == 7
        dead = await _claim(leader)
        assert dead != own
        candidates = leader._log.store.candidates(leader.log_id)
        assert (await candidates.look(own)).is_there
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (await candidates.look(dead)).is_there:
                await leader._log.store.sync()
        await asyncio.to_thread(recover, cluster, first.ledger_id)
        second = await leader.append(b"record 1")
        assert (second.offset, second.ledger_id != first.ledger_id) == (1, True)
        assert await _claim(leader) == own
        assert await leader.close() == 2
        assert not (await candidates.look(own)).is_there


def test_leader_that_is_replaced_while_its_ledger_is_recovered_ends(
    cluster: BookieCluster,
) -> None:
    with cluster.connect() as one, cluster.connect() as other:
        old = one.open_log("orders", lead=True)
        position = old.append(b"record 0")
        recover(cluster, position.ledger_id)
        new = other.open_log("orders", lead=True)
        with pytest.raises(LeaderDeposedError) as caught:
            old.append(b"lost")
        assert caught.value.end_offset == 1
        assert new.append(b"record 1").offset == 1
        assert new.close() == 2
