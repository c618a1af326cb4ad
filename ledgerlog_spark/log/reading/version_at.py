"""Finds the version that was the newest at a given time (LOGS.md#Q6)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from ledgerlog_spark.errors import VersionNotAvailableError
from ledgerlog_spark.protocol.log.state.records import VersionInterval


def version_at(log: str, history: Sequence[VersionInterval], timestamp_ms: int) -> VersionInterval:
    """Return the version that was the newest at `timestamp_ms`.

    For a future time, return the present version. `history` begins with the oldest retained
    version.
    """
    found = [v for v in history if v.commit_time_ms <= timestamp_ms]
    if found:
        return found[-1]
    oldest = history[0]
    raise VersionNotAvailableError(
        f"log {log!r} has no version at {_text(timestamp_ms)}: its oldest version "
        f"{oldest.version} was committed at {_text(oldest.commit_time_ms)}",
        log=log,
        timestamp_ms=timestamp_ms,
        oldest=oldest.version,
        oldest_time_ms=oldest.commit_time_ms,
        newest=history[-1].version,
    )


def _text(wall_ms: int) -> str:
    try:
        return datetime.fromtimestamp(wall_ms / 1e3, UTC).isoformat(
            sep=" ", timespec="milliseconds"
        )
    except (OverflowError, ValueError, OSError):
        return f"{wall_ms} ms"
