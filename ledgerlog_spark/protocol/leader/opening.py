"""Becoming the leader of a log (LOGS.md#J1-J4).

An opening reads the list, seals every open ledger of it and creates a ledger. It lists that ledger
in place of the sealed ones by compare-and-swap; only then are appends allowed. An opening that
loses the compare-and-swap starts over with the current list.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ledgerlog_spark.errors import LeaderTimeoutError, LedgerNotFoundError, LocalProtocolError
from ledgerlog_spark.model import Version
from ledgerlog_spark.protocol.leader.errors import cancelled, not_opened
from ledgerlog_spark.protocol.leader.list import ClosedLedger, ListEdit, open_ids
from ledgerlog_spark.protocol.leader.messages import (
    CreateLedger,
    LedgerEnd,
    LedgerOutcome,
    SealLedger,
)
from ledgerlog_spark.protocol.log.machine import Steps
from ledgerlog_spark.protocol.log.messages import DropLedger, Finished
from ledgerlog_spark.protocol.log.properties import LogProperties
from ledgerlog_spark.protocol.log.state.records import LogHead, LogKind
from ledgerlog_spark.protocol.log.transaction import HeadChange, HeadTransaction, Plan

_LISTING = "reading or changing the list"
_PHASES: dict[type[Any], str] = {
    SealLedger: "sealing an open ledger",
    CreateLedger: "making a ledger",
    DropLedger: "deleting a ledger that can no longer be listed",
}
"""The purpose of the pending request."""


@dataclass(frozen=True, slots=True)
class Opened:
    """This client is the leader."""

    head: LogHead
    ledger_id: int


class LeaderOpening(HeadTransaction[Opened]):
    """Ends with `Finished(Opened)`, or with `Failed`: the log has no leader, or another one.

    Fails with `LogNotFoundError`, `LogKindError`, `ConfigurationError`, `DataLossError`
    (LOGS.md#J6), `ConcurrentCommitError` (others kept taking over), `LedgerNotFoundError` (a listed
    ledger does not exist, also after a synchronisation), the error of a ledger that could not be
    sealed or created, or the store's errors.
    """

    def __init__(self, log: str, *, token: str) -> None:
        super().__init__(log, token=token)
        self._ends: dict[int, LedgerEnd] = {}
        self._own: int | None = None
        self._compared: Version | None = None
        """The head's version that the newest attempt to list `_own` compared."""
        self._missed: Version | None = None
        """Version of the head that listed a deleted ledger."""

    @property
    def unlisted_ledger(self) -> int | None:
        """At the end: the created ledger, if no attempt can list it any more."""
        return None if self.may_write else self._own

    def give_up(self, timeout_ms: int) -> LeaderTimeoutError:
        """End without the reply to the pending request, whose outcome stays unknown."""
        out = self._out
        return not_opened(
            self.log,
            _PHASES.get(type(out), _LISTING),
            out.ledger_id if isinstance(out, SealLedger) else None,
            timeout_ms=timeout_ms,
            may_lead=self.may_write,
        )

    def cancel(self) -> LocalProtocolError:
        """End like `give_up`, because the caller cancelled the opening."""
        return cancelled(self.log, may_lead=self.may_write)

    def _plan(self, head: LogHead) -> Plan[Opened]:
        """Plan on the list, for the first time or after an attempt that failed."""
        self._head_of(head, writes=LogKind.LEADER)
        if self._own is not None and open_ids(head) == (self._own,):
            return Finished(Opened(head, self._own))
        assert self._head is not None
        if self._is_unsure and self._head.version != self._compared:
            # No attempt can succeed any more. If one succeeded, the next leader has sealed the
            # ledger and removed it from the list. So it is never listed again.
            self._is_unsure = False
            yield from self._drop_own()
            return None
        for ledger_id in self._unsealed(head):
            if not (yield from self._seal(ledger_id)):
                return None
        closed = tuple(ClosedLedger(i, self._ends[i]) for i in open_ids(head))
        if self._own is None:
            ListEdit(head, closed, None, self._now_ms)  # refuses a gap before anything is created
            self._own = yield from self._create(LogProperties.from_mapping(head.properties))
        return self._list_own(head, closed)

    def _on_unlistable(self, _: HeadChange[Opened]) -> Steps[None]:
        """The opening took longer than `stagingTtlMs`; another ledger is needed."""
        return self._drop_own()

    def _drop_own(self) -> Steps[None]:
        """Drop it, whatever the outcome: the sweeper deletes the rest."""
        assert self._own is not None
        yield from self._reply_to(DropLedger(self._own))
        self._own = None

    def _unsealed(self, head: LogHead) -> list[int]:
        """Open ledgers of the list that this opening has not sealed yet (LOGS.md#J1)."""
        return [ledger_id for ledger_id in open_ids(head) if ledger_id not in self._ends]

    def _seal(self, ledger_id: int) -> Steps[bool]:
        """Whether it was sealed; False when it is deleted and the list has to be read again."""
        assert self._head is not None
        reply = yield from self._reply_to(SealLedger(ledger_id))
        is_gone = isinstance(reply.error, LedgerNotFoundError)
        if is_gone and self._head.version != self._missed:
            # Another leader may have unlisted it before it was deleted: the new head shows it.
            self._missed = self._head.version
            return False
        if reply.outcome is not LedgerOutcome.OK:
            assert reply.error is not None
            raise reply.error
        assert reply.end is not None
        self._ends[ledger_id] = reply.end
        return True

    def _create(self, properties: LogProperties) -> Steps[int]:
        reply = yield from self._reply_to(CreateLedger(properties))
        if reply.outcome is not LedgerOutcome.OK:
            assert reply.error is not None
            raise reply.error
        return reply.ledger_id

    def _list_own(
        self, head: LogHead, closed: tuple[ClosedLedger, ...]
    ) -> HeadChange[Opened] | Finished[Opened]:
        assert self._head is not None
        assert self._own is not None
        self._compared = self._head.version
        own = self._own
        edit = ListEdit(head, closed, own, self._now_ms)
        return edit.change(lambda changed: Opened(changed, own))
