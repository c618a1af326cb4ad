"""Processes that run `ledgerlog autorecovery run`, and can be killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.fixtures.bookie_process import ROOT


class Daemons:
    """The processes of auto-recovery by their id. Their output goes to files.

    Attributes:
        running: The processes that were started and not killed. `dead` lists those that ended.
    """

    def __init__(self, directory: Path, uri: str) -> None:
        self._directory = directory
        self._uri = uri
        self._begun = 0
        self._logs: list[Path] = []
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, count: int) -> None:
        """Start processes until `count` of them run."""
        while len(self.running) < count:
            self._begun += 1
            name = f"daemon-{self._begun}:1"
            log = self._directory / f"daemon-{self._begun}.log"
            self._logs.append(log)
            with log.open("wb") as out:
                self.running[name] = subprocess.Popen(
                    [
                        sys.executable, "-m", "ledgerlog_spark.cli",
                        "autorecovery", "run", "--id", name, "-u", self._uri,
                    ],
                    cwd=ROOT,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                )  # fmt: skip

    def kill(self, name: str) -> None:
        """End a process as a power cut does."""
        process = self.running.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def kill_all(self) -> None:
        """End all processes."""
        for name in list(self.running):
            self.kill(name)

    def dead(self) -> list[str]:
        """The processes that ended although nothing killed them."""
        return [name for name, process in self.running.items() if process.poll() is not None]

    def outcomes(self) -> Counter[str]:
        """Number of ended jobs by their outcome."""
        return Counter(str(event["outcome"]) for event in self._events("job"))

    def marks(self) -> int:
        """Number of marks that all auditors have written."""
        return sum(int(event["marks"]) for event in self._events("walk_ended"))

    def digest_checks(self) -> int:
        """Number of digest checks of all copies that have ended."""
        return sum(event["kind"] == "digests" for event in self._events("check_ended"))

    def _events(self, kind: str) -> Iterator[dict[str, Any]]:
        for log in self._logs:
            for line in log.read_text().splitlines():
                # A process that was killed may have written a part of its last line.
                if line.startswith("{") and line.endswith("}"):
                    event = json.loads(line)
                    if event["event"] == kind:
                        yield event
