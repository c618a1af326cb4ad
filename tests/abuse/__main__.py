"""`python -m tests.abuse [--seconds 6] [--only NAME]`: a client works while bookies are abused.

Three bookies with their default settings, a client that appends to an ensemble of all of them and
reads back, and one abuse after the other. The exit code is 1 if an append or a read took longer
than SECONDS_MAX, if a bookie took more memory than RSS_BYTES_MAX, if its own work blocked its event
loop for longer than LAG_SECONDS_MAX, if a call failed or an entry was wrong, or if a bookie was
replaced or died.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from benchmarks.options import above_zero
from tests.abuse.abuses import ABUSES, prepare
from tests.abuse.client import GoodClient
from tests.abuse.loop_lags import Lag, LoopLags
from tests.fixtures.bookie_process import ROOT, BookieProcess
from tests.fixtures.ports import free_port
from tests.fixtures.stage import Stage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MEBIBYTE = 1 << 20
SECONDS_MAX = 1.0
RSS_BYTES_MAX = 512 * MEBIBYTE
LOOK_SECONDS = 0.1


class Memory:
    """The largest resident memory of any bookie, in bytes."""

    def __init__(self, bookies: Sequence[BookieProcess]) -> None:
        self._processes = [psutil.Process(one.process.pid) for one in bookies if one.process]
        self.rss_bytes_max = 0

    def look(self) -> int:
        """The current memory of the largest bookie."""
        rss_bytes = max(process.memory_info().rss for process in self._processes)
        self.rss_bytes_max = max(self.rss_bytes_max, rss_bytes)
        return rss_bytes


@contextlib.contextmanager
def abuse(name: str, bookies: Sequence[BookieProcess]) -> Iterator[subprocess.Popen[str]]:
    """Run an abuse in a separate process."""
    ports = ",".join(str(bookie.port) for bookie in bookies)
    grpc_ports = ",".join(str(bookie.grpc_port) for bookie in bookies)
    command = [sys.executable, "-m", "tests.abuse.abuses", name, ports, grpc_ports]
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@dataclass
class Findings:
    """The results of all abuses together.

    Attributes:
        broken: A sentence for each broken guarantee.
    """

    slowest_append_seconds: float = 0.0
    slowest_read_seconds: float = 0.0
    longest_lag: Lag = field(default_factory=Lag)
    broken: list[str] = field(default_factory=list)


class Abused:
    """ZooKeeper, three bookies and a good client on them, until the stack is closed."""

    def __init__(self, directory: Path, stack: contextlib.ExitStack) -> None:
        metrics_ports = [free_port() for _ in range(3)]
        stage = Stage(
            directory,
            stack,
            len(metrics_ports),
            lambda number: {
                "session_timeout_ms": 10_000,
                "metrics_port": metrics_ports[number],
            },
        )
        self.bookies = list(stage.bookies.values())
        prepare([bookie.port for bookie in self.bookies])
        self.client = stack.enter_context(GoodClient(stage.uri))
        self.memory = Memory(self.bookies)
        time.sleep(1)  # both warm up
        self.lags = LoopLags(metrics_ports)


def play(name: str, seconds: float, stage: Abused, findings: Findings) -> None:
    """Run one abuse, and print the slowest calls of the client."""
    client = stage.client
    client.begin()
    peak = 0
    with abuse(name, stage.bookies) as process:
        until = time.monotonic() + seconds
        while time.monotonic() < until and process.poll() is None:
            peak = max(peak, stage.memory.look())
            time.sleep(LOOK_SECONDS)
        if process.poll() is not None:
            findings.broken.append(f"{name} ended by itself with {process.returncode}")
            said = ""
        else:
            said, _ = process.communicate(timeout=30)
    append, read = client.appends.slowest_seconds, client.reads.slowest_seconds
    findings.slowest_append_seconds = max(findings.slowest_append_seconds, append)
    findings.slowest_read_seconds = max(findings.slowest_read_seconds, read)
    lag = stage.lags.since_last()
    findings.longest_lag = findings.longest_lag.or_longer(lag)
    print(
        f"{name}: {said.strip()}; {client.appends.count} appends, slowest {append:.2f} s; "
        f"{client.reads.count} reads, slowest {read:.2f} s; RSS {peak // MEBIBYTE} MB; {lag}",
        flush=True,
    )


def judge(stage: Abused, findings: Findings) -> None:
    """Stop the client and the bookies, and record each guarantee that was broken."""
    client, broken = stage.client, findings.broken
    client.stop()
    broken += [f"refused: {reason}" for reason in client.refused]
    if client.wrong:
        broken.append(f"{client.wrong} reads gave wrong entries")
    if client.ensembles() != 1:
        broken.append(f"the ledger had {client.ensembles()} ensembles")
    broken += [f"bookie {b.port} is gone" for b in stage.bookies if b.process and b.process.poll()]
    if findings.slowest_append_seconds > SECONDS_MAX:
        broken.append(f"an append took {findings.slowest_append_seconds:.2f} s")
    if findings.slowest_read_seconds > SECONDS_MAX:
        broken.append(f"a read took {findings.slowest_read_seconds:.2f} s")
    if stage.memory.rss_bytes_max > RSS_BYTES_MAX:
        broken.append(f"a bookie took {stage.memory.rss_bytes_max // MEBIBYTE} MB")
    if findings.longest_lag.is_too_long:
        broken.append(f"a bookie held its loop up: {findings.longest_lag}")
    for bookie in stage.bookies:
        if bookie.stop(signal.SIGTERM):
            broken.append(f"bookie {bookie.port} did not stop cleanly: {bookie.log()[-500:]}")


def run(names: Sequence[str], seconds: float, directory: Path) -> int:
    """Run the abuses, and return the exit code."""
    findings = Findings()
    with contextlib.ExitStack() as stack:
        stage = Abused(directory, stack)
        for name in names:
            play(name, seconds, stage, findings)
        judge(stage, findings)
    for reason in findings.broken:
        print(f"broken: {reason}")
    count = sum(name != "nothing" for name in names)
    print(
        f"{count} abuses, slowest append {findings.slowest_append_seconds:.2f} s, slowest read "
        f"{findings.slowest_read_seconds:.2f} s, RSS {stage.memory.rss_bytes_max // MEBIBYTE} MB "
        f"at most, {findings.longest_lag}, {len(stage.client.refused)} refused"
    )
    return 1 if findings.broken else 0


def main() -> int:
    """Run the command, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=above_zero, default=6, help="for each abuse")
    parser.add_argument("--only", choices=list(ABUSES), action="append", help="play these alone")
    parser.add_argument("--directory", type=Path, help="keep data and logs there")
    chosen = parser.parse_args()
    if chosen.directory is not None:
        return run(chosen.only or list(ABUSES), chosen.seconds, chosen.directory)
    with tempfile.TemporaryDirectory(prefix="ledgerlog-abuse-") as directory:
        return run(chosen.only or list(ABUSES), chosen.seconds, Path(directory))


if __name__ == "__main__":
    sys.exit(main())
