"""Maintains the candidate node of a client that opens or leads a log (LOGS.md#J14)."""

from __future__ import annotations

from typing import Any

from ledgerlog_spark.errors import MetadataUnavailableError
from ledgerlog_spark.protocol.leader.attempts import Attempts
from ledgerlog_spark.protocol.leader.messages import CandidatesJoined, JoinCandidates
from ledgerlog_spark.protocol.ledger.messages import MetadataOutcome, StartTimer
from ledgerlog_spark.protocol.log.messages import LogRequest
from ledgerlog_spark.protocol.request_numbers import RequestNumbers
from ledgerlog_spark.retry import RetryPolicy


class LeaderCandidacy:
    """Creates the candidate node again after each loss of the session, with the same claim.

    The opening creates the first node. A failed attempt is repeated without a limit, because the
    node is needed only while the store can be reached.
    """

    def __init__(
        self, log: str, *, claim: str, policy: RetryPolicy, numbers: RequestNumbers
    ) -> None:
        self.claim = claim
        self.attempts = Attempts(policy, numbers)
        self._log = log
        self._is_due = False

    def on_session_replaced(self) -> list[LogRequest[Any] | StartTimer]:
        """Note that the store deleted the node. Return the request that creates it again."""
        self._is_due = True
        return self.begin()

    def begin(self) -> list[LogRequest[Any] | StartTimer]:
        """Request the node if it must be created and no attempt runs."""
        if not self._is_due or not self.attempts.is_idle:
            return []
        self._is_due = False
        return [JoinCandidates(self.claim, request=self.attempts.begin())]

    def handle(self, reply: CandidatesJoined) -> list[LogRequest[Any] | StartTimer]:
        """Take the reply to a request of this object. `GONE` means that the log was deleted."""
        assert reply.request == self.attempts.request
        if reply.outcome in {MetadataOutcome.OK, MetadataOutcome.GONE}:
            self.attempts.succeed()
            return self.begin()
        self._is_due = True
        error = MetadataUnavailableError(
            f"the candidate node of log {self._log!r} was not created", log=self._log
        )
        return [self.attempts.fail(error)]
