"""`python -m tests.heal_test.dead_writer URI COUNT SIZE`: write ledgers, print their ids, and die.

The process ends without closing anything, so the ledgers stay open and nobody writes them.
"""

from __future__ import annotations

import os
import subprocess
import sys

import ledgerlog_spark as ll
from tests.fixtures.bookie_process import ROOT
from tests.kill_test.payload import payload

ENTRIES = 10


def left_open(uri: str, count: int, size: int) -> list[int]:
    """The ids of open ledgers whose writer is dead.

    Args:
        uri: The cluster.
        count: Number of ledgers.
        size: Ensemble size and write quorum; the ack quorum is 2.
    """
    command = (sys.executable, "-m", "tests.heal_test.dead_writer", uri, str(count), str(size))
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return [int(line) for line in done.stdout.split()]


def main() -> None:
    """Write the ledgers."""
    uri, count, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    client = ll.connect(uri)
    for _ in range(count):
        ledger = client.create_ledger(ensemble_size=size, write_quorum=size, ack_quorum=2)
        ledger.append_batch([payload(ledger.id, one) for one in range(ENTRIES)])
        sys.stdout.write(f"{ledger.id}\n")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
