"""How far a stream is behind, and what it should be told: for the progress report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ledgerlog_spark.datasource.stream.admission import Backlog

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ledgerlog_spark.protocol.log.read.view import LogView


def report_of(
    view: LogView,
    offset: int,
    *,
    now_ms: int,
    came_ms: Callable[[int], int],
    new_columns: Sequence[str] = (),
) -> dict[str, Any]:
    """A log's end, and how far from it a stream is that reads on at `offset`.

    Lag is in rows, in payload bytes as stored, and in milliseconds since the first unread row came;
    all 0 when everything is read. `lag.ms` is -1 when it is not known when the row came.

    Args:
        view: Of the log.
        offset: The next row to read.
        now_ms: Wall time in ms since the epoch.
        came_ms: When the row at an offset came, 0 when that is not known.
        new_columns: Columns that came after the query began.
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


def new_columns_notice(name: str, columns: Sequence[str]) -> str:
    """What to do about columns that came after the query began."""
    return (
        f"log {name!r} has new columns: {', '.join(columns)}. The query goes on without them, as "
        f"its columns are fixed while it runs; restart it to read them (older rows read as null)."
    )
