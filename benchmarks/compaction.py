"""How much slower are appends while the bookies compact their files at the default rate?

Two ledgers share files, and one ledger is deleted. Then the bookies are requested to collect
garbage and to compact. The appends of a third ledger are measured while all bookies copy entries,
and again when the bookies no longer copy entries. In each round, the bookies have enough entries to
copy for the whole measurement.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import grpc

import ledgerlog_spark as ll
from benchmarks.append import KIB, MIB, stream
from benchmarks.machine import median
from benchmarks.options import parsed
from benchmarks.report import Figure, show
from bookie_server.config import BookieSettings
from bookie_server.core.manifest_codec import decode_manifest
from ledgerlog_spark.transport import control_pb2, control_pb2_grpc

if TYPE_CHECKING:
    from ledgerlog_spark.client.blocking.client import BlockingClient
    from ledgerlog_spark.client.blocking.writer import BlockingWriteHandle
    from ledgerlog_spark.local.cluster import Cluster
    from ledgerlog_spark.local.members import Member

SIZE_BYTES = 64 * KIB
SMALL_SIZE_BYTES = KIB
RATE_BYTES_PER_S = int(BookieSettings.model_fields["compaction_bytes_per_s"].default)
SPARE_SECONDS = 3
"""Time for which compaction continues after the measurements, in seconds."""
POLL_SECONDS = 0.5
IDLE_POLLS = 8


def fill(client: BlockingClient, seconds: float) -> None:
    """Write two ledgers to the same files, and delete one ledger."""
    stays, goes = (client.create_ledger(ensemble_size=3, write_quorum=3) for _ in range(2))
    payload = os.urandom(SIZE_BYTES)
    # Each live byte counts twice in the rate, because it is read and written.
    pairs = int(seconds * RATE_BYTES_PER_S / 2 / SIZE_BYTES)
    for _ in range(pairs):
        stays.append_async(payload)
        goes.append_async(payload)
    stays.close()
    goes.close()
    client.delete_ledger(goes.id)


def copied_bytes(bookie: Member) -> int:
    """Return the live bytes in the bookie's files of copies."""
    manifest = decode_manifest((Path(bookie.directory) / "MANIFEST").read_bytes())
    return sum(file.live_bytes for file in manifest.files if file.is_copies)


def begin_compaction(cluster: Cluster) -> None:
    """Request garbage collection and compaction from each bookie."""
    for bookie in cluster.members.bookies:
        with grpc.insecure_channel(f"127.0.0.1:{bookie.grpc_port}") as channel:
            stub = control_pb2_grpc.BookieStub(channel)
            stub.CollectGarbage(control_pb2.CollectGarbageRequest())


def wait_until_idle(cluster: Cluster) -> None:
    """Wait until no bookie writes copies any more."""
    before, same = -1, 0
    while same < IDLE_POLLS:
        time.sleep(POLL_SECONDS)
        copied = sum(map(copied_bytes, cluster.members.bookies))
        before, same = copied, same + 1 if copied == before else 0


def slowest(ledger: BlockingWriteHandle, payload: bytes, seconds: float) -> float:
    """Return the time in ms within which 99.9 % of single appends were acknowledged."""
    taken, begun = [], time.perf_counter()
    while time.perf_counter() - begun < seconds:
        before = time.perf_counter()
        ledger.append(payload)
        taken.append((time.perf_counter() - before) * 1e3)
    return sorted(taken)[int(len(taken) * 0.999)]


def measure(client: BlockingClient, seconds: float) -> tuple[float, float]:
    """Return the rate of a stream in MB/s, and the time of slow single appends in ms."""
    ledger = client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2)
    rate = stream(ledger, os.urandom(SIZE_BYTES), seconds) * SIZE_BYTES / 1e6
    late_ms = slowest(ledger, os.urandom(SMALL_SIZE_BYTES), seconds)
    ledger.close()
    client.delete_ledger(ledger.id)
    return rate, late_ms


def main() -> None:
    """Measure with compaction and without compaction in each round."""
    options = parsed(__doc__)
    seconds = options.seconds
    busy: list[tuple[float, float]] = []
    idle: list[tuple[float, float]] = []
    copied: list[float] = []
    with (
        ll.local_cluster(bookies=3, directory=options.directory) as cluster,
        ll.connect(cluster.metadata_service_uri) as client,
    ):
        for _ in range(options.rounds):
            fill(client, 2 * seconds + SPARE_SECONDS)
            before = sum(map(copied_bytes, cluster.members.bookies))
            begin_compaction(cluster)
            busy.append(measure(client, seconds))
            wait_until_idle(cluster)
            copied.append((sum(map(copied_bytes, cluster.members.bookies)) - before) / 3 / MIB)
            idle.append(measure(client, seconds))
    rates = tuple(b[0] / i[0] for b, i in zip(busy, idle, strict=True))
    later = tuple(b[1] - i[1] for b, i in zip(busy, idle, strict=True))
    figures = [
        Figure("64 KiB appends during compaction, divided by the rate without it",
               median(list(rates)), "", rates, goal=0.8),
        Figure("64 KiB appends without compaction",
               median([i[0] for i in idle]), "MB/s", tuple(i[0] for i in idle)),
        Figure("1 KiB, one at a time: increase of the p99.9 during compaction",
               median(list(later)), "ms", later, goal=50, lower_is_better=True),
        Figure("copied by each bookie in a round", median(copied), "MiB", tuple(copied)),
    ]  # fmt: skip
    show("compaction", figures, as_json=options.json)


if __name__ == "__main__":
    main()
