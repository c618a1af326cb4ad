"""Decides whether a leader still leads after one of its ledgers was fenced (LOGS.md#J15).

Auto-recovery and operators fence ledgers too, so a fence does not show that another client takes
over the log. Only the claim in the head shows this. The claim of a client (the claimant) is ignored
if the client died before it listed a ledger.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ledgerlog_spark.errors import LeaderDeposedError, LedgerLogError
from ledgerlog_spark.protocol.leader.appends import LeaderLedger
from ledgerlog_spark.protocol.leader.attempts import Attempts
from ledgerlog_spark.protocol.leader.list import open_ids
from ledgerlog_spark.protocol.leader.messages import CandidateRead, Pause, ReadCandidate
from ledgerlog_spark.protocol.ledger.messages import StartTimer
from ledgerlog_spark.protocol.log.claim import claim_of, with_claim
from ledgerlog_spark.protocol.log.machine import Steps
from ledgerlog_spark.protocol.log.messages import Failed, Finished, LogEffects, LogRequest, Sync
from ledgerlog_spark.protocol.log.state.records import LogHead, LogKind
from ledgerlog_spark.protocol.log.transaction import HeadTransaction, Plan, rewritten
from ledgerlog_spark.protocol.request_numbers import RequestNumbers
from ledgerlog_spark.retry import RetryPolicy

ABSENT_SESSION_TIMES = 2
"""Number of session timeouts, within one session of this leader, after which a claimant counts as
dead if its candidate node was absent all the time. In this time, a live claimant creates its node
again."""

LOOKS_IN_A_SESSION_TIME = 4
"""Number of times in one session timeout that the leader looks for the node of a claimant."""

_LOOKS_MAX = 10_000
"""Maximum number of times that one attempt looks for the node of a claimant. This maximum is
reached only if the store replaces this leader's session again and again. The next attempt continues
after a delay."""


class StandingCheck(HeadTransaction[LogHead]):
    """Checks whether this leader still leads. Ends with the head, or with `LeaderDeposedError`.

    If the claim belongs to a dead client, the check stores the claim of this leader again. Other
    failures are `LogNotFoundError` and the store's errors.
    """

    def __init__(
        self,
        log: str,
        *,
        claim: str,
        mine: Collection[int],
        token: str,
        numbers: RequestNumbers,
    ) -> None:
        """`mine` contains the ledgers of this leader that may be in the list."""
        super().__init__(log, token=token, numbers=numbers)
        self._claim = claim
        self._mine = frozenset(mine)
        self._rival = ""  # the claim of a client that was found dead
        self._rival_session_id = 0  # session of this leader when that client was found dead

    def _plan(self, head: LogHead) -> Plan[LogHead]:
        self._head_of(head, writes=LogKind.LEADER)
        if self._mine.isdisjoint(open_ids(head)):
            raise self._deposed("the list names ledgers of another leader")
        rival = claim_of(head)
        if rival == self._claim:
            return Finished(head)
        yield from self._check_is_dead(rival)
        return rewritten(with_claim(head, self._claim), lambda new: new)

    def _check_is_dead(self, rival: str) -> Steps[None]:
        """Return if the client with this claim is dead. Raise LeaderDeposedError if it is alive."""
        looks = session_id = 0
        for _ in range(_LOOKS_MAX):
            found = yield from self._look_for(rival)
            if (rival, found.session_id) == (self._rival, self._rival_session_id):
                return
            if found.session_id != session_id:
                looks, session_id = 0, found.session_id  # only the time within one session counts
            if looks >= ABSENT_SESSION_TIMES * LOOKS_IN_A_SESSION_TIME:
                self._rival, self._rival_session_id = rival, session_id
                return
            looks += 1
            pause_ms = -(-found.session_timeout_ms // LOOKS_IN_A_SESSION_TIME)
            yield from self._reply_to(Pause(pause_ms))
        raise self._overtaken()

    def _look_for(self, rival: str) -> Steps[CandidateRead]:
        """Look for the candidate node of `rival`. If it exists, raise LeaderDeposedError."""
        yield from self._read(Sync())
        found = yield from self._read(ReadCandidate(rival))
        if found.is_there:
            raise self._deposed("another client claimed the log")
        return found

    def _deposed(self, why: str) -> LeaderDeposedError:
        return LeaderDeposedError(f"log {self.log!r} has another leader: {why}", log=self.log)


class LeaderStanding:
    """Runs the checks of one leader, one at a time.

    One check covers all contested ledgers.
    """

    def __init__(
        self, log: str, *, claim: str, policy: RetryPolicy, numbers: RequestNumbers
    ) -> None:
        self.attempts = Attempts(policy, numbers)
        self.fence: LedgerLogError | None = None  # the error that caused the newest check
        self.error: LedgerLogError | None = None  # the error that ended the newest check
        self._log = log
        self._claim = claim
        self._numbers = numbers
        self._check: StandingCheck | None = None
        self._contested: Collection[LeaderLedger] = ()

    @property
    def is_running(self) -> bool:
        """Whether a check has begun and not ended."""
        return self._check is not None and not self._check.has_ended

    def begin(
        self, contested: list[LeaderLedger], mine: Collection[int], token: str
    ) -> list[LogRequest[Any] | StartTimer]:
        """Begin a check for `contested` (at least one ledger).

        `mine` contains all ledgers of this leader.
        """
        assert not self.is_running
        self._contested, self.fence = contested, contested[0].fence
        self._check = StandingCheck(
            self._log, claim=self._claim, mine=mine, token=token, numbers=self._numbers
        )
        return self._step(self._check.start())

    def awaits(self, reply: Any) -> bool:
        """Whether this is the reply to the pending request, or the end of a pause."""
        return self._check is not None and self._check.awaits(reply)

    def handle(self, reply: Any) -> list[LogRequest[Any] | StartTimer]:
        """Take the reply to the pending request.

        When the check has ended, `error` is its error, or None if this leader still leads.
        """
        assert self._check is not None
        return self._step(self._check.handle(reply))

    def _step(self, effects: LogEffects[LogHead]) -> list[LogRequest[Any] | StartTimer]:
        (effect,) = effects
        if isinstance(effect, Failed):
            self.error = effect.error
            return []
        if isinstance(effect, Finished):
            self.error = None
            self.attempts.succeed()
            for ledger in self._contested:
                ledger.may_recover = True
            return []
        if isinstance(effect, Pause):
            return [StartTimer(effect.request, effect.delay_ms)]
        return [effect]
