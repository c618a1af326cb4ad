"""Becoming the leader of a log (LOGS.md#J1-J4).

Read the list, seal every open ledger of it, make a ledger, put it on the list in place of those by
compare-and-swap; only then are appends taken. Whoever loses the compare-and-swap starts over with
the list as it is then.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from ledgerlog_spark.errors import LedgerNotFoundError
from ledgerlog_spark.protocol.leader.errors import cancelled, not_opened
from ledgerlog_spark.protocol.leader.list import ClosedLedger, ListEdit, open_ids
from ledgerlog_spark.protocol.leader.messages import (
    CreateLedger,
    LedgerCreated,
    LedgerEnd,
    LedgerOutcome,
    LedgerSealed,
    SealLedger,
)
from ledgerlog_spark.protocol.ledger.messages import MetadataOutcome
from ledgerlog_spark.protocol.log.change.head import HeadChanger
from ledgerlog_spark.protocol.log.messages import DropLedger
from ledgerlog_spark.protocol.log.properties import LogProperties
from ledgerlog_spark.protocol.log.read.versions import ReadPhase
from ledgerlog_spark.protocol.log.state.records import LogHead, LogKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledgerlog_spark.errors import LeaderTimeoutError, LocalProtocolError
    from ledgerlog_spark.model import Version
    from ledgerlog_spark.protocol.log.messages import LogEffects, LogReply, Written
    from ledgerlog_spark.protocol.log.state.walk import Walk


class OpeningPhase(Enum):
    """What the one request that is out is for."""

    LIST = "reading or changing the list"
    SEALING = "sealing an open ledger"
    CREATING = "making a ledger"
    DROPPING = "deleting a ledger that can no longer be listed"


@dataclass(frozen=True, slots=True)
class Opened:
    """The log is led.

    Attributes:
        head: As this leader wrote it.
        ledger_id: The one open ledger of the list.
    """

    head: LogHead
    ledger_id: int


class LeaderOpening(HeadChanger[Opened]):
    """Ends with `Finished(Opened)`, or `Failed`: the log has no leader, or another one.

    Fails with `LogNotFoundError`, `LogKindError`, `ConfigurationError`, `DataLossError`
    (LOGS.md#J6), `ConcurrentCommitError` (others kept taking over), `LedgerNotFoundError` (a ledger
    is gone that the list names, read again after a synchronisation), what a ledger could not be
    sealed or made for, or the store's errors.
    """

    __slots__ = ("_compared", "_ends", "_missed", "_own", "opening_phase")

    def __init__(self, log: str, *, token: str) -> None:
        """Machine of one opening.

        Args:
            log: Name, for messages.
            token: 32 random hexadecimal digits.
        """
        super().__init__(log, token=token)
        self.opening_phase = OpeningPhase.LIST
        self._ends: dict[int, LedgerEnd] = {}
        self._own: int | None = None
        self._compared: Version | None = None
        """What the newest attempt to list `_own` compared the head with."""
        self._missed: Version | None = None
        """Of the head that listed a ledger which was gone."""

    @property
    def unlisted_ledger(self) -> int | None:
        """At the end: the ledger that was made, if no attempt can list it any more."""
        return None if self.may_write else self._own

    def give_up(self, timeout_ms: int) -> LeaderTimeoutError:
        """End without the reply to the request that is out: what becomes of it is not known."""
        phase, ledger_id = self.opening_phase, None
        if phase is OpeningPhase.SEALING:
            assert self._head is not None
            ledger_id = self._unsealed(self._head)[0]
        return not_opened(
            self.log, phase.value, ledger_id, timeout_ms=timeout_ms, may_lead=self.may_write
        )

    def cancel(self) -> LocalProtocolError:
        """Like `give_up`, because nobody waits for the opening any more."""
        return cancelled(self.log, may_lead=self.may_write)

    def _step(self, reply: LogReply | LedgerSealed | LedgerCreated) -> LogEffects[Opened]:
        steps: dict[OpeningPhase, Callable[[Any], LogEffects[Opened]]] = {
            OpeningPhase.LIST: super()._step,
            OpeningPhase.SEALING: self._on_sealed,
            OpeningPhase.CREATING: self._on_created,
            OpeningPhase.DROPPING: self._on_dropped,
        }
        step = steps[self.opening_phase]
        self.opening_phase = OpeningPhase.LIST
        return step(reply)

    def _walks(self, head: LogHead) -> list[Walk[Any]]:
        self._head_of(head, writes=LogKind.LEADER)
        return []

    def _done(self, head: LogHead, walked: list[Any]) -> LogEffects[Opened]:
        """The list was read, for the first time or after an attempt that did not get through."""
        del walked
        if self._own is not None and open_ids(head) == (self._own,):
            return self._finish(Opened(head, self._own))
        if self._is_unsure and self._head_version != self._compared:
            # No attempt can get through any more. One may have: then the next leader sealed the
            # ledger, and took it off the list. So it is never listed again.
            self._is_unsure = False
            return self._drop_own()
        return self._go_on_with(head)

    def _on_unlistable(self) -> LogEffects[Opened]:
        """It took longer than `stagingTtlMs` to get here; another ledger is needed."""
        return self._drop_own()

    def _drop_own(self) -> LogEffects[Opened]:
        assert self._own is not None
        self.phase = ReadPhase.IDLE  # no write is out
        self.opening_phase = OpeningPhase.DROPPING
        return self._ask(partial(DropLedger, ledger_id=self._own))

    def _go_on_with(self, head: LogHead) -> LogEffects[Opened]:
        unsealed = self._unsealed(head)
        if unsealed:
            self.opening_phase = OpeningPhase.SEALING
            return self._request_of(partial(SealLedger, ledger_id=unsealed[0]))
        closed = self._closed(head)
        if self._own is None:
            ListEdit(head, closed, None, self._now_ms)  # refuses a gap before anything is made
            properties = LogProperties.from_mapping(head.properties)
            self.opening_phase = OpeningPhase.CREATING
            return self._request_of(partial(CreateLedger, properties=properties))
        return self._list_own(head, closed)

    def _unsealed(self, head: LogHead) -> list[int]:
        """Open ledgers of the list that this opening has not sealed yet (LOGS.md#J1)."""
        return [ledger_id for ledger_id in open_ids(head) if ledger_id not in self._ends]

    def _closed(self, head: LogHead) -> tuple[ClosedLedger, ...]:
        return tuple(ClosedLedger(i, self._ends[i]) for i in open_ids(head))

    def _list_own(self, head: LogHead, closed: tuple[ClosedLedger, ...]) -> LogEffects[Opened]:
        self._compared = self._head_version
        assert self._own is not None
        edit = ListEdit(head, closed, self._own, self._now_ms)
        return self._replace_head(edit, edit.unlisted, (self._own,))

    def _on_sealed(self, reply: LedgerSealed) -> LogEffects[Opened]:
        is_gone = isinstance(reply.error, LedgerNotFoundError)
        if is_gone and self._head_version != self._missed:
            # Another leader took it off the list since, and it was deleted: the head says so.
            self._missed = self._head_version
            return self._again()
        if reply.outcome is not LedgerOutcome.OK:
            assert reply.error is not None
            raise reply.error
        assert reply.end is not None
        assert self._head is not None
        unsealed = self._unsealed(self._head)
        self._ends[unsealed[0]] = reply.end
        return self._go_on_with(self._head)

    def _on_created(self, reply: LedgerCreated) -> LogEffects[Opened]:
        if reply.outcome is not LedgerOutcome.OK:
            assert reply.error is not None
            raise reply.error
        assert self._head is not None
        self._own = reply.ledger_id
        return self._go_on_with(self._head)

    def _on_dropped(self, reply: Written) -> LogEffects[Opened]:
        """Whatever became of it: what is left is let go by the sweeper."""
        assert isinstance(reply.outcome, MetadataOutcome)
        self._own = None
        return self._again()

    def _changed(self, head: LogHead) -> Opened:
        assert self._own is not None
        return Opened(head, self._own)

    def _request_of(
        self, request: Callable[[int], SealLedger | CreateLedger]
    ) -> LogEffects[Opened]:
        return self._ask(cast("Any", request))
