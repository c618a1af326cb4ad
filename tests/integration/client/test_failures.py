"""Errors that a user sees without ZooKeeper, in forked processes, and with closed clients."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

import ledgerlog_spark as ll
from ledgerlog_spark.client.blocking.client import BlockingClient
from ledgerlog_spark.errors import (
    ConfigurationError,
    LedgerLogError,
    LocalProtocolError,
    MetadataUnavailableError,
)
from ledgerlog_spark.local.zookeeper import ZooKeeperProcess
from tests.fixtures.bookie_cluster import BookieCluster
from tests.fixtures.bookie_process import BookieProcess
from tests.fixtures.ports import free_port

pytestmark = [pytest.mark.zookeeper, pytest.mark.processes]


def test_a_zookeeper_that_is_down_at_the_start_is_a_clear_error_after_its_deadline() -> None:
    with pytest.raises(MetadataUnavailableError, match=r"within 1 s: check that it runs") as failed:
        ll.connect(
            f"zk://127.0.0.1:{free_port()}/ledgers",
            settings=ll.ClientSettings(connect_timeout_ms=1_000),
        )
    assert failed.value.definite
    assert failed.value.retriable


@pytest.mark.parametrize("uri", ["nonsense", "http://127.0.0.1/ledgers", "zk://127.0.0.1:2181"])
def test_a_wrong_service_uri_is_refused_before_any_connection(uri: str) -> None:
    with pytest.raises(ConfigurationError, match="One looks like zk://"):
        ll.connect(uri)


def test_a_zookeeper_that_goes_away_leaves_appends_going_and_fails_what_needs_it(
    own_zookeeper: ZooKeeperProcess, make_bookie: Callable[..., BookieProcess]
) -> None:
    cluster = BookieCluster(make_bookie, f"zk://{own_zookeeper.connect_string}/ledgers")
    cluster.start(3)
    with cluster.connect(metadata_timeout_ms=2_000) as client:
        ledger = client.create_ledger()
        ledger.append(b"before")
        own_zookeeper.kill()
        # Appends need only bookies, while none of them fails.
        assert ledger.append_batch([b"while it is away"] * 100) == range(1, 101)
        for call in (client.create_ledger, lambda: client.ledger_metadata(ledger.id)):
            with pytest.raises(LedgerLogError) as failed:
                call()
            assert failed.value.retriable
        own_zookeeper.start()
        assert ledger.close().last_entry_id == 100
        assert len(list(client.open_ledger(ledger.id).read())) == 101


def in_fork(work: Callable[[], None]) -> int:
    """Run `work` in a forked child, and return its exit code."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_connects_anew_and_cannot_use_its_parents_handles(
    cluster: BookieCluster,
) -> None:
    with cluster.connect() as client:
        ledger = client.create_ledger()
        ledger.append(b"the parent's")

        def in_child() -> None:
            assert refused_in_child(ledger.append, b"x")
            assert refused_in_child(ledger.close)
            mine = client.create_ledger()
            assert mine.append(b"the child's") == 0
            mine.close()
            client.close()

        assert in_fork(in_child) == 0
        assert ledger.append(b"still the parent's") == 1
        (child_id,) = set(client.list_ledgers()) - {ledger.id}
        assert [e.payload for e in client.open_ledger(child_id).read()] == [b"the child's"]


def refused_in_child(call: Callable[..., object], *arguments: object) -> bool:
    try:
        call(*arguments)
    except LocalProtocolError as error:
        return "process" in str(error)
    return False


def test_a_closed_client_says_so(cluster: BookieCluster) -> None:
    client: BlockingClient = cluster.connect()
    ledger = client.create_ledger()
    client.close()
    client.close()
    with pytest.raises(LocalProtocolError, match="connect again"):
        client.create_ledger()
    with pytest.raises(LedgerLogError):
        ledger.append(b"x")


def test_a_program_that_forgets_to_close_its_client_ends_without_a_word(
    cluster: BookieCluster,
) -> None:
    program = (
        "import sys, ledgerlog_spark as ll\n"
        "ledger = ll.connect(sys.argv[1]).create_ledger()\n"
        "print(ledger.append(b'x'))\n"
        "ledger.append_async(b'y')\n"
    )
    ended = subprocess.run(
        [sys.executable, "-W", "default", "-c", program, cluster.uri],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "0\n", "")
