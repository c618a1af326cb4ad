"""What does an append cost a bookie: bytes to the device for each payload byte, and memory?

Device bytes are the kernel's own counter of each bookie process; memory is anonymous resident
memory at the end of the load.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import ledgerlog_spark as ll
from benchmarks.machine import anonymous_bytes, device_bytes, median
from benchmarks.options import parsed
from benchmarks.report import Figure, show
from ledgerlog_spark.client.blocking import BlockingWriteHandle
from ledgerlog_spark.local.cluster import Cluster

SIZE_BYTES = 64 << 10
MEBIBYTE = 1 << 20


def stream(ledger: BlockingWriteHandle, payload: bytes, seconds: float) -> int:
    """Payload bytes appended with a full window outstanding."""
    begun, done = time.perf_counter(), 0
    while time.perf_counter() - begun < seconds:
        pending = [ledger.append_async(payload) for _ in range(64)]
        done += len(pending)
    pending[-1].result()
    return done * len(payload)


def one_at_a_time(ledger: BlockingWriteHandle, payload: bytes, seconds: float) -> int:
    """Payload bytes appended, each entry after the one before it was acknowledged."""
    begun, done = time.perf_counter(), 0
    while time.perf_counter() - begun < seconds:
        ledger.append(payload)
        done += 1
    return done * len(payload)


def cost(
    cluster: Cluster, run: Callable[[BlockingWriteHandle, bytes, float], int], seconds: float
) -> tuple[float, float]:
    """Device bytes for each payload byte, and the largest bookie's memory in MiB."""
    pids = [member.pid for member in cluster.members.bookies]
    with ll.connect(cluster.metadata_service_uri) as client:
        ledger = client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=3)
        before = [device_bytes(pid) for pid in pids]
        payload_bytes = run(ledger, os.urandom(SIZE_BYTES), seconds)
        memory = max(anonymous_bytes(pid) for pid in pids)
        written = [device_bytes(pid) - b for pid, b in zip(pids, before, strict=True)]
        ledger.close()
    return max(written) / payload_bytes, memory / MEBIBYTE


def main() -> None:
    """Measure a stream and single entries of 64 KiB."""
    options = parsed(__doc__)
    with ll.local_cluster(bookies=3, directory=options.directory) as cluster:
        streams = [cost(cluster, stream, options.seconds) for _ in range(options.rounds)]
        singles = [cost(cluster, one_at_a_time, options.seconds) for _ in range(options.rounds)]
    rows = (
        ("64 KiB, window full: device bytes per payload byte", [s[0] for s in streams], "", 1.05),
        ("64 KiB, one at a time: the same", [s[0] for s in singles], "", 1.15),
        ("anonymous memory of a bookie under load", [s[1] for s in streams], "MiB", 300.0),
    )
    figures = [
        Figure(name, median(found), unit, tuple(found), goal=goal, lower_is_better=True)
        for name, found, unit, goal in rows
    ]
    show("cost to a bookie", figures, as_json=options.json)


if __name__ == "__main__":
    main()
