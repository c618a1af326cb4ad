"""The jar of another minor version of Spark: the format is the Python source, the catalog refuses.

In `make matrix`, PySpark is of another minor version than the jar of the checkout. Otherwise the
jar is one that only claims another version.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pyspark

from ledgerlog_spark.datasource.jar import built_for
from tests.fixtures.jar import SUBMIT_VARIABLE, jar_of_another_spark
from tests.spark.conftest import ROOT
from tests.spark.test_stream_sink_processes import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from ledgerlog_spark.local.cluster import Cluster


def test_the_format_works_in_python_and_the_catalog_names_both_versions(
    cluster: Cluster, log_name: str, tmp_path: Path, jar: Path
) -> None:
    other = jar_of_another_spark(jar, tmp_path)
    environment = {key: text for key, text in os.environ.items() if key != SUBMIT_VARIABLE}
    arguments = [cluster.metadata_service_uri, log_name, str(tmp_path), str(other)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.other_spark_process", *arguments],
        cwd=ROOT,
        env=environment,
        timeout=PATIENCE_SECONDS,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5_000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["rows"], found["copied"], found["parquet"]) == (160, 200, 3)
    assert "BatchScan ledger" in found["plan"]
    assert "engine" not in found["plan"]
    versions = f"was built for Spark {built_for(other)}, and this is Spark {pyspark.__version__}"
    assert [versions in error for error in found["errors"].values()] == [True] * 4, found["errors"]
