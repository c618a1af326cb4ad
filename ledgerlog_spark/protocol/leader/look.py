"""Reads the head to detect that the log of a leader was deleted (LOGS.md#J12)."""

from __future__ import annotations

from typing import TypeGuard

from ledgerlog_spark.errors import MetadataUnavailableError
from ledgerlog_spark.protocol.leader.attempts import Attempts
from ledgerlog_spark.protocol.ledger.messages import MetadataOutcome, StartTimer
from ledgerlog_spark.protocol.log.messages import HeadRead, ReadHead, Sync, Synced
from ledgerlog_spark.protocol.request_numbers import RequestNumbers
from ledgerlog_spark.retry import RetryPolicy

_ANSWERED = {MetadataOutcome.OK, MetadataOutcome.GONE, MetadataOutcome.UNREADABLE}
"""Outcomes after which the head is not read again.

`UNREADABLE` is one of these outcomes, because the next change of the list reports that error.
"""


class HeadLook:
    """Reads the head, one read at a time, and once more if the head changed during the read.

    The first read is not synchronised. If it does not find the head, a lagging replica of the store
    may have answered. So the store is synchronised and the head is read again, before the log
    counts as deleted. A failed read is retried without a limit, because the leader can continue
    without the store.
    """

    __slots__ = ("_attempts", "_is_due", "_is_missed", "_is_synced")

    def __init__(self, policy: RetryPolicy, numbers: RequestNumbers) -> None:
        self._attempts = Attempts(policy, numbers)
        self._is_due = False
        self._is_missed = False
        self._is_synced = False

    def note(self) -> None:
        """Note that the head may have changed."""
        self._is_due = True

    def begin(self) -> list[Sync | ReadHead]:
        """The request to send now; empty when no read is due or another request is pending."""
        if not self._is_due or not self._attempts.is_idle:
            return []
        self._is_due = False
        request = self._attempts.begin()
        is_sync_due = self._is_missed and not self._is_synced
        return [Sync(request=request) if is_sync_due else ReadHead(request=request)]

    def is_answer(self, event: object) -> TypeGuard[HeadRead | Synced]:
        """Whether this is the reply to the pending request."""
        return isinstance(event, HeadRead | Synced) and event.request == self._attempts.request

    def take(self, reply: HeadRead | Synced) -> tuple[bool, list[StartTimer]]:
        """Whether the log is certainly deleted, and the timer before a retry, if one is needed."""
        if reply.outcome not in _ANSWERED:
            self._is_due = True
            return False, [self._attempts.fail(MetadataUnavailableError("no answer"))]
        self._attempts.succeed()
        if isinstance(reply, Synced):
            self._is_due = self._is_synced = True
            return False, []
        if reply.outcome is MetadataOutcome.GONE:
            self._is_due = self._is_missed = True
            return self._is_synced, []
        self._is_missed = self._is_synced = False
        return reply.head is not None and bool(reply.head.value.deleted_ms), []

    def wake(self, request: int) -> bool:
        """End the delay after a failed read if `request` is its timer. Returns whether it ended."""
        return self._attempts.wake(request)
