"""How much time passes from the append of a record to its delivery in another process?

The measured time is from the call of `append_async` to the delivery by `tail`. The ledgers have
E3/Qw3/Qa2. ZooKeeper, three bookies, the leader and the reader run on this machine. The same run
measures the sum of the times of one disk sync and one round trip of a socket. The goal is three
times this sum. The bare tail (`bare_tail`) is a minimal program with the same number of processes.
The latency of the bare tail shows which part of the measured latency is not due to ledgers.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING

import ledgerlog_spark as ll
from benchmarks import bare_tail
from benchmarks.machine import disk_rate, echo_rate, median
from benchmarks.options import parsed
from benchmarks.report import Figure, show

if TYPE_CHECKING:
    from ledgerlog_spark.log.clients import BlockingLogClient

RECORD_SIZE_BYTES = 200
RATES = (20, 1_000, 10_000)
"""Rates at which records are appended, in records/s."""

READER = """
import json, sys, time, ledgerlog_spark as ll
with ll.connect(sys.argv[1]) as client:
    tail = client.open_log(sys.argv[2]).tail(0)
    found = []
    for record in tail:
        now = time.monotonic_ns()
        if record.value == b"end":
            break
        found.append(now - int(record.value[:20]))
        if len(found) == 1:
            print("ready", flush=True)
    tail.close()
    print(json.dumps(found))
"""


def latencies_ms(
    client: BlockingLogClient, uri: str, name: str, rate: int, seconds: float
) -> list[float]:
    """Return the latencies of the records of one round in ms, except the first 10 %."""
    with client.open_log(name, lead=True) as log:
        reader = subprocess.Popen(
            [sys.executable, "-c", READER, uri, name], stdout=subprocess.PIPE, text=True
        )
        assert reader.stdout is not None
        log.append(_record())
        assert reader.stdout.readline() == "ready\n"
        begun, sent = time.perf_counter(), 0
        while (passed := time.perf_counter() - begun) < seconds:
            while sent < passed * rate:
                log.append_async(_record())
                sent += 1
            time.sleep(max(0.0, sent / rate - (time.perf_counter() - begun)))
        log.append(b"end")
        found = json.loads(reader.communicate()[0])
    return [taken / 1e6 for taken in found[1 + len(found) // 10 :]]


def _record() -> bytes:
    return b"%020d" % time.monotonic_ns() + b"x" * (RECORD_SIZE_BYTES - 20)


def main() -> None:
    """Measure each rate."""
    options = parsed(__doc__)
    p50: dict[int, list[float]] = {rate: [] for rate in RATES}
    p99: dict[int, list[float]] = {rate: [] for rate in RATES}
    bare: dict[int, list[float]] = {rate: [] for rate in RATES}
    directory = options.directory or Path(gettempdir())
    with (
        ll.local_cluster(bookies=3, directory=options.directory) as cluster,
        ll.connect(cluster.metadata_service_uri) as client,
    ):
        uri = cluster.metadata_service_uri
        for number in range(options.rounds):
            for rate in RATES:
                found = sorted(
                    latencies_ms(client, uri, f"log-{rate}-{number}", rate, options.seconds)
                )
                p50[rate].append(found[len(found) // 2])
                p99[rate].append(found[len(found) * 99 // 100])
                bare[rate].append(median(bare_tail.latencies_ms(directory, rate, options.seconds)))
    sync_ms = disk_rate(directory, size_bytes=4_096)[1]
    best = sync_ms + echo_rate(size_bytes=RECORD_SIZE_BYTES)[1]
    figures = []
    for rate in RATES:
        for name, values, goal in (
            ("p50", p50[rate], 3 * best),
            ("p99", p99[rate], None),
            ("p50 of the bare tail", bare[rate], None),
        ):
            figures.append(
                Figure(
                    f"{rate:,} records/s, {name}",
                    median(values),
                    "ms",
                    tuple(values),
                    goal=goal,
                    lower_is_better=True,
                    limit=best,
                    limit_of="3 writers' sync + round trip",
                )
            )
    show("tail_latency", figures, as_json=options.json)


if __name__ == "__main__":
    main()
