"""Seal a ledger whose writer is gone: fence, read forward, write back, close once.

`LedgerRecovery` marks the record IN_RECOVERY before anything else, fences a covering part of the
last ensemble, and reads entry after entry from the largest LAC it found. What is present is written
back to an ack quorum with the LAC as it was found, so that no reader ever sees a LAC above the
closed end (PROTOCOL.md#C10). Replaced bookies stay in memory until the one closing compare-and-swap
(PROTOCOL.md#C11). Any number of recoveries may run: the first close wins and the others adopt it.

An attempt that could not decide something is tried again, from the beginning, as
`RecoverySettings.retry` says. The record then stays IN_RECOVERY, which is a legal state to leave.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.model import NO_ENTRY, Code, Fragment, LedgerMetadata, LedgerState
from ledgerlog_spark.protocol.add_pipeline import Window
from ledgerlog_spark.protocol.dispatch import Table, dispatch, row
from ledgerlog_spark.protocol.ensemble_change import FailedBookies, with_fragment
from ledgerlog_spark.protocol.fencing import Fencing, FencingState
from ledgerlog_spark.protocol.messages import (
    AddReplied,
    BatchReplied,
    BookiesListed,
    Failure,
    LedgerClosed,
    LedgerFailed,
    ListBookies,
    LoadMetadata,
    MetadataLoaded,
    MetadataOutcome,
    MetadataWritten,
    ReadReplied,
    Start,
    StartTimer,
    TimerFired,
)
from ledgerlog_spark.protocol.metadata_update import MetadataUpdate, Refusal
from ledgerlog_spark.protocol.recovery_reads import ReadAhead, RecoveryReads, Verdict
from ledgerlog_spark.protocol.request_numbers import RequestNumbers
from ledgerlog_spark.protocol.retry import RetryPolicy
from ledgerlog_spark.protocol.write_back import WriteBack

if TYPE_CHECKING:
    from ledgerlog_spark.model import Versioned
    from ledgerlog_spark.protocol.messages import Effect, Event
    from ledgerlog_spark.protocol.metadata_update import Decide, Step, UpdateResult


class RecoveryPhase(Enum):
    """Where a recovery is."""

    NEW = "new"
    LOADING = "loading the record"
    MARKING = "marking the record IN_RECOVERY"
    FENCING = "fencing"
    READING = "reading forward and writing back"
    MEASURING = "reading the length of the last entry"
    CLOSING = "closing"
    WAITING = "waiting to try again"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class RecoverySettings:
    """Limits of a recovery.

    Attributes:
        read_ahead: How far it reads ahead.
        window: How much may be on its way back.
        metadata: Retries of one change of the record.
        retry: Attempts from the beginning.
    """

    read_ahead: ReadAhead = field(default_factory=ReadAhead)
    window: Window = field(default_factory=Window)
    metadata: RetryPolicy = field(default_factory=RetryPolicy)
    retry: RetryPolicy = field(
        default_factory=lambda: RetryPolicy(first_delay_ms=100, delay_max_ms=5_000, attempts_max=8)
    )


RETRIABLE = (
    Failure.RECOVERY,
    Failure.NOT_ENOUGH_BOOKIES,
    Failure.METADATA_UNAVAILABLE,
    Failure.METADATA_CHANGED,
)


class LedgerRecovery:
    """One client's recovery of one ledger; its last indication is LedgerClosed or LedgerFailed.

    Attributes:
        phase: Where it is.
        attempts: How many attempts it began.
        entries_written_back: Of the current attempt.
    """

    def __init__(
        self,
        *,
        ledger_id: int,
        password: bytes,
        floor_entry_id: int = NO_ENTRY,
        settings: RecoverySettings | None = None,
    ) -> None:
        """A recovery that begins with `Start`.

        Args:
            ledger_id: Of the ledger.
            password: Compared with the record's before any bookie is asked.
            floor_entry_id: The highest entry that something durable refers to; closing below it
                ends with NEEDS_OPERATOR and leaves the record IN_RECOVERY.
            settings: Limits.
        """
        self.phase = RecoveryPhase.NEW
        self.ledger_id = ledger_id
        self.attempts = 0
        self._password = password
        self._floor_entry_id = floor_entry_id
        self._settings = settings or RecoverySettings()
        self._numbers = RequestNumbers()
        self._failed = FailedBookies()
        self._request = 0
        self._listing = 0
        self._hedge_timer = 0
        self._update: MetadataUpdate | None = None
        self._base: Versioned[LedgerMetadata] | None = None
        self._tail: tuple[Fragment, ...] = ()
        self._fencing: Fencing | None = None
        self._reads: RecoveryReads | None = None
        self._write_back: WriteBack | None = None

    @property
    def entries_written_back(self) -> int:
        """Entries that the current attempt has on an ack quorum again."""
        return self._write_back.entries_confirmed if self._write_back is not None else 0

    def handle(self, event: Event) -> list[Effect]:
        """Take one event; the host performs the effects in order after this returned.

        Raises:
            AssertionError: Our bug (contract, clause 9).
        """
        return dispatch(self, RECOVERY_TABLE, self.phase, event)

    def _begin(self, _event: Start | TimerFired) -> list[Effect]:
        self.attempts += 1
        self._fencing = self._reads = self._write_back = self._update = None
        self.phase = RecoveryPhase.LOADING
        self._request = self._numbers.next()
        return [LoadMetadata(self._request, sync_first=True)]

    def _on_retry_timer(self, event: TimerFired) -> list[Effect]:
        return self._begin(event) if event.request == self._request else []

    def _on_loaded(self, event: MetadataLoaded) -> list[Effect]:
        if event.request != self._request:
            return []
        match event.outcome:
            case MetadataOutcome.OK:
                assert event.versioned is not None
                return self._on_record(event.versioned)
            case MetadataOutcome.GONE:
                return self._stop(Failure.NOT_FOUND)
            case MetadataOutcome.UNREADABLE:
                return self._stop(Failure.METADATA_UNREADABLE)
            case _:
                return self._try_again(Failure.METADATA_UNAVAILABLE)

    def _on_record(self, record: Versioned[LedgerMetadata]) -> list[Effect]:
        metadata = record.value
        if metadata.has_password and metadata.password != self._password:
            return self._stop(Failure.UNAUTHORIZED)
        self.phase = RecoveryPhase.MARKING
        return self._begin_update(record, self._decide_mark)

    def _decide_mark(self, current: LedgerMetadata) -> LedgerMetadata | Refusal:
        return current.in_recovery() if current.state is LedgerState.OPEN else Refusal(None)

    def _begin_update(self, record: Versioned[LedgerMetadata], decide: Decide) -> list[Effect]:
        self._update = MetadataUpdate(
            current=record,
            decide=decide,
            numbers=self._numbers,
            retry=self._settings.metadata,
        )
        return self._take_step(self._update.begin())

    def _on_update_reply(
        self, event: MetadataLoaded | MetadataWritten | TimerFired
    ) -> list[Effect]:
        if self._update is None or not self._update.awaits(event):
            return []
        return self._take_step(self._update.handle(event))

    def _take_step(self, step: Step) -> list[Effect]:
        effects, result = step
        if result is None:
            return [*effects]
        self._update = None
        if result.failure is not None:
            return self._try_again(result.failure)
        if result.current.value.is_closed:
            return self._adopt(result)
        return self._fence(result.current)

    def _adopt(self, result: UpdateResult) -> list[Effect]:
        """Closed, by us or by somebody else: the record decides (PROTOCOL.md#C13)."""
        if result.current.value.last_entry_id < self._floor_entry_id:
            return self._stop(Failure.NEEDS_OPERATOR, entry_id=self._floor_entry_id)
        self.phase = RecoveryPhase.DONE
        return [LedgerClosed(result.current)]

    def _fence(self, record: Versioned[LedgerMetadata]) -> list[Effect]:
        self._base = record
        self._tail = (record.value.last_fragment,)
        self._fencing = Fencing(
            quorum=record.value.quorum,
            ensemble=record.value.last_fragment.ensemble,
            numbers=self._numbers,
        )
        self.phase = RecoveryPhase.FENCING
        return [*self._fencing.begin()]

    def _on_fence_replied(self, event: ReadReplied) -> list[Effect]:
        assert self._fencing is not None
        match self._fencing.take_reply(event):
            case FencingState.COVERED:
                return self._begin_reading(self._fencing)
            case FencingState.UNAUTHORIZED:
                return self._stop(Failure.UNAUTHORIZED)
            case FencingState.UNCOVERED:
                return self._try_again(Failure.RECOVERY)
            case _:
                return []

    def _begin_reading(self, fencing: Fencing) -> list[Effect]:
        metadata = self._metadata
        found = self._last_safe_entry(fencing.last_add_confirmed)
        self._reads = RecoveryReads(
            quorum=metadata.quorum,
            ensemble=metadata.last_fragment.ensemble,
            answering=fencing.known,
            first_entry_id=found + 1,
            read_ahead=self._settings.read_ahead,
            numbers=self._numbers,
            last_entry_ids=fencing.last_entry_ids,
        )
        self._write_back = WriteBack(
            ledger_id=self.ledger_id,
            quorum=metadata.quorum,
            ensemble=metadata.last_fragment.ensemble,
            last_add_confirmed=found,
            numbers=self._numbers,
            window=self._settings.window,
        )
        self.phase = RecoveryPhase.READING
        self._hedge_timer = self._numbers.next()
        hedge = StartTimer(self._hedge_timer, self._settings.read_ahead.hedge_delay_ms)
        return [*self._reads.fill(), hedge]

    def _last_safe_entry(self, last_add_confirmed: int) -> int:
        """Never below the last fragment, whose bookies hold nothing older (PROTOCOL.md#C6)."""
        return max(last_add_confirmed, self._metadata.last_fragment.first_entry_id - 1)

    @property
    def _metadata(self) -> LedgerMetadata:
        assert self._base is not None
        return self._base.value

    def _on_entry_replied(self, event: ReadReplied | BatchReplied) -> list[Effect]:
        assert self._reads is not None
        effects: list[Effect] = []
        if isinstance(event, BatchReplied):
            effects += self._reads.take_batch_reply(event)
        else:
            effects += self._reads.take_reply(event)
        if self._reads.is_unauthorized:
            return self._stop(Failure.UNAUTHORIZED)
        return [*effects, *self._advance()]

    def _advance(self) -> list[Effect]:
        """Write back what is present in order; end at the first absent entry."""
        assert self._reads is not None
        assert self._write_back is not None
        self._write_back.take(self._reads.take_present())
        verdict = self._reads.verdict
        if verdict is Verdict.UNKNOWN:
            return self._try_again(Failure.RECOVERY, entry_id=self._reads.next_entry_id)
        is_end = verdict is Verdict.ABSENT
        effects: list[Effect] = [*self._write_back.flush(is_end=is_end)]
        if is_end:
            return [*effects, *self._close_when_written()]
        return [*effects, *self._reads.fill()] if self._write_back.has_room else effects

    def _close_when_written(self) -> list[Effect]:
        assert self._write_back is not None
        if not self._write_back.is_finished:
            return []
        return self._measure() if self._write_back.length is None else self._close()

    def _on_hedge_timer(self, event: TimerFired) -> list[Effect]:
        if event.request != self._hedge_timer:
            return []
        assert self._reads is not None
        self._hedge_timer = self._numbers.next()
        timer = StartTimer(self._hedge_timer, self._settings.read_ahead.hedge_delay_ms)
        return [*self._reads.hedge(), timer]

    def _on_add_replied(self, event: AddReplied) -> list[Effect]:
        assert self._write_back is not None
        pipeline = self._write_back.pipeline
        answer = None if pipeline is None else pipeline.take_reply(event)
        if pipeline is None or answer is None:
            return []
        if answer.code is Code.UNAUTHORIZED:
            return self._stop(Failure.UNAUTHORIZED)
        if answer.code is Code.OK:
            pipeline.confirm()
            return self._advance()
        if pipeline.is_suspended(answer.index):
            return self._give_up_if_stuck()
        pipeline.suspend(answer.index)
        self._failed.report(answer.index, answer.bookie_id)
        return self._list_bookies()

    def _list_bookies(self) -> list[Effect]:
        if self._listing:
            return []
        self._listing = self._numbers.next()
        return [ListBookies(self._listing)]

    def _on_bookies_listed(self, event: BookiesListed) -> list[Effect]:
        """Replace in memory; the metadata learns it with the close (PROTOCOL.md#C11)."""
        if event.request != self._listing:
            return []
        self._listing = 0
        assert self._write_back is not None
        pipeline = self._write_back.pipeline
        if pipeline is None or not self._failed:
            return []
        found = self._failed.choose(pipeline.ensemble, event.candidates)
        for index in self._failed.indexes:
            self._failed.settle(index)
        for index in found.unreplaced:
            pipeline.abandon(index)
        if not found.replaced:
            return self._give_up_if_stuck() or self._advance()
        new = Fragment(pipeline.last_add_confirmed + 1, found.ensemble)
        self._tail = with_fragment(self._tail, new)
        effects: list[Effect] = [*pipeline.replace(found.ensemble, found.replaced)]
        pipeline.confirm()
        return [*effects, *self._advance(), *self._give_up_if_stuck()]

    def _give_up_if_stuck(self) -> list[Effect]:
        """Without a replacement go on, as long as an ack quorum is still possible."""
        assert self._write_back is not None
        pipeline = self._write_back.pipeline
        if self.phase is not RecoveryPhase.READING or pipeline is None:
            return []
        if self._listing or not pipeline.is_stuck:
            return []
        size = len(pipeline.ensemble)
        answering = sum(not pipeline.is_suspended(index) for index in range(size))
        return self._try_again(Failure.NOT_ENOUGH_BOOKIES, wanted=size, available=answering)

    def _measure(self) -> list[Effect]:
        """Nothing was written back: the length is in the header of the last safe entry (C22)."""
        assert self._write_back is not None
        last = self._write_back.last_add_confirmed
        if last == NO_ENTRY:
            self._write_back.set_length(0)
            return self._close()
        quorum = self._metadata.quorum
        ensemble = self._metadata.fragment_of(last).ensemble
        reads = RecoveryReads(
            quorum=quorum,
            ensemble=ensemble,
            answering=(1 << len(ensemble)) - 1,
            first_entry_id=last,
            read_ahead=ReadAhead(entries_first=1, entries_max=1),
            numbers=self._numbers,
        )
        self._reads = reads
        self.phase = RecoveryPhase.MEASURING
        return [*reads.fill()]

    def _on_measure_replied(self, event: ReadReplied) -> list[Effect]:
        assert self._reads is not None
        assert self._write_back is not None
        effects: list[Effect] = [*self._reads.take_reply(event)]
        if self._reads.is_unauthorized:
            return self._stop(Failure.UNAUTHORIZED)
        match self._reads.verdict:
            case Verdict.PRESENT:
                (entry,) = self._reads.take_present()
                self._write_back.set_length(entry.length)
                return self._close()
            case Verdict.UNDECIDED:
                return effects
            case _:
                return self._try_again(Failure.RECOVERY, entry_id=self._reads.next_entry_id)

    def _close(self) -> list[Effect]:
        assert self._write_back is not None
        assert self._base is not None
        last = self._write_back.last_add_confirmed
        if last < self._floor_entry_id:
            return self._stop(Failure.NEEDS_OPERATOR, entry_id=self._floor_entry_id)
        self.phase = RecoveryPhase.CLOSING
        return self._begin_update(self._base, self._decide_close)

    def _decide_close(self, current: LedgerMetadata) -> LedgerMetadata | Refusal:
        """CLOSED with everything this attempt did, over a record that is still what it read."""
        if current.state is LedgerState.CLOSED:
            return Refusal(None)
        if (
            current.state is not LedgerState.IN_RECOVERY
            or current.last_fragment != self._metadata.last_fragment
        ):
            return Refusal(Failure.METADATA_CHANGED)
        assert self._write_back is not None
        assert self._write_back.length is not None
        last = self._write_back.last_add_confirmed
        tail = self._tail[:1] + tuple(f for f in self._tail[1:] if f.first_entry_id <= last)
        return current.with_fragments((*current.fragments[:-1], *tail)).closed(
            last_entry_id=last, length=self._write_back.length
        )

    def _try_again(self, failure: Failure, **about: Any) -> list[Effect]:
        """Begin anew after a delay, or give up; the record stays as it is."""
        delay_ms = self._settings.retry.delay_ms(self.attempts)
        if failure not in RETRIABLE or delay_ms is None:
            return self._stop(failure, is_retriable=failure in RETRIABLE, **about)
        self._failed.forget_indexes()
        self._listing = 0
        self._hedge_timer = 0
        self.phase = RecoveryPhase.WAITING
        self._request = self._numbers.next()
        return [StartTimer(self._request, delay_ms)]

    def _stop(self, failure: Failure, *, is_retriable: bool = False, **about: Any) -> list[Effect]:
        self.phase = RecoveryPhase.DONE
        found = self._write_back.last_add_confirmed if self._write_back is not None else NO_ENTRY
        return [
            LedgerFailed(
                failure,
                is_definite=failure not in RETRIABLE,
                last_add_confirmed=found,
                is_retriable=is_retriable,
                **about,
            )
        ]


_REPLIES = (
    AddReplied,
    BatchReplied,
    BookiesListed,
    MetadataLoaded,
    MetadataWritten,
    ReadReplied,
    TimerFired,
)
_UPDATING: dict[type, str] = {
    MetadataWritten: "_on_update_reply",
    MetadataLoaded: "_on_update_reply",
    TimerFired: "_on_update_reply",
}

RECOVERY_TABLE: Table = {
    RecoveryPhase.NEW: row({Start: "_begin"}),
    RecoveryPhase.LOADING: row({MetadataLoaded: "_on_loaded"}, ignored=_REPLIES),
    RecoveryPhase.MARKING: row(_UPDATING, ignored=_REPLIES),
    RecoveryPhase.FENCING: row({ReadReplied: "_on_fence_replied"}, ignored=_REPLIES),
    RecoveryPhase.READING: row(
        {
            ReadReplied: "_on_entry_replied",
            BatchReplied: "_on_entry_replied",
            AddReplied: "_on_add_replied",
            BookiesListed: "_on_bookies_listed",
            TimerFired: "_on_hedge_timer",
        },
        ignored=_REPLIES,
    ),
    RecoveryPhase.MEASURING: row(
        {ReadReplied: "_on_measure_replied", TimerFired: "_on_hedge_timer"}, ignored=_REPLIES
    ),
    RecoveryPhase.CLOSING: row(_UPDATING, ignored=_REPLIES),
    RecoveryPhase.WAITING: row({TimerFired: "_on_retry_timer"}, ignored=_REPLIES),
    RecoveryPhase.DONE: row({}, ignored=_REPLIES),
}
"""Phases x events of recovery; what an earlier attempt asked for is ignored when it comes late."""
