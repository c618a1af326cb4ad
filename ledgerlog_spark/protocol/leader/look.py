"""Reads the head of a leader's log after each change, to detect a deletion (LOGS.md#J12)."""

from __future__ import annotations

from typing import Any

from ledgerlog_spark.errors import LogNotFoundError
from ledgerlog_spark.protocol.leader.attempts import Attempts
from ledgerlog_spark.protocol.ledger.messages import StartTimer
from ledgerlog_spark.protocol.log.messages import Failed, Finished, LogEffect, LogRequest
from ledgerlog_spark.protocol.log.read.versions import HeadMachine
from ledgerlog_spark.protocol.log.state.records import LogHead
from ledgerlog_spark.protocol.request_numbers import RequestNumbers
from ledgerlog_spark.retry import RetryPolicy


class HeadLook:
    """Reads the head after changes, one read at a time. The last read begins after the last change.

    A failed read is retried without a limit, because a leader needs the store only for its next
    change of the list. If the head cannot be decoded, that change reports the error.
    """

    def __init__(self, log: str, policy: RetryPolicy, numbers: RequestNumbers) -> None:
        self.is_deleted = False  # the newest read found that the log was deleted
        self.attempts = Attempts(policy, numbers)
        self.newest: HeadMachine | None = None
        self._log = log
        self._numbers = numbers
        self._is_due = False  # the head has changed since the newest read began

    def on_change(self) -> None:
        """Note that the head has changed, or may have changed."""
        self._is_due = True

    def begin(self) -> list[LogRequest[Any] | StartTimer]:
        """Start a read of the head if a read is due and no read runs."""
        is_looking = self.newest is not None and not self.newest.has_ended
        if not self._is_due or is_looking or not self.attempts.is_idle:
            return []
        self._is_due = False
        self.newest = HeadMachine(self._log, is_fresh=False, numbers=self._numbers)
        return self._step(*self.newest.start())

    def awaits(self, reply: Any) -> bool:
        """Whether this is the reply to the pending request."""
        return self.newest is not None and self.newest.awaits(reply)

    def handle(self, reply: Any) -> list[LogRequest[Any] | StartTimer]:
        """Take the reply to the pending request, and return the next effects."""
        assert self.newest is not None
        return self._step(*self.newest.handle(reply))

    def _step(self, effect: LogEffect[LogHead]) -> list[LogRequest[Any] | StartTimer]:
        if isinstance(effect, Failed) and isinstance(effect.error, LogNotFoundError):
            self.is_deleted = True
            return []
        if isinstance(effect, Failed) and effect.error.retriable:
            self._is_due = True
            return [self.attempts.fail(effect.error)]
        if not isinstance(effect, Finished | Failed):
            return [effect]
        self.attempts.succeed()
        return self.begin()
