"""How fast are the entries of a lost bookie copied, compared with appends in the same run?

In each round, a client writes ledgers with entries of 64 KiB to three of four bookies. Then a
bookie is killed with SIGKILL, and the ledgers whose metadata names this bookie are marked.
`ledgerlog autorecovery run` heals these ledgers in a process of its own, without a limit of bytes
per second. The measured time begins when auto-recovery is enabled, and ends when the last of these
ledgers is healed.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import ledgerlog_spark as ll
from benchmarks.machine import median
from benchmarks.options import parsed
from benchmarks.report import Figure, show
from ledgerlog_spark.composition import metadata

if TYPE_CHECKING:
    from ledgerlog_spark.client.blocking.client import BlockingClient

LEDGERS = 32
ENTRIES = 256
ENTRY_SIZE_BYTES = 1 << 16
PENDING_MAX = 64
LOST = "bookie-1"
RATIO_MIN = 0.5
SECONDS_MAX = 120.0
"""Maximum seconds of a wait for the end of a registration, for the worker, or for the healing."""


def appended(client: BlockingClient) -> tuple[list[int], float]:
    """Write the ledgers.

    Return their ids, and the rate of the writes in payload bytes per second.
    """
    payload, ids = bytes(ENTRY_SIZE_BYTES), []
    begun = time.perf_counter()
    for _ in range(LEDGERS):
        with client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2) as ledger:
            pending = []
            for _ in range(ENTRIES):
                pending.append(ledger.append_async(payload))
                if len(pending) > PENDING_MAX:
                    pending.pop(0).result()
            for one in pending:
                one.result()
            ids.append(ledger.id)
    seconds = time.perf_counter() - begun
    return ids, LEDGERS * ENTRIES * ENTRY_SIZE_BYTES / seconds


async def marked(uri: str, ids: list[int], name: str) -> set[int]:
    """Disable auto-recovery, wait for the end of a bookie's registration, and mark its ledgers.

    Return the ids of the marked ledgers.
    """
    async with metadata(uri) as stores:
        await stores.recovery_switch.disable()
        end = time.monotonic() + SECONDS_MAX
        while name in await stores.registration.writable():
            if time.monotonic() > end:
                sys.exit(f"rereplicate: {name} is still registered after {SECONDS_MAX:.0f} s")
            await asyncio.sleep(0.1)
        found = set()
        for ledger_id in ids:
            record = (await stores.ledgers.load(ledger_id)).value
            if any(name in fragment.ensemble for fragment in record.fragments):
                await stores.marks.mark(ledger_id, [name])
                found.add(ledger_id)
        return found


@contextmanager
def recovery(uri: str) -> Iterator[Iterator[dict[str, Any]]]:
    """Run auto-recovery in a process of its own, for at most SECONDS_MAX. Yield its events."""
    process = subprocess.Popen(
        [sys.executable, "-m", "ledgerlog_spark.cli", "autorecovery", "run", "-u", uri],
        stdout=subprocess.PIPE,
        text=True,
    )
    ending = threading.Timer(SECONDS_MAX, process.kill)
    ending.start()
    assert process.stdout is not None
    try:
        yield map(json.loads, process.stdout)
    finally:
        ending.cancel()
        process.terminate()
        process.wait(SECONDS_MAX)
        process.stdout.close()


async def enabled(uri: str) -> float:
    """Enable auto-recovery. Return the wall-clock time immediately before this, in ms."""
    async with metadata(uri) as stores:
        begun_ms = time.time_ns() / 1e6
        await stores.recovery_switch.enable()
        return begun_ms


def copied(uri: str, ids: list[int], name: str) -> float:
    """Heal the ledgers that name a lost bookie. Return the rate in copied bytes per second."""
    left, size_bytes = asyncio.run(marked(uri, ids, name)), 0
    with recovery(uri) as events:
        next(events)  # the first event: the process has started
        begun_ms = asyncio.run(enabled(uri))
        for event in events:
            if event["event"] == "job" and event["ledger_id"] in left:
                size_bytes += event["bytes_copied"]
                if event["outcome"] == "healed":
                    left.remove(event["ledger_id"])
                if not left:
                    return 1e3 * size_bytes / (event["time_ms"] - begun_ms)
    sys.exit(f"rereplicate: {len(left)} ledgers are not healed after {SECONDS_MAX:.0f} s")


def main() -> None:
    """Measure appends and copies in turn. Each round has a cluster of its own."""
    options = parsed(__doc__, rounds=5)
    appends, copies = [], []
    for _ in range(options.rounds):
        with (
            ll.local_cluster(bookies=4, directory=options.directory, upkeep=False) as cluster,
            ll.connect(cluster.metadata_service_uri) as client,
        ):
            ids, rate = appended(client)
            appends.append(rate / 1e6)
            cluster.kill(LOST)
            copies.append(copied(cluster.metadata_service_uri, ids, LOST) / 1e6)
    ratios = tuple(copy / append for copy, append in zip(copies, appends, strict=True))
    figures = [
        Figure(
            "re-replication, 64 KiB entries",
            median(copies),
            "MB/s",
            tuple(copies),
            limit=median(appends),
            limit_of="MB/s, appends by a client",
        ),
        Figure(
            "re-replication, divided by the rate of appends",
            median(list(ratios)),
            "x",
            ratios,
            goal=RATIO_MIN,
        ),
    ]
    show("rereplicate", figures, as_json=options.json)


if __name__ == "__main__":
    main()
