"""What follows the LAC that fencing found: read forward, on its way back to an ack quorum.

What is present is written back with the LAC as it was found, so that no reader ever sees a LAC
above the closed end (PROTOCOL.md#C10). Bookies that fail meanwhile are replaced in memory; the
record learns it with the one closing compare-and-swap (PROTOCOL.md#C11).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.model import NO_ENTRY, Code, Fragment
from ledgerlog_spark.protocol.ensemble_change import with_fragment
from ledgerlog_spark.protocol.messages import (
    AddReplied,
    BatchReplied,
    BookiesListed,
    Failure,
    ListBookies,
    ReadReplied,
    StartTimer,
)
from ledgerlog_spark.protocol.recovery_reads import ReadAhead, RecoveryReads, Verdict
from ledgerlog_spark.protocol.write_back import WriteBack

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ledgerlog_spark.model import LedgerMetadata, Versioned
    from ledgerlog_spark.protocol.add_pipeline import Window
    from ledgerlog_spark.protocol.ensemble_change import FailedBookies
    from ledgerlog_spark.protocol.fencing import Fencing
    from ledgerlog_spark.protocol.messages import Effect, TimerFired
    from ledgerlog_spark.protocol.request_numbers import RequestNumbers


@dataclass(frozen=True, slots=True)
class TailFailure:
    """Why one attempt cannot go on, and what its error says about it."""

    failure: Failure
    about: Mapping[str, Any] = field(default_factory=dict)


class RecoveryTail:
    """One attempt's copy of the entries behind the LAC; its owner marks, fences and closes.

    Attributes:
        failed: Why it cannot go on, None while it can. Nothing is asked of it afterwards.
        is_written: Whether the end is found and everything before it is on an ack quorum.
        fragments: The record's last fragment, and those that replacements began behind it.
    """

    def __init__(
        self,
        *,
        ledger_id: int,
        record: Versioned[LedgerMetadata],
        fencing: Fencing,
        bookies: FailedBookies,
        read_ahead: ReadAhead,
        window: Window,
        numbers: RequestNumbers,
    ) -> None:
        """A copy that `begin` begins.

        Args:
            ledger_id: Of the ledger.
            record: IN_RECOVERY, as it was when the attempt fenced.
            fencing: Which is covered.
            bookies: That failed this ledger; none of them waits for a replacement.
            read_ahead: How far to read ahead.
            window: How much may be on its way back.
            numbers: Of requests, shared with the owner.
        """
        self.failed: TailFailure | None = None
        self.is_written = False
        self._record = record
        self._bookies = bookies
        self._read_ahead = read_ahead
        self._numbers = numbers
        self._listing = 0
        self._hedge_timer = 0
        metadata = record.value
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
        )

    @property
    def last_add_confirmed(self) -> int:
        """Last entry that is safe: at first what fencing found, then what is written back."""
        return self._write_back.last_add_confirmed

    @property
    def entries_confirmed(self) -> int:
        """How many entries were written back."""
        return self._write_back.entries_confirmed

    @property
    def length(self) -> int | None:
        """Payload bytes of the ledger up to `last_add_confirmed`; None calls for `measure`."""
        return self._write_back.length

    def begin(self) -> list[Effect]:
        """The first reads, and the timer of slow ones."""
        self._hedge_timer = self._numbers.next()
        hedge = StartTimer(self._hedge_timer, self._read_ahead.hedge_delay_ms)
        return [*self._reads.fill(), hedge]

    def take_entries(self, event: ReadReplied | BatchReplied) -> list[Effect]:
        """A bookie answered a read."""
        effects: list[Effect] = []
        if isinstance(event, BatchReplied):
            effects += self._reads.take_batch_reply(event)
        else:
            effects += self._reads.take_reply(event)
        if self._reads.is_unauthorized:
            return self._fail(Failure.UNAUTHORIZED)
        return [*effects, *self._advance()]

    def take_add(self, event: AddReplied) -> list[Effect]:
        """A bookie answered a run that was written back."""
        pipeline = self._write_back.pipeline
        answer = None if pipeline is None else pipeline.take_reply(event)
        if pipeline is None or answer is None:
            return []
        if answer.code is Code.UNAUTHORIZED:
            return self._fail(Failure.UNAUTHORIZED)
        if answer.code is Code.OK:
            pipeline.confirm()
            return self._advance()
        if pipeline.is_suspended(answer.index):
            self._fail_if_stuck()
            return []
        pipeline.suspend(answer.index)
        self._bookies.report(answer.index, answer.bookie_id)
        return self._list_bookies()

    def take_bookies(self, event: BookiesListed) -> list[Effect]:
        """Replace those that failed, in memory (PROTOCOL.md#C11)."""
        if event.request != self._listing:
            return []
        self._listing = 0
        pipeline = self._write_back.pipeline
        if pipeline is None or not self._bookies:
            return []
        found = self._bookies.choose(pipeline.ensemble, event.candidates)
        for index in self._bookies.indexes:
            self._bookies.settle(index)
        for index in found.unreplaced:
            pipeline.abandon(index)
        if not found.replaced:
            self._fail_if_stuck()
            return [] if self.failed is not None else self._advance()
        new = Fragment(pipeline.last_add_confirmed + 1, found.ensemble)
        self.fragments = with_fragment(self.fragments, new)
        effects: list[Effect] = [*pipeline.replace(found.ensemble, found.replaced)]
        pipeline.confirm()
        effects += self._advance()
        self._fail_if_stuck()
        return effects

    def take_timer(self, event: TimerFired) -> list[Effect]:
        """Time to ask others for what is slow; a timer of an earlier attempt is none of ours."""
        if event.request != self._hedge_timer:
            return []
        self._hedge_timer = self._numbers.next()
        timer = StartTimer(self._hedge_timer, self._read_ahead.hedge_delay_ms)
        return [*self._reads.hedge(), timer]

    def measure(self) -> list[Effect]:
        """Nothing was written back: the length is in the header of the last safe entry (C22)."""
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

    def take_measured(self, event: ReadReplied) -> list[Effect]:
        """A bookie answered about the entry that `measure` asked for."""
        effects: list[Effect] = [*self._reads.take_reply(event)]
        if self._reads.is_unauthorized:
            return self._fail(Failure.UNAUTHORIZED)
        match self._reads.verdict:
            case Verdict.PRESENT:
                (entry,) = self._reads.take_present()
                self._write_back.set_length(entry.length)
                return []
            case Verdict.UNDECIDED:
                return effects
            case _:
                return self._fail(Failure.RECOVERY, entry_id=self._reads.next_entry_id)

    def _last_safe_entry(self, last_add_confirmed: int) -> int:
        """Never below the last fragment, whose bookies hold nothing older (PROTOCOL.md#C6)."""
        return max(last_add_confirmed, self._record.value.last_fragment.first_entry_id - 1)

    def _advance(self) -> list[Effect]:
        """Write back what is present in order; the first absent entry is the end."""
        self._write_back.take(self._reads.take_present())
        verdict = self._reads.verdict
        if verdict is Verdict.UNKNOWN:
            return self._fail(Failure.RECOVERY, entry_id=self._reads.next_entry_id)
        is_end = verdict is Verdict.ABSENT
        effects: list[Effect] = [*self._write_back.flush(is_end=is_end)]
        if is_end:
            self.is_written = self._write_back.is_finished
            return effects
        return [*effects, *self._reads.fill()] if self._write_back.has_room else effects

    def _list_bookies(self) -> list[Effect]:
        if self._listing:
            return []
        self._listing = self._numbers.next()
        return [ListBookies(self._listing)]

    def _fail_if_stuck(self) -> None:
        """Without a replacement go on, as long as an ack quorum is still possible."""
        pipeline = self._write_back.pipeline
        if self.failed is not None or self.is_written or pipeline is None:
            return
        if self._listing or not pipeline.is_stuck:
            return
        size = len(pipeline.ensemble)
        answering = sum(not pipeline.is_suspended(index) for index in range(size))
        self._fail(Failure.NOT_ENOUGH_BOOKIES, wanted=size, available=answering)

    def _fail(self, failure: Failure, **about: Any) -> list[Effect]:
        """The owner looks at `failed`; there is nothing more to do here."""
        self.failed = TailFailure(failure, about)
        return []
