"""Closes a ledger after its writer has died: fence, read forward, write back, close once.

`LedgerRecovery` first marks the metadata IN_RECOVERY (PROTOCOL.md#C7). Then it fences bookies of
the last ensemble, until the other bookies are too few for an ack quorum. A `RecoveryTail` writes
the entries after the largest LAC back to an ack quorum. Then the recovery closes the ledger at the
last of these entries. Several recoveries may run at once: the first close wins, and the other
recoveries accept its result (PROTOCOL.md#C13).

An attempt that cannot decide where the ledger ends is repeated from the beginning, as often as
`RecoverySettings.retry` allows. If no attempt can decide, the metadata stays IN_RECOVERY, which is
a legal final state. The floor is the last entry that a log needs. No attempt closes a ledger before
this entry. An attempt that finds an end before the floor loads the record again, because another
recovery may have found more entries and closed the ledger (PROTOCOL.md#C14).
"""

# ruff: noqa: SLF001 (the table below the class holds its methods)

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from ledgerlog_spark.model import NO_ENTRY, Fragment, LedgerMetadata, LedgerState, Versioned
from ledgerlog_spark.protocol.dispatch import Table, on, row
from ledgerlog_spark.protocol.ledger import messages as m
from ledgerlog_spark.protocol.ledger.identities import IdentitiesRead
from ledgerlog_spark.protocol.ledger.metadata_update import Refusal, UpdateResult, UpdatingMachine
from ledgerlog_spark.protocol.ledger.recover.fencing import Fencing, FencingState
from ledgerlog_spark.protocol.ledger.recover.reads import ReadAhead
from ledgerlog_spark.protocol.ledger.recover.tail import RecoveryTail, TailStep
from ledgerlog_spark.protocol.ledger.write.add_pipeline import Window
from ledgerlog_spark.protocol.ledger.write.ensemble_change import (
    FailedBookies,
    fragments_up_to,
)
from ledgerlog_spark.protocol.request_numbers import RequestNumbers
from ledgerlog_spark.retry import RetryPolicy


class RecoveryPhase(Enum):
    """State of a recovery."""

    NEW = "new"
    LOADING = "loading the record"
    MARKING = "marking the record IN_RECOVERY"
    FENCING = "fencing"
    READING = "reading forward and writing back"
    MEASURING = "reading the length of the last entry"
    CHECKING = "loading the record again, because the found end is below the floor"
    CLOSING = "closing"
    WAITING = "waiting to try again"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class RecoverySettings:
    """Limits of a recovery.

    Attributes:
        read_ahead: Limits of the entries that are read ahead.
        window: Limits of the entries that are written back.
        metadata: Number and delays of the retries of one metadata change.
        retry: Number and delays of the retries of the whole recovery.
    """

    read_ahead: ReadAhead = field(default_factory=ReadAhead)
    window: Window = field(default_factory=Window)
    metadata: RetryPolicy = field(default_factory=RetryPolicy)
    retry: RetryPolicy = field(
        default_factory=lambda: RetryPolicy(first_delay_ms=100, delay_max_ms=5_000, attempts_max=8)
    )


RETRIABLE = (
    m.Failure.RECOVERY,
    m.Failure.BOOKIE_CHANGED,
    m.Failure.NOT_ENOUGH_BOOKIES,
    m.Failure.METADATA_UNAVAILABLE,
    m.Failure.METADATA_CHANGED,
)


class LedgerRecovery(UpdatingMachine):
    """Recovers one ledger for one client. The last indication is LedgerClosed or LedgerFailed."""

    def __init__(
        self,
        *,
        ledger_id: int,
        password: bytes,  # checked before any request to a bookie
        floor_entry_id: int = NO_ENTRY,
        settings: RecoverySettings | None = None,
    ) -> None:
        """Create a recovery, which begins when it gets `Start`.

        Args:
            floor_entry_id: The last entry that a durable reference, for example a log, needs. If
                the ledger would end before this entry, the recovery fails with NEEDS_OPERATOR and
                the metadata stays IN_RECOVERY.
        """
        self.phase = RecoveryPhase.NEW
        self.ledger_id = ledger_id
        self.attempts = 0  # number of attempts begun so far
        self._password = password
        self._floor_entry_id = floor_entry_id
        self._settings = settings or RecoverySettings()
        super().__init__(numbers=RequestNumbers(), retry=self._settings.metadata)
        self._failed = FailedBookies()
        self._request = 0
        self._may_have_written = False
        self._base: Versioned[LedgerMetadata]  # the metadata from which this attempt began
        self._fencing: Fencing  # the fencing of this attempt
        self._tail: RecoveryTail | None = None
        self._closing_fragments: tuple[Fragment, ...] = ()  # fragments that this attempt writes
        # The fragments that earlier attempts wrote, each with the holes of its attempt.
        self._earlier_holes: dict[tuple[Fragment, ...], tuple[m.HoleLeft, ...]] = {}

    def _begin(self, _event: m.Start | m.TimerFired) -> list[m.Effect]:
        self.attempts += 1
        if self._tail is not None and self._closing_fragments:
            self._earlier_holes[self._closing_fragments] = self._tail.holes()
        self._closing_fragments = ()
        self._tail = self._update = None
        return self._load(RecoveryPhase.LOADING)

    def _load(self, phase: RecoveryPhase) -> list[m.Effect]:
        self.phase = phase
        self._request = self._numbers.next()
        return [m.LoadMetadata(self._request, sync_first=True)]

    def _on_retry_timer(self, event: m.TimerFired) -> list[m.Effect]:
        return self._begin(event) if event.request == self._request else []

    def _on_loaded(self, event: m.MetadataLoaded) -> list[m.Effect]:
        if event.request != self._request:
            return []
        match event.outcome:
            case m.MetadataOutcome.OK:
                assert event.versioned is not None
                is_check = self.phase is RecoveryPhase.CHECKING
                return (self._check_floor if is_check else self._on_record)(event.versioned)
            case m.MetadataOutcome.GONE:
                return self._stop(m.Failure.NOT_FOUND)
            case m.MetadataOutcome.UNREADABLE:
                return self._stop(m.Failure.METADATA_UNREADABLE)
            case _:
                return self._try_again(m.Failure.METADATA_UNAVAILABLE)

    def _on_record(self, record: Versioned[LedgerMetadata]) -> list[m.Effect]:
        metadata = record.value
        if metadata.has_password and metadata.password != self._password:
            return self._stop(m.Failure.UNAUTHORIZED)
        self.phase = RecoveryPhase.MARKING
        return self._begin_update(record, self._decide_mark)

    def _decide_mark(self, current: LedgerMetadata) -> LedgerMetadata | Refusal:
        return current.in_recovery() if current.state is LedgerState.OPEN else Refusal(None)

    def _on_updated(self, result: UpdateResult) -> list[m.Effect]:
        self._may_have_written |= not result.is_definite
        if result.failure is m.Failure.BOOKIE_CHANGED:
            assert self._tail is not None
            names = tuple(one.bookie_id for one in self._tail.identities)
            return self._try_again(result.failure, bookie_ids=names)
        if result.failure is not None:
            return self._try_again(result.failure)
        if result.current.value.is_closed:
            return self._adopt(result.current)
        return self._fence(result.current)

    def _adopt(self, closed: Versioned[LedgerMetadata]) -> list[m.Effect]:
        """Accept the closed metadata, whichever client wrote it (PROTOCOL.md#C13, LOGS.md#S2)."""
        if closed.value.last_entry_id < self._floor_entry_id:
            return self._stop(m.Failure.NEEDS_OPERATOR, entry_id=self._floor_entry_id)
        holes = self._holes_of(closed.value)
        self.phase = RecoveryPhase.DONE
        return [*([m.HolesLeft(closed.value, holes)] if holes else ()), m.LedgerClosed(closed)]

    def _holes_of(self, closed: LedgerMetadata) -> tuple[m.HoleLeft, ...]:
        """Return the holes of the attempt that wrote the record's fragments; empty if none did.

        An earlier attempt may have sent a close that got no answer. This close may succeed later.
        """
        if self._tail is not None and closed.fragments == self._closing_fragments:
            return self._tail.holes()
        return self._earlier_holes.get(closed.fragments, ())

    def _fence(self, record: Versioned[LedgerMetadata]) -> list[m.Effect]:
        self._base = record
        self._fencing = Fencing(
            quorum=record.value.quorum,
            ensemble=record.value.last_fragment.ensemble,
            numbers=self._numbers,
        )
        self.phase = RecoveryPhase.FENCING
        return [*self._fencing.begin()]

    def _on_fence_replied(self, event: m.ReadReplied) -> list[m.Effect]:
        match self._fencing.take_reply(event):
            case FencingState.COVERED:
                return self._begin_reading(self._fencing)
            case FencingState.UNAUTHORIZED:
                return self._stop(m.Failure.UNAUTHORIZED)
            case FencingState.UNCOVERED:
                return self._try_again(m.Failure.RECOVERY)
            case _:
                return []

    def _begin_reading(self, fencing: Fencing) -> list[m.Effect]:
        self._tail = RecoveryTail(
            ledger_id=self.ledger_id,
            record=self._base,
            fencing=fencing,
            bookies=self._failed,
            read_ahead=self._settings.read_ahead,
            window=self._settings.window,
            numbers=self._numbers,
        )
        self.phase = RecoveryPhase.READING
        return self._tail.begin()

    def _on_entry_replied(self, event: m.ReadReplied | m.BatchReplied) -> list[m.Effect]:
        assert self._tail is not None
        return self._after(self._tail.take_entries(event))

    def _on_add_replied(self, event: m.AddReplied) -> list[m.Effect]:
        assert self._tail is not None
        return self._after(self._tail.take_add(event))

    def _on_bookies_listed(self, event: m.BookiesListed) -> list[m.Effect]:
        assert self._tail is not None
        return self._after(self._tail.take_bookies(event))

    def _on_identities_read(self, event: IdentitiesRead) -> list[m.Effect]:
        assert self._tail is not None
        return self._after(self._tail.take_identities(event))

    def _on_hedge_timer(self, event: m.TimerFired) -> list[m.Effect]:
        assert self._tail is not None
        return self._tail.take_timer(event)

    def _after(self, step: TailStep) -> list[m.Effect]:
        """Continue with the result of a step of the tail."""
        if step.failure is not None:
            return self._try_again(step.failure, **step.about)
        return [*step.effects, *(self._close_or_measure() if step.is_written else ())]

    def _close_or_measure(self) -> list[m.Effect]:
        assert self._tail is not None
        effects = self._tail.measure() if self._tail.write_back.length is None else []
        if self._tail.write_back.length is not None:
            return self._close()
        self.phase = RecoveryPhase.MEASURING
        return effects

    def _on_measure_replied(self, event: m.ReadReplied) -> list[m.Effect]:
        assert self._tail is not None
        return self._after(self._tail.take_measured(event))

    def _close(self) -> list[m.Effect]:
        assert self._tail is not None
        if self._tail.write_back.last_add_confirmed < self._floor_entry_id:
            return self._load(RecoveryPhase.CHECKING)
        self.phase = RecoveryPhase.CLOSING
        identities = self._tail.identities
        return self._begin_update(self._base, self._decide_close, identities=identities)

    def _check_floor(self, record: Versioned[LedgerMetadata]) -> list[m.Effect]:
        """If another recovery has stored an end since this attempt began, report this end."""
        if record.value.is_closed:
            return self._adopt(record)
        return self._stop(m.Failure.NEEDS_OPERATOR, entry_id=self._floor_entry_id)

    def _decide_close(self, current: LedgerMetadata) -> LedgerMetadata | Refusal:
        """Return the CLOSED metadata with this attempt's result, or a refusal after another write.

        Another write may have closed the ledger at a later entry, and a tool may have reopened the
        ledger afterwards (PROTOCOL.md#C13).
        """
        if current.state is LedgerState.CLOSED:
            return Refusal(None)
        assert self._update is not None
        if self._update.current.version != self._base.version:
            return Refusal(m.Failure.METADATA_CHANGED)
        assert self._tail is not None
        assert self._tail.write_back.length is not None
        last = self._tail.write_back.last_add_confirmed
        fragments = fragments_up_to((*current.fragments[:-1], *self._tail.fragments), last)
        self._closing_fragments = fragments
        return current.with_fragments(fragments).closed(
            last_entry_id=last, length=self._tail.write_back.length
        )

    def _try_again(self, failure: m.Failure, **about: Any) -> list[m.Effect]:
        """Start another attempt after a delay, or give up. The metadata does not change."""
        delay_ms = self._settings.retry.delay_ms(self.attempts)
        if failure not in RETRIABLE or delay_ms is None:
            return self._stop(failure, is_retriable=failure in RETRIABLE, **about)
        self._failed.forget_indexes()
        self.phase = RecoveryPhase.WAITING
        self._request = self._numbers.next()
        return [m.StartTimer(self._request, delay_ms)]

    def _stop(
        self, failure: m.Failure, *, is_retriable: bool = False, **about: Any
    ) -> list[m.Effect]:
        self.phase = RecoveryPhase.DONE
        found = self._tail.write_back.last_add_confirmed if self._tail is not None else NO_ENTRY
        return [
            m.LedgerFailed(
                failure,
                is_definite=failure not in RETRIABLE and not self._may_have_written,
                last_add_confirmed=found,
                is_retriable=is_retriable,
                **about,
            )
        ]


_REPLIES = (
    m.AddReplied,
    m.BatchReplied,
    m.BookiesListed,
    IdentitiesRead,
    m.MetadataLoaded,
    m.MetadataWritten,
    m.ReadReplied,
    m.TimerFired,
)
_UPDATING = (
    on(m.MetadataWritten, LedgerRecovery._on_update_reply),
    on(m.MetadataLoaded, LedgerRecovery._on_update_reply),
    on(m.TimerFired, LedgerRecovery._on_update_reply),
)

RECOVERY_TABLE: Table[LedgerRecovery, m.Effect] = {
    RecoveryPhase.NEW: row(on(m.Start, LedgerRecovery._begin)),
    RecoveryPhase.LOADING: row(on(m.MetadataLoaded, LedgerRecovery._on_loaded), ignored=_REPLIES),
    RecoveryPhase.MARKING: row(*_UPDATING, ignored=_REPLIES),
    RecoveryPhase.FENCING: row(
        on(m.ReadReplied, LedgerRecovery._on_fence_replied), ignored=_REPLIES
    ),
    RecoveryPhase.READING: row(
        on(m.ReadReplied, LedgerRecovery._on_entry_replied),
        on(m.BatchReplied, LedgerRecovery._on_entry_replied),
        on(m.AddReplied, LedgerRecovery._on_add_replied),
        on(m.BookiesListed, LedgerRecovery._on_bookies_listed),
        on(IdentitiesRead, LedgerRecovery._on_identities_read),
        on(m.TimerFired, LedgerRecovery._on_hedge_timer),
        ignored=_REPLIES,
    ),
    RecoveryPhase.MEASURING: row(
        on(m.ReadReplied, LedgerRecovery._on_measure_replied),
        on(m.TimerFired, LedgerRecovery._on_hedge_timer),
        ignored=_REPLIES,
    ),
    RecoveryPhase.CHECKING: row(on(m.MetadataLoaded, LedgerRecovery._on_loaded), ignored=_REPLIES),
    RecoveryPhase.CLOSING: row(*_UPDATING, ignored=_REPLIES),
    RecoveryPhase.WAITING: row(on(m.TimerFired, LedgerRecovery._on_retry_timer), ignored=_REPLIES),
    RecoveryPhase.DONE: row(ignored=_REPLIES),
}
"""The handler of each event in each phase of a recovery. Late replies to an earlier attempt are
ignored."""
LedgerRecovery.table = RECOVERY_TABLE
