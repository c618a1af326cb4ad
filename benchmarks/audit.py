"""How long does an audit of 100,000 ledgers' metadata take, and how fast are ledgers marked?

ZooKeeper runs on this machine. The auditor runs in a process of its own, so that its memory is
measured alone. It reads the records of all ledgers and fills its index. Then one of 40 bookies is
lost. The index proposes the ledgers of this bookie, and a second pass over all records decides
which of these ledgers are marked.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from itertools import combinations, cycle
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.machine import median
from benchmarks.options import parsed
from benchmarks.report import Figure, show
from ledgerlog_spark.autorecovery.audit.machine_host import AuditMachineHost
from ledgerlog_spark.autorecovery.audit.service import stores_of
from ledgerlog_spark.autorecovery.audit.store_requests import AuditStoreRequests
from ledgerlog_spark.client.bookies import BookieChoice
from ledgerlog_spark.local.zookeeper import ZooKeeperProcess
from ledgerlog_spark.metadata.stores import MetadataStores, open_metadata
from ledgerlog_spark.model import BookieInfo, Fragment, LedgerMetadata, Quorum
from ledgerlog_spark.protocol.autorecovery.audit.auditor import Auditor, AuditSettings
from ledgerlog_spark.protocol.autorecovery.audit.messages import ClusterChanged, WalkEnded

LEDGERS = 100_000
DEPTH = 256
WALKS_MAX = 8  # maximum number of walks, after which the benchmark fails
BOOKIES = tuple(f"10.0.0.{number}:3181" for number in range(1, 41))
LOST = BOOKIES[4]
SETTINGS = AuditSettings(session_timeout_ms=1)
"""Settings of the auditor. All bookies are registered before it starts, so it need not wait."""
AUDIT_SECONDS_MAX, MIB_MAX = 60.0, 200.0


def closed(ensemble: tuple[str, ...]) -> LedgerMetadata:
    """Return the metadata of a closed ledger."""
    metadata = LedgerMetadata(Quorum(3, 3, 2), (Fragment(0, ensemble),), password=b"x", token=1)
    return metadata.closed(last_entry_id=999, length=1_000_000)


async def prepare(stores: MetadataStores) -> int:
    """Create a cluster with closed ledgers. Return the number of ledgers that name `LOST`."""
    await stores.initialize()
    for bookie_id in BOOKIES:
        await stores.registration.write_cookie(bookie_id, b"cookie", None)
    records = [closed(ensemble) for ensemble in combinations(BOOKIES, 3)]
    numbered = enumerate(cycle(records))
    naming = 0

    async def worker() -> None:
        nonlocal naming
        for ledger_id, metadata in numbered:
            if ledger_id >= LEDGERS:
                return
            await stores.ledgers.create(ledger_id, metadata)
            naming += LOST in metadata.last_fragment.ensemble

    await asyncio.gather(*(worker() for _ in range(DEPTH)))
    return naming


async def audited(uri: str) -> dict[str, float]:
    """Return the results of two audits.

    These are the time of the first walk, the time and the number of marks of the audit of a loss,
    and the memory of the process.
    """
    stores, bookies = await open_metadata(uri), await open_metadata(uri)
    for bookie_id in BOOKIES:
        await bookies.registration.register(BookieInfo(bookie_id, "127.0.0.1", 3181))
    random = Random(0)
    requests = AuditStoreRequests(
        stores_of(stores),
        BookieChoice(stores.registration, stores.topologies, None, random),
        lambda: True,
        lambda error: print(error, file=sys.stderr),
    )
    walks: asyncio.Queue[WalkEnded] = asyncio.Queue(WALKS_MAX)

    def on_indication(effect: Any) -> None:
        if isinstance(effect, WalkEnded):
            walks.put_nowait(effect)

    host = AuditMachineHost(
        Auditor(SETTINGS),
        requests.performs,
        requests.stores,
        random=random,
        on_indication=on_indication,
    )
    begun = time.perf_counter()
    running = asyncio.create_task(host.run())
    first = await walks.get()
    walk_seconds = time.perf_counter() - begun
    begun = time.perf_counter()
    await bookies.registration.unregister(LOST)
    host.post(ClusterChanged())
    second = await walks.get()
    loss_seconds = time.perf_counter() - begun
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await requests.close()
    await bookies.close()
    await stores.close()
    assert first.ledgers == second.ledgers == LEDGERS
    assert second.handled == (LOST,)
    mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"walk": walk_seconds, "loss": loss_seconds, "marks": second.marks, "mib": mib}


def in_process(uri: str, naming: int) -> dict[str, float]:
    """Return the result of `audited` in a new process."""
    command = (sys.executable, "-m", "benchmarks.audit", "--audit", uri)
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ)
    result: dict[str, float] = json.loads(done.stdout)
    assert result["marks"] == naming, (result, naming)
    return result


async def prepared(uri: str) -> int:
    """Create the cluster at `uri`."""
    stores = await open_metadata(uri)
    try:
        return await prepare(stores)
    finally:
        await stores.close()


def main() -> None:
    """Run the benchmark. With `--audit URI`, run only the part that needs a separate process."""
    if sys.argv[1:2] == ["--audit"]:
        print(json.dumps(asyncio.run(audited(sys.argv[2]))))
        return
    options = parsed(__doc__)
    with (
        tempfile.TemporaryDirectory(dir=options.directory) as directory,
        ZooKeeperProcess(Path(directory) / "zookeeper") as zookeeper,
    ):
        uri = f"zk://{zookeeper.connect_string}/ledgers"
        naming = asyncio.run(prepared(uri))
        audits = [in_process(uri, naming) for _ in range(options.rounds)]
    show("audit", figures(audits, naming), as_json=options.json)


def figures(audits: list[dict[str, float]], naming: int) -> list[Figure]:
    """Return the figures of the benchmark."""
    found = []
    for name, question, unit, goal in (
        ("walk", f"audit of {LEDGERS:,} ledgers without a loss", "s", AUDIT_SECONDS_MAX),
        ("loss", f"audit of a lost bookie, {naming:,} marks", "s", None),
        ("mib", "memory of the process of these audits", "MiB", MIB_MAX),
    ):
        values = tuple(audit[name] for audit in audits)
        found.append(
            Figure(question, median(list(values)), unit, values, goal=goal, lower_is_better=True)
        )
    return found


if __name__ == "__main__":
    main()
