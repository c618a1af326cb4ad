from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from rich.console import Console
from typer.testing import CliRunner

from ledgerlog_spark.cli import local
from ledgerlog_spark.cli.main import app
from ledgerlog_spark.errors import BookieUnavailableError, ConfigurationError, LocalProtocolError
from ledgerlog_spark.local.cluster import Cluster
from ledgerlog_spark.local.members import ZOOKEEPER, Member, Members, locked_directory
from tests.fixtures.ports import free_port


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


def member(tmp_path: Path, pid: int, *, member_id: str = "bookie-0", port: int = 1) -> Member:
    role = ZOOKEEPER if member_id == ZOOKEEPER else "bookie"
    fresh = Member(role=role, id=member_id, directory=str(tmp_path / member_id))
    return fresh.started_as(pid, port)


def test_remembered_process_is_found_again_by_another_program(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    Members(tmp_path).put(member(tmp_path, sleeper.pid, port=4711))
    found = Members.load(tmp_path).get("bookie-0")
    assert (found.state, found.port, found.pid) == ("running", 4711, sleeper.pid)


def test_pid_that_was_given_to_another_process_is_not_taken_for_ours(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    ours = member(tmp_path, sleeper.pid)
    boot, ticks = ours.start_mark.split()
    assert ours.state == "running"
    assert replace(ours, start_mark=f"{boot} {int(ticks) - 1}").state == "down"
    assert replace(ours, start_mark=f"another-boot {ticks}").state == "down"
    # An older version, or a system without /proc, has only the time.
    assert replace(ours, start_mark="").state == "running"
    assert replace(ours, start_mark="", started=1_000_000.0).state == "down"


def test_process_is_found_again_after_the_clock_was_set(
    tmp_path: Path, sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise `local down` would leave the process, and `local up` would start a second one."""
    ours = member(tmp_path, sleeper.pid)
    monkeypatch.setattr(psutil.Process, "create_time", lambda _process: ours.started + 33)
    assert ours.state == "running"


def test_killed_process_is_down_even_while_its_parent_has_not_looked(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    remembered = member(tmp_path, sleeper.pid)
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert psutil.Process(sleeper.pid).status() == psutil.STATUS_ZOMBIE
    assert remembered.state == "down"


def test_process_that_ended_at_once_is_an_error_of_ours(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    sleeper.kill()
    sleeper.wait()
    with pytest.raises(BookieUnavailableError, match="bookie-0 ended immediately"):
        member(tmp_path, sleeper.pid)


def test_memory_of_another_user_is_not_said_to_be_damaged(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").mkdir()  # refused for all users, even root
    with pytest.raises(ConfigurationError, match=r"cluster\.json cannot be read \(Is a") as refused:
        Members.load(tmp_path)
    assert "damaged" not in str(refused.value)


@pytest.mark.parametrize("text", ["{", "[]", '{"format": 9, "members": []}', '{"format": 1}'])
def test_damaged_memory_is_refused_and_left_alone(tmp_path: Path, text: str) -> None:
    (tmp_path / "cluster.json").write_text(text)
    with pytest.raises(ConfigurationError, match=r"cluster\.json cannot be read"):
        Cluster(tmp_path)
    assert (tmp_path / "cluster.json").read_text() == text


@pytest.mark.parametrize("place", ["nothing", "file"])
def test_directory_without_a_cluster_has_no_members(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    assert Cluster(tmp_path / place).status() == []


def test_directory_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="--directory"):
        Cluster(tmp_path / "file" / "below").up()


def test_second_command_waits_for_the_first_and_gives_up_in_time(tmp_path: Path) -> None:
    with (
        locked_directory(tmp_path),
        pytest.raises(LocalProtocolError, match="another command") as busy,
        locked_directory(tmp_path, timeout_seconds=0),
    ):
        pass
    assert busy.value.retriable
    with locked_directory(tmp_path, timeout_seconds=0):
        pass


def test_waiting_command_goes_on_when_the_first_is_done(tmp_path: Path) -> None:
    waiting, done = threading.Event(), threading.Event()

    def second() -> None:
        waiting.set()
        with locked_directory(tmp_path):
            done.set()

    with locked_directory(tmp_path):
        thread = threading.Thread(target=second)
        thread.start()
        waiting.wait()
        assert not done.is_set()
    thread.join()
    assert done.is_set()


def test_bookie_of_a_cluster_without_zookeeper_is_not_started(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    """A server on ZooKeeper's old port may belong to another cluster."""
    members = Members(tmp_path)
    zookeeper = member(tmp_path, sleeper.pid, member_id=ZOOKEEPER)
    bookie = member(tmp_path, sleeper.pid)
    sleeper.kill()
    sleeper.wait()
    members.put(zookeeper)
    members.put(bookie)
    with pytest.raises(ConfigurationError, match="ledgerlog local up"):
        Cluster(tmp_path).start("bookie-0")


def test_zookeeper_keeps_its_port_while_bookies_know_it(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    port = free_port()
    zookeeper = member(tmp_path, sleeper.pid, member_id=ZOOKEEPER, port=port)
    cluster = Cluster(tmp_path)
    cluster.members.put(member(tmp_path, sleeper.pid))
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        assert cluster._port_of_zookeeper(zookeeper) == port
        sleeper.kill()
        sleeper.wait()
        assert cluster._port_of_zookeeper(zookeeper) != port
    assert cluster._port_of_zookeeper(zookeeper) == port


def test_down_reports_whether_anything_ran(
    tmp_path: Path, sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "console", Console(width=200))
    Members(tmp_path).put(member(tmp_path, sleeper.pid))
    down = ["local", "down", "-d", str(tmp_path)]
    first, second = (CliRunner().invoke(app, down).output.splitlines()[-1] for _ in range(2))
    assert first == f"the cluster is stopped; its data is in {tmp_path}"
    assert second == f"no process of the cluster was running; its data is in {tmp_path}"
