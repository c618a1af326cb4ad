"""Streams in a separate Spark, for tests that the shared session does not allow."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from ledgerlog_spark.log.blocking.logs import BlockingLogs
from ledgerlog_spark.log.failpoints import VARIABLE
from tests.spark.conftest import ROOT
from tests.spark.frames import load

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from ledgerlog_spark.client.blocking.client import BlockingClient
    from ledgerlog_spark.local.cluster import Cluster

PATIENCE_SECONDS = 400


def run(module: str, cluster: Cluster, log: str, directory: Path, failpoint: str = "") -> None:
    done = subprocess.run(
        [sys.executable, "-m", module, cluster.metadata_service_uri, log, str(directory)],
        cwd=ROOT,
        env={**os.environ, VARIABLE: failpoint},
        timeout=PATIENCE_SECONDS,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5_000:]


def test_workers_killed_or_never_used_twice_leave_every_row_once(
    spark: SparkSession, cluster: Cluster, log_name: str, tmp_path: Path
) -> None:
    only_once = tmp_path / "kill one"
    only_once.touch()
    module = "tests.spark.stream_process"
    run(module, cluster, log_name, tmp_path, f"range.acknowledged@{only_once}")
    assert not only_once.exists(), "no worker was killed"
    values = [row["value"] for row in load(spark, log_name).collect()]
    assert sorted(values) == list(range(600))
    assert [sorted(values[first : first + 200]) for first in (0, 200, 400)] == [
        list(range(first, first + 200)) for first in (0, 200, 400)
    ]


def test_two_attempts_of_one_task_that_end_at_once_leave_every_row_once(
    spark: SparkSession, client: BlockingClient, cluster: Cluster, log_name: str, tmp_path: Path
) -> None:
    run("tests.spark.speculation_process", cluster, log_name, tmp_path)
    assert (tmp_path / "met").exists(), "Spark tried no task twice at once"
    values = [row["value"] for row in load(spark, log_name).collect()]
    assert sorted(values) == list(range(100_000))
    assert not BlockingLogs(client).open(log_name).check(every_entry=True).findings
