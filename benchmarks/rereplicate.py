"""How fast does a worker copy the entries of a dead bookie, compared with appends in the same run?

A client writes ledgers with entries of 64 KiB to three of four bookies. Then a bookie is killed
with SIGKILL, the ledgers that name it are marked, and a worker of a process of its own heals them.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import ledgerlog_spark as ll
from benchmarks.machine import median
from benchmarks.options import parsed
from benchmarks.report import Figure, show
from ledgerlog_spark.metadata.stores import open_metadata

if TYPE_CHECKING:
    from ledgerlog_spark.client.blocking.client import BlockingClient
    from ledgerlog_spark.local.cluster import LocalCluster

LEDGERS = 16
ENTRIES = 256
ENTRY_SIZE_BYTES = 1 << 16
PENDING = 64
WORKER = """
import asyncio, sys
from ledgerlog_spark.autorecovery.daemon import AutoRecoveryDaemon
from ledgerlog_spark.autorecovery.replicate.worker import WorkerSettings

def write_line(line):
    sys.stdout.write(line + chr(10))
    sys.stdout.flush()

asyncio.run(AutoRecoveryDaemon(sys.argv[1], "worker:1", write_line, WorkerSettings()).run())
"""


def appended(client: BlockingClient) -> tuple[list[int], float]:
    """Write the ledgers. Return their ids, and the payload bytes in a second."""
    payload, ids = bytes(ENTRY_SIZE_BYTES), []
    begun = time.perf_counter()
    for _ in range(LEDGERS):
        with client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2) as ledger:
            pending = []
            for _ in range(ENTRIES):
                pending.append(ledger.append_async(payload))
                if len(pending) > PENDING:
                    pending.pop(0).result()
            for one in pending:
                one.result()
            ids.append(ledger.id)
    seconds = time.perf_counter() - begun
    return ids, LEDGERS * ENTRIES * ENTRY_SIZE_BYTES / seconds


async def mark(uri: str, ids: list[int], name: str) -> int:
    """Mark the ledgers that name a bookie, after its registration has ended. Count them."""
    stores = await open_metadata(uri)
    try:
        while name in await stores.registration.writable():
            await asyncio.sleep(0.1)
        count = 0
        for ledger_id in ids:
            metadata = (await stores.ledgers.load(ledger_id)).value
            if any(name in fragment.ensemble for fragment in metadata.fragments):
                await stores.marks.mark(ledger_id, [name])
                count += 1
        return count
    finally:
        await stores.close()


def copied(uri: str, cluster: LocalCluster, ids: list[int], name: str) -> float:
    """Kill a bookie, and heal its ledgers. Return the copied bytes in a second.

    The time begins with the first mark, so the last mark is written while the worker copies.
    """
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, uri], stdout=subprocess.PIPE, text=True
    )
    try:
        assert worker.stdout is not None
        while json.loads(worker.stdout.readline())["event"] != "started":
            pass
        cluster.kill(name)
        begun, size_bytes = time.perf_counter(), 0
        left = asyncio.run(mark(uri, ids, name))
        while left:
            event = json.loads(worker.stdout.readline())
            if event["event"] == "job" and event["outcome"] == "healed":
                size_bytes += event["bytes_copied"]
                left -= 1
        return size_bytes / (time.perf_counter() - begun)
    finally:
        worker.terminate()
        worker.wait()


def main() -> None:
    """Measure appends and copies in turn. Each round has a cluster of its own."""
    options = parsed(__doc__, rounds=3)
    appends, copies = [], []
    for _ in range(options.rounds):
        with (
            ll.local_cluster(bookies=4, directory=options.directory) as cluster,
            ll.connect(cluster.metadata_service_uri) as client,
        ):
            uri = cluster.metadata_service_uri
            ids, rate = appended(client)
            appends.append(rate / 1e6)
            copies.append(copied(uri, cluster, ids, "bookie-0") / 1e6)
    figure = Figure(
        "re-replication, 64 KiB entries",
        median(copies),
        "MB/s",
        tuple(copies),
        goal=0.5 * median(appends),
        limit=median(appends),
        limit_of="appends",
    )
    show("rereplicate", [figure], as_json=options.json)


if __name__ == "__main__":
    main()
