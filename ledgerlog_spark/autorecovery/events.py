"""Makes the log lines about the events of auto-recovery, for a bookie and for the daemon."""

from __future__ import annotations

import re
from dataclasses import asdict, is_dataclass
from enum import Enum
from itertools import islice
from typing import Any

from ledgerlog_spark.protocol.autorecovery.replicate.messages import JobEnded

TEXT_CHARACTERS_MAX = 500
LISTED_MAX = 100
"""Maximum number of values of a list in one log line."""


def described(event: str, subject: Any) -> tuple[str, dict[str, Any]]:
    """Return the name and the fields of a log line about an event.

    The fields have a limited size.
    """
    if event == "job":
        queue, ledger_id, ended = subject
        return event, {"queue": queue, "ledger_id": ledger_id, **_fields_of(ended)}
    if is_dataclass(subject) and not isinstance(subject, type):
        return _in_snake_case(event), _as_json(asdict(subject))
    return event, {"about": short(subject)}


def short(subject: object) -> str:
    """Return a text of at most TEXT_CHARACTERS_MAX characters; for an error, with its class."""
    is_error = isinstance(subject, BaseException)
    text = f"{type(subject).__name__}: {subject}" if is_error else str(subject)
    return text if len(text) <= TEXT_CHARACTERS_MAX else f"{text[: TEXT_CHARACTERS_MAX - 3]}..."


def _fields_of(ended: JobEnded) -> dict[str, Any]:
    """Return the fields of a log line about the end of a job."""
    return {
        "outcome": ended.outcome.name.lower(),
        "detail": ended.detail[:TEXT_CHARACTERS_MAX],
        "entries_copied": ended.entries_copied,
        "bytes_copied": ended.bytes_copied,
        "replaced": ended.replaced,
    }


def _in_snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def _as_json(fields: dict[str, Any]) -> dict[str, Any]:
    """Return an event's fields as numbers, short texts, and lists of at most LISTED_MAX values."""
    found: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, (int, float)):
            found[name] = value
        elif isinstance(value, (tuple, list, set, frozenset)):
            found[name] = [short(one) for one in islice(value, LISTED_MAX)]
        else:
            found[name] = short(value.value if isinstance(value, Enum) else value)
    return found
