"""Keeps the state of a stream's logs in memory. Watches report that this state is outdated.

Spark requests the end of a source up to a hundred times a second. The answer comes from memory.
Usually, the head of a log is read from ZooKeeper only after the watch of this log has fired.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from ledgerlog_spark.datasource.options.values import LogSelection
from ledgerlog_spark.datasource.stream.position import committed_ms
from ledgerlog_spark.errors import LedgerLogError, LogNotFoundError
from ledgerlog_spark.log.blocking.logs import BlockingLog
from ledgerlog_spark.log.clients import BlockingLogClient
from ledgerlog_spark.log.logs import logs_of
from ledgerlog_spark.protocol.log.read.view import LogView
from ledgerlog_spark.protocol.log.state.records import Item, LogKind, VersionInterval
from ledgerlog_spark.retry import NO_LIMIT, RetryPolicy

T = TypeVar("T")

PATIENCE = RetryPolicy(attempts_max=NO_LIMIT, time_max_ms=60_000)

LOOKS_MAX = 4096
"""Maximum number of observed ends in memory.

If there are more ends, every second end is dropped. Then the estimates for older rows are less
exact.
"""

_logger = logging.getLogger(__name__)


def patiently(request: Callable[[], T]) -> T:
    """Return the result of a request.

    A request that fails with a retriable error is retried for a minute. Without these retries, the
    error would end the query.
    """
    began = time.monotonic()
    for failures in itertools.count(1):
        try:
            return request()
        except LedgerLogError as error:
            delay_ms = PATIENCE.delay_ms(failures, (time.monotonic() - began) * 1e3)
            if not error.retriable or delay_ms is None:
                raise
            _logger.warning("a request failed and is retried: %s", error)
        time.sleep(delay_ms / 1e3)
    raise AssertionError(PATIENCE)


class ArrivalTimes:
    """Estimates when records of a leader log were appended, from the observed ends of the log.

    A leader log has no commits, and its list contains only the time of a ledger's newest record. So
    each read of the log adds the log's end and the time of its last record to this object.
    """

    def __init__(self) -> None:
        self._ends: list[int] = []
        self._times_ms: list[int] = []

    def note(self, items: Sequence[Item]) -> None:
        """Add the ends of the ranges `items`, which a read of the log found."""
        seen = self._ends[-1] if self._ends else 0
        for item in items[bisect_right(items, seen, key=lambda item: item.end_offset) :]:
            self._ends.append(item.end_offset)
            self._times_ms.append(item.newest_ms)
        while len(self._ends) > LOOKS_MAX:
            del self._ends[:-1:2], self._times_ms[:-1:2]

    def came_ms(self, offset: int) -> int:
        """Return the latest possible time of the record at `offset`.

        The result is 0 if the time is unknown.
        """
        place = bisect_right(self._ends, offset)
        return self._times_ms[place] if place < len(self._times_ms) else 0


class WatchedLog:
    """One log. It is watched until `close` is called."""

    def __init__(self, log: BlockingLog) -> None:
        self.name = log.name
        self.log_id = log.log_id
        self._log = log
        self._view: LogView | None = None
        self._arrivals = ArrivalTimes()
        self._has_changed = threading.Event()
        self._cancel = log.watch_end(self._has_changed.set)

    @property
    def last_view(self) -> LogView | None:
        """The last result of `view`. This property sends no request."""
        return self._view

    def view(self, first_offset: int, *, is_fresh: bool = False, seen_offset: int = 0) -> LogView:
        """Return the log's rows from `first_offset` on, with their schemas and commit times.

        If `is_fresh` is False and the metadata store cannot be reached, the result is the last
        view. `seen_offset` is an end of the log that this process or an earlier process found, or
        0. If a view ends before `seen_offset`, the log is read again (see `Log.view`).
        """
        known = self._view
        if known is not None and first_offset < known.first_offset:
            known = None if known.first_offset > known.oldest_offset else known
        if known is not None:
            is_fresh = is_fresh or seen_offset > known.end_offset
            seen_offset = max(seen_offset, known.end_offset)
            if not is_fresh and not self._has_changed.is_set():
                return known
        self._has_changed.clear()  # before the read, so that a change during it is noticed
        try:
            if known is None or is_fresh:
                self._view = patiently(lambda: self._read(first_offset, seen_offset, known))
            else:
                self._view = self._read(first_offset, seen_offset, known, is_fresh=False)
        except LedgerLogError as error:
            self._has_changed.set()
            if known is None or is_fresh or not error.retriable:
                raise
            _logger.warning("log %s is read in its last known state: %s", self.name, error)
            return known
        if self._view.kind is LogKind.LEADER:
            self._arrivals.note(self._view.items)
        return self._view

    def came_ms(self, offset: int) -> int:
        """Return the time of the row at `offset` in the last view, or 0 if the time is unknown.

        For a leader log, the result is the latest possible time of the row: the time of the last
        record that the same read of the log found.
        """
        if self._view is None:
            return 0
        if self._view.kind is LogKind.LEADER:
            return self._arrivals.came_ms(offset)
        return committed_ms(self._view.versions, offset)

    def _read(
        self, first_offset: int, seen_offset: int, known: LogView | None, *, is_fresh: bool = True
    ) -> LogView:
        if known is None:
            return self._log.view(first_offset, seen_offset=seen_offset)
        read = self._log.view(
            first_offset,
            seen_offset=seen_offset,
            known_version=known.versions[-1].version if known.versions else None,
            known_schemas=known.schemas,
            is_fresh=is_fresh,
        )
        if read.end_offset < known.end_offset and not is_fresh:
            return known  # the answer came from a ZooKeeper server with outdated data
        return replace(
            read,
            versions=_joined(known.versions, read.versions, read.first_offset),
            schemas={**known.schemas, **read.schemas},
        )

    def close(self) -> None:
        """End the watch."""
        self._cancel()


class WatchedLogs:
    """The logs that a stream selects.

    The logs and their names are watched until `close` is called.
    """

    def __init__(self, client: BlockingLogClient, selection: LogSelection) -> None:
        self._client = client
        self._logs = client.logs
        self._selection = selection
        self._by_name: dict[str, WatchedLog] = {}
        self._by_id: dict[str, WatchedLog] = {}
        self._has_changed = threading.Event()
        self._has_changed.set()
        self._is_listed = False
        self._cancel = patiently(lambda: self._logs.watch_names(self._has_changed.set))

    def current(self) -> dict[str, WatchedLog]:
        """Return the selected logs that exist, by name."""
        if self._has_changed.is_set():
            self._has_changed.clear()
            try:
                self._by_name = patiently(self._listed)
            except LedgerLogError:
                self._has_changed.set()
                raise
        return self._by_name

    def by_id(self, name: str, log_id: str) -> WatchedLog:
        """Return the log with this id, even if it is not selected.

        Such a log may be necessary because Spark may repeat batches that contain its rows.
        """
        log = self._by_id.get(log_id)
        if log is None:
            log = self._by_id[log_id] = WatchedLog(self._logs.open_by_id(name, log_id))
        return log

    def forget(self, name: str) -> None:
        """Forget the deleted log with this name.

        The next `current` searches for a new log of this name.
        """
        log = self._by_name.pop(name, None)
        if log is not None:
            self._by_id.pop(log.log_id, None)
            log.close()
        self._has_changed.set()

    def close(self) -> None:
        """End all watches."""
        self._cancel()
        for log in self._by_id.values():
            log.close()

    def _listed(self) -> dict[str, WatchedLog]:
        if not self._is_listed:
            self._client.run(lambda client: logs_of(client).store.sync())
        names = self._selection.names
        if self._selection.pattern is not None:
            names = self._selection.among(self._logs.names())
        found = {}
        for name in names:
            known = self._by_name.get(name)
            if known is None:
                try:
                    known = self.by_id(name, self._logs.open(name).log_id)
                except LogNotFoundError:
                    continue
            found[name] = known
        self._is_listed = True
        # All other logs in memory are no longer selected, or no longer exist.
        for log_id in self._by_id.keys() - {log.log_id for log in found.values()}:
            self._by_id.pop(log_id).close()
        return found


def _joined(
    known: tuple[VersionInterval, ...], read: tuple[VersionInterval, ...], first_offset: int
) -> tuple[VersionInterval, ...]:
    """Join two histories, without versions that the rows from `first_offset` on do not need."""
    if known and read and known[-1].version + 1 != read[0].version:
        known = ()
    versions = known + read
    kept = 0
    while kept + 1 < len(versions) and versions[kept + 1].end_offset < first_offset:
        kept += 1
    return versions[kept:]
