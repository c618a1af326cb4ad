"""Reads the rows of one task: chooses entries, reads ahead, and handles lost entries.

Batch scans and streams both use this code. Only their plans differ.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from ledgerlog_spark.client.blocking.derived import Closing
from ledgerlog_spark.datasource.scan.index_entries import Slices, with_needed_entries
from ledgerlog_spark.datasource.scan.ranges import ScanRange
from ledgerlog_spark.datasource.scan.task import ReadEntries, ScanTask, read_batches
from ledgerlog_spark.errors import DataLossError
from ledgerlog_spark.log.blocking.logs import BlockingLogs, BlockingRangeReader
from ledgerlog_spark.protocol.ledger.read_room import ReadRoom

RANGES_AHEAD_MAX = 16
BYTES_AHEAD_MAX = 8 << 20
"""Maximum number of payload bytes of the ranges that are read ahead.

One range may exceed this limit.
"""


_logger = logging.getLogger(__name__)


def task_rows(
    logs: BlockingLogs,
    task: ScanTask,
    target: pa.Schema,
    *,
    password: bytes = b"",
    fail_on_data_loss: bool = True,
    ignores_case: bool = True,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task, in order, in batches of the schema `target`.

    If `fail_on_data_loss` is False, a lost entry is reported in the worker's log, and the remaining
    entries of its range are skipped. If `ignores_case` is False, a column whose name differs from
    the name in the log only in case causes an error.

    Raises:
        DataLossError: Some listed rows are on no bookie.
        EntryUnknownError: Some bookies did not answer, and the other bookies do not have an entry.
            The error is retriable.
        DigestMismatchError: No bookie has a valid copy of an entry.
        SchemaMismatchError: Stored rows cannot be converted to the target schema.
        WireFormatError: The content of a ledger differs from the log's list.
    """
    if task.ledgers:
        logs.remember(task.ledgers)
    needed, slices = with_needed_entries(logs, task, target.names, password)
    with CommittedEntries(logs, needed, password, slices) as read_entries:
        if fail_on_data_loss:
            yield from read_batches(needed, target, read_entries, ignores_case=ignores_case)
        else:
            yield from _without_lost(needed, target, read_entries, ignores_case)


def _without_lost(
    task: ScanTask, target: pa.Schema, read_entries: ReadEntries, ignores_case: bool
) -> Iterator[pa.RecordBatch]:
    for scanned in task.ranges:
        one = replace(task, ranges=(scanned,))
        try:
            yield from read_batches(one, target, read_entries, ignores_case=ignores_case)
        except DataLossError as error:
            _logger.warning(
                "%s", json.dumps({"event": "rows skipped by failOnDataLoss=false", **error.fields})
            )


class CommittedEntries(Closing):
    """Reads the entries of a task's ranges. The task calls this object with each range, in order.

    The reads of small ranges begin before the task requests these ranges. So a task with many
    ranges does not wait for ZooKeeper and the bookies at each range. All ranges together use at
    most 64 MiB of memory, even if entries are large. At the end of a `with` block, unread entries
    are dropped.
    """

    def __init__(
        self,
        logs: BlockingLogs,
        task: ScanTask,
        password: bytes,
        slices: Slices = MappingProxyType({}),
    ) -> None:
        """Read the ranges of the task. For a range in `slices`, only its slices are read."""
        self._slices = slices
        self._logs = logs
        self._log_ids = task.log_ids
        self._password = password
        self._room = ReadRoom()
        self._waiting = deque(task.ranges)
        self._begun: deque[tuple[ScanRange, BlockingRangeReader]] = deque()

    def __call__(self, scanned: ScanRange) -> Iterator[Any]:
        """Yield the entries of the range from the first to the last, read ahead of the caller."""
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
        slices = self._slices.get(scanned)
        if slices is not None and slices.given_up:
            event = {
                "event": "slices given up, so whole entries were read",
                "log": scanned.log,
                "ledger_id": scanned.ledger_id,
                "count": slices.given_up,
            }
            _logger.warning("%s", json.dumps(event))

    def _begin(self) -> None:
        """Start to read the next ranges, up to BYTES_AHEAD_MAX bytes."""
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
        slices = [self._slices.get(each) for each in chosen]
        readers = log.begin_ranges(places, password=self._password, room=self._room, slices=slices)
        self._begun.extend(zip(chosen, readers, strict=True))

    def close(self) -> None:
        """Drop the ranges that were not read."""
        while self._begun:
            self._begun.popleft()[1].close()
