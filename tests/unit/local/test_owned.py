"""Either the owner or the guardian stops an owned cluster, and never another cluster."""

from __future__ import annotations

import io
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ledgerlog_spark.cli import local
from ledgerlog_spark.local import cluster as cluster_module
from ledgerlog_spark.local import guardian_process, running
from ledgerlog_spark.local.cluster import Cluster
from ledgerlog_spark.local.members import ZOOKEEPER


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Path]:
    """The directories of the clusters that the guardian stopped after its owner ended."""
    found: list[Path] = []
    monkeypatch.setattr(Cluster, "down", lambda self: found.append(self.directory))
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["guardian", "--directory", str(tmp_path), "--owner-id", "m"])
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO()))
    return found


def test_a_guardian_stops_the_cluster_whose_processes_have_its_owner_id(
    stopped: list[Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    looks = iter([[SimpleNamespace()], []])
    monkeypatch.setattr(
        guardian_process, "_found", lambda owner: next(looks) if owner == "m" else []
    )
    guardian_process.main()
    assert stopped == [tmp_path]


def test_a_guardian_whose_cluster_has_ended_leaves_another_one_in_the_directory_alone(
    stopped: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guardian_process, "_found", lambda _owner_id: [])
    guardian_process.main()
    assert stopped == []


def test_a_cluster_that_is_started_again_keeps_its_guardian(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = []

    class OneGuardian:
        def __init__(self, _directory: Path, *, is_temporary: bool) -> None:
            made.append(is_temporary)
            self.environment = {"OWNER_ID": "1"}

    monkeypatch.setattr(cluster_module, "Guardian", OneGuardian)
    monkeypatch.setattr(Cluster, "_start_zookeeper", lambda _self: None)
    monkeypatch.setattr(Cluster, "_start_bookies", lambda *_: None)
    owned = Cluster(tmp_path)
    owned.up(1, owned=True)
    owned.up(1, owned=True)
    assert made == [False]


@pytest.mark.parametrize("interrupted", ["_show", "_explain"])
def test_ctrl_c_between_start_and_service_leaves_the_cluster_to_the_guardian(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, interrupted: str
) -> None:
    disowned = []

    class Started:
        def __init__(self, _directory: Path) -> None:
            """Start no process."""

        def up(self, *_: Any, **__: Any) -> list[str]:
            return [ZOOKEEPER]

        def disown(self) -> None:
            disowned.append(1)

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    for name in ("_show", "_explain"):
        monkeypatch.setattr(local, name, interrupt if name == interrupted else lambda *_: None)
    monkeypatch.setattr(local, "Cluster", Started)
    with pytest.raises(KeyboardInterrupt):
        local.up(tmp_path)
    assert disowned == []


def test_directories_that_cannot_be_looked_into_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A name that is too long: the system refuses the access, as for other users' directories.
    words = ["python", "-m", "bookie_server", "--directory", "/" + "x" * 300]
    monkeypatch.setattr(running, "_command_line", lambda _process: words)
    assert running.running_clusters() == []
