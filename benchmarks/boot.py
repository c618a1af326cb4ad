"""How fast does a bookie start after a SIGKILL under load, and with 100,000 ledgers in 400 files?

The time of a start includes the start of Python, and ends when the bookie serves. ZooKeeper and the
bookie run on this machine. Before the SIGKILL, a client adds entries of 64 KiB as fast as it can.
Each of the 100,000 ledgers has one entry in each of ten files. After the starts with these ledgers,
the memory of the bookie is measured too.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import tempfile
import threading
import time
from pathlib import Path

from benchmarks.machine import median
from benchmarks.options import parsed
from benchmarks.report import Figure, show
from benchmarks.single_bookie import RawConnection, SingleBookie
from ledgerlog_spark.local.zookeeper import ZooKeeperProcess

KIB = 1 << 10
MIB = 1 << 20
LEDGERS = 100_000
FILES = 400
COPIES = 10
"""Number of entries of each ledger, each in another file. So there are 1,000,000 pairs of a ledger
and a file that has an entry of it."""
FILE_SIZE_BYTES = 8 * MIB
PAYLOAD_BYTES = 3_000
NEVER_MS = 86_400_000
SMALL_FILES = ("--file-size-bytes", str(FILE_SIZE_BYTES), "--gc-interval-ms", str(NEVER_MS))


def fill(bookie: SingleBookie, ledgers: int) -> None:
    """Write `COPIES` entries of each ledger. The ledgers have the same order in each file."""
    payload = os.urandom(PAYLOAD_BYTES)
    with RawConnection(bookie.port) as connection:
        for entry_id in range(COPIES):
            connection.add_all(((ledger_id, entry_id) for ledger_id in range(ledgers)), payload)


def load(bookie: SingleBookie) -> None:
    """Add entries of 64 KiB, with 12 MiB of them pending, until the bookie is killed."""
    payload = os.urandom(64 * KIB)
    with (
        contextlib.suppress(OSError, RuntimeError),
        RawConnection(bookie.port) as connection,
    ):
        connection.add_all(((1, entry_id) for entry_id in itertools.count()), payload)


def after_kill(uri: str, directory: Path, seconds: float) -> float:
    """Return the seconds of a start after a SIGKILL under load, with the default settings."""
    bookie = SingleBookie(directory, uri, ())
    try:
        bookie.start()
        loading = threading.Thread(target=load, args=(bookie,))
        loading.start()
        time.sleep(seconds)
        bookie.kill()
        loading.join()
        return bookie.start()
    finally:
        bookie.kill()
        shutil.rmtree(directory, ignore_errors=True)


def many_ledgers(uri: str, directory: Path, rounds: int) -> tuple[list[float], list[float], int]:
    """Return the seconds of clean starts, the MiB of memory after each, and the number of files."""
    bookie = SingleBookie(directory, uri, SMALL_FILES)
    seconds, memory = [], []
    try:
        bookie.start()
        fill(bookie, LEDGERS)
        for _ in range(rounds):
            bookie.stop()
            seconds.append(bookie.start())
            time.sleep(1)
            memory.append(bookie.anonymous_mib())
        files = len(list(directory.glob("slot-*")))
    finally:
        bookie.kill()
    return seconds, memory, files


def main() -> None:
    """Measure both kinds of start."""
    options = parsed(__doc__)
    with tempfile.TemporaryDirectory(prefix="ledgerlog-boot-", dir=options.directory) as name:
        root = Path(name)
        with ZooKeeperProcess(root / "zookeeper") as zookeeper:
            uri = f"zk://{zookeeper.connect_string}/ledgers"
            killed = [
                after_kill(uri, root / f"killed-{number}", options.seconds)
                for number in range(options.rounds)
            ]
            clean, memory, files = many_ledgers(uri, root / "many", options.rounds)
    figures = [
        Figure("start after a SIGKILL under load",
               median(killed), "s", tuple(killed), goal=5, lower_is_better=True),
        Figure(f"clean start, {LEDGERS:,} ledgers in {files} files",
               median(clean), "s", tuple(clean), goal=3, lower_is_better=True),
        Figure("anonymous memory after this start",
               median(memory), "MiB", tuple(memory), goal=300, lower_is_better=True),
    ]  # fmt: skip
    show("boot", figures, as_json=options.json)


if __name__ == "__main__":
    main()
