"""Makes a client the leader of a log (LOGS.md#J1-J4).

An opening first claims the log (LOGS.md#J14). Then it reads the list, seals every open ledger in
the list and creates a ledger. It lists the new ledger in place of the sealed ledgers, by
compare-and-swap. After that, appends are allowed. If the compare-and-swap fails, the opening reads
the list again. If another client has replaced the claim, the opening fails.
"""

from __future__ import annotations

from typing import Any

from ledgerlog_spark.errors import LeaderTimeoutError, LedgerNotFoundError, LocalProtocolError
from ledgerlog_spark.model import Version
from ledgerlog_spark.protocol.leader.claim import OpenerClaim, check_claim
from ledgerlog_spark.protocol.leader.list import Closed, list_change, open_ids
from ledgerlog_spark.protocol.leader.messages import (
    CreateLedger,
    JoinCandidates,
    LedgerEnd,
    SealLedger,
)
from ledgerlog_spark.protocol.log.machine import Steps, token_after
from ledgerlog_spark.protocol.log.messages import DropLedger, Finished
from ledgerlog_spark.protocol.log.properties import LogProperties
from ledgerlog_spark.protocol.log.state.records import LogHead, LogKind
from ledgerlog_spark.protocol.log.transaction import (
    ATTEMPTS_MAX,
    HeadChange,
    HeadTransaction,
    Plan,
)
from ledgerlog_spark.protocol.request_numbers import RequestNumbers

_LISTING = "reading or changing the list"
_PHASES: dict[type[Any], str] = {
    JoinCandidates: "joining the candidates",
    SealLedger: "sealing an open ledger",
    CreateLedger: "creating a ledger",
    DropLedger: "deleting a ledger that can no longer be listed",
}
"""Names of the steps of the opening, by the type of the request that is pending in the step."""


class LeaderOpening(HeadTransaction[LogHead]):
    """Makes this client the leader of a log. Ends with `Finished(LogHead)` or with `Failed`.

    The last open ledger of the resulting head is the ledger that this opening created.

    Fails with `LeaderDeposedError` (another client replaced the claim), `LogNotFoundError`,
    `LogKindError`, `ConfigurationError`, `DataLossError` (LOGS.md#J6), `ConcurrentCommitError`
    (other clients changed the list at every attempt) or `LedgerNotFoundError` (a listed ledger does
    not exist). Also fails with the error of a ledger that could not be sealed or created, and with
    the store's errors.
    """

    def __init__(self, log: str, *, claim: str, token: str, numbers: RequestNumbers) -> None:
        super().__init__(log, token=token_after(token, ATTEMPTS_MAX), numbers=numbers)
        self._claim = claim
        self._claiming = OpenerClaim(log, claim=claim, token=token, numbers=numbers)
        self._ends: dict[int, LedgerEnd] = {}
        self._own: int | None = None
        self._compared: Version | None = None
        """The version that the head must have for the newest attempt to list `_own`."""
        self._missed: Version | None = None
        """The version of a head that listed a deleted ledger."""

    @property
    def may_write(self) -> bool:
        """Whether an attempt to list the created ledger is pending or got no answer."""
        return self._own is not None and super().may_write

    @property
    def unlisted_ledger(self) -> int | None:
        """The ledger that this opening created; None if the list may contain it."""
        return None if self.may_write else self._own

    def give_up(self, timeout_ms: int) -> LeaderTimeoutError:
        """Return the error for an opening that ends without the reply to its pending request."""
        may_lead = self.may_write  # the list may contain the created ledger, now or later
        waited_for = _PHASES.get(type(self._out), _LISTING)
        ledger: dict[str, Any] = {}
        named = ""
        if isinstance(self._out, SealLedger):
            ledger, named = {"ledger_id": self._out.ledger_id}, f" ({self._out.ledger_id})"
        then = "may lead the log nevertheless" if may_lead else "does not lead the log"
        return LeaderTimeoutError(
            f"log {self.log!r} was not taken over within {timeout_ms / 1e3:g} s, because "
            f"{waited_for}{named} did not end. This client {then}. Check that ZooKeeper and the "
            "bookies run (`ledgerlog doctor`), then open the log again, with a longer "
            "open_timeout_ms if necessary",
            definite=not may_lead,
            log=self.log,
            waited_for=waited_for,
            timeout_ms=timeout_ms,
            **ledger,
        )

    def cancel(self) -> LocalProtocolError:
        """Return the error for an opening that its caller cancelled."""
        may_lead = self.may_write
        then = "may have taken it over nevertheless" if may_lead else "does not lead it"
        return LocalProtocolError(
            f"the opening of log {self.log!r} was cancelled, and this client {then}: open it again",
            definite=not may_lead,
            log=self.log,
        )

    def _run(self) -> Steps[LogHead]:
        yield from self._claiming.steps()
        return (yield from super()._run())

    def _plan(self, head: LogHead) -> Plan[LogHead]:
        """Plan the change of the list in `head`. An earlier attempt may have failed."""
        self._head_of(head, writes=LogKind.LEADER)
        if self._own is not None and open_ids(head) == (self._own,):
            return Finished(head)
        assert self._head is not None
        if self._is_unsure and self._head.version != self._compared:
            # The head changed, so no attempt can succeed any more. If an attempt succeeded, the
            # next leader has sealed the ledger and removed it from the list forever.
            self._is_unsure = False
            yield from self._drop_own()
            return None
        check_claim(self.log, head, self._claim)
        while unsealed := self._unsealed(head):
            if not (yield from self._seal(unsealed[0])):
                return None
            # The claim is read again before another seal. The list may have changed too.
            head = yield from self._read_head()
            self._head_of(head, writes=LogKind.LEADER)
            check_claim(self.log, head, self._claim)
        closed = {ledger_id: self._ends[ledger_id] for ledger_id in open_ids(head)}
        if self._own is None:
            list_change(
                head, closed, None, self._now_ms
            )  # only checks for a gap, before a ledger is created
            properties = LogProperties.from_mapping(head.properties)
            reply = yield from self._reply_to(CreateLedger(properties))
            if reply.error is not None:
                raise reply.error
            self._own = reply.ledger_id
        return self._list_own(head, closed)

    def _on_unlistable(self, _: HeadChange[LogHead]) -> Steps[None]:
        """Drop the ledger, because it is older than `stagingTtlMs`.

        The next attempt creates another ledger.
        """
        return self._drop_own()

    def _drop_own(self) -> Steps[None]:
        """Drop the created ledger. If the request fails, the sweeper deletes the ledger later."""
        assert self._own is not None
        yield from self._reply_to(DropLedger(self._own))
        self._own = None

    def _unsealed(self, head: LogHead) -> list[int]:
        """Return the open ledgers of the list that are not sealed by this opening (LOGS.md#J1)."""
        return [ledger_id for ledger_id in open_ids(head) if ledger_id not in self._ends]

    def _seal(self, ledger_id: int) -> Steps[bool]:
        """Seal a ledger. Return False if the ledger was deleted and the list must be read again."""
        assert self._head is not None
        reply = yield from self._reply_to(SealLedger(ledger_id))
        is_gone = isinstance(reply.error, LedgerNotFoundError)
        if is_gone and self._head.version != self._missed:
            # Another leader may have removed the ledger from the list before the ledger was
            # deleted. If so, the new head does not list the ledger.
            self._missed = self._head.version
            return False
        if reply.error is not None:
            raise reply.error
        self._ends[ledger_id] = reply.end
        return True

    def _list_own(self, head: LogHead, closed: Closed) -> HeadChange[LogHead] | Finished[LogHead]:
        assert self._head is not None
        self._compared = self._head.version
        return list_change(head, closed, self._own, self._now_ms)
