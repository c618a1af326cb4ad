"""A cluster ends with its owner, however the owner ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from ledgerlog_spark.local.cluster import Cluster
from ledgerlog_spark.local.running import running_clusters
from tests.fixtures.command_line import ROOT, ledgerlog_json, processes_of, spawn, until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]

OWNER = """
import sys, ledgerlog_spark as ll
with ll.local_cluster(bookies=1) as cluster:
    print("serves", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A program with a temporary cluster below `tmp_path`."""
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        env=os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
    )
    yield process
    process.kill()
    process.communicate()
    for left in processes_of(tmp_path):
        left.kill()


def roles(directory: Path) -> set[str]:
    """The processes below a directory, by a word of each command line."""
    found = set()
    for process in processes_of(directory):
        try:
            words = " ".join(process.cmdline())
        except psutil.Error:
            continue
        names = ("QuorumPeerMain", "bookie_server", "ledgerlog_spark.upkeep", "guardian")
        found |= {name for name in names if name in words}
    return found


def test_cluster_of_a_killed_owner_ends_and_its_directory_is_deleted(
    owner: subprocess.Popen[str], tmp_path: Path
) -> None:
    assert owner.stdout is not None
    assert "serves\n" in iter(owner.stdout.readline, "")  # before it, maybe, that 2181 is taken
    assert roles(tmp_path) >= {"QuorumPeerMain", "bookie_server", "guardian"}
    owner.kill()
    until(lambda: not processes_of(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_every_process_of_an_owned_cluster_has_a_session_of_its_own(
    owner: subprocess.Popen[str], tmp_path: Path
) -> None:
    assert owner.stdout is not None
    assert "serves\n" in iter(owner.stdout.readline, "")
    processes = processes_of(tmp_path)
    assert len(processes) >= 4
    assert {process.pid for process in processes} == {os.getsid(one.pid) for one in processes}


@pytest.mark.parametrize("role", ["guardian", "QuorumPeerMain", "bookie_server"])
def test_owner_killed_while_it_starts_leaves_nothing(
    owner: subprocess.Popen[str], tmp_path: Path, role: str
) -> None:
    until(lambda: role in roles(tmp_path), owner)
    owner.kill()
    until(lambda: not processes_of(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_serving_command_that_is_killed_takes_its_cluster_along_and_keeps_the_data(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "cluster"
    serving = spawn("local", "up", "--bookies", 1, "-d", directory)
    assert serving.stdout is not None
    assert any("Ctrl-C stops it" in line for line in iter(serving.stdout.readline, ""))
    shown = [str(each.directory) for each in running_clusters()]
    assert str(directory) in shown
    assert str(directory) in [each["directory"] for each in ledgerlog_json("local", "list")]
    serving.send_signal(signal.SIGKILL)
    serving.communicate()
    until(lambda: not processes_of(directory))
    assert {member.state for member in Cluster(directory).status()} == {"down"}
    assert str(directory) not in [str(each.directory) for each in running_clusters()]


def test_detached_cluster_outlives_the_command_and_has_no_guardian(tmp_path: Path) -> None:
    directory = tmp_path / "cluster"
    try:
        ledgerlog_json("local", "up", "--bookies", 1, "--detach", "-d", directory)
        assert "guardian" not in roles(directory)
        assert {member.state for member in Cluster(directory).status()} == {"running"}
    finally:
        Cluster(directory).down()
