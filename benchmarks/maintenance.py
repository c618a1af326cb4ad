"""How much later does a bookie with 100,000 ledgers answer while it maintains its files?

A client adds and reads single entries, one at a time. Meanwhile, files are finished, checkpoints
are made, the entries of 50,000 deleted ledgers are dropped, and compaction copies the other entries
of their files. Then the same client is measured without this work. ZooKeeper, the bookie (write
mode `journal`) and the clients run on this machine.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import grpc
from kazoo.client import KazooClient

import ledgerlog_spark as ll
from benchmarks.boot import COPIES, KIB, LEDGERS, MIB, SMALL_FILES, fill
from benchmarks.machine import median
from benchmarks.options import parsed
from benchmarks.report import Figure, show
from benchmarks.single_bookie import RawConnection, SingleBookie
from bookie_server.core.manifest_codec import decode_manifest
from ledgerlog_spark.local.zookeeper import ZooKeeperProcess
from ledgerlog_spark.transport import control_pb2, control_pb2_grpc

DELETED = LEDGERS // 2
PAUSE_SECONDS = 0.002
FILLER_BYTES_PER_S = 8 << 20
NODES_PER_TRANSACTION = 500
DROP_SECONDS_MAX = 300
IDLE_POLLS = 5
MAINTENANCE_PART = 10
"""Factor by which a measurement is longer than `--seconds`, because maintenance takes a minute."""
SETTINGS = (*SMALL_FILES, "--write-mode", "journal", "--checkpoint-interval-ms", "1000")


def keep_ledgers(uri: str, connect_string: str) -> int:
    """Create metadata for the first `LEDGERS` ledgers, and return the ledger id of the client."""
    with ll.connect(uri) as client:
        own = client.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1).id
    zookeeper = KazooClient(hosts=connect_string)
    zookeeper.start()
    try:
        data, _ = zookeeper.get(node_of(own))
        for folder in sorted(
            {node_of(ledger_id).rsplit("/", 1)[0] for ledger_id in range(LEDGERS)}
        ):
            zookeeper.ensure_path(folder)
        ids = [ledger_id for ledger_id in range(LEDGERS) if ledger_id != own]
        for start in range(0, len(ids), NODES_PER_TRANSACTION):
            transaction = zookeeper.transaction()
            for ledger_id in ids[start : start + NODES_PER_TRANSACTION]:
                transaction.create(node_of(ledger_id), data)
            for result in transaction.commit():
                if isinstance(result, Exception):
                    raise result
    finally:
        zookeeper.stop()
        zookeeper.close()
    return own


def node_of(ledger_id: int) -> str:
    """Return the path of the node of a ledger."""
    digits = f"{ledger_id:010d}"
    return f"/ledgers/{digits[:2]}/{digits[2:6]}/L{digits[6:]}"


class Latencies:
    """Measures the times of single adds and of reads of cached entries, in ms."""

    def __init__(self, port: int, ledger_id: int) -> None:
        self._port = port
        self._ledger_id = ledger_id
        self._next = 0
        self._payload = os.urandom(KIB)

    def late(self, seconds: float) -> tuple[float, float]:
        """Measure for `seconds`. Return the p99.9 of adds and the p99.9 of reads."""
        adds: list[float] = []
        reads: list[float] = []
        end = time.perf_counter() + seconds
        with RawConnection(self._port) as connection:
            while time.perf_counter() < end:
                entry_id, self._next = self._next, self._next + 1
                ids = self._ledger_id, entry_id
                adds.append(timed(partial(connection.add, *ids, self._payload)))
                reads.append(timed(partial(connection.read, *ids)))
                time.sleep(PAUSE_SECONDS)
        return late_ms(adds), late_ms(reads)


def timed(call: Callable[[], object]) -> float:
    """Return the time of a call, in ms."""
    before = time.perf_counter()
    call()
    return (time.perf_counter() - before) * 1e3


def late_ms(times: list[float]) -> float:
    """Return the p99.9 of the times."""
    return sorted(times)[int(len(times) * 0.999)]


def filler(port: int) -> None:
    """Add entries to ledger `LEDGERS - 1` until the process is ended, so that files become full."""
    payload = os.urandom(64 * KIB)
    entry_id, began = COPIES, time.perf_counter()
    with RawConnection(port) as connection:
        while True:
            connection.add(LEDGERS - 1, entry_id, payload)
            entry_id += 1
            ahead = (entry_id - COPIES) * len(payload) / FILLER_BYTES_PER_S
            time.sleep(max(0.0, began + ahead - time.perf_counter()))


def begin_maintenance(bookie: SingleBookie) -> None:
    """Request that the bookie drops the deleted ledgers and compacts its files."""
    with grpc.insecure_channel(f"127.0.0.1:{bookie.grpc_port}") as channel:
        stub = control_pb2_grpc.BookieStub(channel)
        stub.CollectGarbage(control_pb2.CollectGarbageRequest(), timeout=DROP_SECONDS_MAX)


def files_of(bookie: SingleBookie) -> tuple[int, float]:
    """Return the id of the next file, and the MiB in files of copies."""
    manifest = decode_manifest((bookie.directory / "MANIFEST").read_bytes())
    copied = sum(file.live_bytes for file in manifest.files if file.is_copies)
    return manifest.next_file_id, copied / MIB


def wait_until_idle(bookie: SingleBookie) -> None:
    """Wait until the bookie no longer prepares new files."""
    before, same = -1, 0
    while same < IDLE_POLLS:
        time.sleep(1)
        now, _ = files_of(bookie)
        before, same = now, same + 1 if now == before else 0


@dataclass(frozen=True)
class Measured:
    """One run: p99.9 in ms with maintenance and without, and the extent of the maintenance."""

    busy: tuple[float, float]
    idle: tuple[float, float]
    files: int
    copied_mib: float


def measure(bookie: SingleBookie, zookeeper: ZooKeeperProcess, seconds: float) -> Measured:
    """Fill a bookie with ledgers, and measure it with maintenance and without."""
    uri = f"zk://{zookeeper.connect_string}/ledgers"
    bookie.start()
    own = keep_ledgers(uri, zookeeper.connect_string)
    fill(bookie, LEDGERS + DELETED)
    client = Latencies(bookie.port, own)
    first, _ = files_of(bookie)
    code = f"from benchmarks.maintenance import filler; filler({bookie.port})"
    filling = subprocess.Popen([sys.executable, "-c", code])
    beginning = threading.Thread(target=begin_maintenance, args=(bookie,))
    beginning.start()
    try:
        busy = client.late(seconds)
    finally:
        filling.kill()
        filling.wait()
        beginning.join()
    last, copied_mib = files_of(bookie)
    wait_until_idle(bookie)
    return Measured(busy, client.late(seconds), last - first, copied_mib)


def main() -> None:
    """Measure with maintenance, then without."""
    options = parsed(__doc__)
    seconds = MAINTENANCE_PART * options.seconds
    runs = []
    with tempfile.TemporaryDirectory(prefix="ledgerlog-upkeep-", dir=options.directory) as name:
        for number in range(options.rounds):
            root = Path(name) / str(number)
            with ZooKeeperProcess(root / "zookeeper") as zookeeper:
                uri = f"zk://{zookeeper.connect_string}/ledgers"
                journal = root / "journal"
                journal.mkdir()
                settings = (*SETTINGS, "--journal-directory", str(journal))
                bookie = SingleBookie(root / "bookie", uri, settings)
                try:
                    runs.append(measure(bookie, zookeeper, seconds))
                finally:
                    bookie.kill()
            shutil.rmtree(root)
    figures = []
    for place, what in enumerate(("an add", "a read of a cached entry")):
        later = tuple(run.busy[place] - run.idle[place] for run in runs)
        alone = tuple(run.idle[place] for run in runs)
        figures += [
            Figure(f"{what}: increase of the p99.9 during maintenance",
                   median(list(later)), "ms", later, goal=50, lower_is_better=True),
            Figure(f"{what}, p99.9 without maintenance", median(list(alone)), "ms", alone),
        ]  # fmt: skip
    for what, unit, each in (
        ("files that were begun during maintenance", "", tuple(float(run.files) for run in runs)),
        ("data that compaction copied", "MiB", tuple(run.copied_mib for run in runs)),
    ):
        figures.append(Figure(what, median(list(each)), unit, each))
    show("maintenance", figures, as_json=options.json)


if __name__ == "__main__":
    main()
