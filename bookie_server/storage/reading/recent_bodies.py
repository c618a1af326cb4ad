"""The bodies of the newest records, kept in memory: tailing readers need no file."""

from __future__ import annotations

from collections import deque

from bookie_server.core.record import JournalRecord

KEPT_BUFFER_FACTOR = 4
"""A recent body is kept where it was received unless that keeps more than so many times its size.
"""

RECORD_COST_BYTES = 512
"""What a record counts beside its body: small ones take more memory than their bytes."""


class RecentBodies:
    """Of durable records, up to a number of bytes; the oldest go first."""

    def __init__(self, size_bytes_max: int) -> None:
        self._size_bytes_max = size_bytes_max
        self._size_bytes = 0
        self._records: deque[JournalRecord] = deque()

    def keep(self, record: JournalRecord) -> None:
        """Keep this body, and let go of what is too much by then."""
        body = record.body
        # A view keeps all of the buffer that it was received in.
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
