"""Spark Connect: a session that is only a client, and a server that runs the source."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.spark.conftest import ROOT
from tests.spark.test_stream_sink_processes import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from ledgerlog_spark.local.cluster import Cluster


def test_a_client_of_a_server_writes_reads_and_streams(
    cluster: Cluster, log_name: str, tmp_path: Path
) -> None:
    environment = dict(os.environ)
    for name in ("SPARK_REMOTE", "SPARK_LOCAL_REMOTE", "LEDGERLOG_METADATA_SERVICE_URI"):
        environment.pop(name, None)
    module = "tests.spark.connect_process"
    done = subprocess.run(
        [sys.executable, "-m", module, cluster.metadata_service_uri, log_name, str(tmp_path)],
        cwd=ROOT,
        env=environment,
        timeout=PATIENCE_SECONDS,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5_000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["rows"], found["copied"]) == (60, 100)
    assert "LogNotFoundError" in found["missing"]
    assert found["batch"] == "65536"
    assert found["told"] == []
