"""Checks how a leader retries: after growing pauses, and only a limited time for needed work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ledgerlog_spark.errors import LedgerFencedError
from ledgerlog_spark.protocol.leader import messages as lm
from ledgerlog_spark.protocol.ledger.messages import CloseRequested, MetadataOutcome, StartTimer
from ledgerlog_spark.protocol.log import messages as m

if TYPE_CHECKING:
    from ledgerlog_spark.errors import LedgerLogError
    from ledgerlog_spark.protocol.leader.attempts import Attempts
    from ledgerlog_spark.retry import RetryPolicy
    from tests.sim.leader.leader import SimLeader

_LOOKED = {MetadataOutcome.OK, MetadataOutcome.UNREADABLE}


class PatienceStory:
    """Counts the consecutive failures of a leader, for each kind of work.

    The kinds are: to create a ledger, to close or recover one, to change the list, to check the
    claim after a fence, and to read the head. The
    count begins again when the work becomes needed: the ledger in use broke, an append waits for
    the next ledger, or the leader must close. A read of the head is retried without a limit. Other
    work is retried without a limit while no append waits.
    """

    def __init__(self, leader: SimLeader, policy: RetryPolicy) -> None:
        self._leader = leader
        self._policy = policy
        self._failures = dict.fromkeys(("making", "closing", "listing", "looking", "checking"), 0)
        self._broken: set[int] = set()
        self._is_closing = False

    def _attempts(self) -> dict[str, Attempts]:
        machine = self._leader.machine
        return {
            "making": machine._creating,
            "closing": machine._closing,
            "listing": machine._listing,
            "looking": machine._look.attempts,
            "checking": machine._standing.attempts,
        }

    @property
    def _is_needed(self) -> bool:
        """Whether appends or a close wait for the work."""
        return self._is_closing or (self._is_broken and self._pending > 0)

    @property
    def _is_broken(self) -> bool:
        return self._leader.rolls.ledger_id in self._broken

    @property
    def _pending(self) -> int:
        return sum(append.acknowledged_ms is None for append in self._leader.appends)

    def note_event(self, event: Any) -> None:
        """Record an event before the machine handles it."""
        match event:
            case lm.LedgerCreated(error=None):
                self._failures["making"] = 0
            case lm.CloseAnswered(error=None | LedgerFencedError()):
                self._failures["closing"] = 0
            case m.HeadRead() if event.outcome in _LOOKED:
                look = self._leader.machine._look
                if look.awaits(event):
                    self._failures["looking"] = 0
            case lm.LedgerBroken():
                self._broken.add(event.ledger_id)
                # An opening has no ledgers.
                ledgers = getattr(self._leader.machine, "_ledgers", None)
                if ledgers is not None and ledgers.find(event.ledger_id) is not None:
                    self._forgive()
            case lm.AppendRequested() if self._is_broken and self._pending == 1:
                self._forgive()
            case CloseRequested():
                self._is_closing = True
                self._forgive()

    def _forgive(self) -> None:
        self._failures |= dict.fromkeys(("making", "closing", "listing", "checking"), 0)

    def listed(self) -> None:
        """Record that the list was changed."""
        self._failures["listing"] = 0

    def waits(self, timer: StartTimer) -> None:
        """Check a new timer: if it is the pause after a failed attempt, check its duration."""
        for what, attempts in self._attempts().items():
            if attempts._timer == timer.request:
                self._failed(what, timer.delay_ms)

    def _failed(self, what: str, delay_ms: int) -> None:
        self._failures[what] += 1
        failures, policy = self._failures[what], self._policy
        right_ms = min(policy.first_delay_ms << (failures - 1), policy.delay_max_ms)
        leader = self._leader
        leader.world.require(
            delay_ms == right_ms,
            f"leader {leader.number} waits {delay_ms} ms after {failures} failures of {what}",
        )
        is_over = failures >= policy.attempts_max and self._is_needed and what != "looking"
        leader.world.require(
            not is_over, f"leader {leader.number} goes on after {failures} failures of {what}"
        )

    def stopped(self, error: LedgerLogError) -> None:
        """Check that a leader that ended after failed attempts made enough, for needed work."""
        leader = self._leader
        for what, attempts in self._attempts().items():
            if attempts.error is error:
                failures = self._failures[what] + 1
                leader.world.require(
                    failures >= self._policy.attempts_max,
                    f"leader {leader.number} gives up after {failures} failures of {what}",
                )
                leader.world.require(
                    self._is_needed,
                    f"leader {leader.number} gives up over {what}, and nothing depends on it",
                )
