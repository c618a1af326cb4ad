"""`ledgerlog local` in shells: one command, two at once, and Ctrl-C at any moment."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ledgerlog_spark as ll
from ledgerlog_spark.composition import metadata
from ledgerlog_spark.errors import ConfigurationError
from ledgerlog_spark.local.cluster import Cluster, local_cluster
from ledgerlog_spark.model import SERVICE_URI_VARIABLE
from ledgerlog_spark.wire.repair_notes import Vacation, VacationKind, VacationPhase
from tests.fixtures.command_line import (
    ledgerlog,
    ledgerlog_json,
    processes_of,
    spawn,
    until,
)
from tests.fixtures.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]


@pytest.fixture(scope="module")
def detached(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of a cluster of one bookie that `up --detach` started twice at once."""
    directory = tmp_path_factory.mktemp("detached") / "cluster"
    both = [
        spawn("local", "up", "--bookies", 1, "--detach", "--json", "-d", directory)
        for _ in range(2)
    ]
    for process in both:
        output, errors = process.communicate(timeout=PATIENCE_SECONDS)
        assert process.returncode == 0, output + errors
    yield directory
    Cluster(directory).down()


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[Path]:
    """A directory for clusters. Processes that still run there at the end are stopped."""
    yield tmp_path
    for process in processes_of(tmp_path):
        process.kill()


def write(uri: str, *payloads: bytes) -> int:
    with ll.connect(uri) as client:
        ledger = client.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1)
        ledger.append_batch(list(payloads))
        ledger.close()
        return ledger.id


def read(uri: str, ledger_id: int) -> list[bytes]:
    with ll.connect(uri) as client, client.open_ledger(ledger_id) as ledger:
        return [bytes(e.payload) for e in ledger.read(0, ledger.last_add_confirmed)]


def test_two_starts_at_once_make_one_cluster(detached: Path) -> None:
    shown = ledgerlog_json("local", "status", "-d", detached)
    assert [(m["role"], m["id"], m["state"]) for m in shown["members"]] == [
        ("zookeeper", "zookeeper", "running"),
        ("bookie", "bookie-0", "running"),
        ("upkeep", "upkeep", "running"),
    ]
    running = {process.pid for process in processes_of(detached)}
    assert running == {m["pid"] for m in shown["members"]}
    assert shown["metadata_service_uri"] == f"zk://127.0.0.1:{shown['members'][0]['port']}/ledgers"


def test_up_in_a_running_cluster_starts_what_is_missing_and_returns(detached: Path) -> None:
    before = ledgerlog_json("local", "status", "-d", detached)
    assert "no process was missing" in ledgerlog("local", "up", "-d", detached)
    ledgerlog("local", "kill", "bookie-0", "-d", detached)
    assert [m.state for m in Cluster(detached).status()] == ["running", "down", "running"]
    assert "started bookie-0" in ledgerlog("local", "up", "-d", detached)
    after = ledgerlog_json("local", "status", "-d", detached)
    assert before["members"][0] == after["members"][0]
    assert before["members"][1]["pid"] != after["members"][1]["pid"]


def test_killed_bookie_is_started_again_with_its_entries(detached: Path) -> None:
    cluster = Cluster(detached)
    ledger_id = write(cluster.metadata_service_uri, b"before the kill")
    killed = ledgerlog_json("local", "kill", "bookie-0", "-d", detached)
    assert killed["state"] == "down"
    said = spawn("local", "kill", "bookie-0", "-d", detached).communicate()[1]
    assert "ledgerlog local start bookie-0" in said
    started = ledgerlog_json("local", "start", "bookie-0", "-d", detached)
    assert (started["state"], started["port"]) == ("running", killed["port"])
    assert read(cluster.metadata_service_uri, ledger_id) == [b"before the kill"]


def test_paused_bookie_is_shown_as_paused_until_it_goes_on(detached: Path) -> None:
    ledgerlog("local", "kill", "bookie-0", "--signal", "STOP", "-d", detached)
    until(lambda: Cluster(detached).members.get("bookie-0").state == "paused")
    ledgerlog("local", "kill", "bookie-0", "--signal", "cont", "-d", detached)
    until(lambda: Cluster(detached).members.get("bookie-0").state == "running")


def test_cluster_in_use_is_not_taken_by_another_program(detached: Path) -> None:
    with pytest.raises(ConfigurationError, match="already runs in") as refused:
        local_cluster(bookies=1, directory=detached)
    assert "ledgerlog local down" in str(refused.value)


def test_second_start_finds_the_data_of_the_first(detached: Path) -> None:
    ledger_id = write(Cluster(detached).metadata_service_uri, b"a", b"b")
    stopped = ledgerlog_json("local", "down", "-d", detached)
    assert {m["state"] for m in stopped["members"]} == {"down"}
    assert processes_of(detached) == []
    ledgerlog("local", "down", "-d", detached)
    uri = ledgerlog_json("local", "up", "--detach", "-d", detached)["metadata_service_uri"]
    assert read(uri, ledger_id) == [b"a", b"b"]


def test_a_decommissioned_bookie_is_left_out_and_the_others_start(clusters: Path) -> None:
    directory = clusters / "cluster"
    cluster = Cluster(directory)
    cluster.up(2)
    try:

        async def decommission() -> None:
            async with metadata(cluster.metadata_service_uri) as stores:
                gone = Vacation(VacationKind.DECOMMISSION, VacationPhase.VACATED)
                await stores.vacations.write("bookie-1", gone, None)

        asyncio.run(decommission())
        cluster.kill("bookie-1")
        steps: list[str] = []
        assert cluster.up(on_progress=steps.append) == []
        assert steps[-1] == "bookie-1 was decommissioned, so it is not started"
        cluster.down()
        assert cluster.up() == ["zookeeper", "bookie-0"]
        assert (
            len(read(cluster.metadata_service_uri, write(cluster.metadata_service_uri, b"a"))) == 1
        )
    finally:
        cluster.down()


def test_interrupt_stops_what_serves_also_what_another_command_restarted(clusters: Path) -> None:
    directory = clusters / "cluster"
    serving = spawn("local", "up", "--bookies", 1, "-d", directory)
    assert serving.stdout is not None
    assert any("Ctrl-C stops it" in line for line in iter(serving.stdout.readline, ""))
    ledgerlog("local", "kill", "bookie-0", "-d", directory)
    ledgerlog("local", "start", "bookie-0", "-d", directory)
    os.killpg(serving.pid, signal.SIGINT)
    os.killpg(serving.pid, signal.SIGINT)
    output, errors = serving.communicate(timeout=PATIENCE_SECONDS)
    assert serving.returncode == 0, errors
    assert "its data is in" in output
    assert processes_of(directory) == []
    assert {m.state for m in Cluster(directory).status()} == {"down"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_while_bookies_start_leaves_nothing_running(
    number: signal.Signals, clusters: Path
) -> None:
    directory = clusters / "cluster"
    starting = spawn("local", "up", "--bookies", 8, "-d", directory)
    until((directory / "bookie-0.log").exists, starting)
    os.killpg(starting.pid, number)
    _, errors = starting.communicate(timeout=PATIENCE_SECONDS)
    assert starting.returncode == 130
    assert errors.strip() == "interrupted"
    assert processes_of(directory) == []


def test_down_from_another_shell_ends_the_one_that_serves(clusters: Path) -> None:
    directory = clusters / "cluster"
    serving = spawn("local", "up", "--bookies", 1, "--json", "-d", directory)
    assert serving.stdout is not None
    assert any(line == "}\n" for line in iter(serving.stdout.readline, ""))
    ledgerlog("local", "down", "-d", directory)
    serving.communicate(timeout=PATIENCE_SECONDS)
    assert serving.returncode == 0


def test_bookie_that_refuses_to_start_is_explained_and_the_rest_is_stopped(
    clusters: Path,
) -> None:
    directory = clusters / "cluster"
    (directory / "bookie-0").mkdir(parents=True)
    (directory / "bookie-0" / "somebody's file").touch()
    up = spawn("local", "up", "--bookies", 1, "-d", directory)
    _, errors = up.communicate(timeout=PATIENCE_SECONDS)
    assert up.returncode == 1
    assert "bookie-0 did not start" in errors
    assert "VERSION" in errors
    assert "Traceback" not in errors
    assert processes_of(directory) == []


def test_local_cluster_sets_the_default_uri_and_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(SERVICE_URI_VARIABLE, "zk://elsewhere/ledgers")
    with local_cluster(bookies=1) as cluster:
        assert os.environ[SERVICE_URI_VARIABLE] == cluster.metadata_service_uri
        assert "bookie-0" in cluster._repr_html_()
        with ll.connect() as client:
            ledger = client.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1)
            assert ledger.append(b"x") == 0
            ledger.close()
    assert os.environ[SERVICE_URI_VARIABLE] == "zk://elsewhere/ledgers"
    assert processes_of(cluster.directory) == []
    assert not cluster.directory.exists()
