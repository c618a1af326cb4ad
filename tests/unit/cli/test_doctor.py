from __future__ import annotations

import resource
import socket
import subprocess
import sys
from importlib import metadata

import pytest
from pyspark import cloudpickle
from rich.console import Console
from typer.testing import CliRunner

from ledgerlog_spark.cli import doctor
from ledgerlog_spark.cli.doctor import _cluster, _jar, _open_files, _packages, _port, _task
from ledgerlog_spark.cli.main import app
from ledgerlog_spark.datasource import jar as jars
from ledgerlog_spark.errors import MetadataUnavailableError
from ledgerlog_spark.model import BookieInfo


@pytest.mark.parametrize(("hard", "state"), [(1_024, "warning"), (4_096, "ok"), (-1, "ok")])
def test_limit_of_open_files_is_shown(
    monkeypatch: pytest.MonkeyPatch, hard: int, state: str
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (256, hard))
    (found,) = _open_files()
    assert found.state == state
    assert ("ulimit" in found.advice) == (state == "warning")


def test_what_runs_in_a_task_needs_no_ledgerlog_there() -> None:
    """On an executor without ledgerlog, a function that is pickled by its module would fail."""
    pickled = cloudpickle.dumps(_task(("ledgerlog", "no-such-package"))).hex()
    program = f"""
import sys
sys.modules["ledgerlog_spark"] = None
import pickle
print(pickle.loads(bytes.fromhex("{pickled}"))(0)[1:])
"""
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    python, versions = eval(said)
    assert python == sys.version_info[:2]
    assert versions[0][0] == "ledgerlog"
    assert versions[1] == ("no-such-package", None)


def test_missing_package_comes_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doctor, "PACKAGES", ("kazoo", "no-such-package"))
    there, missing = _packages()
    assert (there.state, there.advice) == ("ok", "")
    assert (missing.state, missing.advice) == ("missing", "pip install 'no-such-package'")


@pytest.mark.parametrize(
    ("built", "state", "found"),
    [
        (None, "warning", "no jar"),
        ("1.2.3", "warning", "a jar for Spark 1.2.3, and PySpark "),
        (metadata.version("pyspark"), "ok", "a jar for Spark "),
    ],
)
def test_jar_of_the_jvm_engine_is_shown_with_its_spark(
    monkeypatch: pytest.MonkeyPatch, built: str | None, state: str, found: str
) -> None:
    monkeypatch.setattr(jars, "built_for", lambda *_: built)
    (finding,) = _jar()
    assert (finding.what, finding.state) == ("JVM engine", state)
    assert finding.found.startswith(found)
    assert ("make shim" in finding.advice) == (state == "warning")


@pytest.mark.parametrize(
    ("is_free", "answers", "state"),
    [(True, False, "ok"), (False, True, "ok"), (False, False, "warning")],
)
def test_port_of_zookeeper_is_looked_at(
    is_free: bool, answers: bool, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "port_is_free", lambda _port: is_free)
    monkeypatch.setattr(doctor, "zookeeper_answers", lambda _port: answers)
    (finding,) = _port()
    assert finding.state == state


def test_bookie_that_is_registered_and_does_not_answer_may_be_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.socket() as bound:  # holds the port, and never listens
        bound.bind(("127.0.0.1", 0))
        info = BookieInfo("bookie-0", *bound.getsockname())

        async def look(_uri: str) -> tuple[int, int, list[BookieInfo]]:
            return 1, 0, [info]

        monkeypatch.setattr(doctor, "_look_at_cluster", look)
        _, finding = _cluster("zk://127.0.0.1:2181/ledgers")
    assert finding.state == "warning"
    assert finding.advice.startswith("the bookie may be down")
    assert "`ledgerlog local status`" in finding.advice


def test_cluster_that_does_not_answer_is_named_and_no_line_begins_left_of_its_indent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def look(_uri: str) -> tuple[int, int, list[BookieInfo]]:
        raise MetadataUnavailableError("no answer: check it (`ledgerlog doctor` checks both)")

    monkeypatch.setattr(doctor, "_look_at_cluster", look)
    monkeypatch.setattr(doctor, "console", Console(width=80))
    shown = CliRunner().invoke(app, ["doctor", "-u", "zk://127.0.0.1:2181/ledgers"]).output
    lines = [line.rstrip() for line in shown.partition("  cluster  ")[2].splitlines()]
    assert lines[0] == "no answer from zk://127.0.0.1:2181/ledgers"
    advice = lines[1:]
    assert " ".join(map(str.strip, advice)).strip() == (
        "start a cluster with `ledgerlog local up`, or pass the --metadata-service-uri of a "
        "running cluster"
    )
    assert all(line.startswith(" " * 10) for line in advice if line)
