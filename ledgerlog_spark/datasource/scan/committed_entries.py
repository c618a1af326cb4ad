"""Entries of a task's listed ranges, with errors that say what a reader can do."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.client.blocking.closing import Closing
from ledgerlog_spark.datasource.cluster import logs_at
from ledgerlog_spark.errors import DataLossError
from ledgerlog_spark.protocol.ledger.read_room import ReadRoom

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledgerlog_spark.datasource.scan.scan_range import ScanRange
    from ledgerlog_spark.datasource.scan.task import ScanTask
    from ledgerlog_spark.log.blocking.logs import BlockingRangeReader

RANGES_AHEAD_MAX = 16
BYTES_AHEAD_MAX = 8 << 20
"""Payload of the ranges begun before their turn; the next one is begun whatever its size."""


class CommittedEntries(Closing):
    """The entries of a task's ranges; call it with each of them, in order.

    Small ranges are begun ahead, so that a task of many does not wait for ZooKeeper and the bookies
    once for each. All together hold at most 64 MiB, whatever the sizes of entries. A context
    manager: its end forgets what nobody took.
    """

    def __init__(self, uri: str, task: ScanTask, password: bytes) -> None:
        """Asks for nothing yet."""
        self._logs = logs_at(uri)
        self._log_ids = task.log_ids
        self._password = password
        self._room = ReadRoom()
        self._waiting = deque(task.ranges)
        self._begun: deque[tuple[ScanRange, BlockingRangeReader]] = deque()

    def __call__(self, scanned: ScanRange) -> Iterator[Any]:
        """The range's entries, first to last, read ahead of whoever takes them.

        Raises:
            DataLossError: No bookie has an entry; names the option that reads on without it.
            EntryUnknownError: Some replica could not answer, and none had the entry; retriable.
            DigestMismatchError: No replica had a good copy.
        """
        if len(self._begun) <= RANGES_AHEAD_MAX // 2:
            self._begin()
        begun, reader = self._begun.popleft()
        assert begun == scanned, (begun, scanned)
        try:
            for batch in reader:
                yield from batch
        except DataLossError as error:
            raise DataLossError(
                f"{error.message}. Some rows may have been lost. Set the option "
                f'"failOnDataLoss" to "false" to read on without them.',
                **error.fields,
            ) from error

    def _begin(self) -> None:
        """Ask for the next ranges, as many as may be ahead."""
        size_bytes = sum(scanned.size_bytes for scanned, _ in self._begun)
        chosen: list[ScanRange] = []
        while self._waiting and len(self._begun) + len(chosen) <= RANGES_AHEAD_MAX:
            following = self._waiting[0]
            is_ahead = len(self._begun) + len(chosen) > 1
            if is_ahead and size_bytes + following.size_bytes > BYTES_AHEAD_MAX:
                break
            if chosen and chosen[0].log != following.log:
                break
            size_bytes += following.size_bytes
            chosen.append(self._waiting.popleft())
        if not chosen:
            return
        log = self._logs.open_by_id(chosen[0].log, self._log_ids[chosen[0].log])
        places = [(each.ledger_id, each.first_entry_id, each.last_entry_id) for each in chosen]
        readers = log.begin_ranges(places, password=self._password, room=self._room)
        self._begun.extend(zip(chosen, readers, strict=True))

    def close(self) -> None:
        """Forget the ranges that nobody took."""
        while self._begun:
            self._begun.popleft()[1].close()
