"""How fast is the metadata of 100,000 ledgers listed and read, and how fast are ledgers created?

ZooKeeper runs on this machine. One client creates and closes ledgers. The limit is the rate of the
same writes by ZooKeeper's Python client (Kazoo) in the same run, with the same number of concurrent
writes. Rounds of both clients alternate, and the figure is the median of the ratios of both rates.
A walk reads the metadata of all ledgers. It runs in a process of its own, so that its memory is
measured alone.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import uvloop
from kazoo.client import KazooClient

from benchmarks.options import parsed
from benchmarks.report import Figure, show
from ledgerlog_spark.local.zookeeper import ZooKeeperProcess
from ledgerlog_spark.metadata.ledgers.ids import COUNT_MAX
from ledgerlog_spark.metadata.stores import MetadataStores, open_metadata
from ledgerlog_spark.metadata.tree import CreateNode
from ledgerlog_spark.model import Fragment, LedgerMetadata, Quorum, Versioned
from ledgerlog_spark.wire.ledger_metadata.record import encode_ledger_metadata

LEDGERS = 100_000
DEPTH = 256
"""Number of concurrent writes, or of ledgers that are created concurrently."""
PER_ROUND = 4_000
IDS_PER_DIRECTORY = 10_000
BATCH = 100
"""Number of ledgers that one transaction creates before the walks."""
BOOKIES = tuple(f"10.0.0.{number}:3181" for number in range(1, 6))
OPEN = LedgerMetadata(Quorum(3, 3, 2), (Fragment(0, BOOKIES[:3]),), password=b"x", token=1)
CLOSED = OPEN.closed(last_entry_id=999, length=1_000_000)
LIST_SECONDS_MAX, WALK_SECONDS_MAX, WALK_MIB_MAX = 10.0, 60.0, 200.0
RATIO_MIN = 0.5


async def in_parallel(count: int, one: Callable[[int], Awaitable[object]]) -> float:
    """Return the seconds that `count` calls of `one` take. `DEPTH` calls run at the same time."""
    numbers = iter(range(count))

    async def worker() -> None:
        for number in numbers:
            await one(number)

    begun = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(DEPTH)))
    return time.perf_counter() - begun


async def create_and_close(stores: MetadataStores, count: int) -> float:
    """Create and close `count` ledgers, with two writes for each. Return the writes per second."""

    async def one(_: int) -> None:
        [ledger_id] = await stores.ledgers.new_ids()
        created = await stores.ledgers.create(ledger_id, OPEN)
        await stores.ledgers.write(ledger_id, CLOSED, created.version)

    seconds = await in_parallel(count, one)
    await stores.ledgers.close()
    return 2 * count / seconds


def raw_writes(client: KazooClient, directory: str, count: int) -> float:
    """Return the writes/s at which ZooKeeper's client writes the metadata of `count` ledgers.

    For each `COUNT_MAX` ledgers, one transaction creates the nodes of their ids, and another
    transaction deletes these nodes. The node of each ledger is created and then overwritten.
    """
    client.ensure_path(f"{directory}/ids")
    opened, closed = encode_ledger_metadata(OPEN), encode_ledger_metadata(CLOSED)
    running: deque[Any] = deque()

    def begin(request: Any) -> None:
        running.append(request)
        if len(running) == DEPTH:
            running.popleft().get()

    begun = time.perf_counter()
    for start in range(0, count, COUNT_MAX):
        transaction = client.transaction()
        for _ in range(COUNT_MAX):
            transaction.create(f"{directory}/ids/ID-", b"", None, ephemeral=True, sequence=True)
        created = transaction.commit()
        transaction = client.transaction()
        for path in created:
            transaction.delete(path)
        begin(transaction.commit_async())
        for number in range(start, min(start + COUNT_MAX, count)):
            begin(client.create_async(f"{directory}/{number}", opened))
    for number in range(count):
        begin(client.set_async(f"{directory}/{number}", closed))
    while running:
        running.popleft().get()
    return 2 * count / (time.perf_counter() - begun)


async def listed(uri: str) -> dict[str, float]:
    """Return the seconds and the counts of a listing and of a walk, and the memory after them."""
    stores = await open_metadata(uri)
    begun = time.perf_counter()
    ids = 0
    async for _ in stores.ledgers.ids():
        ids += 1
    list_seconds = time.perf_counter() - begun
    begun = time.perf_counter()
    records = 0
    async for each in stores.ledgers.walk():
        assert isinstance(each.found, Versioned)
        records += 1
    walk_seconds = time.perf_counter() - begun
    await stores.close()
    mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "ids": ids,
        "records": records,
        "list": list_seconds,
        "walk": walk_seconds,
        "mib": mib,
    }


def in_process(uri: str) -> dict[str, float]:
    """Return the result of `listed` in a new process."""
    command = (sys.executable, "-m", "benchmarks.metadata", "--walk", uri)
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ)
    result: dict[str, float] = json.loads(done.stdout)
    assert result["ids"] == result["records"] >= LEDGERS
    return result


async def writes(uri: str, hosts: str, rounds: int) -> list[tuple[float, float]]:
    """Return pairs of the writes/s of ledgerlog and of ZooKeeper's client.

    Their rounds alternate.
    """
    stores = await open_metadata(uri)
    client = KazooClient(hosts)
    try:
        await asyncio.to_thread(client.start)
        await stores.initialize()
        await create_and_close(stores, DEPTH)
        return [
            (
                await create_and_close(stores, PER_ROUND),
                await asyncio.to_thread(raw_writes, client, f"/raw-{number}", PER_ROUND),
            )
            for number in range(rounds)
        ]
    finally:
        client.stop()
        client.close()
        await stores.close()


async def prepared(uri: str) -> None:
    """Create a cluster with closed ledgers."""
    stores = await open_metadata(uri)
    await stores.initialize()
    # The first ledger of each directory also creates this directory.
    starts = range(0, LEDGERS, IDS_PER_DIRECTORY)
    for start in starts:
        await stores.ledgers.create(start, CLOSED)
    data = encode_ledger_metadata(CLOSED)
    ids = [number for number in range(LEDGERS) if number not in starts]
    batches = [ids[at : at + BATCH] for at in range(0, len(ids), BATCH)]

    async def one(number: int) -> None:
        paths = map(stores.ledgers.path, batches[number])
        await stores.tree.transact([CreateNode(path, data) for path in paths])

    await in_parallel(len(batches), one)
    await stores.close()


def main() -> None:
    """Run the benchmark. With `--walk URI`, run only the part that needs a separate process."""
    if sys.argv[1:2] == ["--walk"]:
        print(json.dumps(uvloop.run(listed(sys.argv[2]))))
        return
    options = parsed(__doc__)
    with (
        tempfile.TemporaryDirectory(dir=options.directory) as directory,
        ZooKeeperProcess(Path(directory) / "zookeeper") as zookeeper,
    ):
        hosts = zookeeper.connect_string
        # The created ledgers have another root node than the walked ledgers, because the ids of
        # both begin at 0.
        pairs = uvloop.run(writes(f"zk://{hosts}/created", hosts, options.rounds))
        uri = f"zk://{hosts}/ledgers"
        uvloop.run(prepared(uri))
        walks = [in_process(uri) for _ in range(options.rounds)]
    ratios = [ours / raw for ours, raw in pairs]
    show("metadata", figures(walks, pairs, ratios), as_json=options.json)


def figures(
    walks: list[dict[str, float]], pairs: list[tuple[float, float]], ratios: list[float]
) -> list[Figure]:
    """Return the figures of the benchmark."""
    found = []
    for name, question, unit, goal in (
        ("list", f"list {LEDGERS:,} ledgers", "s", LIST_SECONDS_MAX),
        ("walk", f"read the metadata of {LEDGERS:,} ledgers", "s", WALK_SECONDS_MAX),
        ("mib", "memory of the process of this walk", "MiB", WALK_MIB_MAX),
    ):
        values = tuple(walk[name] for walk in walks)
        found.append(
            Figure(
                question, statistics.median(values), unit, values, goal=goal, lower_is_better=True
            )
        )
    ours, raw = zip(*pairs, strict=True)
    found.append(
        Figure(
            "create and close, writes of records",
            statistics.median(ours),
            "writes/s",
            ours,
            limit=statistics.median(raw),
            limit_of=f"the same writes by ZooKeeper's client, {DEPTH} at a time",
        )
    )
    found.append(
        Figure(
            "create and close, ratio to these writes",
            statistics.median(ratios),
            "x",
            tuple(ratios),
            goal=RATIO_MIN,
        )
    )
    return found


if __name__ == "__main__":
    main()
