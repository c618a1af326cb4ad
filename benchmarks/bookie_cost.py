"""How many bytes go to the disk for each payload byte, and how much memory does a bookie use?

The bookies first write to new files, and then to recycled files, whose earlier ledgers were
deleted. The bytes are read from the counter of the block device. Writes of other programs also
increase this counter, so the figure is from the round with the fewest bytes. The kernel also counts
the bytes that each process writes. The script also prints this count for the bookies. Memory is the
anonymous resident memory of a bookie at the end of the load.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import grpc

import ledgerlog_spark as ll
from benchmarks.machine import anonymous_bytes, device_bytes, disk_bytes, median
from benchmarks.options import parsed
from benchmarks.report import Figure, show
from bookie_server.core.manifest_codec import decode_manifest
from ledgerlog_spark.local.bookie import FILE_SIZE_BYTES
from ledgerlog_spark.local.cluster import Cluster
from ledgerlog_spark.transport import control_pb2, control_pb2_grpc

if TYPE_CHECKING:
    from ledgerlog_spark.client.blocking.writer import BlockingWriteHandle

SIZE_BYTES = 64 << 10
MEBIBYTE = 1 << 20
POOL_BYTES = 3 * FILE_SIZE_BYTES
"""Maximum payload bytes of a round in recycled files. A bookie's pool of freed files is larger."""

Run = Callable[["BlockingWriteHandle", bytes, float, int], int]


@dataclass(frozen=True)
class Cost:
    """The written bytes, the memory and the files of one round.

    Attributes:
        device: Bytes that each bookie wrote for each payload byte, by the counter of the device.
        process: The same ratio, but by the kernel's count for the process that wrote the most
            bytes.
        memory: Memory of the bookie that uses the most memory, in MiB.
        begun: Number of files that the bookies began to write.
        recycled: Number of the begun files that are in the slot of an earlier file.
    """

    device: float
    process: float
    memory: float
    begun: int
    recycled: int


def stream(ledger: BlockingWriteHandle, payload: bytes, seconds: float, size_max: int) -> int:
    """Append with a full window of pending entries, and return the number of payload bytes."""
    begun, done = time.perf_counter(), 0
    pending: list[Future[int]] = []
    while time.perf_counter() - begun < seconds and done * len(payload) < size_max:
        pending = [ledger.append_async(payload) for _ in range(64)]
        done += len(pending)
    pending[-1].result()
    return done * len(payload)


def one_at_a_time(
    ledger: BlockingWriteHandle, payload: bytes, seconds: float, size_max: int
) -> int:
    """Append entries, each after the previous acknowledgement. Return the payload bytes."""
    begun, done = time.perf_counter(), 0
    while time.perf_counter() - begun < seconds and done * len(payload) < size_max:
        ledger.append(payload)
        done += 1
    return done * len(payload)


def cost(cluster: Cluster, run: Run, seconds: float, size_max: int = 1 << 62) -> Cost:
    """Write one ledger, and measure its cost."""
    bookies = cluster.members.bookies
    with ll.connect(cluster.metadata_service_uri) as client:
        ledger = client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=3)
        known = files(cluster)
        before = [device_bytes(bookie.pid) for bookie in bookies]
        disk_before = disk_bytes(cluster.directory)
        payload_bytes = run(ledger, os.urandom(SIZE_BYTES), seconds, size_max)
        memory = max(anonymous_bytes(bookie.pid) for bookie in bookies)
        disk = disk_bytes(cluster.directory) - disk_before
        written = [device_bytes(b.pid) - n for b, n in zip(bookies, before, strict=True)]
        begun = files(cluster) - known
        ledger.close()
    recycled = sum(slot != f"slot-{file_id:08d}" for _, file_id, slot in begun)
    return Cost(
        disk / payload_bytes / len(bookies),
        max(written) / payload_bytes,
        memory / MEBIBYTE,
        len(begun),
        recycled,
    )


def recycled_cost(cluster: Cluster, run: Run, seconds: float) -> Cost:
    """Delete all earlier ledgers, free their space, and return the cost of a further ledger."""
    with ll.connect(cluster.metadata_service_uri) as client:
        for ledger_id in list(client.list_ledgers()):
            client.delete_ledger(ledger_id)
    for bookie in cluster.members.bookies:
        with grpc.insecure_channel(f"127.0.0.1:{bookie.grpc_port}") as channel:
            stub = control_pb2_grpc.BookieStub(channel)
            stub.CollectGarbage(control_pb2.CollectGarbageRequest())
    return cost(cluster, run, seconds, POOL_BYTES)


def files(cluster: Cluster) -> set[tuple[str, int, str]]:
    """Return bookie, file id and slot of each file. The name of a new slot contains the file id."""
    return {
        (bookie.id, entry.file_id, entry.slot)
        for bookie in cluster.members.bookies
        for entry in decode_manifest((Path(bookie.directory) / "MANIFEST").read_bytes()).files
    }


def main() -> None:
    """Measure a stream and single entries of 64 KiB, in new files and in recycled files."""
    options = parsed(__doc__)
    seconds, rounds = options.seconds, range(options.rounds)
    with ll.local_cluster(bookies=3, directory=options.directory) as cluster:
        streams = [cost(cluster, stream, seconds) for _ in rounds]
        singles = [cost(cluster, one_at_a_time, seconds) for _ in rounds]
        # After two more runs, the active file and the next file are recycled files too.
        for _ in range(2):
            recycled_cost(cluster, stream, seconds)
        again = [recycled_cost(cluster, stream, seconds) for _ in rounds]
        singles_again = [recycled_cost(cluster, one_at_a_time, seconds) for _ in rounds]
    figures = []
    for name, costs, goal in (
        ("64 KiB, window full, new files", streams, 1.05),
        ("64 KiB, one at a time, new files", singles, 1.15),
        ("64 KiB, window full, recycled files", again, 1.05),
        ("64 KiB, one at a time, recycled files", singles_again, 1.15),
    ):
        found = tuple(c.device for c in costs)
        reckoned = tuple(c.process for c in costs)
        figures += [
            Figure(
                f"{name}: device bytes per payload byte",
                min(found),
                "",
                found,
                goal=goal,
                lower_is_better=True,
            ),
            Figure("the same as the kernel reckons", median(list(reckoned)), "", reckoned),
        ]
    memory = [s.memory for s in streams]
    figures.append(
        Figure(
            "anonymous memory of a bookie under load",
            median(memory),
            "MiB",
            tuple(memory),
            goal=300.0,
            lower_is_better=True,
        )
    )
    rounds_again = [*again, *singles_again]
    share = sum(s.recycled for s in rounds_again) / max(1, sum(s.begun for s in rounds_again))
    name = "share of the files of those rounds that were recycled"
    figures.append(Figure(name, share, "", (share,), goal=1.0))
    show("cost to a bookie", figures, as_json=options.json)


if __name__ == "__main__":
    main()
