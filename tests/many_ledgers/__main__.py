"""`python -m tests.many_ledgers [--ledgers 100000]`: one bookie with very many ledgers.

It stores an entry of each ledger, finishes files, writes MANIFESTs, restarts after a clean stop and
after a kill, stores another entry of each ledger, and collects all of them as garbage, because none
has metadata. Meanwhile, a well-behaved peer adds entries. The exit code is 1 if the bookie's own
work blocked its event loop for longer than LAG_SECONDS_MAX, if an add of this peer took longer than
ADD_SECONDS_MAX or was refused, if no file was finished, or if not every ledger was collected.
"""

from __future__ import annotations

import argparse
import itertools
import signal
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

import ledgerlog_spark as ll
from benchmarks.options import positive
from ledgerlog_spark.local.zookeeper import ZooKeeperProcess
from tests.abuse.loop_lags import Lag, LoopLags
from tests.fixtures.bookie_process import BookieProcess, Peer, add_frame
from tests.fixtures.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Callable

ADD_SECONDS_MAX = 1.0
FILE_SIZE_BYTES = 256 << 20
"""The default: a file of small entries is full when its index has 100,000 pieces."""
BURST_LEDGERS = 100
PERIOD_SECONDS = 0.01
FIRST_LEDGER = 1_000_000
PAYLOAD = b"x" * 40
ANSWER_BYTES = 28


class WellBehavedPeer:
    """Adds an entry every 10 ms over its own connection, and records the time of each add.

    Attributes:
        slowest_seconds: The longest time of an add.
        refused: Adds that were not stored.

    Args:
        port: The port of the bookie.
        ledger_id: The id of a ledger without entries.
    """

    def __init__(self, port: int, ledger_id: int) -> None:
        self._ledger_id = ledger_id
        self._peer = Peer(port)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="well-behaved peer")
        self.slowest_seconds = 0.0
        self.refused = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._peer.socket.close()

    def _run(self) -> None:
        for entry_id in itertools.count():
            if self._is_over.wait(PERIOD_SECONDS):
                return
            frame = add_frame(self._ledger_id, entry_id, PAYLOAD)
            began = time.monotonic()
            self._peer.send(frame)
            body = self._peer.body()
            self.slowest_seconds = max(self.slowest_seconds, time.monotonic() - began)
            if body is None:
                self.refused += 1
                return
            self.refused += body[4:8] != bytes(4)


class Check:
    """One run."""

    def __init__(self, bookie: BookieProcess, metrics_port: int, ledgers: int, uri: str) -> None:
        self._bookie = bookie
        self._uri = uri
        self._metrics_port = metrics_port
        self._ledgers = ledgers
        self.longest = Lag()
        self.slowest_seconds = 0.0
        self.broken: list[str] = []

    def phase(self, name: str, work: Callable[[], object]) -> object:
        """Run one phase while the peer adds entries, and print its result."""
        with ll.connect(self._uri) as client:  # ledgers without metadata are collected
            ledger_id = client.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1).id
        lags = LoopLags([self._metrics_port])
        began = time.monotonic()
        with WellBehavedPeer(self._bookie.port, ledger_id) as peer:
            outcome = work()
            time.sleep(1)  # the bookie may have background work left
        lag = lags.since_last()
        self.longest = self.longest.or_longer(lag)
        self.slowest_seconds = max(self.slowest_seconds, peer.slowest_seconds)
        if peer.refused:
            self.broken.append(f"{name}: {peer.refused} adds were refused")
        print(
            f"{name}: {time.monotonic() - began:.1f} s, slowest add "
            f"{peer.slowest_seconds:.2f} s, {lag}",
            flush=True,
        )
        return outcome

    def start(self) -> None:
        """Start the bookie."""
        began = time.monotonic()
        self._bookie.start()
        print(f"started after {time.monotonic() - began:.1f} s", flush=True)

    def add_to_each(self, entry_id: int) -> None:
        """Add an entry to each ledger, BURST_LEDGERS at a time."""
        with (
            socket.create_connection(("127.0.0.1", self._bookie.port), timeout=60) as peer,
            peer.makefile("rb") as received,
        ):
            for first in range(FIRST_LEDGER, FIRST_LEDGER + self._ledgers, BURST_LEDGERS):
                end = min(first + BURST_LEDGERS, FIRST_LEDGER + self._ledgers)
                frames = [add_frame(ledger, entry_id, PAYLOAD) for ledger in range(first, end)]
                peer.sendall(b"".join(frames))
                for _ in frames:
                    assert received.read(ANSWER_BYTES)[8:12] == bytes(4), "an add was refused"

    def finished_files(self) -> int:
        """Files with an index, by their slots."""
        return len(list(self._bookie.directory.glob("slot-*"))) - 2  # the active and the next one


def run(ledgers: int, directory: Path) -> int:
    """Run all phases, and return the exit code."""
    metrics_port = free_port()
    with ZooKeeperProcess(directory / "zookeeper") as zookeeper:
        uri = f"zk://{zookeeper.connect_string}/ledgers"
        bookie = BookieProcess(
            directory / "bookie",
            uri,
            session_timeout_ms=10_000,
            metrics_port=metrics_port,
            file_size_bytes=FILE_SIZE_BYTES,
        )
        check = Check(bookie, metrics_port, ledgers, uri)
        try:
            check.start()
            check.phase("an entry of each", lambda: check.add_to_each(0))
            bookie.stop(signal.SIGTERM)
            check.start()
            check.phase("after a clean stop", lambda: time.sleep(3))
            check.phase("another of each", lambda: check.add_to_each(1))
            bookie.kill()
            check.start()
            check.phase("after a kill", lambda: time.sleep(3))
            files = check.finished_files()
            collected = check.phase("collection", bookie.collect)
            code = bookie.stop(signal.SIGTERM)
        finally:
            bookie.kill()
    broken = check.broken
    if files < 1:
        broken.append("no file was finished")
    if collected.ledgers_dropped < ledgers:  # type: ignore[attr-defined]
        broken.append(f"of {ledgers} ledgers these were collected: {collected}")
    if code:
        broken.append(f"the bookie did not stop cleanly: {bookie.log()[-500:]}")
    if check.longest.is_too_long:
        broken.append(f"the bookie held its loop up: {check.longest}")
    if check.slowest_seconds > ADD_SECONDS_MAX:
        broken.append(f"an add took {check.slowest_seconds:.2f} s")
    for reason in broken:
        print(f"broken: {reason}")
    print(
        f"{ledgers:,} ledgers, {files} files finished, slowest add {check.slowest_seconds:.2f} s, "
        f"{check.longest}"
    )
    return 1 if broken else 0


def main() -> int:
    """Run the command, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ledgers", type=positive, default=100_000)
    parser.add_argument("--directory", type=Path, help="keep data and logs there")
    chosen = parser.parse_args()
    if chosen.directory is not None:
        return run(chosen.ledgers, chosen.directory)
    with tempfile.TemporaryDirectory(prefix="ledgerlog-ledgers-") as directory:
        return run(chosen.ledgers, Path(directory))


if __name__ == "__main__":
    sys.exit(main())
