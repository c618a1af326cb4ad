"""Apache BookKeeper beside us, through a rig of shell scripts that the caller points at.

The rig is a directory with `get.sh`, `start.sh [N]`, `stop.sh` and `bench.sh v2 COMMAND ...`,
the last of which prints lines that begin with RESULT.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NAME = "Apache BookKeeper 4.17.3"


class Rig:
    """A running Apache BookKeeper cluster of three bookies."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def bench(self, *command: str) -> str:
        """The last RESULT line of one benchmark of the Java client (v2 protocol)."""
        done = subprocess.run(
            ["bash", str(self.directory / "bench.sh"), "v2", *command],
            capture_output=True,
            text=True,
            check=True,
        )
        results = [line for line in done.stdout.splitlines() if line.startswith("RESULT")]
        if not results:
            raise RuntimeError(f"the rig printed no result for {command}: {done.stdout[-500:]}")
        return results[-1]

    def entries_per_second(self, *command: str) -> float:
        """Median entries/s of `append` or `read`."""
        found = re.search(r"median (\d+(?:\.\d+)?) e/s", self.bench(*command))
        assert found is not None
        return float(found.group(1))

    def milliseconds(self, *command: str) -> float:
        """Median ms of `lat` (its p50) or `recover`."""
        found = re.search(r"(?:p50=|median )(\d+(?:\.\d+)?) ?ms", self.bench(*command))
        assert found is not None
        return float(found.group(1))


@contextmanager
def running(directory: Path | None) -> Iterator[Rig | None]:
    """The peer while the block runs, None when no rig was named."""
    if directory is None:
        yield None
        return
    subprocess.run(["bash", str(directory / "start.sh"), "3"], check=True, capture_output=True)
    try:
        yield Rig(directory)
    finally:
        subprocess.run(["bash", str(directory / "stop.sh")], check=True, capture_output=True)
