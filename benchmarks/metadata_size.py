"""How much metadata does ZooKeeper store after 10,000 micro-batches and merging?

The batches are written as the streaming sink writes them. Each of the two tasks has a process of
its own, which keeps its ledger open from batch to batch. The driver commits with the state that it
has stored at its last commit. Two differences from a long-lived stream increase the figures. First,
ledgers roll every 360 batches, as with a trigger of ten seconds and `rollMs` of an hour. Second,
nothing is merged before the end. Unlisted ledgers have a grace period of 1 ms, and unused pages
have no grace period. So the last sweep deletes these ledgers and pages, and the last figures do not
count them. The batches have only a few rows, because the script measures only metadata.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

import ledgerlog_spark as ll
from benchmarks.options import positive
from benchmarks.report import Figure, show
from ledgerlog_spark.arrow.entry_cutter import EntrySplitter
from ledgerlog_spark.arrow.stream_codec import encode_schema
from ledgerlog_spark.composition import open_client
from ledgerlog_spark.local.cluster import Cluster
from ledgerlog_spark.local.members import ZOOKEEPER
from ledgerlog_spark.local.zookeeper import four_letters
from ledgerlog_spark.log.committing.commits import KnownLogs
from ledgerlog_spark.log.committing.stream_ledgers import StreamLedgers
from ledgerlog_spark.log.log import Log
from ledgerlog_spark.log.logs import logs_of
from ledgerlog_spark.log.maintenance.sweeper import Sweeper
from ledgerlog_spark.protocol.log.commit.epoch import JobKind
from ledgerlog_spark.upkeep.merge_plan import MergePolicy
from ledgerlog_spark.upkeep.merging import LogMerger

if TYPE_CHECKING:
    from ledgerlog_spark.client.client import LedgerClient
    from ledgerlog_spark.log.committing.job import Job
    from ledgerlog_spark.protocol.log.state.records import StagedRange

BATCHES = 10_000
TASKS = 2
BATCHES_A_LEDGER = 360
ROWS = 20
SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
MEBIBYTE = 1 << 20


@dataclass(frozen=True)
class Sizes:
    """The numbers of ledgers and ranges, and the sizes of ZooKeeper's data, at one moment."""

    ledgers: int
    ranges: int
    zookeeper_bytes: int
    zookeeper_log_bytes: int


def encoded() -> tuple[bytes, bytes, bytes]:
    """Return the rows of a task as an entry, the index entry of their range, and its statistics."""
    splitter = EntrySplitter(SCHEMA)
    batch = pa.record_batch({"id": range(ROWS), "text": ["some text"] * ROWS}, schema=SCHEMA)
    entry, index = [*splitter.add(batch), *splitter.finish()]
    return entry.payload, index.payload, splitter.statistics


async def sizes(client: LedgerClient, cluster: Cluster, log: Log) -> Sizes:
    """Return the sizes now. ZooKeeper's log files are sparse, so only allocated blocks count."""
    told = four_letters(cluster.zookeeper_port, "mntr", timeout_seconds=10)
    rows = dict(line.split("\t", 1) for line in told.splitlines() if "\t" in line)
    directory = Path(cluster.members.get(ZOOKEEPER).directory)
    log_bytes = await asyncio.to_thread(
        lambda: sum(path.stat().st_blocks * 512 for path in directory.rglob("log.*"))
    )
    return Sizes(
        ledgers=len([ledger_id async for ledger_id in client.list_ledgers()]),
        ranges=len((await log.snapshot()).items),
        zookeeper_bytes=int(rows["zk_approximate_data_size"]),
        zookeeper_log_bytes=log_bytes,
    )


async def stream(log: Log, batches: int) -> None:
    """Write all batches of one query. The `TASKS` tasks of a batch run at the same time."""
    payload, index, statistics = encoded()
    workers = [StreamLedgers() for _ in range(TASKS)]
    known = KnownLogs()
    schema = encode_schema(SCHEMA)
    begun = await log.begin(schema=schema, app="query", run="run", kind=JobKind.STREAM)

    async def task(worker: StreamLedgers, job: Job) -> StagedRange:
        await worker.join(log.commits, job)
        writer = await worker.open_range(log.commits, job)
        await writer.append(payload, ROWS)
        staged = await writer.finish(index, statistics=statistics)
        assert staged is not None
        return staged

    state = await log.state()
    for batch_id in range(batches):
        job = replace(begun, batch_id=batch_id, planned_version=batch_id)
        if batch_id == 1:
            state = await log.state()
        if batch_id:
            job = replace(job, schema_id=state.head.schema_id, base_schema_id=state.head.schema_id)
        if batch_id % BATCHES_A_LEDGER == 0:
            await asyncio.gather(*(worker.close() for worker in workers))
        ranges = await asyncio.gather(*(task(worker, job) for worker in workers))
        await log.commit(job, ranges, known=known)
    await asyncio.gather(*(worker.close() for worker in workers))


async def measured(cluster: Cluster, batches: int) -> tuple[list[Sizes], list[float]]:
    """Return the sizes at three times, and the seconds of the stream and of merging.

    The sizes are from before the stream, from after the stream, and from after merging.
    """
    async with await open_client(cluster.metadata_service_uri) as client:
        logs = logs_of(client)
        log = await logs.create("stream", properties={"deletedRetentionMs": "1"})
        found = [await sizes(client, cluster, log)]
        times = [time.perf_counter()]
        await stream(log, batches)
        times.append(time.perf_counter())
        found.append(await sizes(client, cluster, log))
        await LogMerger(log, client, MergePolicy()).merge()
        times.append(time.perf_counter())
        sweeper = Sweeper(store=logs.store, ledgers=client, pages_grace_ms=0)
        await sweeper.sweep(log.log_id)
        await sweeper.sweep(log.log_id)
        found.append(await sizes(client, cluster, log))
        head = (await log.state()).head
        assert head.end_offset == batches * TASKS * ROWS, head.end_offset
        check = await log.check()
        assert not check.findings, check.findings
        return found, [b - a for a, b in pairwise(times)]


def main() -> None:
    """Measure once, because the figures are counts and not rates."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batches", type=positive, default=BATCHES)
    parser.add_argument("--directory", type=Path, default=None, help="directory of the bookies")
    parser.add_argument("--json", action="store_true", help="print a JSON object for each figure")
    options = parser.parse_args()
    with ll.local_cluster(bookies=3, directory=options.directory, upkeep=False) as cluster:
        (before, written, merged), seconds = asyncio.run(measured(cluster, options.batches))
    grown = merged.zookeeper_log_bytes - before.zookeeper_log_bytes
    streamed = (written.zookeeper_bytes - before.zookeeper_bytes) / MEBIBYTE
    left = (merged.zookeeper_bytes - before.zookeeper_bytes) / MEBIBYTE
    of = f"{options.batches:,} batches of {TASKS} tasks"
    rows = (
        (f"{of}: ledgers left after merging", merged.ledgers, "", 200.0),
        (f"ranges left after merging, {written.ranges:,} before", merged.ranges, "", None),
        ("ledgers before merging", written.ledgers, "", None),
        ("bytes in ZooKeeper after merging", left, "MiB", 4.0),
        ("bytes in ZooKeeper before merging", streamed, "MiB", None),
        ("growth of ZooKeeper's log, including merging", grown / MEBIBYTE, "MiB", 200.0),
        (
            "time of a batch, beside other work",
            seconds[0] / options.batches * 1e3,
            "ms",
            None,
        ),
        ("time of merging", seconds[1], "s", None),
    )
    figures = [
        Figure(name, float(found), unit, (float(found),), goal=goal, lower_is_better=True)
        for name, found, unit, goal in rows
    ]
    show("metadata of a stream", figures, as_json=options.json)


if __name__ == "__main__":
    main()
