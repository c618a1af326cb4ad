"""How long does it take to seal the ledger of a writer that died with 500 adds in flight?

The writer is a process of its own, and is killed with SIGKILL. The script measures the duration of
the call `seal`.
"""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING

import ledgerlog_spark as ll
from benchmarks import peer_bookkeeper
from benchmarks.machine import median
from benchmarks.options import parsed
from benchmarks.report import Figure, show

if TYPE_CHECKING:
    from ledgerlog_spark.client.blocking.client import BlockingClient

IN_FLIGHT = 500
WRITER = f"""
import sys, ledgerlog_spark as ll
with ll.connect(sys.argv[1]) as client:
    ledger = client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2)
    ledger.append_batch([b"x" * 1024] * 2000)
    for _ in range({IN_FLIGHT}):
        ledger.append_async(b"y" * 1024)
    print(ledger.id, flush=True)
    sys.stdin.read()
"""


def abandoned_ledger(uri: str) -> int:
    """Return the id of a ledger whose writer has just been killed."""
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, uri],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert writer.stdout is not None
    ledger_id = int(writer.stdout.readline())
    writer.kill()
    writer.communicate()
    return ledger_id


def seal_ms(client: BlockingClient, uri: str) -> float:
    """Return the ms that the seal of a ledger with a killed writer takes."""
    ledger_id = abandoned_ledger(uri)
    begun = time.perf_counter()
    client.seal(ledger_id)
    taken_ms = (time.perf_counter() - begun) * 1e3
    client.delete_ledger(ledger_id)
    return taken_ms


def main() -> None:
    """Measure seals of ledgerlog, and then seals of Apache BookKeeper."""
    options = parsed(__doc__, rounds=9)
    with (
        ll.local_cluster(bookies=3, directory=options.directory) as cluster,
        ll.connect(cluster.metadata_service_uri) as client,
    ):
        uri = cluster.metadata_service_uri
        found = [seal_ms(client, uri) for _ in range(options.rounds + 1)]
    with peer_bookkeeper.running(options.peer) as rig:
        peer = rig.milliseconds("recover", "2000", "1024", str(IN_FLIGHT), "5") if rig else None
    figure = Figure(
        f"seal with {IN_FLIGHT} adds in flight, p50",
        median(found[1:]),
        "ms",
        tuple(found[1:]),
        goal=150,
        lower_is_better=True,
        peer=peer,
        peer_name=peer_bookkeeper.NAME if rig else "",
    )
    show("recovery", [figure], as_json=options.json)


if __name__ == "__main__":
    main()
