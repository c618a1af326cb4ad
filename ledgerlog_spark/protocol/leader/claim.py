"""Claims a leader log before any of its ledgers is sealed (LOGS.md#J14).

The claim in the head is the token of one client. A leader whose ledger was fenced reads the claim.
If the claim is still the token of this leader, no other client takes over the log. Without the
claim, a leader and an opener would fence each other's ledgers forever.
"""

from __future__ import annotations

from ledgerlog_spark.errors import LeaderDeposedError
from ledgerlog_spark.protocol.leader.messages import JoinCandidates
from ledgerlog_spark.protocol.ledger.messages import MetadataOutcome
from ledgerlog_spark.protocol.log.claim import claim_of, with_claim
from ledgerlog_spark.protocol.log.machine import Steps
from ledgerlog_spark.protocol.log.messages import Finished
from ledgerlog_spark.protocol.log.state.records import LogHead, LogKind
from ledgerlog_spark.protocol.log.transaction import HeadTransaction, Plan, rewritten
from ledgerlog_spark.protocol.request_numbers import RequestNumbers


def check_claim(log: str, head: LogHead, claim: str) -> None:
    """Raise LeaderDeposedError unless the head contains the claim of this opener."""
    if claim_of(head) == claim:
        return
    raise LeaderDeposedError(
        f"another client claimed log {log!r} while this client opened it, so this client does not "
        "lead the log. To replace the other client, open the log with lead=True again",
        definite=True,
        log=log,
        end_offset=head.end_offset,
        pending_end_offset=head.end_offset,
    )


class OpenerClaim(HeadTransaction[LogHead]):
    """Stores the claim of an opener in the head, in place of any earlier claim, but only once.

    Before the opener stores the claim, it joins the candidates. Ends with the head that contains
    the claim. Fails with `LeaderDeposedError` if another client has already replaced the claim, and
    with the errors of `LeaderOpening`.
    """

    def __init__(self, log: str, *, claim: str, token: str, numbers: RequestNumbers) -> None:
        super().__init__(log, token=token, numbers=numbers)
        self._claim = claim
        self._has_joined = False
        self._earlier: str | None = None
        """The claim that the newest attempt replaces; None before the first attempt."""

    def steps(self) -> Steps[LogHead]:
        """Return the steps of this transaction, for the machine of the opening."""
        return self._run()

    def _plan(self, head: LogHead) -> Plan[LogHead]:
        self._head_of(head, writes=LogKind.LEADER)
        found = claim_of(head)
        if found == self._claim:
            return Finished(head)
        if self._is_unsure and found != self._earlier:
            # An attempt without an answer may have stored this claim, and another client may have
            # replaced this claim since then. An opener never replaces the claim of a client that
            # replaced the opener's claim.
            check_claim(self.log, head, self._claim)
        yield from self._join()
        self._earlier = found
        return rewritten(with_claim(head, self._claim), lambda new: new)

    def _join(self) -> Steps[None]:
        """Join the candidates, unless this opener has joined them or the log was deleted."""
        if self._has_joined:
            return
        reply = yield from self._reply_to(JoinCandidates(self._claim))
        if reply.outcome not in {MetadataOutcome.OK, MetadataOutcome.GONE}:
            raise self._read_error(reply.outcome)
        self._has_joined = True
