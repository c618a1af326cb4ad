from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from ledgerlog_spark.errors import LocalProtocolError
from ledgerlog_spark.log.records import Record
from tests.integration.client.conftest import cluster

__all__ = ["cluster"]

PATIENCE_SECONDS = 40


def of(first: int, end: int) -> list[bytes]:
    return [b"record %d" % number for number in range(first, end)]


class Tailing:
    """A tail on its own thread."""

    def __init__(self, records: Iterator[Record]) -> None:
        self.records: list[Record] = []
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, args=(records,), daemon=True)
        self._thread.start()

    def _run(self, records: Iterator[Record]) -> None:
        with contextlib.suppress(LocalProtocolError):  # the client is closed in the end
            for record in records:
                with self._changed:
                    self.records.append(record)
                    self._changed.notify_all()

    def ends(self) -> None:
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive()

    def has(self, count: int) -> list[bytes]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.records) >= count, PATIENCE_SECONDS)
            return [record.value for record in self.records]
