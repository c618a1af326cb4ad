"""Structured logs of a bookie: one JSON object per line on stderr, without secrets.

Standard output has only the ready line, so that the program that starts the bookie can parse it.
Records of libraries have the same form and the same limits. No caller waits for standard error
(`ledgerlog_spark/lines.py`).
"""

from __future__ import annotations

import atexit
import json
import logging
import sys
import time
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import structlog
from structlog.tracebacks import ExceptionDictTransformer

from ledgerlog_spark.lines import LogLines

SECRET_WORDS = ("password", "key", "secret", "token")
RECORDS_IN_WINDOW_MAX = 50
WINDOW_SECONDS = 10.0  # at most RECORDS_IN_WINDOW_MAX records of one event in this time
LIBRARY_TEXT_MAX = 4_000  # characters of a library's record, traceback included
LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}

Logger = structlog.typing.FilteringBoundLogger


STANDARD_ERROR = 2


def configure_logging(level: str) -> LogLines:
    """Send records of `level` and above to stderr; must run once, before the first record.

    From now on, all other text for `sys.stderr`, such as tracebacks, goes through the same queue,
    so no writer waits. At its end, the process waits a limited time until the queue is written.
    """
    sys.stderr = lines = LogLines(STANDARD_ERROR, _dropped)
    atexit.register(lines.drain)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            # Without local variables, which include keys, passwords and users' payloads.
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

    While a line is written, a finalizer may run and log, for example for a future with an error
    that was not retrieved. The lock of structlog's own logger would then deadlock.
    """

    def __init__(self, lines: LogLines) -> None:
        self._lines = lines

    def msg(self, text: str) -> None:
        """Queue a record for writing."""
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
    """Writes records of libraries as warnings.

    Warnings are limited in number. Errors of libraries must be limited, too, because peers can
    cause them.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record. All records have one event name, so that `RateLimit` limits them."""
        try:
            text = self.format(record)[:LIBRARY_TEXT_MAX]
            get_logger(record.name).warning(
                "library_message", severity=record.levelname.lower(), message=text
            )
        except Exception:  # noqa: BLE001 -- a failed log line stops nothing
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 -- the base's name
        """Do nothing: a failed log line cannot be reported."""


class RateLimit:
    """Drops records of an event that is too frequent: peers must not fill a disk with lines.

    The first record after dropped records has their number as `suppressed`. Errors always pass.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._events: dict[tuple[object, object], _Window] = {}

    def __call__(
        self, _logger: object, method: str, record: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        """Return the record, unless it exceeds the limit."""
        if method not in ("warning", "info", "debug"):
            return record
        now = self._clock()
        # Subjects and events are constants of this program, so there are few keys.
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


@dataclass(slots=True)
class _Window:
    began_at: float
    count: int = 0
    suppressed: int = 0


def black_out_secrets(
    _logger: object, _method: str, record: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Replace all raw bytes, and the value of every field with the name of a secret.

    Bytes in a bookie are keys, passwords or users' payloads, which must not be logged.
    """
    for name, value in record.items():
        if isinstance(value, (bytes, bytearray, memoryview)):
            record[name] = f"<{len(value)} bytes>"
        elif any(word in name.lower() for word in SECRET_WORDS):
            record[name] = "<hidden>"
    return record


def get_logger(subject: str) -> Logger:
    """Return a logger whose records have `subject`."""
    logger: Logger = structlog.get_logger(subject=subject)
    return logger
