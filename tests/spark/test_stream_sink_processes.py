"""Python workers that are killed in the middle of a batch, and such as are never used twice."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from ledgerlog_spark.log.failpoints import VARIABLE
from tests.spark.conftest import ROOT
from tests.spark.frames import load

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from ledgerlog_spark.local.cluster import Cluster

PATIENCE_SECONDS = 400


def test_workers_killed_or_never_used_twice_leave_every_row_once(
    spark: SparkSession,
    cluster: Cluster,
    log_name: str,
    tmp_path: Path,
) -> None:
    only_once = tmp_path / "kill one"
    only_once.touch()
    uri = cluster.metadata_service_uri
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.stream_process", uri, log_name, str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, VARIABLE: f"range.acknowledged@{only_once}"},
        timeout=PATIENCE_SECONDS,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5_000:]
    assert not only_once.exists(), "no worker was killed"
    values = [row["value"] for row in load(spark, log_name).collect()]
    assert sorted(values) == list(range(600))
    assert [sorted(values[first : first + 200]) for first in (0, 200, 400)] == [
        list(range(first, first + 200)) for first in (0, 200, 400)
    ]
