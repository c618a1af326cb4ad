"""Structured logs of a bookie: one JSON object a line on stderr, secrets blacked out.

Standard output carries the ready line only, so that whoever starts a bookie can parse it. What
libraries log comes out in the same form, within the same bounds. No caller waits for standard
error (`ledgerlog_spark/lines.py`).
"""

from __future__ import annotations

import atexit
import json
import logging
import sys
import time
from collections.abc import Callable, MutableMapping
from datetime import UTC, datetime
from typing import Any

import structlog
from structlog.tracebacks import ExceptionDictTransformer

from ledgerlog_spark.lines import LogLines

SECRET_WORDS = ("password", "key", "secret", "token")
RECORDS_IN_WINDOW_MAX = 50
WINDOW_SECONDS = 10.0
"""So many records of one event are written in so long."""

LIBRARY_TEXT_MAX = 4_000
"""Characters of a library's record, traceback included."""

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}

Logger = structlog.typing.FilteringBoundLogger


STANDARD_ERROR = 2


def configure_logging(level: str) -> LogLines:
    """Send records of `level` and above to stderr; call once, before the first record.

    Whatever else this process writes to `sys.stderr` from now on, tracebacks included, takes the
    same way, so it does not wait either. The end of the process waits for it, within a bound.
    """
    sys.stderr = lines = LogLines(STANDARD_ERROR, _dropped)
    atexit.register(lines.drain)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            # Without local variables: these are keys, passwords and users' payloads.
            structlog.processors.ExceptionRenderer(ExceptionDictTransformer(show_locals=False)),
            black_out_secrets,
            RateLimit(time.monotonic),
            structlog.processors.JSONRenderer(default=str),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=lambda *_: LineLogger(lines),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(
        level=logging.WARNING, format="%(message)s", handlers=[LibraryHandler()], force=True
    )
    return lines


class LineLogger:
    """Writes records as lines, without a lock.

    A finalizer may run while a line is written, and may log: of a future whose error nobody
    retrieved, for example. A lock like that of structlog's own logger would never be had then.
    """

    def __init__(self, lines: LogLines) -> None:
        self._lines = lines

    def msg(self, text: str) -> None:
        """Have a record written."""
        self._lines.write(text + "\n")

    debug = info = warning = error = msg


def _dropped(count: int) -> str:
    record = {
        "subject": "logging",
        "event": "log_lines_dropped",
        "level": "warning",
        "count": count,
        "timestamp": datetime.now(UTC).isoformat().replace("+00:00", "Z"),
    }
    return json.dumps(record)


class LibraryHandler(logging.Handler):
    """Records of libraries, as warnings: peers can cause them, so errors are limited as well."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record whose event is the same for all, so that their number is bounded."""
        try:
            text = self.format(record)[:LIBRARY_TEXT_MAX]
            get_logger(record.name).warning(
                "library_message", severity=record.levelname.lower(), message=text
            )
        except Exception:  # noqa: BLE001 -- as every handler: a log line stops nobody
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 -- the base's name
        """Nothing: there is nowhere to tell of it."""


class RateLimit:
    """Drops records of an event that comes too often: peers must not fill a disk with lines.

    The first record after some were dropped has their number as `suppressed`. Errors pass always.

    Args:
        clock: Seconds that never go back.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._events: dict[tuple[object, object], _Window] = {}

    def __call__(
        self, _logger: object, method: str, record: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        """The record, unless it is one too many."""
        if method not in ("warning", "info", "debug"):
            return record
        now = self._clock()
        # Both are words of this program, so there are few.
        key = record.get("subject"), record.get("event")
        window = self._events.get(key)
        if window is None:
            window = self._events[key] = _Window(now)
        elif now - window.began_at >= WINDOW_SECONDS:
            window.began_at, window.count = now, 0
        if window.count >= RECORDS_IN_WINDOW_MAX:
            window.suppressed += 1
            raise structlog.DropEvent
        window.count += 1
        if window.suppressed:
            record["suppressed"], window.suppressed = window.suppressed, 0
        return record


class _Window:
    __slots__ = ("began_at", "count", "suppressed")

    def __init__(self, began_at: float) -> None:
        self.began_at = began_at
        self.count = 0
        self.suppressed = 0


def black_out_secrets(
    _logger: object, _method: str, record: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Replace the value of every field whose name speaks of a secret, and all raw bytes.

    Bytes in a bookie are keys, passwords or users' payloads: none of them belongs in a log.
    """
    for name, value in record.items():
        if isinstance(value, (bytes, bytearray, memoryview)):
            record[name] = f"<{len(value)} bytes>"
        elif any(word in name.lower() for word in SECRET_WORDS):
            record[name] = "<hidden>"
    return record


def get_logger(subject: str) -> Logger:
    """A logger whose records carry `subject`."""
    logger: Logger = structlog.get_logger(subject=subject)
    return logger
