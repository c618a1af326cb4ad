"""Keeps the bodies of the newest journal records in memory."""

from __future__ import annotations

from collections import deque

from bookie_server.core.record import JournalRecord

KEPT_BUFFER_FACTOR = 4
"""A recent body is copied if its receive buffer has more than 4 times the bytes of the body."""
RECORD_COST_BYTES = 512  # memory of a record without its body


class RecentBodies:
    """The bodies of the newest durable journal records, for readers at the end of a ledger.

    They take at most `size_bytes_max` bytes of memory.
    """

    def __init__(self, size_bytes_max: int) -> None:
        self._size_bytes_max = size_bytes_max
        self._size_bytes = 0
        self._records: deque[JournalRecord] = deque()

    def keep(self, record: JournalRecord) -> None:
        """Keep the body of this record, and drop the oldest bodies that no longer fit."""
        body = record.body
        # A view keeps its whole receive buffer in memory, so copy a body that is much smaller.
        if (
            isinstance(body, memoryview)
            and memoryview(body.obj).nbytes > KEPT_BUFFER_FACTOR * body.nbytes
        ):
            record.body = bytes(body)
        self._records.append(record)
        self._size_bytes += record.body_size + RECORD_COST_BYTES
        while self._size_bytes > self._size_bytes_max:
            oldest = self._records.popleft()
            self._size_bytes -= oldest.body_size + RECORD_COST_BYTES
            oldest.body = None
