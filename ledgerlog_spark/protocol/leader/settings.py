"""Limits of the leader of a log."""

from __future__ import annotations

from dataclasses import dataclass, field

from ledgerlog_spark.protocol.ledger.write.add_pipeline import Window
from ledgerlog_spark.protocol.retry import RetryPolicy


@dataclass(frozen=True, slots=True)
class LeaderSettings:
    """Limits of a leader.

    Attributes:
        window: Behind `can_add`: appends and their bytes that are not acknowledged.
        retry: Between attempts at one change of the list, at making or at closing a ledger. As
            long as appends get through in the current ledger, or none waits, there is no last
            attempt.
        open_timeout_ms: From `Start` to `LeaderOpened`, or to `LeaderStopped`.
    """

    window: Window = field(default_factory=Window)
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    open_timeout_ms: int = 120_000
