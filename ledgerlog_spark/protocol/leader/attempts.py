"""Repeated attempts of a leader at one operation, with a delay after each failure."""

from __future__ import annotations

from ledgerlog_spark.errors import LedgerLogError
from ledgerlog_spark.protocol.ledger.messages import StartTimer
from ledgerlog_spark.protocol.request_numbers import RequestNumbers
from ledgerlog_spark.retry import RetryPolicy


class Attempts:
    """One request at a time, and a timer after each failure."""

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
        """Whether an attempt may begin: none is pending, and no delay is running."""
        return not self.request and not self._timer

    @property
    def is_hopeless(self) -> bool:
        """Whether as many attempts in a row failed as the policy allows."""
        return self._failures >= self._policy.attempts_max

    def forgive(self) -> None:
        """Restart the count of failures."""
        self._failures = 0

    def begin(self) -> int:
        """The request number of a new attempt."""
        assert self.is_idle
        self.request = self._numbers.next()
        return self.request

    def succeed(self) -> None:
        """The current attempt succeeded."""
        self.request = self._failures = 0
        self.error = None

    def fail(self, error: LedgerLogError) -> StartTimer:
        """The current attempt failed; wait before the next one."""
        self.request = 0
        self.error = error
        self._failures += 1
        self._timer = self._numbers.next()
        return StartTimer(self._timer, self._policy.pause_ms(self._failures))

    def wake(self, request: int) -> bool:
        """Whether this was the timer of the delay; if so, the delay is over."""
        if request != self._timer or not self._timer:
            return False
        self._timer = 0
        return True


class LeaderAttempts:
    """The operations that a leader retries, one request of each at a time."""

    __slots__ = ("closing", "creating", "listing")

    def __init__(self, policy: RetryPolicy, numbers: RequestNumbers) -> None:
        self.listing = Attempts(policy, numbers)
        self.creating = Attempts(policy, numbers)
        self.closing = Attempts(policy, numbers)

    @property
    def errors(self) -> tuple[LedgerLogError | None, ...]:
        """Errors of the newest attempts at closing, at creating and at listing."""
        return self.closing.error, self.creating.error, self.listing.error

    def forgive(self) -> None:
        """Ignore failures from before an append depended on the operation."""
        for attempts in (self.listing, self.creating, self.closing):
            attempts.forgive()

    def wake(self, request: int) -> bool:
        """Whether this was the timer of a delay; if so, that delay is over."""
        return any(a.wake(request) for a in (self.listing, self.creating, self.closing))
