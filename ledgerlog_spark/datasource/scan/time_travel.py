"""Finds versions and offsets by time: `timestampAsOf`, `startingTimestamp`, `endingTimestamp`.

The time of a row of a transactional log is the time of its commit. The time of a record of a leader
log is the time of its append. Each entry of a leader log contains this time. The times of entries
never decrease.
"""

from __future__ import annotations

from collections.abc import Sequence

from ledgerlog_spark.datasource.options.starting_offsets import (
    Offsets,
    absolute_ms,
    ending_offset_at,
    offset_at,
    start_or_else,
)
from ledgerlog_spark.datasource.options.values import SourceOptions
from ledgerlog_spark.datasource.scan.index_entries import header_reader
from ledgerlog_spark.datasource.scan.plan import LogScan
from ledgerlog_spark.datasource.scan.ranges import HeaderOf
from ledgerlog_spark.errors import LogKindError
from ledgerlog_spark.log.blocking.logs import BlockingLog, BlockingLogs
from ledgerlog_spark.log.reading.version_at import version_at
from ledgerlog_spark.protocol.log.state.records import Item, LogKind


def requested_version(logs: BlockingLogs, log: BlockingLog, options: SourceOptions) -> int | None:
    """Return the version that the options select by number or by time.

    The result is None if the options select no version.
    """
    if options.timestamp_as_of is None:
        return options.version_as_of
    if log.state().head.kind is LogKind.LEADER:
        raise LogKindError(
            f"log {log.name!r} is a leader log, which has no versions: leave the option "
            f'"timestampAsOf" out, or set "endingTimestamp" to the end',
            log=log.name,
        )
    moment_ms = _absolute_ms(logs, options.timestamp_as_of)
    return version_at(log.name, log.history(), moment_ms).version


def requested_offsets(
    logs: BlockingLogs, scans: Sequence[LogScan], options: SourceOptions, password: bytes
) -> tuple[Offsets, Offsets]:
    """Return the start and the end of a batch read with these options.

    Times in the options are converted to offsets. If an option is a time, the transactional logs in
    `scans` must contain their history.
    """
    start, end = options.starting_offsets, options.ending_offsets
    if options.starting_timestamp is not None:
        moment_ms = _absolute_ms(logs, options.starting_timestamp)
        start = {
            scan.snapshot.name: start_or_else(
                scan.snapshot.name,
                first_offset_at(logs, scan, moment_ms, password),
                end_offset=scan.snapshot.interval.end_offset,
                newest_ms=_newest_ms(scan),
                strategy=options.starting_offsets_by_timestamp_strategy,
            )
            for scan in scans
        }
    if options.ending_timestamp is not None:
        moment_ms = _absolute_ms(logs, options.ending_timestamp)
        end = {scan.snapshot.name: _end_at(logs, scan, moment_ms, password) for scan in scans}
    return start, end


def first_offset_at(
    logs: BlockingLogs, scan: LogScan, moment_ms: int, password: bytes
) -> int | None:
    """Return the offset of the first row written at `moment_ms` or later.

    The result is None if no such row exists yet.
    """
    if scan.snapshot.kind is LogKind.TRANSACTIONAL:
        return offset_at(scan.history, moment_ms)
    for item in scan.snapshot.items:
        if item.newest_ms >= moment_ms:
            name, log_id = scan.snapshot.name, scan.snapshot.log_id
            header_of = header_reader(
                logs, name, log_id, ledger_id=item.ledger_id, password=password
            )
            found = _first_entry_at(item, moment_ms, header_of)
            return max(found, scan.snapshot.interval.start_offset)
    return None


def _first_entry_at(item: Item, moment_ms: int, header_of: HeaderOf) -> int:
    """Return the offset of the first record at `moment_ms` or later.

    The range `item` must have such a record.
    """
    low, end = item.first_entry_id, item.last_entry_id
    offset = item.first_offset
    while low < end:
        middle = (low + end) // 2
        header = header_of(middle)
        if header.append_time_ms < moment_ms:
            low, offset = middle + 1, header.end_offset
        else:
            end = middle
    return offset


def _end_at(logs: BlockingLogs, scan: LogScan, moment_ms: int, password: bytes) -> int:
    if scan.snapshot.kind is LogKind.TRANSACTIONAL:
        return ending_offset_at(scan.history, moment_ms)
    found = first_offset_at(logs, scan, moment_ms, password)
    return scan.snapshot.interval.end_offset if found is None else found


def _newest_ms(scan: LogScan) -> int:
    """Return the time of a leader log's newest row, otherwise the last version's time."""
    if scan.snapshot.kind is LogKind.LEADER and scan.snapshot.items:
        return scan.snapshot.items[-1].newest_ms
    return scan.snapshot.interval.commit_time_ms


def _absolute_ms(logs: BlockingLogs, moment: int) -> int:
    """Convert a time that may be relative to the current time of the metadata store's clock."""
    return moment if moment >= 0 else absolute_ms(moment, logs.now_ms())
