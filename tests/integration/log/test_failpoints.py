"""Every failpoint is named once, and a stream reaches and survives it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import ledgerlog_spark as ll
from ledgerlog_spark.errors import ConfigurationError
from ledgerlog_spark.log.blocking.logs import BlockingLogs
from ledgerlog_spark.log.failpoints import NAMES, VARIABLE, parse
from tests.fixtures.forked import exit_code
from tests.integration.log import stream_life
from tests.integration.log.stream_life import KEPT

ROOT = Path(__file__).parents[3]
SOURCES = ROOT / "ledgerlog_spark"
PATIENCE_SECONDS = 120


def life(uri: str, log: str, directory: Path, failpoint: str = "") -> int:
    """Run one life of the stream, and return how it ended."""
    return exit_code(stream_life.main, uri, log, str(directory), failpoint=failpoint)


def payloads(uri: str, name: str) -> list[bytes]:
    with ll.connect(uri) as client:
        log = BlockingLogs(client).open(name)
        return [
            bytes(entry.payload)
            for item in log.snapshot().items
            for batch in log.read_range(item.ledger_id, item.first_entry_id, item.last_entry_id)
            for entry in batch
        ]


def test_every_failpoint_stands_in_the_code_exactly_once() -> None:
    source = "\n".join(path.read_text() for path in SOURCES.rglob("*.py"))
    assert Counter(re.findall(r'\breach\("([^"]+)"\)', source)) == dict.fromkeys(NAMES, 1)


@pytest.mark.processes
@pytest.mark.zookeeper
@pytest.mark.parametrize("failpoint", NAMES)
def test_stream_killed_at_a_failpoint_goes_on_and_has_every_batch_once(
    failpoint: str, uri: str, tmp_path: Path
) -> None:
    log = f"killed-at-{failpoint}"
    assert life(uri, log, tmp_path, failpoint) == -signal.SIGKILL
    assert life(uri, log, tmp_path) == 0
    assert payloads(uri, log) == KEPT


def test_process_that_is_told_to_stop_goes_on_once_it_is_resumed() -> None:
    passes_twice = "from ledgerlog_spark.log.failpoints import reach as r; r('{0}'); r('{0}')"
    process = subprocess.Popen(
        [sys.executable, "-c", passes_twice.format("commit.begun")],
        cwd=ROOT,
        env={**os.environ, VARIABLE: "stop:commit.begun"},
    )
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    process.send_signal(signal.SIGCONT)
    assert process.wait(PATIENCE_SECONDS) == 0


@pytest.mark.parametrize("text", ["commit", "commit.begun:0", "commit.begun:", "commit.begun@"])
def test_a_name_that_is_no_failpoint_is_an_error_and_not_a_test_that_passes(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"commit\.before_multi"):
        parse(text)
