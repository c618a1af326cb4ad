"""Runs Apache BookKeeper for comparison, with shell scripts in a directory that the caller names.

This directory, the rig, contains `get.sh`, `start.sh [N]`, `stop.sh` and `bench.sh v2 COMMAND ...`.
`bench.sh` prints lines that begin with RESULT. The ZooKeeper of the rig listens on the port
`ZKPORT`. With `CLEAN=1`, the rig starts without data.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ledgerlog_spark.local.zookeeper import free_port

NAME = "Apache BookKeeper 4.17.3"
BOOKIES = 3


class Rig:
    """A cluster of Apache BookKeeper with three bookies."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        # The default port may belong to another ZooKeeper, so the rig gets a port of its own.
        self._environment = {"ZKPORT": str(free_port()), "CLEAN": "1", **os.environ}
        self._results: dict[tuple[str, ...], list[str]] = {}

    def start(self) -> None:
        """Start ZooKeeper and the bookies, and return when all these processes run."""
        self._script("get.sh")
        said = self._script("start.sh", str(BOOKIES))
        if "DOWN" in said:
            raise RuntimeError(f"a process of the rig did not start:\n{said}")

    def stop(self) -> None:
        """Stop the processes that `start` started."""
        self._script("stop.sh")

    def entries_per_second(self, *command: str) -> float:
        """Return the median entries/s of `append`, `read` or `batch`."""
        return self._median(r"median (\d+(?:\.\d+)?) e/s", command)

    def milliseconds(self, *command: str) -> float:
        """Return the median ms of `recover`, or the median over the rounds of the p50 of `lat`."""
        return self._median(r"(?:p50=|median )(\d+(?:\.\d+)?) ?ms", command)

    def client_rate(self, command: tuple[str, ...], uri: str | None = None) -> float:
        """Return the entries/s of one run of the Java client, with cluster `uri` or with the rig.

        If `uri` is None, the client uses the cluster of the rig.
        """
        port = self._environment["ZKPORT"]
        cluster = uri or f"zk+hierarchical://127.0.0.1:{port}/ledgers"
        client = (
            f'. "{self.directory}/env.sh"; exec java -Xmx1g -XX:MaxDirectMemorySize=1g $JOPTS '
            "-Dloglevel=ERROR -Dnosettle=true -Dio.netty.leakDetectionLevel=disabled "
            '-cp "$BK/classes:$CP" Bench "$@"'
        )
        said = self._run(["bash", "-c", client, "bench", cluster, "v2", "-", *command])
        found = re.findall(r"median (\d+(?:\.\d+)?) e/s", said)
        if not found or "ERRORS" in said:
            raise RuntimeError(f"the Java client failed with {command} at {cluster}: {said}")
        return float(found[0])

    def _median(self, pattern: str, command: tuple[str, ...]) -> float:
        found = re.findall(pattern, "\n".join(self._bench(command)))
        if not found:
            raise RuntimeError(f"the rig printed no figure for {command}: {self._bench(command)}")
        return statistics.median(map(float, found))

    def _bench(self, command: tuple[str, ...]) -> list[str]:
        """Return the RESULT lines of a benchmark of the Java client.

        Each benchmark runs only once.
        """
        if command not in self._results:
            said = self._script("bench.sh", "v2", *command)
            lines = [line for line in said.splitlines() if line.startswith("RESULT")]
            self._results[command] = lines
        return self._results[command]

    def _script(self, name: str, *arguments: str) -> str:
        return self._run(["bash", str(self.directory / name), *arguments])

    def _run(self, command: list[str]) -> str:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            env=self._environment,
        )
        if done.returncode:
            raise RuntimeError(
                f"{' '.join(command)} of the rig ended with {done.returncode}: "
                f"{done.stdout[-500:]}{done.stderr[-500:]}"
            )
        return done.stdout


@contextmanager
def running(directory: Path | None) -> Iterator[Rig | None]:
    """Run the peer during the block. Yield None if no rig was named."""
    if directory is None:
        yield None
        return
    rig = Rig(directory)
    try:
        rig.start()
        yield rig
    finally:
        rig.stop()
