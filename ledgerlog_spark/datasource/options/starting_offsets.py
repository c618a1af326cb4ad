"""Parses the options for the start and the end of a read, and computes offsets from them.

The value of such an option is a word, an offset, JSON with an offset for each log, or a time. A
read includes the row at the start, but not the row at the end. All functions are pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from ledgerlog_spark.errors import ConfigurationError, DataLossError
from ledgerlog_spark.protocol.log.properties import check_log_name
from ledgerlog_spark.protocol.log.state.records import VersionInterval

Offsets = Mapping[str, int] | str
"""A word for all logs, or an offset for each log name. The name "*" means all other logs."""

EARLIEST, LATEST = "earliest", "latest"
EARLIEST_NUMBER, LATEST_NUMBER = -2, -1
"""The numbers that mean `earliest` and `latest` in JSON, as in Kafka's options."""

ERROR, GO_TO_LATEST = "error", "latest"
"""Values of `startingOffsetsByTimestampStrategy`, which applies if all rows are older than
`startingTimestamp`."""

INT64_MAX = (1 << 63) - 1
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_offsets(value: str) -> Offsets:
    """Parse the value of `startingOffsets` or `endingOffsets`."""
    lowered = value.strip().lower()
    if lowered in {EARLIEST, LATEST}:
        return lowered
    wrong = ValueError(
        'earliest, latest, an offset such as 1000, or JSON such as {"flights": 1000} '
        "(-2 is earliest, -1 is latest)"
    )
    if re.fullmatch(r"\d{1,18}", lowered):
        return {"*": int(lowered)}
    try:
        parsed = json.loads(value)
    except ValueError:
        raise wrong from None
    if not isinstance(parsed, dict) or not parsed:
        raise wrong
    offsets = {}
    for log, position in parsed.items():
        offset = position.get("offset") if isinstance(position, dict) else position
        try:
            check_log_name(log)
        except ConfigurationError:
            raise wrong from None
        if type(offset) is not int or not EARLIEST_NUMBER <= offset <= INT64_MAX:
            raise wrong
        offsets[log] = offset
    return offsets


def parse_moment(value: str) -> int:
    """Parse a time to milliseconds since 1970. A value such as `-10m` becomes a negative number.

    Accepts milliseconds, ISO 8601 (UTC if no zone is given), and a time before now such as `-10m`,
    with the unit ms, s, m, h or d.
    """
    stripped = value.strip()
    if re.fullmatch(r"\d{1,16}", stripped):
        return int(stripped)
    if stripped.startswith("-"):
        return -max(1, parse_duration(stripped[1:]))
    try:
        moment = datetime.fromisoformat(stripped)
    except ValueError:
        raise ValueError(
            "milliseconds since 1970, a time such as 2026-01-31T12:00:00Z, or how long ago, such "
            "as -10m"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0, int(moment.timestamp() * 1000))


def parse_duration(value: str) -> int:
    """Parse a duration to milliseconds: a whole number, alone or followed by ms, s, m, h or d."""
    match = re.fullmatch(r"(\d{1,12})\s*(ms|s|m|h|d)?", value.strip().lower())
    if match is None:
        raise ValueError("a duration such as 500ms, 30s, 15m, 2h or 1d")
    return int(match[1]) * _UNITS_MS[match[2] or "ms"]


def absolute_ms(moment: int, now_ms: int) -> int:
    """Convert a result of `parse_moment` to milliseconds since 1970."""
    return moment if moment >= 0 else max(0, now_ms + moment)


def offset_for(offsets: Offsets, log: str, *, start: int, end: int, default: str) -> int:
    """Return the offset that the option's value `offsets` gives for one log.

    `start` and `end` are the offsets that the words `earliest` and `latest` mean. `default` is the
    word for logs that the JSON does not name.
    """
    if not isinstance(offsets, str):
        given = offsets.get(log, offsets.get("*"))
        if given is not None and given >= 0:
            return given
        offsets = {None: default, EARLIEST_NUMBER: EARLIEST, LATEST_NUMBER: LATEST}[given]
    return start if offsets == EARLIEST else end


def offset_at(history: Sequence[VersionInterval], moment_ms: int) -> int | None:
    """Return the offset of the first row committed at `moment_ms` or later.

    The result is None if no such row exists yet. `history` has the retained versions, in ascending
    order. Some rows of the oldest version may have been committed earlier, but the function uses
    the commit time of this version for all its rows.
    """
    start = history[-1].start_offset
    before: VersionInterval | None = None
    for version in history:
        has_rows = before is None or version.end_offset > before.end_offset
        if version.commit_time_ms >= moment_ms and has_rows:
            first = version.start_offset if before is None else before.end_offset
            found = max(first, start)
            return found if found < history[-1].end_offset else None
        before = version
    return None


def start_or_else(
    log: str, found: int | None, *, end_offset: int, newest_ms: int, strategy: str
) -> int:
    """Return `found`, the offset at which a read begins, if it is not None.

    `found` is None if all rows of the log are older than `startingTimestamp`. In this case, the
    function applies `strategy`: it returns `end_offset`, or it raises ConfigurationError.
    """
    if found is not None:
        return found
    if strategy == GO_TO_LATEST:
        return end_offset
    newest = datetime.fromtimestamp(newest_ms / 1000, UTC).isoformat()
    raise ConfigurationError(
        f'no row of log {log!r} was committed at "startingTimestamp" or later: its newest commit '
        f'was at {newest}. Set an earlier time, or set "startingOffsetsByTimestampStrategy" to '
        f'"latest" to begin at the end.',
        option="startingTimestamp",
        log=log,
    )


def ending_offset_at(history: Sequence[VersionInterval], moment_ms: int) -> int:
    """Return the offset after the last row committed before `moment_ms`."""
    found = offset_at(history, moment_ms)
    return history[-1].end_offset if found is None else found


def checked_offset(
    option: str,
    log: str,
    offset: int,
    *,
    start: int,
    end: int,
    version: int | None,
    fail_on_data_loss: bool,
) -> int:
    """Return the offset. Raise an error if a read cannot begin or end at this offset.

    If the row at the offset no longer exists and `fail_on_data_loss` is False, return `start`.
    `start` is the first offset of the version that is read, and `end` is its end offset. For a
    leader log, `version` is None.
    """
    read = f"log {log!r}" if version is None else f"version {version} of log {log!r}"
    if offset > end:
        raise ConfigurationError(
            f'option "{option}" is {offset}, but {read} ends at offset {end}. Set an offset '
            f'from {start} to {end}, or "{LATEST}".',
            option=option,
            log=log,
            end_offset=end,
        )
    if offset < start and fail_on_data_loss:
        raise DataLossError(
            f'option "{option}" is {offset}, but {read} begins at {start}: earlier rows were '
            f"overwritten or truncated. Set an offset from {start} to {end}, or set "
            f'"failOnDataLoss" to "false" to begin at {start}.',
            log=log,
            start_offset=start,
        )
    return max(offset, start)
