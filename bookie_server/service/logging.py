"""Structured logs of a bookie: one JSON object a line on stderr, secrets blacked out.

Standard output carries the ready line only, so that whoever starts a bookie can parse it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import structlog

if TYPE_CHECKING:
    from collections.abc import MutableMapping

SECRET_WORDS = ("password", "key", "secret", "token")
LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}

Logger = structlog.typing.FilteringBoundLogger


def configure_logging(level: str) -> None:
    """Send records of `level` and above to stderr; call once, before the first record."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.dict_tracebacks,
            black_out_secrets,
            structlog.processors.JSONRenderer(default=str),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )


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
