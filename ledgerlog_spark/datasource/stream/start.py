"""Where a stream began, also when its first batch has to be read again.

Spark keeps where a batch ends. Where the first one began it does not keep: after a crash it asks
again. So the answer has to be the same, or has to be written down as the end of a batch of no rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ledgerlog_spark.datasource.options.starting_offsets import (
    EARLIEST,
    GO_TO_LATEST,
    LATEST,
    LATEST_NUMBER,
    offset_for,
)
from ledgerlog_spark.datasource.scan.time_travel import offsets_asked
from ledgerlog_spark.protocol.log.state.records import LogKind

if TYPE_CHECKING:
    from ledgerlog_spark.datasource.options.values import ReadOptions
    from ledgerlog_spark.datasource.scan.plan import LogScan


def moves(read: ReadOptions) -> bool:
    """Whether the options mean another row when they are looked at later."""
    if read.starting_timestamp is not None:
        is_relative = read.starting_timestamp < 0
        return is_relative or read.starting_offsets_by_timestamp_strategy == GO_TO_LATEST
    offsets = read.starting_offsets
    if isinstance(offsets, str):
        return offsets != EARLIEST
    names_all = "*" in offsets or (read.log_pattern is None and set(read.log_names) <= set(offsets))
    return not names_all or LATEST_NUMBER in offsets.values()


def start_in(uri: str, scan: LogScan, read: ReadOptions, password: bytes) -> int:
    """The offset that the options mean in a version of a log.

    Raises:
        ConfigurationError: No row is as late as `startingTimestamp`.
    """
    offsets, _ = offsets_asked(uri, [scan], read, password)
    interval = scan.snapshot.interval
    return offset_for(
        offsets,
        scan.snapshot.name,
        start=interval.start_offset,
        end=interval.end_offset,
        default=LATEST,
    )


def when_it_ended_at(scan: LogScan, end_offset: int) -> LogScan:
    """The log as it was when a first batch that ends there was planned.

    That is the first version that has the batch's last row: an overwrite since then began behind
    it. What was truncated since then is not there to be read again, whenever the stream began.
    """
    if scan.snapshot.kind is LogKind.LEADER:
        return scan
    for place, version in enumerate(scan.history):
        if version.end_offset >= end_offset:
            snapshot = replace(scan.snapshot, interval=version)
            return replace(scan, snapshot=snapshot, history=scan.history[: place + 1])
    return scan
