"""Telling an error of Spark's own, on a machine that is too busy for it, from one of ours."""

from __future__ import annotations

GAVE_UP = (
    "Python worker failed to connect back",
    "Timed out while waiting for the Python worker to connect back",
    "PYTHON_WORKER_CONNECT_TIMEOUT",
    "Java gateway process exited before sending its port number",
    "Cannot bind to any port",
)
"""What Spark says when a process that it started itself did not answer in time."""

OURS = "ledgerlog_spark/"
"""In the frames of every error that passed through our code."""

EXIT_CODE = 75
"""Of a driver that Spark let down: try again (EX_TEMPFAIL of sysexits.h)."""


def is_sparks_own(text: str) -> bool:
    """Whether an error, with its traces, is Spark's and no code of ours had a part in it."""
    return any(words in text for words in GAVE_UP) and OURS not in text
