"""The source of a stream: its start, the end of a micro-batch, and the input of its tasks.

While the query runs, the source is in the memory of Spark's source process. The rows of a batch
depend only on the batch's two offsets. So if Spark recorded the offsets of a batch but did not
finish the batch, the same rows are read again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from ledgerlog_spark.arrow.conform import Conformer
from ledgerlog_spark.arrow.spark_types import arrow_schema_of
from ledgerlog_spark.arrow.stream_codec import decode_schema
from ledgerlog_spark.datasource.cluster import password_in
from ledgerlog_spark.datasource.options.starting_offsets import INT64_MAX, checked_offset
from ledgerlog_spark.datasource.options.table import CONTINUE
from ledgerlog_spark.datasource.options.values import SourceOptions
from ledgerlog_spark.datasource.scan.plan import LogScan
from ledgerlog_spark.datasource.scan.planning import tasks_from
from ledgerlog_spark.datasource.scan.task import ScanTask
from ledgerlog_spark.datasource.schemas import reject_unknown_columns, with_records_schema
from ledgerlog_spark.datasource.stream.admission import Backlog, Limits, admitted
from ledgerlog_spark.datasource.stream.position import (
    LogOffset,
    check_checkpoint,
    log_deleted,
    log_made_again,
    moves,
    readable_from,
    start_in,
    when_it_ended_at,
)
from ledgerlog_spark.datasource.stream.watched_logs import WatchedLog, WatchedLogs, patiently
from ledgerlog_spark.errors import LogNotFoundError, SchemaMismatchError
from ledgerlog_spark.log import clock
from ledgerlog_spark.log.clients import BlockingLogClient
from ledgerlog_spark.protocol.log.read.view import LogView
from ledgerlog_spark.protocol.log.state.records import LogContent, LogKind, LogSnapshot


class StreamSchemas:
    """Checks the columns of a stream's logs against the query's columns, given in `schema_json`."""

    def __init__(self, schema_json: str, options: SourceOptions) -> None:
        self._target = arrow_schema_of(schema_json)
        self._options = options
        self._checked: dict[str, int] = {}
        self._known: dict[str, set[str]] = {}
        self._new: dict[str, tuple[str, ...]] = {}

    def check(self, view: LogView) -> None:
        """Check the log's columns if they changed since the last check.

        New columns are reported once in the log file of the source process, and by `new_columns`.
        """
        if view.content is not LogContent.ROWS or view.schema_id not in view.schemas:
            return
        if self._checked.get(view.log_id) == view.schema_id:
            return
        schema = decode_schema(view.schemas[view.schema_id])
        try:
            Conformer(self._target, ignores_case=True).conform(
                pa.RecordBatch.from_pylist([], schema=schema)
            )
        except SchemaMismatchError as error:
            reason = error.message.rstrip(".")
            raise SchemaMismatchError(
                f"log {view.name!r} does not fit the columns of the query: {reason}. "
                f"Possible reasons: an overwrite replaced the log's columns (overwriteSchema), the "
                f"log was added after the query began, or the query has its own schema. Leave the "
                f"log out, or read it with a separate query.",
                **{**error.fields, "log": view.name},
            ) from error
        known = self._known.setdefault(view.log_id, {*schema.names, *self._target.names})
        new = tuple(name for name in schema.names if name not in known)
        if new and self._options.columns is None:
            self._new[view.name] = new
            _logger.warning("%s", new_columns_notice(view.name, new))
        self._checked[view.log_id] = view.schema_id

    def reject_unknown(self, logs: Iterable[LogSnapshot]) -> None:
        """Raise the errors of `reject_unknown_columns` for all logs at the start of the query."""
        reject_unknown_columns(self._target, logs, include_metadata=self._options.include_metadata)

    def new_columns(self, name: str) -> tuple[str, ...]:
        """Return the columns that a log got after the query began."""
        return self._new.get(name, ())

    def forget_others(self, names: set[str], log_ids: set[str]) -> None:
        """Forget the columns of all logs except the logs in `names` and `log_ids`."""
        for of_log in (self._checked, self._known):
            for log_id in of_log.keys() - log_ids:
                del of_log[log_id]
        for name in self._new.keys() - names:
            del self._new[name]


def new_columns_notice(name: str, columns: Sequence[str]) -> str:
    """Return advice about columns that were added to a log after the query began."""
    return (
        f"log {name!r} has new columns: {', '.join(columns)}. The query continues without them, "
        f"because its columns are fixed while it runs. Restart the query to read them. Older rows "
        f"have nulls in these columns."
    )


Offsets = Mapping[str, LogOffset]

END = INT64_MAX
"""An offset that is after all rows of every log.

To make a view that begins at this offset, only the head of the log must be read.
"""

_logger = logging.getLogger(__name__)


class LedgerStream:
    """The implementation of the source for one run of a query."""

    def __init__(
        self,
        client: BlockingLogClient,
        options: SourceOptions,
        schema_json: str,
        *,
        parallelism: int = 1,
    ) -> None:
        self._client = client
        self._options = options
        self._parallelism = parallelism
        self._selection = options.selection
        self._logs = WatchedLogs(client, self._selection)
        self._schemas = StreamSchemas(schema_json, options)
        self._ends: dict[str, LogOffset] | None = None
        self._initial: dict[str, LogOffset] | None = None
        self._reported: dict[str, LogOffset] = {}
        self._accepted: dict[str, int] = {}
        self._waits_since: float | None = None
        self._has_planned = False
        self._passed_over: set[str] = set()
        self._seen_ends: dict[str, LogOffset] = {}

    def initial(self) -> dict[str, LogOffset]:
        """Return the start of a query without a checkpoint. Every call returns the same value."""
        if self._initial is None:
            current = self._logs.current()
            for name in self._selection.names:
                if name not in current:
                    raise LogNotFoundError(f"log {name!r} does not exist", log=name)
            self._initial = {name: self._begun(log) for name, log in sorted(current.items())}
            views = [log.last_view for log in current.values() if log.last_view is not None]
            self._schemas.reject_unknown(_scan(view, start_offset=0).snapshot for view in views)
        return self._initial

    def fix_ends(self) -> None:
        """Read each log only up to its present end (Trigger.AvailableNow)."""
        self._ends = {}
        for name, log in self._logs.current().items():
            try:
                view = log.view(END, is_fresh=True)
            except LogNotFoundError:
                self._logs.forget(name)
                continue
            self._ends[name] = LogOffset(log.log_id, view.end_offset)

    def latest(self, start: Offsets, limits: Limits | None) -> dict[str, LogOffset]:
        """Return the end of the batch that begins at `start`.

        Return `start` if there is nothing to read. The first batch with a new log does not read the
        log's rows, so that the checkpoint contains the offset where the log begins. The next batch
        reads the log's rows. If the start depends on the time at which it is determined (`moves`),
        the first batch reads no rows of any log.

        If `limits` is None, the batch takes all rows.
        """
        check_checkpoint(self._selection, start)
        is_first = not self._has_planned and start == self._initial
        self._has_planned = True
        if is_first and moves(self._options):
            self._reported = dict(start)
            return dict(start)  # a batch without rows stores the start of the stream as its end
        ends = dict(start)
        backlogs = []
        current = self._logs.current()
        selected = (name for name in start if name in self._selection)
        for name in sorted({*current, *selected}):
            log = current.get(name)
            if log is None:
                self._reject_deletion(name, self._unread(name, start))
                continue
            if self._ends is not None:
                end = self._ends.get(name)
                if end is None or end.log_id != log.log_id:
                    continue
            try:
                backlog = self._backlog(log, start.get(name))
            except LogNotFoundError:
                self._logs.forget(name)
                self._reject_deletion(name, self._unread(name, start))
                continue
            if isinstance(backlog, LogOffset):
                ends[name] = backlog
            else:
                backlogs.append(backlog)
        if not self._has_to_wait(backlogs, limits):
            for name, offset in admitted(backlogs, limits or Limits()).items():
                ends[name] = LogOffset(ends[name].log_id, offset)
        self._reported = ends
        self._forget_gone(current, ends)
        return ends

    def report(self) -> dict[str, Any]:
        """Return the end of each log, and its distance from the end of the last planned batch."""
        reports = {}
        current = self._logs.current()
        for name, position in sorted(self._reported.items()):
            log = current.get(name)
            if log is None or log.log_id != position.log_id or log.last_view is None:
                continue
            reports[name] = report_of(
                log.last_view,
                position.offset,
                now_ms=clock.now_ms(),
                came_ms=log.came_ms,
                new_columns=self._schemas.new_columns(name),
            )
        return reports

    def tasks(self, start: Offsets, end: Offsets) -> list[ScanTask]:
        """Return the tasks of a batch. Every call plans the same rows."""
        check_checkpoint(self._selection, end)
        if not self._has_planned and start == self._initial:
            start = self._first_start(start, end)
        # If Spark recorded a batch before an overwrite, the batch can still be read, because its
        # rows still exist.
        rules = replace(self._options, on_overwrite=CONTINUE)
        scans, starts, ends = [], {}, {}
        for name, until in sorted(end.items()):
            since = start.get(name)
            if since is None or since.log_id != until.log_id or since.offset >= until.offset:
                continue
            try:
                view = self._view_up_to(name, since.offset, until)
            except LogNotFoundError:
                self._reject_deletion(name, until.offset - since.offset)
                continue
            starts[name] = readable_from(view, since.offset, rules, accepted_version=None)
            ends[name] = readable_from(view, until.offset, rules, accepted_version=None)
            scan = _scan(view, start_offset=view.oldest_offset)
            is_timed = self._options.include_metadata
            scans.append(replace(scan, history=view.versions) if is_timed else scan)
        read = self._options
        chosen = replace(read, starting_offsets=starts, ending_offsets=ends)
        return patiently(
            lambda: tasks_from(
                self._client.logs,
                scans,
                chosen,
                parallelism=self._parallelism,
                password=password_in(read.password_file),
            )
        )

    def close(self) -> None:
        """End the watches."""
        self._logs.close()

    def _begun(self, log: WatchedLog) -> LogOffset:
        """Return the offset at which the stream begins in a log, according to the options."""
        read = self._options
        view = log.view(0 if read.starting_timestamp is not None else END, is_fresh=True)
        start, end, newest = view.start_offset, view.end_offset, view.versions[-1].version
        scan = replace(_scan(view, start_offset=start), history=view.versions)
        offset = start_in(self._client.logs, scan, read, password_in(read.password_file))
        offset = checked_offset(
            "startingOffsets",
            log.name,
            offset,
            start=start,
            end=end,
            version=None if view.kind is LogKind.LEADER else newest,
            fail_on_data_loss=read.fail_on_data_loss,
        )
        self._accepted[log.log_id] = newest
        return LogOffset(log.log_id, offset)

    def _backlog(self, log: WatchedLog, position: LogOffset | None) -> Backlog | LogOffset:
        """Return the unread rows of a log.

        If the log is new to the stream, return its first offset.
        """
        if position is None or position.log_id != log.log_id:
            if position is not None and self._options.fail_on_data_loss:
                raise log_made_again(log.name, old_id=position.log_id, new_id=log.log_id)
            view = log.view(END)
            self._accept(view)
            return LogOffset(log.log_id, view.start_offset)
        view = log.view(position.offset, seen_offset=position.offset)
        accepted = self._accepted.get(log.log_id)
        first = readable_from(view, position.offset, self._options, accepted_version=accepted)
        self._accept(view)
        end = view.end_offset
        if self._ends is not None:
            end = min(end, self._ends[log.name].offset)
        return Backlog(log.name, first, max(first, end), view.items, log.came_ms(first))

    def _accept(self, view: LogView) -> None:
        self._schemas.check(view)
        self._seen_ends[view.name] = LogOffset(view.log_id, view.end_offset)
        if view.versions:
            self._accepted[view.log_id] = view.versions[-1].version

    def _forget_gone(self, current: Mapping[str, WatchedLog], ends: Offsets) -> None:
        """Forget the state of logs that are no longer selected and are not in the checkpoint."""
        names = {*current, *ends}
        ids = {log.log_id for log in current.values()} | {end.log_id for end in ends.values()}
        if self._seen_ends.keys() <= names and self._accepted.keys() <= ids:
            return
        self._seen_ends = {name: end for name, end in self._seen_ends.items() if name in names}
        self._accepted = {log_id: n for log_id, n in self._accepted.items() if log_id in ids}
        self._passed_over &= names
        self._schemas.forget_others(names, ids)

    def _unread(self, name: str, start: Offsets) -> int | None:
        """Return the number of known rows of a log that are in no batch.

        The result is None if the number is unknown.
        """
        position, seen = start.get(name), self._seen_ends.get(name)
        if position is None or seen is None or position.log_id != seen.log_id:
            return None
        return max(0, seen.offset - position.offset)

    def _reject_deletion(self, name: str, unread_rows: int | None) -> None:
        if self._options.fail_on_data_loss:
            raise log_deleted(name, unread_rows)
        if name not in self._passed_over:
            self._passed_over.add(name)
            _logger.warning("log %s was deleted; the query continues without it", name)

    def _has_to_wait(self, backlogs: list[Backlog], limits: Limits | None) -> bool:
        """Whether a batch has too few rows, and has not waited for `maxTriggerDelay` yet."""
        least = self._options.min_rows_per_trigger
        rows = sum(backlog.rows for backlog in backlogs)
        if least is None or limits is None or self._ends is not None or not 0 < rows < least:
            self._waits_since = None
            return False
        now = time.monotonic()
        if self._waits_since is None:
            self._waits_since = now
        if (now - self._waits_since) * 1000 < self._options.max_trigger_delay:
            return True
        self._waits_since = None
        return False

    def _first_start(self, start: Offsets, end: Offsets) -> dict[str, LogOffset]:
        """Return the start of the first batch of an earlier run, which Spark requests again."""
        starts = dict(start)
        read = self._options
        for name, until in end.items():
            since = start.get(name)
            if since is None or since.log_id != until.log_id:
                continue
            view = self._view_up_to(name, 0, until)
            scan = replace(_scan(view, start_offset=view.start_offset), history=view.versions)
            scan = when_it_ended_at(scan, until.offset)
            if not moves(read):
                offset = start_in(self._client.logs, scan, read, password_in(read.password_file))
                offset = max(offset, scan.snapshot.interval.start_offset)
                starts[name] = LogOffset(since.log_id, offset)
            self._accepted[since.log_id] = scan.snapshot.interval.version
        return starts

    def _view_up_to(self, name: str, first_offset: int, until: LogOffset) -> LogView:
        """Return the log's rows from `first_offset` on.

        `until` is the end of the batch in this log.
        """
        log = self._logs.by_id(name, until.log_id)
        return log.view(first_offset, seen_offset=until.offset)


def _scan(view: LogView, *, start_offset: int) -> LogScan:
    """Return the input of a plan: the newest version, with the rows from `start_offset` on."""
    interval = replace(view.versions[-1], start_offset=start_offset, end_offset=view.end_offset)
    snapshot = LogSnapshot(
        log_id=view.log_id,
        name=view.name,
        interval=interval,
        items=view.items,
        schemas=view.schemas,
        properties=view.properties,
        kind=view.kind,
        content=view.content,
    )
    return LogScan(with_records_schema(snapshot))


def report_of(
    view: LogView,
    offset: int,
    *,
    now_ms: int,
    came_ms: Callable[[int], int],
    new_columns: Sequence[str] = (),
) -> dict[str, Any]:
    """Return a log's end, and the lag of a stream that continues at `offset`.

    The lag is given in rows, in stored payload bytes, and in milliseconds since the first unread
    row was written. All three values are 0 if the stream has read all rows. If the time when the
    first unread row was written is unknown, `lag.ms` is -1.
    """
    first = min(max(offset, view.oldest_offset), view.end_offset)
    backlog = Backlog(view.name, first, view.end_offset, view.items)
    since_ms = came_ms(first) if backlog.rows else now_ms
    report: dict[str, Any] = {
        "id": view.log_id,
        "offset": view.end_offset,
        "lag": {
            "rows": backlog.rows,
            "bytes": backlog.size_bytes if backlog.rows else 0,
            "ms": max(0, now_ms - since_ms) if since_ms else -1,
        },
    }
    if new_columns:
        report["notice"] = new_columns_notice(view.name, new_columns)
    return report
