"""The process that appends until it is killed, and reports on two pipes.

Each report is an entry id of 8 bytes: the highest sent id on one pipe, and the highest acknowledged
id on the other.
"""

from __future__ import annotations

import os
import sys
import time
from concurrent.futures import Future
from struct import Struct

import ledgerlog_spark as ll
from ledgerlog_spark.errors import LedgerLogError
from tests.kill_test.payload import payload

NUMBER = Struct(">q")
CHUNK = 32
PAUSE_SECONDS = 0.02
"""After each chunk: on a slow machine, a round takes long, but its ledger does not become large."""


def main() -> int:
    """`writer.py URI SEED E QW QA SENT_FD ACKED_FD`: first reports the ledger id on SENT."""
    uri, seed, ensemble, write_quorum, ack_quorum, sent_fd, acked_fd = (
        sys.argv[1],
        *map(int, sys.argv[2:]),
    )

    def acknowledged(done: Future[int]) -> None:
        if done.exception() is None:
            os.write(acked_fd, NUMBER.pack(done.result()))

    with ll.connect(uri) as client:
        ledger = client.create_ledger(
            ensemble_size=ensemble, write_quorum=write_quorum, ack_quorum=ack_quorum
        )
        os.write(sent_fd, NUMBER.pack(ledger.id))
        entry_id = 0
        while True:
            os.write(sent_fd, NUMBER.pack(entry_id + CHUNK - 1))
            for _ in range(CHUNK):
                try:
                    appended = ledger.append_async(payload(seed, entry_id))
                except LedgerLogError:
                    return 0
                appended.add_done_callback(acknowledged)
                entry_id += 1
            time.sleep(PAUSE_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
