"""How fast does a leader append records of 200 bytes, if each record must be on two disks?

The ledgers have E3/Qw3/Qa2 and CRC32C. ZooKeeper, three bookies and the client run on this machine.
Some figures are for records of random bytes ("noise"), which LZ4 cannot compress. The other figures
are for records with lines of text, which LZ4 can compress.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Any

import ledgerlog_spark as ll
from benchmarks.machine import disk_rate, median
from benchmarks.options import parsed
from benchmarks.report import Figure, show

if TYPE_CHECKING:
    from ledgerlog_spark.log.blocking.leader import BlockingLeader
    from ledgerlog_spark.log.clients import BlockingLogClient

RECORD_SIZE_BYTES = 200
RECORDS = 20_000
IN_FLIGHT = 40_000
KIB = 1 << 10


def noise() -> list[bytes]:
    """Return records of random bytes."""
    return [os.urandom(RECORD_SIZE_BYTES) for _ in range(RECORDS)]


def text() -> list[bytes]:
    """Return records that look like lines of an access log."""
    line = '{"time": %d, "level": "INFO", "service": "checkout", "order": "%s", "items": %d}'
    return [
        (line % (1_795_000_000_000 + 13 * n, os.urandom(12).hex(), n % 17))
        .ljust(RECORD_SIZE_BYTES)
        .encode()
        for n in range(RECORDS)
    ]


def many(count: int) -> Callable[[BlockingLeader, list[bytes], float], float]:
    """Return a function that measures the records/s of `append_many_async`.

    Each call appends `count` records. At most 40,000 records are pending.
    """

    def run(log: BlockingLeader, records: list[bytes], seconds: float) -> float:
        batches = cycle([records[at : at + count] for at in range(0, RECORDS, count)])
        begun, done = time.perf_counter(), 0
        pending: deque[Future[Any]] = deque()
        while time.perf_counter() - begun < seconds:
            pending.append(log.append_many_async(next(batches)))
            done += count
            if len(pending) > IN_FLIGHT // count:
                pending.popleft().result()
        pending[-1].result()
        return done / (time.perf_counter() - begun)

    return run


def one_by_one(log: BlockingLeader, records: list[bytes], seconds: float) -> float:
    """Return the records/s of `append_async`."""
    begun, done, last = time.perf_counter(), 0, None
    while time.perf_counter() - begun < seconds:
        for record in records[:1_000]:
            last = log.append_async(record)
        done += 1_000
    assert last is not None
    last.result()
    return done / (time.perf_counter() - begun)


@dataclass(frozen=True)
class Case:
    """One row of the output: its name, its records, the function that appends, and its goal."""

    name: str
    records: Callable[[], list[bytes]]
    run: Callable[[BlockingLeader, list[bytes], float], float]
    goal: float | None = None


CASES = (
    Case("append_many of 1,000, noise", noise, many(1_000), 300_000),
    Case("append_many of 1,000, text", text, many(1_000), 300_000),
    Case("append_many of 100, noise", noise, many(100), 300_000),
    Case("append_async, text", text, one_by_one),
)


def measure(client: BlockingLogClient, case: Case, rounds: int, seconds: float) -> list[float]:
    """Return the records/s of each round. A short round that is not counted warms up before."""
    records, found = case.records(), []
    with client.open_log("records", lead=True) as log:
        for number in range(rounds + 1):
            found.append(case.run(log, records, seconds if number else min(1.0, seconds)))
            log.roll()
            log.truncate(log.end_offset)
    return found[1:]


def main() -> None:
    """Measure all cases."""
    options = parsed(__doc__)
    with (
        ll.local_cluster(bookies=3, directory=options.directory) as cluster,
        ll.connect(cluster.metadata_service_uri) as client,
    ):
        values = {
            case.name: measure(client, case, options.rounds, options.seconds) for case in CASES
        }
    directory = options.directory or Path(gettempdir())
    best = disk_rate(directory, size_bytes=256 * KIB)[0] / 3 / RECORD_SIZE_BYTES
    figures = [
        Figure(
            case.name,
            median(values[case.name]),
            "records/s",
            tuple(values[case.name]),
            goal=case.goal,
            limit=best,
            limit_of="3 writers, 256 KiB syncs, each",
        )
        for case in CASES
    ]
    show("log_append", figures, as_json=options.json)


if __name__ == "__main__":
    main()
