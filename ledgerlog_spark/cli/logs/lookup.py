"""Shared code of the commands for logs: finds a log by its name, and parses and prints times."""

from __future__ import annotations

import base64
import difflib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from ledgerlog_spark.cli.output import picked
from ledgerlog_spark.errors import ConfigurationError, LogNotFoundError
from ledgerlog_spark.log.blocking.logs import BlockingLog
from ledgerlog_spark.log.clients import BlockingLogClient
from ledgerlog_spark.protocol.log.state.records import VersionInterval

NAMES_SHOWN_MAX = 10

LogName = Annotated[str, typer.Argument(help="Name of a log. `logs list` shows all.")]


def time_text(wall_ms: int) -> str:
    """Return the text of a time in ms since 1970, in UTC and without fractions of a second."""
    return datetime.fromtimestamp(wall_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def shown_bytes(value: bytes) -> str:
    """Return bytes as text, or as a Python literal if they are not printable UTF-8."""
    text = value.decode(errors="replace")
    is_text = text.replace("\t", "").isprintable() and text.encode() == value
    return text if is_text else repr(value)


def shown_cell(value: object) -> str:
    """Convert a value to the text of a table cell."""
    if isinstance(value, bytes):
        return shown_bytes(value)
    return "" if value is None else str(value)


def json_text(value: object) -> str:
    """Return a text for a value without a JSON type.

    The text of bytes is base64. Other values, such as dates and decimals, become their usual text.
    """
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def time_ms(text: str, option: str) -> int:
    """Parse a time to ms since 1970. A time without a zone is in the time zone of this machine."""
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1e3)
    except (ValueError, OverflowError, OSError):
        raise ConfigurationError(
            f"{option} {text!r} is not a time; examples are 2026-01-31, '2026-01-31 12:00' and "
            "2026-01-31T12:00:00Z",
            key=option,
        ) from None


def describe_version(version: VersionInterval) -> dict[str, Any]:
    """Return the fields of a version in the output of `--json`."""
    return {
        "version": version.version,
        "operation": version.operation.name,
        **picked(version, "start_offset", "end_offset", "rows", "commit_time_ms"),
        "commit_time": time_text(version.commit_time_ms),
    }


def names_of(client: BlockingLogClient) -> Sequence[str]:
    """Return the names of all logs. If there are no logs, raise an error if no cluster exists."""
    names = client.logs.names()
    if not names:
        next(client.list_ledgers(), None)
    return names


def opened(client: BlockingLogClient, name: str) -> BlockingLog:
    """Open the log `name`. If it does not exist, raise the error of `missing`."""
    try:
        return client.logs.open(name)
    except LogNotFoundError:
        raise missing(client, name) from None


def missing(client: BlockingLogClient, name: str) -> LogNotFoundError:
    """Return the error for a log that does not exist. The message suggests a similar name."""
    names = names_of(client)
    near = difflib.get_close_matches(name, names, 1, 0.5)
    hint = (
        f"did you mean {near[0]!r}?"
        if near
        else f"the existing logs are {', '.join(names[:NAMES_SHOWN_MAX])}"
        if names
        else "the cluster has no logs; create one with `ledgerlog logs create` or from Spark"
    )
    return LogNotFoundError(f"log {name!r} does not exist: {hint}", log=name)
