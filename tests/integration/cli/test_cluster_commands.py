"""`ledgerlog cluster init|info|nuke` on a real ZooKeeper with real bookies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledgerlog_spark.local.cluster import Cluster
    from tests.fixtures.bookie_process import BookieProcess
    from tests.fixtures.command_line import Ended

    Run = Callable[..., Ended]

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]


def test_a_running_cluster_is_shown(run: Run, cluster: Cluster, log: str) -> None:
    found = run("cluster", "info", "--json").json
    assert found["layout"] == "hierarchical"
    assert found["bookies"] == {
        "writable": sorted(member.id for member in cluster.members.bookies),
        "read-only": [],
        "away": [],
    }
    assert (found["logs"], found["ledgers"] > 0) == (1, True)
    shown = run("cluster", "info").out
    assert found["instance_id"] in shown
    assert "3: bookie-0, bookie-1, bookie-2" in shown
    assert log


def test_a_running_cluster_is_neither_created_nor_deleted(run: Run) -> None:
    found = run("cluster", "info", "--json").json
    again = run("cluster", "init")
    assert (again.code, again.out) == (1, "")
    assert f"its instance id is {found['instance_id']}; nothing was changed" in again.err
    refused = run("cluster", "nuke", "--instance-id", found["instance_id"], "--delete", "--yes")
    assert (refused.code, refused.out) == (4, "")
    assert "bookie-0, bookie-1, bookie-2 of the cluster" in refused.err
    wrong = run("cluster", "nuke", "--instance-id", "another", "--delete", "--yes")
    assert (wrong.code, wrong.out) == (2, "")
    assert f"has the instance id {found['instance_id']}, not another" in wrong.err
    assert run("cluster", "info", "--json").json == found


def test_a_cluster_is_created_used_deleted_and_created_again(
    run: Run,
    make_bookie: Callable[..., BookieProcess],
    service_uri: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = ("-u", service_uri)
    created = run("cluster", "init", *here, "--json").json
    assert created["layout"] == "hierarchical"
    instance_id = created["instance_id"]
    assert run("cluster", "info", *here, "--json").json["instance_id"] == instance_id

    bookie = make_bookie("b1", bookie_id="b1").start()
    bookie.stop()
    away = run("cluster", "info", *here, "--json").json["bookies"]
    assert away == {"writable": [], "read-only": [], "away": ["b1"]}

    nuke = ("cluster", "nuke", "--instance-id", instance_id, *here)
    shown = run(*nuke)
    assert "would delete 0 ledgers, 0 logs and 1 cookie" in shown.done
    monkeypatch.setattr("sys.stdin.isatty", lambda: False)
    unasked = run(*nuke, "--delete")
    assert unasked.code == 2
    assert "pass --yes to confirm" in unasked.err
    assert run("cluster", "info", *here, "--json").json["instance_id"] == instance_id

    deleted = run(*nuke, "--delete", "--yes", "--json").json
    assert (deleted["is_deleted"], deleted["bookies"], deleted["ledgers"]) == (True, ["b1"], 0)
    gone = run("cluster", "info", *here)
    assert gone.code == 1
    assert "no cluster at" in gone.err

    assert run("cluster", "init", *here, "--json").json["instance_id"] != instance_id
    code, why = bookie.refusal()  # its directory belongs to the deleted cluster
    assert code == 3, why
    assert "instance" in why


def test_the_scheme_of_the_uri_determines_the_layout(run: Run, service_uri: str) -> None:
    long = service_uri.replace("zk://", "zk+longhierarchical://")
    assert run("cluster", "init", "-u", long, "--json").json["layout"] == "longhierarchical"
    assert run("cluster", "info", "-u", service_uri, "--json").json["layout"] == "longhierarchical"
    refused = run("cluster", "info", "-u", service_uri.replace("zk://", "zk+hierarchical://"))
    assert refused.code == 2
    assert "LongHierarchical" in refused.err
