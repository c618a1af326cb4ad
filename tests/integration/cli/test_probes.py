"""`simpletest` and `bookies sanity` on a real cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledgerlog_spark.client.blocking.client import BlockingClient
    from ledgerlog_spark.local.cluster import Cluster
    from tests.fixtures.bookie_process import BookieProcess
    from tests.fixtures.command_line import Ended

    Run = Callable[..., Ended]

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]


def test_a_working_cluster_passes_and_has_no_further_ledger(
    run: Run, client: BlockingClient
) -> None:
    before = list(client.list_ledgers())
    found = run("simpletest", "--entries", 50, "--size", 2_000, "--json").json
    assert found["entries"] == 50
    assert sorted(found["bookies"]) == ["bookie-0", "bookie-1", "bookie-2"]
    shown = run("simpletest", "--ensemble", 1, "--write-quorum", 1, "--ack-quorum", 1)
    assert "1,000 entries written in" in shown.done
    assert list(client.list_ledgers()) == before


def test_a_cluster_that_is_too_small_fails_with_numbers(run: Run) -> None:
    ended = run("simpletest", "--ensemble", 4)
    assert ended.code == 4
    assert "4" in ended.err
    wrong = run("simpletest", "--ensemble", 2)
    assert wrong.code == 2
    assert "ensemble_size >= write_quorum" in wrong.err


def test_each_bookie_is_tested_alone(run: Run, client: BlockingClient) -> None:
    before = list(client.list_ledgers())
    for number in range(3):
        found = run("bookies", "sanity", f"bookie-{number}", "--json").json
        assert (found["bookies"], found["entries"]) == ([f"bookie-{number}"], 10)
    assert list(client.list_ledgers()) == before


def test_a_bookie_that_is_down_or_unknown_is_not_tested(run: Run, cluster: Cluster) -> None:
    cluster.kill("bookie-2")
    try:
        ended = run("bookies", "sanity", "bookie-2", "--timeout", 1)
        assert ended.code in {3, 4}, "a bookie that was killed is registered for some seconds"
        assert "bookie-2" in ended.err
    finally:
        cluster.start("bookie-2")
    unknown = run("bookies", "sanity", "nobody")
    assert unknown.code == 1
    assert "bookie nobody has never joined the cluster" in unknown.err


def test_a_read_only_bookie_is_not_tested(
    run: Run, make_bookie: Callable[..., BookieProcess], service_uri: str
) -> None:
    make_bookie("b1", bookie_id="b1", free_bytes_min=1 << 50).start()
    ended = run("bookies", "sanity", "b1", "-u", service_uri)
    assert ended.code == 4
    assert "b1 is read-only" in ended.err
