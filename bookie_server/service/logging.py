"""Writes a bookie's log lines to standard error: one JSON object per line, without secrets.

Standard output contains only the ready line, so that the program that starts the bookie can parse
the output. Log records of libraries have the same form and the same limits. Code that writes a log
line never waits for standard error (`ledgerlog_spark/lines.py`).
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

from ledgerlog_spark.errors import LedgerLogError
from ledgerlog_spark.lines import LogLines

SECRET_WORDS = ("password", "key", "secret", "token")
RECORDS_IN_WINDOW_MAX = 50
WINDOW_SECONDS = 10.0  # time for at most RECORDS_IN_WINDOW_MAX records of one event
LIBRARY_TEXT_MAX = 4_000  # maximum number of characters of a library's log record
STANDARD_ERROR = 2
LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}

Logger = structlog.typing.FilteringBoundLogger


def configure_logging(level: str) -> LogLines:
    """Write log records of `level` and above to standard error. Call this once, at the start.

    After this call, all other text for `sys.stderr`, such as tracebacks, uses the same queue, so no
    writer waits. At its end, the process waits a limited time until the queue is written.
    """
    sys.stderr = lines = LogLines(STANDARD_ERROR, _dropped)
    atexit.register(lines.drain)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            # Log lines must not contain local variables, such as keys, passwords and payloads.
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
    """Writes log records as lines, without a lock.

    A finalizer may run and log during the write of a line, for example the finalizer of a future
    with an error that was not retrieved. In this case, the lock of structlog's own logger would
    deadlock.
    """

    def __init__(self, lines: LogLines) -> None:
        self._lines = lines

    def msg(self, text: str) -> None:
        """Queue a log record for writing."""
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
    """Writes log records of libraries as warnings. Peers may cause many warnings.

    `RateLimit` drops frequent warnings, but never errors.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Write a log record. All records of one library logger have the same event name.

        So the rate limit counts these records together.
        """
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
    """Drops log records of events that are too frequent, because peers must not fill a disk.

    The next log record of the event contains the number of dropped records as `suppressed`. Log
    records of errors are never dropped.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._events: dict[tuple[object, object], _Window] = {}

    def __call__(
        self, _logger: object, method: str, record: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        """Return the log record, or raise DropEvent if the limit is reached."""
        if method not in ("warning", "info", "debug"):
            return record
        now = self._clock()
        # Subjects and events are constants of this program and its libraries, so there are few
        # keys.
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
    """Hide raw bytes (keys, passwords, payloads), and fields with a secret word in their name."""
    for name, value in record.items():
        if isinstance(value, (bytes, bytearray, memoryview)):
            record[name] = f"<{len(value)} bytes>"
        elif any(word in name.lower() for word in SECRET_WORDS):
            record[name] = "<hidden>"
    return record


def fields_of(error: BaseException) -> dict[str, Any]:
    """Return the fields of an error for a log record, with the error's message as `reason`."""
    if isinstance(error, LedgerLogError):
        return {**error.fields, "reason": error.message}
    return {"reason": str(error) or type(error).__name__}


def get_logger(subject: str) -> Logger:
    """Return a logger that writes `subject` into each log record."""
    logger: Logger = structlog.get_logger(subject=subject)
    return logger
