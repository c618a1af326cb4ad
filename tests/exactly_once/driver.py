"""The handle of one Spark driver: starts the driver, reads its reports, and kills parts of it."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from ledgerlog_spark.log.failpoints import VARIABLE
from tests.exactly_once.spark_errors import EXIT_CODE
from tests.fixtures.spark_python import DAEMON, python_without_archive

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 300.0
POLL_SECONDS = 0.05
SILENCE_SECONDS = 1.0
ENDINGS_IN_A_ROW_MAX = 10


class SilentDriverError(Exception):
    """The driver reported nothing for too long, or only that its queries ended."""


class EndedDriverError(SilentDriverError):
    """The driver ended by itself."""


class LetDownError(EndedDriverError):
    """Spark let the driver down: a process that Spark started did not answer in time."""


class Driver:
    """One run of `tests.exactly_once.query` in a separate process group.

    Attributes:
        batches: Number of micro-batches that it has reported.
        chunks: Number of chunks of rows that were certainly fed.
        endings: The reasons why queries ended before the driver restarted them.
    """

    def __init__(self, settings: dict[str, Any], log: Path, failpoint: str = "") -> None:
        python = python_without_archive()
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": python}
        if failpoint:
            environment[VARIABLE] = failpoint
        self._log = log.open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.exactly_once.query", json.dumps(settings)],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,
        )
        self.batches = 0
        self.chunks = 0
        self.endings: list[str] = []
        self._endings_in_a_row = 0
        self._said: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._log.write(line)
            if line.startswith(b"{"):
                self._said.put(json.loads(line))
        self._said.put(None)

    def hear(self, seconds: float = PATIENCE_SECONDS) -> dict[str, Any]:
        """Return the next report of the driver.

        Raises:
            SilentDriverError: No report came in time.
            EndedDriverError: It has ended.
        """
        try:
            said = self._said.get(timeout=seconds)
        except queue.Empty:
            raise SilentDriverError(f"nothing for {seconds:g} s") from None
        return self._heard(said)

    def _heard(self, said: dict[str, Any] | None) -> dict[str, Any]:
        if said is None:
            code = self.process.wait()
            if code == EXIT_CODE:
                raise LetDownError("Spark gave up on a process that it started itself")
            raise EndedDriverError(f"it ended with exit code {code}")
        if "fed" in said:
            self.chunks = said["fed"] + 1
        if "batch" in said:
            self.batches += 1
            self._endings_in_a_row = 0
        if "ended" in said:
            self.endings.append(said["why"])
            self._endings_in_a_row += 1
            if self._endings_in_a_row > ENDINGS_IN_A_ROW_MAX:
                raise SilentDriverError(f"its queries end at once: {said['why']}")
        return said

    def wait_for(self, key: str) -> dict[str, Any]:
        """Wait for the next report with this key, and return its value."""
        while key not in (said := self.hear()):
            pass
        return said

    def wait_for_batches(self, count: int) -> None:
        """Wait for this number of further micro-batches."""
        wanted = self.batches + count
        while self.batches < wanted:
            self.hear()

    def wait_until(self, is_met: Callable[[], bool]) -> None:
        """Wait until the condition holds, with or without reports of the driver."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not is_met():
            if time.monotonic() > deadline:
                raise SilentDriverError(f"waited {PATIENCE_SECONDS:g} s in vain")
            try:
                self._heard(self._said.get(timeout=POLL_SECONDS))
            except queue.Empty:
                continue

    def wait_for_silence(self) -> None:
        """Return when all reports were read. The driver must not be able to send more reports."""
        while True:
            try:
                self.hear(SILENCE_SECONDS)
            except EndedDriverError:
                raise
            except SilentDriverError:
                return

    def stopped(self) -> int:
        """The number of its processes that are stopped."""
        return sum(_status(process) == psutil.STATUS_STOPPED for process in self.tree())

    def tree(self) -> list[psutil.Process]:
        """The living processes of the driver and its descendants."""
        try:
            driver = psutil.Process(self.process.pid)
            return [driver, *driver.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def part(self, role: str) -> list[psutil.Process]:
        """The processes of one role: driver, jvm, worker (tasks), source (the stream's reader)."""
        return [process for process in self.tree() if _role_of(process, self.process.pid) == role]

    def end(self) -> None:
        """Kill all of its remaining processes."""
        tree = self.tree()
        for process in tree:
            _signal(process, signal.SIGKILL)
        psutil.wait_procs(tree, timeout=30)
        self.process.wait()
        self._log.close()


def signal_all(processes: list[psutil.Process], number: int) -> None:
    """Send a signal to each living process."""
    for process in processes:
        _signal(process, number)


def _role_of(process: psutil.Process, driver_pid: int) -> str:
    if process.pid == driver_pid:
        return "driver"
    try:
        command = " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
        return "gone"
    if "org.apache.spark.deploy.SparkSubmit" in command:
        return "jvm"
    if "python_streaming_source_runner" in command:
        return "source"
    if "python_streaming_sink_runner" in command:
        return "sink"
    return "worker" if DAEMON in command else "other"


def _status(process: psutil.Process) -> str:
    try:
        return str(process.status())
    except psutil.NoSuchProcess:
        return "gone"


def _signal(process: psutil.Process, number: int) -> None:
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return
