"""Checks failures of calls of leader logs: the reported cause must have happened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledgerlog_spark.errors import (
    DataLossError,
    LeaderDeposedError,
    LeaderTimeoutError,
    LedgerLogError,
    LedgerNotFoundError,
    LedgerRecoveryError,
    LocalProtocolError,
    NotEnoughBookiesError,
)
from tests.sim.log.hosts.blame import Call

if TYPE_CHECKING:
    from ledgerlog_spark.log.leader.leader import Leader

USUAL_MS = 1_000
"""Maximum time of a takeover or a roll without faults."""


@dataclass
class LeaderCall(Call):
    """One call of a leader or of another user.

    Attributes:
        leader: The leader that was called; None for other calls.
    """

    leader: Leader | None = None

    def _is_explained(self, error: LedgerLogError) -> bool:  # noqa: PLR0911
        world, view = self.world, self.world.views.get(self.log_id)
        is_deleted = view is None or view.deleted_at_ms is not None
        had_faults = self.had_faults or world.quorums.faults > 0
        match error:
            case LeaderDeposedError():
                # If the reply to a claim was lost, the opener cannot exclude that another client
                # replaced its claim.
                claims = 1 if self.leader is None and had_faults else 2
                return is_deleted or len(view.claims) >= claims
            case LeaderTimeoutError():
                return self._is_over(error) and (had_faults or error.timeout_ms < USUAL_MS)
            case NotEnoughBookiesError() | LedgerRecoveryError():
                return had_faults
            case DataLossError():
                # The reader took longer than the grace period of ranges that were truncated
                # meanwhile.
                age_ms = world.now_ms() - self.since_ms
                is_slow = age_ms >= view.properties.deleted_retention_ms
                return is_slow and (is_deleted or view.oldest_moved)
            case LedgerNotFoundError():
                return is_deleted or (view is not None and view.oldest_moved)
            case LocalProtocolError():
                # The leader was closed, or more appends wait than it accepts.
                return self.leader is not None and error.definite
            case _:
                return super()._is_explained(error)

    def _is_over(self, error: LeaderTimeoutError) -> bool:
        """Whether the call ran for the time that the error names, and may be retried."""
        return error.retriable and self.world.now_ms() - self.since_ms >= error.timeout_ms
