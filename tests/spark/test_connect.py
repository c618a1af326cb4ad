"""Spark Connect: a session that is only a client, and a server that runs the source."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from ledgerlog_spark.datasource.jar import JARS_SETTING
from tests.fixtures.jar import SUBMIT_VARIABLE
from tests.spark.conftest import ROOT
from tests.spark.connect_catalog_process import catalog_of
from tests.spark.connect_process import connect_server
from tests.spark.test_stream_sink_processes import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ledgerlog_spark.local.cluster import Cluster


def found_by(module: str, *arguments: str) -> dict[str, Any]:
    """The output of a process without this process's sessions and cluster."""
    environment = dict(os.environ)
    for name in (
        "SPARK_REMOTE",
        "SPARK_LOCAL_REMOTE",
        "LEDGERLOG_METADATA_SERVICE_URI",
        SUBMIT_VARIABLE,
    ):
        environment.pop(name, None)
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env=environment,
        timeout=PATIENCE_SECONDS,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5_000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server without the jar."""
    with connect_server(tmp_path_factory.mktemp("server")) as address:
        yield address


def test_a_client_of_a_server_writes_reads_and_streams(
    cluster: Cluster, log_name: str, tmp_path: Path, address: str
) -> None:
    arguments = address, cluster.metadata_service_uri, log_name, str(tmp_path)
    found = found_by("tests.spark.connect_process", *arguments)
    assert (found["rows"], found["copied"]) == (60, 100)
    assert "LogNotFoundError" in found["missing"]
    assert found["batch"] == "65536"
    assert found["told"] == []


def test_a_client_uses_the_catalog_of_a_jar_that_it_adds(
    cluster: Cluster, name: str, tmp_path: Path, jar: Path, address: str
) -> None:
    uses_the_catalog(address, cluster.metadata_service_uri, name, str(tmp_path), str(jar))


def test_a_client_uses_the_catalog_of_a_jar_that_the_server_has(
    cluster: Cluster, name: str, tmp_path: Path, jar: Path
) -> None:
    uri = cluster.metadata_service_uri
    with connect_server(tmp_path, {JARS_SETTING: str(jar), **catalog_of(uri)}) as address:
        uses_the_catalog(address, uri, name, str(tmp_path))


def uses_the_catalog(address: str, uri: str, name: str, directory: str, *jar: str) -> None:
    arguments = address, uri, name, directory, *jar
    found = found_by("tests.spark.connect_catalog_process", *arguments)
    assert found["rows"] == {
        "SHOW TABLES IN {n}": [[name, "t", False]],
        "SELECT * FROM {t} ORDER BY k": [[2, "a"], [3, "d"]],
        "SELECT * FROM {t} VERSION AS OF 2 ORDER BY k": [[1, "a"], [2, "d"]],
        "SELECT version, operation FROM {t}.history WHERE version > 1 ORDER BY version": [
            [2, "APPEND"],
            [3, "OVERWRITE"],
        ],
        "SELECT k FROM {n}.made": [[103]],
        "SELECT k, _offset FROM {n}.written ORDER BY _offset": [[0, 1], [0, 2], [0, 3]],
        "SELECT k FROM {n}.copied": [[0], [0], [0]],
    }
    assert all("JVM engine" in plan for plan in found["plans"]), found["plans"]
    assert "TABLE_OR_VIEW_NOT_FOUND" in found["errors"][0]
    assert "TABLE_OR_VIEW_ALREADY_EXISTS" in found["errors"][1]
    assert "leave PARTITIONED BY" in found["errors"][2]
    assert not found["is_left"]
