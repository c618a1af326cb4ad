"""Distinguishes errors of Spark itself, on a machine that is too busy, from our errors."""

from __future__ import annotations

GAVE_UP = (
    "Python worker failed to connect back",
    "Timed out while waiting for the Python worker to connect back",
    "PYTHON_WORKER_CONNECT_TIMEOUT",
    "Java gateway process exited before sending its port number",
    "Cannot bind to any port",
)
"""Messages of Spark about its own processes that did not answer in time."""

OURS = "ledgerlog_spark/"
"""A text in the frames of every error that passed through our code."""

EXIT_CODE = 75
"""The exit code of a driver that Spark let down: try again (EX_TEMPFAIL of sysexits.h)."""


def is_sparks_own(text: str) -> bool:
    """Whether an error is Spark's own: none of our code is in its traces."""
    return any(words in text for words in GAVE_UP) and OURS not in text
