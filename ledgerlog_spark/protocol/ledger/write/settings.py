"""The phases and limits of a writer, and the answers of bookies that end the writer."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from ledgerlog_spark.model import Code
from ledgerlog_spark.protocol.ledger import messages as m
from ledgerlog_spark.protocol.ledger.write.add_pipeline import Window
from ledgerlog_spark.retry import RetryPolicy


class WriterPhase(Enum):
    """State of a writer."""

    OPEN = "open"
    LISTING = "looking for replacements"
    CHANGING = "writing the new ensemble"
    CLOSING = "closing"
    CLOSED = "closed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class WriterSettings:
    """Limits of a writer.

    Attributes:
        window: Limits of the entries that are not on their whole write set yet.
        metadata: Number and delays of the retries of one metadata change.
        absence_poll_ms: Time between two lists of the bookies while a bookie is absent.
        replacement: Number and delays of the retries while no bookie can replace failed bookies.
            After the last retry, the failed bookies become absent. But if the other bookies are not
            enough for each ack quorum, the writer fails.
        ensemble_changes_max: Maximum number of ensemble changes in one ledger, at least 0.
        add_quorum_timeout_ms: Time after which the writer fails if the oldest pending run is not
            confirmed. The actual time is one to two times as long. None means no limit.
    """

    window: Window = field(default_factory=Window)
    metadata: RetryPolicy = field(default_factory=RetryPolicy)
    absence_poll_ms: int = 5_000
    replacement: RetryPolicy = field(
        default_factory=lambda: RetryPolicy(first_delay_ms=100, delay_max_ms=500, attempts_max=33)
    )
    ensemble_changes_max: int = 1_000
    add_quorum_timeout_ms: int | None = None


FATAL_ADD_CODES = {
    Code.FENCED: m.Failure.FENCED,
    Code.UNAUTHORIZED: m.Failure.UNAUTHORIZED,
    Code.BAD_REQUEST: m.Failure.BAD_REQUEST,
}
"""Answers that end the writer (PROTOCOL.md#A9). After any other answer except OK and
BUSY, the bookie counts as failed.
"""
