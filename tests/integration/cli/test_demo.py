"""The demonstration from a shell: its exit code, and the files and processes that remain."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.command_line import (
    command_lines_of,
    processes_of,
    spawn,
    until,
)
from tests.fixtures.java import OPTIONS_VARIABLE, quick_options
from tests.fixtures.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper, pytest.mark.spark]

DEMO_PATIENCE_SECONDS = 3 * PATIENCE_SECONDS


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The directory for the temporary files of the demonstration.

    Remaining processes are killed.
    """
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv(OPTIONS_VARIABLE, quick_options())
    yield tmp_path
    for process in processes_of(tmp_path):
        process.kill()


def test_demonstration_loses_a_bookie_and_no_row_and_leaves_nothing(scratch: Path) -> None:
    demo = spawn("demo")
    output, errors = demo.communicate(timeout=DEMO_PATIENCE_SECONDS)
    assert demo.returncode == 0, output + errors
    last = output.strip().splitlines()[-1]
    found = re.fullmatch(r"336,776 of 336,776 rows are equal; (bookie-\d) was killed .*", last)
    assert found is not None, last
    assert re.search(rf"{found[1]} +[·░]*░[·░]*  killed", output)
    assert "ensemble change at entry" in output
    assert processes_of(scratch) == []
    assert list(scratch.iterdir()) == []


def test_demonstration_interrupted_while_it_writes_leaves_nothing(scratch: Path) -> None:
    demo = spawn("demo")
    until(lambda: [*scratch.glob("ledgerlog-spark-*/spark.log")], demo)
    until(lambda: _java_of_spark(scratch), demo)
    os.killpg(demo.pid, signal.SIGINT)
    output, errors = demo.communicate(timeout=PATIENCE_SECONDS)
    assert demo.returncode == 130, output + errors
    assert errors.strip().endswith("interrupted")
    assert "Traceback" not in errors
    assert processes_of(scratch) == []
    assert list(scratch.iterdir()) == []


def _java_of_spark(scratch: Path) -> bool:
    """Whether PySpark's JVM runs, which has the scratch directory in its options."""
    return any("SparkSubmit" in line for line in command_lines_of(scratch))
