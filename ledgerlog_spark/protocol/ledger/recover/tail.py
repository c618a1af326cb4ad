"""The entries after the LAC that fencing found: reads them forward and writes them back.

Present entries are written back with the LAC that fencing found, so that no reader ever sees a LAC
above the closed end (PROTOCOL.md#C10). Bookies that fail meanwhile are replaced in memory; the one
closing compare-and-swap writes the replacements to the metadata (PROTOCOL.md#C11).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.model import NO_ENTRY, Code, Fragment
from ledgerlog_spark.protocol.ledger import messages as m
from ledgerlog_spark.protocol.ledger.overload import BusyBookies
from ledgerlog_spark.protocol.ledger.recover.reads import ReadAhead, RecoveryReads, Verdict
from ledgerlog_spark.protocol.ledger.recover.write_back import WriteBack
from ledgerlog_spark.protocol.ledger.write.ensemble_change import with_fragment
from ledgerlog_spark.retry import RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ledgerlog_spark.model import LedgerMetadata, Versioned
    from ledgerlog_spark.protocol.ledger.recover.fencing import Fencing
    from ledgerlog_spark.protocol.ledger.write.add_pipeline import Window
    from ledgerlog_spark.protocol.ledger.write.ensemble_change import FailedBookies
    from ledgerlog_spark.protocol.request_numbers import RequestNumbers

OVERLOAD = RetryPolicy(first_delay_ms=20, delay_max_ms=1_000, attempts_max=16)
"""Waits for a bookie that answers BUSY, about 10 s in all; then the bookie counts as failed."""


class TailState(Enum):
    """The next action of the owner after a step."""

    GOING_ON = "wait for the next reply"
    WRITTEN = "everything before the end is on an ack quorum: measure or close"
    FAILED = "give this attempt up"


@dataclass(frozen=True, slots=True)
class TailStep:
    """Result of one event."""

    effects: Sequence[m.Effect] = ()
    state: TailState = TailState.GOING_ON  # after WRITTEN or FAILED it takes no replies
    failure: m.Failure | None = None  # exactly when the state is FAILED
    about: Mapping[str, Any] = field(default_factory=dict)  # fields of the failure's error


def _failed(failure: m.Failure, **about: Any) -> TailStep:
    return TailStep(state=TailState.FAILED, failure=failure, about=about)


class RecoveryTail:
    """One attempt's copy of the entries after the LAC; its owner marks, fences and closes.

    Every reply ends in `_advance`, which returns the next state. Only `_advance` detects that an
    ack quorum has become impossible, so after no order of replies the attempt waits for an answer
    that will never come.
    """

    def __init__(
        self,
        *,
        ledger_id: int,
        record: Versioned[LedgerMetadata],  # as it was when the attempt fenced
        fencing: Fencing,  # its state is covered
        bookies: FailedBookies,  # none waits for a replacement
        read_ahead: ReadAhead,
        window: Window,
        numbers: RequestNumbers,
    ) -> None:
        self._record = record
        self._bookies = bookies
        self._read_ahead = read_ahead
        self._numbers = numbers
        self._busy = BusyBookies(numbers, OVERLOAD)
        self._listing = 0
        self._hedge_timer = 0
        metadata = record.value
        # the last one, and those that replacements began
        self.fragments: tuple[Fragment, ...] = (metadata.last_fragment,)
        found = self._last_safe_entry(fencing.last_add_confirmed)
        self._reads = RecoveryReads(
            quorum=metadata.quorum,
            ensemble=metadata.last_fragment.ensemble,
            answering=fencing.known,
            first_entry_id=found + 1,
            read_ahead=read_ahead,
            numbers=numbers,
            last_entry_ids=fencing.last_entry_ids,
        )
        self._write_back = WriteBack(
            ledger_id=ledger_id,
            quorum=metadata.quorum,
            ensemble=metadata.last_fragment.ensemble,
            last_add_confirmed=found,
            numbers=numbers,
            window=window,
            buffered_size_bytes_max=read_ahead.size_bytes_max,
        )

    @property
    def last_add_confirmed(self) -> int:
        """Last safe entry: first the LAC that fencing found, then the last entry written back."""
        return self._write_back.last_add_confirmed

    @property
    def entries_confirmed(self) -> int:
        """Number of entries written back."""
        return self._write_back.entries_confirmed

    @property
    def length(self) -> int | None:
        """Payload bytes of the ledger up to `last_add_confirmed`; None requires `measure`."""
        return self._write_back.length

    def begin(self) -> list[m.Effect]:
        """The first reads, and the timer of slow ones."""
        self._hedge_timer = self._numbers.next()
        hedge = m.StartTimer(self._hedge_timer, self._read_ahead.slow_member_ms)
        return [*self._reads.fill(), hedge]

    def take_entries(self, event: m.ReadReplied | m.BatchReplied) -> TailStep:
        """A bookie answered a read."""
        effects: list[m.Effect] = []
        if isinstance(event, m.BatchReplied):
            effects += self._reads.take_batch_reply(event)
        else:
            effects += self._reads.take_reply(event)
        return self._advance(effects)

    def take_add(self, event: m.AddReplied) -> TailStep:
        """A bookie answered a run that was written back."""
        pipeline = self._write_back.pipeline
        answer = None if pipeline is None else pipeline.take_reply(event)
        if pipeline is None or answer is None:
            return TailStep()
        if answer.code is Code.UNAUTHORIZED:
            return _failed(m.Failure.UNAUTHORIZED)
        if answer.code is Code.OK:
            self._busy.stored(answer.index)
            pipeline.confirm()
            return self._advance([])
        if pipeline.is_suspended(answer.index):
            return self._advance([])
        pipeline.suspend(answer.index)
        if answer.code is Code.BUSY:
            self._busy.refused(answer.index)
            timer = self._busy.wait(answer.index)
            if timer is not None:
                return self._advance([timer])
        self._busy.forget(answer.index)
        self._bookies.report(answer.index, answer.bookie_id, answer.code)
        return self._advance(self._list_bookies())

    def take_bookies(self, event: m.BookiesListed) -> TailStep:
        """Replace failed bookies, in memory (PROTOCOL.md#C11)."""
        pipeline = self._write_back.pipeline
        if event.request != self._listing or pipeline is None:
            return TailStep()
        self._listing = 0
        found = self._bookies.choose(pipeline.ensemble, event.candidates)
        for index in self._bookies.indexes:
            self._bookies.settle(index)
        for index in found.unreplaced:
            pipeline.abandon(index)
        if not found.replaced:
            return self._advance([])
        new = Fragment(pipeline.last_add_confirmed + 1, found.ensemble)
        self.fragments = with_fragment(self.fragments, new)
        effects: list[m.Effect] = [*pipeline.replace(found.ensemble, found.replaced)]
        pipeline.confirm()
        return self._advance(effects)

    def take_timer(self, event: m.TimerFired) -> list[m.Effect]:
        """Request slow entries from other members, or resend runs that a busy bookie refused.

        A timer of an earlier attempt is ignored.
        """
        index, pipeline = self._busy.fired(event.request), self._write_back.pipeline
        if index is not None and pipeline is not None:
            sent = pipeline.resend(index)
            self._busy.resumed(index, len(sent))
            return [*sent]
        if event.request != self._hedge_timer:
            return []
        self._hedge_timer = self._numbers.next()
        timer = m.StartTimer(self._hedge_timer, self._read_ahead.slow_member_ms)
        return [*self._reads.hedge(), timer]

    def measure(self) -> list[m.Effect]:
        """Read the length from the last safe entry: nothing was written back (PROTOCOL.md#C22)."""
        last = self._write_back.last_add_confirmed
        if last == NO_ENTRY:
            self._write_back.set_length(0)
            return []
        metadata = self._record.value
        ensemble = metadata.fragment_of(last).ensemble
        self._reads = RecoveryReads(
            quorum=metadata.quorum,
            ensemble=ensemble,
            answering=(1 << len(ensemble)) - 1,
            first_entry_id=last,
            read_ahead=ReadAhead(entries_first=1, entries_max=1),
            numbers=self._numbers,
        )
        return [*self._reads.fill()]

    def take_measured(self, event: m.ReadReplied) -> TailStep:
        """A bookie answered the request of `measure`."""
        effects: list[m.Effect] = [*self._reads.take_reply(event)]
        if self._reads.is_unauthorized:
            return _failed(m.Failure.UNAUTHORIZED)
        match self._reads.verdict:
            case Verdict.PRESENT:
                (entry,) = self._reads.take_present()
                self._write_back.set_length(entry.length)
                return TailStep(state=TailState.WRITTEN)
            case Verdict.UNDECIDED:
                return TailStep(effects)
            case _:
                return _failed(m.Failure.RECOVERY, entry_id=self._reads.next_entry_id)

    def _last_safe_entry(self, last_add_confirmed: int) -> int:
        """Never below the last fragment: its bookies have no older entries (PROTOCOL.md#C6)."""
        return max(last_add_confirmed, self._record.value.last_fragment.first_entry_id - 1)

    def _advance(self, effects: list[m.Effect]) -> TailStep:
        """Write back present entries in order; the first absent one is the end (PROTOCOL.md#C9)."""
        if self._reads.is_unauthorized:
            return _failed(m.Failure.UNAUTHORIZED)
        self._write_back.take(self._reads.take_present())
        verdict = self._reads.verdict
        if verdict is Verdict.UNKNOWN:
            return _failed(m.Failure.RECOVERY, entry_id=self._reads.next_entry_id)
        is_end = verdict is Verdict.ABSENT
        effects += self._write_back.flush(is_end=is_end)
        if is_end and self._write_back.is_finished:
            return TailStep(effects, TailState.WRITTEN)
        if self._is_stuck:
            return self._fail_for_bookies()
        if not is_end and self._write_back.has_room:
            effects += self._reads.fill()
        return TailStep(effects)

    def _list_bookies(self) -> list[m.Effect]:
        if self._listing:
            return []
        self._listing = self._numbers.next()
        return [m.ListBookies(self._listing)]

    @property
    def _is_stuck(self) -> bool:
        """Whether no pending reply can complete the oldest run's ack quorum."""
        pipeline = self._write_back.pipeline
        if pipeline is None or self._listing or self._busy.is_waiting:
            return False
        return pipeline.is_stuck

    def _fail_for_bookies(self) -> TailStep:
        """Without a replacement an attempt continues only while an ack quorum is possible."""
        pipeline = self._write_back.pipeline
        assert pipeline is not None
        size = len(pipeline.ensemble)
        answering = sum(not pipeline.is_suspended(index) for index in range(size))
        return _failed(m.Failure.NOT_ENOUGH_BOOKIES, wanted=size, available=answering)
