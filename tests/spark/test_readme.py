"""README's Python, as a new user runs it: it works, and prints no alarming line."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from ledgerlog_spark.model import SERVICE_URI_VARIABLE
from tests.fixtures.command_line import ROOT

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.processes, pytest.mark.zookeeper]

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ALARMING = re.compile(r"Traceback|Error\b|\w*Warning\b|ledgerlog|DataSourceManager")
"""Spark's own lines about the host and its native libraries do not count."""

ENDS_BEFORE_ITS_TASKS = 'assert len(spark.read.format("ledger").load("events").take(3)) == 3'
"""A query that ends before its tasks, like `show()`: the tasks write to a closed socket."""


def test_python_of_the_readme_runs_from_top_to_bottom_without_a_warning(tmp_path: Path) -> None:
    program = "\n".join(BLOCK.findall((ROOT / "README.md").read_text()))
    assert program.count("spark.stop()") == 1
    program = program.replace("spark.stop()", f"{ENDS_BEFORE_ITS_TASKS}\nspark.stop()")
    inherited = {k: v for k, v in os.environ.items() if k != SERVICE_URI_VARIABLE}
    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env=inherited | {"PYTHONPATH": str(ROOT)},
    )
    assert ended.returncode == 0, ended.stderr
    assert "142858" in ended.stdout
    assert ended.stdout.endswith("3 b'once'\n")
    assert [line for line in ended.stderr.splitlines() if ALARMING.search(line)] == []
