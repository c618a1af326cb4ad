"""Requests of a leader: attempts at one operation, and deletions of ledgers that are not needed."""

from __future__ import annotations

from ledgerlog_spark.errors import LedgerLogError
from ledgerlog_spark.protocol.ledger.messages import StartTimer
from ledgerlog_spark.protocol.log.messages import DropLedger
from ledgerlog_spark.protocol.request_numbers import RequestNumbers
from ledgerlog_spark.retry import RetryPolicy


class Attempts:
    """The attempts at one operation: one request at a time, and a timer after each failure."""

    __slots__ = ("_failures", "_numbers", "_policy", "_timer", "error", "request")

    def __init__(self, policy: RetryPolicy, numbers: RequestNumbers) -> None:
        self.request = 0
        self.error: LedgerLogError | None = None
        self._policy = policy
        self._numbers = numbers
        self._failures = 0
        self._timer = 0

    @property
    def is_idle(self) -> bool:
        """Whether an attempt may begin, because no attempt is pending and no delay is running."""
        return not self.request and not self._timer

    @property
    def is_hopeless(self) -> bool:
        """Whether the policy allows no further attempt after these failures."""
        return self._failures >= self._policy.attempts_max

    def forgive(self) -> None:
        """Set the number of failures to 0."""
        self._failures = 0

    def begin(self) -> int:
        """Begin an attempt, and return the number of its request."""
        assert self.is_idle
        self.request = self._numbers.next()
        return self.request

    def succeed(self) -> None:
        """Record that the current attempt succeeded."""
        self.request = self._failures = 0
        self.error = None

    def fail(self, error: LedgerLogError) -> StartTimer:
        """Record that the current attempt failed. Return the timer before the next attempt."""
        self.request = 0
        self.error = error
        self._failures += 1
        self._timer = self._numbers.next()
        return StartTimer(self._timer, self._policy.pause_ms(self._failures))

    def wake(self, request: int) -> bool:
        """End the delay if `request` is the number of its timer. Return whether the delay ended."""
        if request != self._timer or not self._timer:
            return False
        self._timer = 0
        return True


class LedgerDrops:
    """The pending requests that delete ledgers which no attempt can list any more."""

    __slots__ = ("_numbers", "pending")

    def __init__(self, numbers: RequestNumbers) -> None:
        self.pending: set[int] = set()
        self._numbers = numbers

    def begin(self, ledger_id: int | None) -> list[DropLedger]:
        """Return the request that deletes the ledger, or no request if `ledger_id` is None."""
        if ledger_id is None:
            return []
        request = self._numbers.next()
        self.pending.add(request)
        return [DropLedger(ledger_id, request=request)]

    def end(self, request: int) -> bool:
        """Record the reply to a request. Return whether the request was a deletion."""
        is_mine = request in self.pending
        self.pending.discard(request)
        return is_mine
