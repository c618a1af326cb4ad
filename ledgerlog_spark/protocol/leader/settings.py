"""Limits of the leader of a log."""

from __future__ import annotations

from dataclasses import dataclass, field

from ledgerlog_spark.protocol.ledger.write.add_pipeline import Window
from ledgerlog_spark.protocol.retry import RetryPolicy


@dataclass(frozen=True, slots=True)
class LeaderSettings:
    """Limits of a leader.

    Attributes:
        window: The limits of `can_add`: unacknowledged appends and their bytes.
        retry: Between attempts to change the list, to create or to close a ledger. The attempts are
            not limited while appends succeed in the current ledger, or none waits.
        open_timeout_ms: From `Start` to `LeaderOpened` or `LeaderStopped`.
    """

    window: Window = field(default_factory=Window)
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    open_timeout_ms: int = 120_000
