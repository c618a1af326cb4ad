"""The start of a stream, its offsets as Spark stores them, and whether the stream can continue.

Spark stores the end of a batch as `{log: {"id": log id, "offset": next row}}`. Merging does not
change the offset of a row, so stored offsets remain valid. The log id shows whether the log was
deleted and replaced. Spark does not store the start of the first batch, but requests this start
again after a crash. So either the second answer equals the first answer, or Spark has already
stored the start, as the end of a batch without rows. If a stream cannot continue, the error states
the cause, the effect on the rows, and the possible remedies.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ledgerlog_spark.datasource.options.starting_offsets import (
    EARLIEST,
    GO_TO_LATEST,
    LATEST,
    LATEST_NUMBER,
    offset_for,
)
from ledgerlog_spark.datasource.options.table import CONTINUE
from ledgerlog_spark.datasource.options.values import LogSelection, SourceOptions
from ledgerlog_spark.datasource.scan.plan import LogScan
from ledgerlog_spark.datasource.scan.time_travel import requested_offsets
from ledgerlog_spark.errors import ConfigurationError, DataLossError, LogError
from ledgerlog_spark.log.blocking.logs import BlockingLogs
from ledgerlog_spark.protocol.log.read.view import LogView
from ledgerlog_spark.protocol.log.state.records import LogKind, Operation, VersionInterval

_REPLACING = {Operation.OVERWRITE, Operation.RESTORE}
_GO_ON = 'set the option "failOnDataLoss" to "false"'
_NEW_CHECKPOINT = "start a query with a new checkpointLocation"


@dataclass(frozen=True, slots=True)
class LogOffset:
    """The next row to read in a log. Two logs with the same name have different ids."""

    log_id: str
    offset: int


def offsets_of(value: Any) -> dict[str, LogOffset]:
    """Parse the offsets, by log name, that Spark read from a checkpoint."""
    try:
        return {name: _offset_of(position) for name, position in value.items()}
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ConfigurationError(
            f'the checkpoint has the offset {value!r}, but format("ledger") writes offsets such as '
            f'{{"flights": {{"id": "...", "offset": 1000}}}}: it is the checkpoint of another '
            f"source. Set a separate checkpointLocation for this query.",
            option="checkpointLocation",
        ) from None


def json_of(offsets: Mapping[str, LogOffset]) -> dict[str, Any]:
    """Return the offsets as Spark stores them.

    The names are sorted, because Spark compares the texts of offsets.
    """
    return {name: {"id": at.log_id, "offset": at.offset} for name, at in sorted(offsets.items())}


def _offset_of(position: Any) -> LogOffset:
    log_id, offset = position["id"], position["offset"]
    if type(log_id) is not str or type(offset) is not int or offset < 0:
        raise ValueError(position)
    return LogOffset(log_id, offset)


def moves(read: SourceOptions) -> bool:
    """Whether the options may select another start if they are evaluated again later."""
    if read.starting_timestamp is not None:
        is_relative = read.starting_timestamp < 0
        return is_relative or read.starting_offsets_by_timestamp_strategy == GO_TO_LATEST
    offsets = read.starting_offsets
    if isinstance(offsets, str):
        return offsets != EARLIEST
    names_all = "*" in offsets or (read.log_pattern is None and set(read.log_names) <= set(offsets))
    return not names_all or LATEST_NUMBER in offsets.values()


def start_in(logs: BlockingLogs, scan: LogScan, read: SourceOptions, password: bytes) -> int:
    """Return the offset that the options select in the version of `scan`."""
    offsets, _ = requested_offsets(logs, [scan], read, password)
    interval = scan.snapshot.interval
    return offset_for(
        offsets,
        scan.snapshot.name,
        start=interval.start_offset,
        end=interval.end_offset,
        default=LATEST,
    )


def when_it_ended_at(scan: LogScan, end_offset: int) -> LogScan:
    """Return the log as it was when the first batch, which ends at `end_offset`, was planned.

    The result is the first version that contains the last row of the batch. An overwrite after the
    planning does not change the result, because the overwrite begins after the last row of the
    batch. Rows that were truncated after the planning cannot be read anyway.
    """
    if scan.snapshot.kind is LogKind.LEADER:
        return scan
    for place, version in enumerate(scan.history):
        if version.end_offset >= end_offset:
            snapshot = replace(scan.snapshot, interval=version)
            return replace(scan, snapshot=snapshot, history=scan.history[: place + 1])
    return scan


def readable_from(
    view: LogView, offset: int, options: SourceOptions, *, accepted_version: int | None
) -> int:
    """Return the offset of the first row to read.

    This is `offset`, or the offset of the next row that still exists. `offset` comes from the
    stream's checkpoint. If the view ends before this offset, the view must have been read after a
    sync. The stream has accepted all overwrites up to `accepted_version`. If `accepted_version` is
    None, no accepted version is known, for example after a restart.
    """
    name = view.name
    if offset > view.end_offset:
        if options.fail_on_data_loss:
            raise DataLossError(
                f"the checkpoint is at offset {offset} of log {name!r}, but the log ends at "
                f"{view.end_offset}: its metadata is older, for example because ZooKeeper was "
                f"restored from a backup. Newer rows may be lost, and offsets may belong to other "
                f"rows than before. To read the whole log again, {_NEW_CHECKPOINT}; to continue at "
                f"the end, {_GO_ON}.",
                log=name,
                offset=offset,
                end_offset=view.end_offset,
            )
        return view.end_offset
    if offset < view.oldest_offset:
        if options.fail_on_data_loss:
            raise DataLossError(
                f"the checkpoint is at offset {offset} of log {name!r}, but the oldest "
                f"existing row has offset {view.oldest_offset}: "
                f"{view.oldest_offset - offset} rows were truncated, or overwritten and expired, "
                f"before the query read them. To continue without them, {_GO_ON}.",
                log=name,
                offset=offset,
                oldest_offset=view.oldest_offset,
            )
        offset = view.oldest_offset
    if options.on_overwrite != CONTINUE:
        _reject_overwrite(view, offset, accepted_version)
    return offset


def _reject_overwrite(view: LogView, offset: int, accepted_version: int | None) -> None:
    replacing = overwrite_after(view.versions, offset, accepted_version)
    if replacing is None and offset >= view.start_offset:
        return
    what = "" if replacing is None else f" by version {replacing.version}"
    start = view.start_offset if replacing is None else replacing.start_offset
    raise LogError(
        f"log {view.name!r} was overwritten{what}: the rows before offset {start} are no longer in "
        f"the log. The query has read the rows before offset {offset}, and its output may contain "
        f"them. To read all rows in the order of their commits, and overwritten rows until they "
        f'expire, set the option "onOverwrite" to "continue"; to read only the current rows, '
        f'{_NEW_CHECKPOINT} and startingOffsets "earliest".',
        log=view.name,
        offset=offset,
        start_offset=start,
    )


def overwrite_after(
    versions: Sequence[VersionInterval], offset: int, accepted_version: int | None
) -> VersionInterval | None:
    """Return the first version after `accepted_version` that replaced rows.

    The version begins at `offset` or later. A version that begins exactly at `offset` is also
    returned, because the stream has read the rows that the version replaced. A version that
    replaced no row is ignored.
    """
    place = 0
    if accepted_version is not None and versions:
        place = max(0, accepted_version + 1 - versions[0].version)
    before = versions[place - 1] if place else None
    for version in versions[place:]:
        replaced_rows = before is None or before.rows > 0
        is_after = version.start_offset >= max(1, offset)
        if version.operation in _REPLACING and is_after and replaced_rows:
            return version
        before = version
    return None


def committed_ms(versions: Sequence[VersionInterval], offset: int) -> int:
    """Return the time when the row at `offset` was committed, or 0 if this time is unknown."""
    place = bisect_right(versions, offset, key=lambda version: version.end_offset)
    return versions[place].commit_time_ms if place < len(versions) else 0


def log_deleted(name: str, unread_rows: int | None) -> DataLossError:
    """Return the error for a deleted log.

    If `unread_rows` is None, the number of unread rows is unknown.
    """
    if unread_rows is None:
        lost = "any rows that the query had not read are lost"
    elif unread_rows:
        lost = f"at least {unread_rows} rows that the query had not read are lost"
    else:
        lost = (
            "the query had read all known rows; only rows that were committed just before the "
            "deletion may be lost"
        )
    return DataLossError(
        f"log {name!r}, which the query reads, was deleted: {lost}. Remove the log from the query, "
        f"or {_GO_ON} to continue without it. With that option, the query also reads a new log of "
        f"that name, from its first row.",
        log=name,
        unread_rows=unread_rows,
    )


def log_made_again(name: str, *, old_id: str, new_id: str) -> DataLossError:
    """Return the error for a log that has the name of the checkpoint's log, but another id."""
    return DataLossError(
        f"log {name!r} was deleted and created again: the checkpoint belongs to the log with id "
        f"{old_id}, but the log now has the id {new_id}, and other rows at the same offsets. To "
        f"read the new log from its first row, {_NEW_CHECKPOINT}, or {_GO_ON}.",
        log=name,
        old_id=old_id,
        new_id=new_id,
    )


def check_checkpoint(selection: LogSelection, names: Iterable[str]) -> None:
    """Raise an error if the query no longer reads any log of the checkpoint.

    A log that is no longer selected keeps its offset in the checkpoint, and is not read.
    """
    others = sorted(names)
    if others and not any(name in selection for name in others):
        raise ConfigurationError(
            f"the checkpoint belongs to log {', '.join(map(repr, others))}, but the query reads "
            f"{selection}. Set a separate checkpointLocation for this query, or read the log of "
            f"the checkpoint.",
            option="checkpointLocation",
            logs=tuple(others),
        )
