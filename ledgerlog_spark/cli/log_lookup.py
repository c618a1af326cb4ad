"""What the commands on logs have in common: finding a log by name, times as people write them."""

from __future__ import annotations

import base64
import difflib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ledgerlog_spark.errors import ConfigurationError, LogNotFoundError
from ledgerlog_spark.log.blocking import BlockingLog, BlockingLogs

if TYPE_CHECKING:
    from ledgerlog_spark.client.blocking import BlockingClient
    from ledgerlog_spark.protocol.log_records import VersionInterval

NAMES_SHOWN_MAX = 10

LogName = Annotated[str, typer.Argument(help="Name of a log, see `logs list`.")]


def time_text(wall_ms: int) -> str:
    """A wall time in ms since the epoch, in seconds of UTC."""
    return datetime.fromtimestamp(wall_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def shown_bytes(value: bytes) -> str:
    """Text, or as Python writes the bytes where a terminal would obey them or they are no text."""
    text = value.decode(errors="replace")
    is_text = text.replace("\t", "").isprintable() and text.encode() == value
    return text if is_text else repr(value)


def shown_cell(value: object) -> str:
    """What a table shows of a value."""
    if isinstance(value, bytes):
        return shown_bytes(value)
    return "" if value is None else str(value)


def json_text(value: object) -> str:
    """What JSON has no form for: binary as base64, dates and decimals as they are written."""
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def time_ms(text: str, option: str) -> int:
    """The wall time in ms since the epoch that somebody wrote; of this machine's zone without one.

    Raises:
        ConfigurationError: It is no time.
    """
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1e3)
    except (ValueError, OverflowError, OSError):
        raise ConfigurationError(
            f"{option} {text!r} is not a time: write it like 2026-01-31, '2026-01-31 12:00' or "
            "2026-01-31T12:00:00Z",
            key=option,
        ) from None


def describe_version(version: VersionInterval) -> dict[str, Any]:
    """A version for `--json`."""
    return {
        "version": version.version,
        "operation": version.operation.name,
        "start_offset": version.start_offset,
        "end_offset": version.end_offset,
        "rows": version.rows,
        "commit_time_ms": version.commit_time_ms,
        "commit_time": time_text(version.commit_time_ms),
    }


def names_of(client: BlockingClient) -> Sequence[str]:
    """Names of all logs.

    Raises:
        MetadataError: There is no cluster at all, which is more than a cluster without logs.
    """
    names = BlockingLogs(client).names()
    if not names:
        next(client.list_ledgers(), None)
    return names


def opened(client: BlockingClient, name: str) -> BlockingLog:
    """The log of that name.

    Raises:
        LogNotFoundError: There is none; names the nearest one there is.
    """
    try:
        return BlockingLogs(client).open(name)
    except LogNotFoundError:
        raise missing(client, name) from None


def missing(client: BlockingClient, name: str) -> LogNotFoundError:
    """The error of a log that does not exist; names the nearest one there is."""
    names = names_of(client)
    near = difflib.get_close_matches(name, names, 1, 0.5)
    hint = (
        f"did you mean {near[0]!r}?"
        if near
        else f"existing logs are {', '.join(names[:NAMES_SHOWN_MAX])}"
        if names
        else "the cluster has no logs; `ledgerlog logs create` or Spark creates one"
    )
    return LogNotFoundError(f"log {name!r} does not exist: {hint}", log=name)
