"""How fast is a whole closed ledger read in order, with a warm page cache and verified digests?

The output also contains the rate of a raw socket for messages of 256 KiB. With `--peer`, it also
contains the figures of Apache BookKeeper.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import ledgerlog_spark as ll
from benchmarks import peer_bookkeeper
from benchmarks.machine import echo_rate, median
from benchmarks.options import parsed
from benchmarks.report import Figure, show

if TYPE_CHECKING:
    from ledgerlog_spark.client.blocking.client import BlockingClient

KIB = 1 << 10
MESSAGE_BYTES = 256 * KIB


@dataclass(frozen=True)
class Case:
    """One row of the output: a ledger of `entries` entries of one size."""

    name: str
    size_bytes: int
    entries: int
    unit: str
    goal: float
    peer: tuple[str, ...]


CASES = (
    Case("1 KiB, in order", KIB, 300_000, "entries/s", 250_000,
         ("batch", "1024", "200000", "1000", "8", "3")),
    Case("1 MiB, in order", KIB * KIB, 400, "MB/s", 500,
         ("read", "1048576", "300", "10", "4", "3")),
)  # fmt: skip


def fill(client: BlockingClient, case: Case) -> int:
    """Write a closed ledger with the entries of the case, and return its id."""
    payload, batch = os.urandom(case.size_bytes), max(1, KIB * KIB // case.size_bytes)
    with client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2) as ledger:
        for _ in range(0, case.entries, batch):
            ledger.append_batch_async([payload] * batch)
    return ledger.id


def read(client: BlockingClient, ledger_id: int, case: Case) -> float:
    """Read the whole ledger once, and return the measured value of the case."""
    with client.open_ledger(ledger_id) as ledger:
        begun, count, size = time.perf_counter(), 0, 0
        for entry in ledger.read(0, ledger.last_add_confirmed):
            count += 1
            size += len(entry.payload)
        seconds = time.perf_counter() - begun
    assert count >= case.entries, "the ledger has fewer entries than were appended"
    return size / seconds / 1e6 if case.unit == "MB/s" else count / seconds


def main() -> None:
    """Measure ledgerlog, and then Apache BookKeeper while no ledgerlog cluster runs."""
    options = parsed(__doc__)
    values: dict[str, list[float]] = {}
    with (
        ll.local_cluster(bookies=3, directory=options.directory) as cluster,
        ll.connect(cluster.metadata_service_uri) as client,
    ):
        for case in CASES:
            ledger_id = fill(client, case)
            read(client, ledger_id, case)
            values[case.name] = [read(client, ledger_id, case) for _ in range(options.rounds)]
            client.delete_ledger(ledger_id)
    messages, _ = echo_rate(size_bytes=MESSAGE_BYTES)
    socket_rate = messages * MESSAGE_BYTES
    figures = []
    with peer_bookkeeper.running(options.peer) as rig:
        for case in CASES:
            in_unit = case.size_bytes if case.unit == "entries/s" else 1e6
            peer = rig.entries_per_second(*case.peer) if rig else None
            if peer is not None and case.unit == "MB/s":
                peer *= case.size_bytes / 1e6
            figures.append(
                Figure(
                    case.name,
                    median(values[case.name]),
                    case.unit,
                    tuple(values[case.name]),
                    goal=case.goal,
                    limit=socket_rate / in_unit,
                    limit_of="raw socket, 256 KiB messages",
                    peer=peer,
                    peer_name=peer_bookkeeper.NAME if rig else "",
                )
            )
    show("read", figures, as_json=options.json)


if __name__ == "__main__":
    main()
