"""How fast does one writer append, if each entry must be on the disks of two of three bookies?

The ledgers have E3/Qw3/Qa2 and CRC32C. ZooKeeper, three bookies and the client run on this machine.
The output also contains the rate at which three threads write and sync blocks of the same size to
the disk. With `--peer`, the output also contains the figure of Apache BookKeeper.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING

import ledgerlog_spark as ll
from benchmarks import peer_bookkeeper
from benchmarks.machine import disk_rate, echo_rate, median
from benchmarks.options import parsed
from benchmarks.report import Figure, show

if TYPE_CHECKING:
    from ledgerlog_spark.client.blocking.client import BlockingClient
    from ledgerlog_spark.client.blocking.writer import BlockingWriteHandle

KIB = 1 << 10
MIB = 1 << 20
OUTSTANDING = 4_096


@dataclass(frozen=True)
class Case:
    """One row of the output: its name, the function that appends, and its goal."""

    name: str
    size_bytes: int
    unit: str
    goal: float | None
    run: Callable[[BlockingWriteHandle, bytes, float], float]
    peer: tuple[str, ...]
    lower_is_better: bool = False
    goal_to_peer: float | None = None


def stream(ledger: BlockingWriteHandle, payload: bytes, seconds: float) -> float:
    """Return the entries/s of `append_async`. The call waits only while the window has no room."""
    begun, pending, done = time.perf_counter(), [], 0
    while time.perf_counter() - begun < seconds:
        pending = [ledger.append_async(payload) for _ in range(_chunk(payload))]
        done += len(pending)
    pending[-1].result()
    return done / (time.perf_counter() - begun)


def _chunk(payload: bytes) -> int:
    return max(8, min(OUTSTANDING // 4, 4 * MIB // len(payload)))


def batches(count: int) -> Callable[[BlockingWriteHandle, bytes, float], float]:
    """Return a function that measures the entries/s of `append_batch_async`.

    Each batch has `count` entries, and a few batches are pending at a time.
    """

    def run(ledger: BlockingWriteHandle, payload: bytes, seconds: float) -> float:
        batch = [payload] * count
        begun, done, pending = time.perf_counter(), 0, []
        while time.perf_counter() - begun < seconds:
            pending.append(ledger.append_batch_async(batch))
            done += count
            if len(pending) > max(4, OUTSTANDING // count):
                pending.pop(0).result()
        pending[-1].result()
        return done / (time.perf_counter() - begun)

    return run


def one_at_a_time(ledger: BlockingWriteHandle, payload: bytes, seconds: float) -> float:
    """Return the median time of one `append`, in ms."""
    taken, begun = [], time.perf_counter()
    while time.perf_counter() - begun < seconds:
        before = time.perf_counter()
        ledger.append(payload)
        taken.append((time.perf_counter() - before) * 1e3)
    return median(taken)


CASES = (
    Case("64 KiB entries", 64 * KIB, "MB/s", 300, stream, ("append", "65536", "64", "3", "3")),
    Case("1 MiB entries", MIB, "MB/s", 300, stream, ("append", "1048576", "8", "3", "3")),
    Case("1 KiB, append_batch of 64", KIB, "entries/s", 150_000, batches(64),
         ("append", "1024", "2000", "3", "3")),
    Case("1 KiB, append_batch of 256", KIB, "entries/s", 150_000, batches(256),
         ("append", "1024", "2000", "3", "3")),
    Case("1 KiB, append_batch of 1024", KIB, "entries/s", 150_000, batches(1024),
         ("append", "1024", "2000", "3", "3")),
    Case("1 KiB, append_async", KIB, "entries/s", 60_000, stream,
         ("append", "1024", "2000", "3", "3")),
    Case("1 KiB, one at a time, p50", KIB, "ms", None, one_at_a_time, ("lat", "1024", "3", "3"),
         lower_is_better=True, goal_to_peer=0.5),
)  # fmt: skip


def measure(client: BlockingClient, case: Case, seconds: float) -> float:
    """Run one round of the case in a new ledger, and return the measured value."""
    payload = os.urandom(case.size_bytes)
    ledger = client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2)
    value = case.run(ledger, payload, seconds)
    ledger.close()
    client.delete_ledger(ledger.id)
    return value * case.size_bytes / 1e6 if case.unit == "MB/s" else value


def limit(case: Case, directory: Path) -> tuple[float, str]:
    """Return the limit of the machine for this case, and a description of the limit."""
    size = case.size_bytes if case.lower_is_better else max(case.size_bytes, 256 * KIB)
    rate, sync_ms = disk_rate(directory, size_bytes=size)
    if case.lower_is_better:
        return sync_ms + echo_rate(size_bytes=case.size_bytes)[1], "3 writers' sync + round trip"
    per_bookie = rate / 3
    if case.unit == "MB/s":
        return per_bookie / 1e6, f"3 writers, {size // KIB} KiB syncs, each"
    return per_bookie / case.size_bytes, f"3 writers, {size // KIB} KiB syncs, each"


def peer_value(rig: peer_bookkeeper.Rig, case: Case) -> float:
    """Return the value that was measured for Apache BookKeeper, in the unit of the case."""
    if case.lower_is_better:
        return rig.milliseconds(*case.peer)
    rate = rig.entries_per_second(*case.peer)
    return rate * case.size_bytes / 1e6 if case.unit == "MB/s" else rate


def main() -> None:
    """Measure ledgerlog, and then Apache BookKeeper while no ledgerlog cluster runs."""
    options = parsed(__doc__, with_only=True)
    cases = [case for case in CASES if not options.only or options.only in case.name]
    if not cases:
        raise SystemExit(f"no figure has {options.only!r} in its name")
    values: dict[str, list[float]] = {}
    with (
        ll.local_cluster(bookies=3, directory=options.directory) as cluster,
        ll.connect(cluster.metadata_service_uri) as client,
    ):
        for case in cases:
            measure(client, case, min(1.0, options.seconds))  # warms up, not counted
            values[case.name] = [
                measure(client, case, options.seconds) for _ in range(options.rounds)
            ]
    with peer_bookkeeper.running(options.peer) as rig:
        peers = {case.name: peer_value(rig, case) for case in cases} if rig else {}
    figures = []
    for case in cases:
        best, best_of = limit(case, options.directory or Path(gettempdir()))
        figures.append(
            Figure(
                case.name,
                median(values[case.name]),
                case.unit,
                tuple(values[case.name]),
                goal=case.goal,
                goal_to_peer=case.goal_to_peer,
                lower_is_better=case.lower_is_better,
                limit=best,
                limit_of=best_of,
                peer=peers.get(case.name),
                peer_name=peer_bookkeeper.NAME if rig else "",
            )
        )
    show("append", figures, as_json=options.json)


if __name__ == "__main__":
    main()
