"""Writes a ledger: appends entries, replaces failed bookies and closes the ledger.

`LedgerWriter` has an `AddPipeline`, and writes each ensemble change to the metadata immediately.
The new fragment begins after the last add confirmed. So from the first failure until the new
ensemble is in the metadata, the writer confirms nothing and sends nothing to a replacement
(PROTOCOL.md#B2, PROTOCOL.md#B3). A FENCED answer, or metadata that is no longer OPEN, ends the
writer. The outcome of pending adds is then unknown, as after a time-out (PROTOCOL.md#A10).

When no bookie can replace a failed bookie, the fragments do not change, and the writer confirms
with the other bookies. After a delay the writer lists the bookies again, and retries the failed
bookie if it is still registered (PROTOCOL.md#B9). `WriterSettings.replacement` limits the retries.
After the last retry, or when the window is full, the bookie is *absent*: the writer sends it
nothing, and stores only the ids of the entries that it lacks. When the bookie is registered again,
the writer begins a new fragment after the last add confirmed (PROTOCOL.md#B20; `absences.py`).

A bookie that answers BUSY has not failed. The refused runs are resent after a wait. During the
wait, the writer confirms with the other bookies (PROTOCOL.md#A12; `protocol/ledger/overload.py`).
"""

# ruff: noqa: SLF001 (the table below the class holds its methods)

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from ledgerlog_spark.errors import LocalProtocolError
from ledgerlog_spark.model import NO_ENTRY, Code, LedgerMetadata, LedgerState, Versioned
from ledgerlog_spark.protocol.dispatch import Table, on, row
from ledgerlog_spark.protocol.ledger import messages as m
from ledgerlog_spark.protocol.ledger.metadata_update import UpdateResult, UpdatingMachine
from ledgerlog_spark.protocol.ledger.overload import BusyBookies
from ledgerlog_spark.protocol.ledger.write.absences import Absences
from ledgerlog_spark.protocol.ledger.write.add_pipeline import (
    AddPipeline,
    MemberAnswer,
    check_run,
)
from ledgerlog_spark.protocol.ledger.write.ensemble_change import (
    FailedBookies,
    FragmentChange,
    LedgerClose,
)
from ledgerlog_spark.protocol.ledger.write.settings import (
    FATAL_ADD_CODES,
    WriterPhase,
    WriterSettings,
)
from ledgerlog_spark.protocol.request_numbers import RequestNumbers


class LedgerWriter(UpdatingMachine):
    """The writer of a ledger that this client created. No other client adds to the ledger."""

    def __init__(
        self,
        *,
        ledger_id: int,
        created: Versioned[LedgerMetadata],
        settings: WriterSettings | None = None,
        absent: Collection[str] = (),
    ) -> None:
        """Create a writer for a ledger with the metadata `created`, which is OPEN without entries.

        `absent` contains bookies of the ensemble that were not registered when they were chosen. So
        the writer sends them nothing before they are registered (PROTOCOL.md#B21).
        """
        if created.value.state is not LedgerState.OPEN:
            raise LocalProtocolError(
                f"ledger {ledger_id} is not OPEN, so it cannot be written: create another ledger",
                ledger_id=ledger_id,
            )
        self.phase = WriterPhase.OPEN  # CLOSED is final; FAILED changes only to CLOSING
        self.ledger_id = ledger_id
        self.metadata = created  # the newest metadata that the writer has read or written
        self.ensemble_changes = 0  # number of changes that are in the metadata
        self._settings = settings or WriterSettings()
        super().__init__(numbers=RequestNumbers(), retry=self._settings.metadata)
        # the pipeline confirms no runs in LISTING and CHANGING
        self._pipeline = AddPipeline(
            ledger_id=ledger_id,
            quorum=created.value.quorum,
            ensemble=created.value.last_fragment.ensemble,
            numbers=self._numbers,
            last_add_confirmed=NO_ENTRY,
            length=0,
            window=self._settings.window,
        )
        self._failed = FailedBookies()  # the pipeline suspends their indexes
        self._absences = Absences(created.value.quorum, self._pipeline, self._failed)
        self._lost: set[int] = set()  # failed indexes after `MemberLost`, until the next list
        self._holes: tuple[m.HoleLeft, ...] = ()  # holes of the last fragment; set by `_withdraw`
        # the busy bookies; the pipeline suspends their indexes until their timers fire
        self._busy = BusyBookies(self._numbers)
        self._change: FragmentChange | None = None  # the pending change; set in CHANGING
        self._listing = 0  # number of the newest request for bookies; other answers are ignored
        # A timer is 0 while it does not run.
        self._retry_timer = 0  # starts when a failed bookie has no replacement
        self._quorum_timer = 0  # runs only if `add_quorum_timeout_ms` is set
        self._oldest_at_quorum_timer: int | None = None  # oldest pending entry at the timer's start
        # the first entry with an unknown outcome; once set, it never changes
        self._withdrawn_from: int | None = None
        self._may_be_closed = False  # whether an earlier close may be in the metadata
        self._failure: m.LedgerFailed | None = None  # the newest failure; set in FAILED
        for index, bookie_id in enumerate(created.value.last_fragment.ensemble):
            if bookie_id in absent:
                self._failed.report(index, bookie_id, Code.UNAVAILABLE)
                self._absences.begin(index)

    @property
    def last_add_confirmed(self) -> int:
        """Last entry that was confirmed; never falls."""
        return self._pipeline.last_add_confirmed

    @property
    def length(self) -> int:
        """Payload bytes up to and including `last_add_confirmed`."""
        return self._pipeline.length

    @property
    def next_entry_id(self) -> int:
        """First entry id of the next run."""
        return self._pipeline.next_entry_id

    @property
    def can_add(self) -> bool:
        """Whether `AddRequested` is allowed now."""
        return self.phase in ADDING and self._pipeline.can_add

    @property
    def absent_bookies(self) -> tuple[str, ...]:
        """Bookies of the ensemble to which the writer sends nothing, because they do not answer."""
        return tuple(self._pipeline.ensemble[index] for index in self._absences.indexes)

    def _on_add_requested(self, event: m.AddRequested) -> list[m.Effect]:
        if not self._pipeline.can_add:
            raise LocalProtocolError(
                "the window is full: wait until can_add is true again",
                entries_in_flight=self._pipeline.entries_in_flight,
                size_bytes_in_flight=self._pipeline.size_bytes_in_flight,
            )
        check_run(event.payloads)
        effects: list[m.Effect] = [*self._pipeline.add(event.payloads)]
        if self._settings.add_quorum_timeout_ms is not None and not self._quorum_timer:
            effects += self._arm_quorum_timer()
        if self._failed.by_index:
            self._absences.make_room()
            if self.phase is WriterPhase.OPEN and not self._retry_timer and not self._listing:
                effects += self._look_for_absent()
        return effects

    def _on_add_replied(self, event: m.AddReplied) -> list[m.Effect]:
        answer = self._pipeline.take_reply(event)
        if answer is None:
            return []
        if answer.code is Code.OK:
            failed = self._failed
            if failed.rounds or failed.codes:
                failed.recovered(answer.index, answer.bookie_id)
            if self._busy.waits:
                self._busy.stored(answer.index)
            if self._absences.returns:
                self._absences.stored(answer.index)
            confirmed = self._pipeline.confirm()
            if failed.by_index:
                self._absences.make_room()
            return [*confirmed]
        if answer.code in FATAL_ADD_CODES:
            return self._fail(
                FATAL_ADD_CODES[answer.code], is_definite=False, bookie_ids=(answer.bookie_id,)
            )
        if answer.code is Code.BUSY:
            return self._on_member_busy(answer)
        if not self._pipeline.is_suspended(answer.index):
            self._busy.forget(answer.index)
        return self._on_member_failed(answer)

    def _on_member_busy(self, refused: MemberAnswer) -> list[m.Effect]:
        """Send nothing to the busy bookie until its retry, or replace it after many refusals.

        Refusals of runs that were sent together count as one refusal.
        """
        if self._pipeline.is_suspended(refused.index):
            return []
        self._busy.refused(refused.index)
        if self._may_change and self._busy.should_be_replaced(refused.index):
            return self._on_member_failed(refused)
        self._pipeline.suspend(refused.index)
        return self._wait_for_busy(refused.index)

    def _wait_for_busy(self, index: int) -> list[m.Effect]:
        timer = self._busy.wait(index)
        if timer is not None:
            return [timer]
        busy = tuple(self._pipeline.ensemble[i] for i in self._busy.indexes)
        return self._fail(m.Failure.OVERLOADED, is_definite=False, bookie_ids=busy)

    def _on_member_failed(self, failed: MemberAnswer) -> list[m.Effect]:
        """Record the failed bookie, and begin a change if no change runs.

        A failed send of a confirmed run counts too (PROTOCOL.md#A8).
        """
        if self._pipeline.is_suspended(failed.index):
            return []
        self._pipeline.suspend(failed.index)
        self._failed.report(failed.index, failed.bookie_id, failed.code)
        return self._begin_change() if self.phase is WriterPhase.OPEN else []

    def _on_member_lost(self, event: m.MemberLost) -> list[m.Effect]:
        """Replace a bookie that is not registered, before an add fails (PROTOCOL.md#B22)."""
        ensemble = self._pipeline.ensemble
        if event.bookie_id not in ensemble or not self._may_change:
            return []
        index = ensemble.index(event.bookie_id)
        if self._pipeline.is_suspended(index):
            return []
        self._lost.add(index)
        return self._on_member_failed(MemberAnswer(index, event.bookie_id, Code.UNAVAILABLE))

    def _arm_quorum_timer(self) -> list[m.StartTimer]:
        delay_ms = self._settings.add_quorum_timeout_ms
        oldest = self._pipeline.first_unconfirmed_entry_id
        if delay_ms is None or self._quorum_timer or oldest is None:
            return []
        self._quorum_timer = self._numbers.next()
        self._oldest_at_quorum_timer = oldest
        return [m.StartTimer(self._quorum_timer, delay_ms)]

    def _on_timer_fired(self, event: m.TimerFired) -> list[m.Effect]:
        if event.request == self._quorum_timer:
            self._quorum_timer = 0
            oldest = self._pipeline.first_unconfirmed_entry_id
            if oldest is not None and oldest == self._oldest_at_quorum_timer:
                busy = tuple(self._pipeline.ensemble[index] for index in self._busy.indexes)
                failure = m.Failure.OVERLOADED if busy else m.Failure.ADD_TIMEOUT
                return self._fail(failure, is_definite=False, entry_id=oldest, bookie_ids=busy)
            return [*self._arm_quorum_timer()]
        if event.request == self._retry_timer:
            self._retry_timer = 0
            self._failed.waits_are_over()
            return self._look_again() if self.phase is WriterPhase.OPEN else []
        index = self._busy.fired(event.request)
        if index is not None:
            sent = self._pipeline.resend(index)
            self._busy.resumed(index, len(sent))
            return [*sent]
        return self._on_update_reply(event)

    @property
    def _may_change(self) -> bool:
        return self.ensemble_changes < self._settings.ensemble_changes_max

    def _look_again(self) -> list[m.Effect]:
        """List the bookies, and pause confirmation if a failed bookie is not absent."""
        return self._begin_change() if self._absences.others else self._look_for_absent()

    def _look_for_absent(self) -> list[m.Effect]:
        if not self._failed:
            return []
        self._listing = self._numbers.next()
        return [m.ListBookies(self._listing, is_fresh=False)]

    def _begin_change(self) -> list[m.Effect]:
        """Pause confirmation and list the bookies, if an index needs a replacement."""
        if not self._failed:
            return []
        if not self._may_change:
            is_fixed = self._settings.ensemble_changes_max == 0
            failure = m.Failure.BOOKIE_FAILED if is_fixed else m.Failure.TOO_MANY_CHANGES
            return self._fail(failure, is_definite=False)
        self._pipeline.is_paused = True
        self.phase = WriterPhase.LISTING
        self._listing = self._numbers.next()
        return [m.ListBookies(self._listing)]

    def _on_bookies_listed(self, event: m.BookiesListed) -> list[m.Effect]:
        if event.request != self._listing:
            return []
        self._listing = 0
        candidates = event.candidates
        ensemble = self._pipeline.ensemble
        listed = event if self._may_change else replace(event, candidates=())
        found = self._failed.choose(self.metadata.value.quorum, ensemble, listed)
        effects: list[m.Effect] = []
        returned: dict[int, str] = {}
        for index in found.unreplaced:
            is_listed = ensemble[index] in candidates
            if self._busy.is_busy(index):
                self._failed.settle(index)
                effects += self._wait_for_busy(index)
            elif index in self._lost:
                self._failed.replaced(index, ensemble[index])
                effects += self._pipeline.resend(index)
            elif index in self._absences:
                if is_listed and self._absences.is_due(index):
                    effects += self._on_return(index, returned)
            # A dead bookie stays registered for seconds. With immediate retries, each new run would
            # cause a list of the bookies and a resend of all runs to the dead bookie.
            elif self._failed.has_waited(index) and is_listed:
                self._failed.settle(index)
                effects += self._pipeline.resend(index)
            else:
                self._failed.wait(index)
        self._lost.clear()
        if self.phase is WriterPhase.FAILED:
            return effects
        if not found.replaced and not returned:
            return [*effects, *self._go_on_without(found.unreplaced)]
        self._pipeline.is_paused = True  # not paused yet if all failed bookies were absent
        self._change = FragmentChange(
            first_entry_id=self._first_of_new_fragment(),
            replacements={i: (ensemble[i], found.ensemble[i]) for i in found.replaced},
            returned=returned,
        )
        self.phase = WriterPhase.CHANGING
        return [*effects, *self._begin_update(self.metadata, self._change)]

    def _first_of_new_fragment(self) -> int:
        return self._pipeline.last_add_confirmed + 1

    def _on_return(self, index: int, returned: dict[int, str]) -> list[m.Effect]:
        """Send entries to an absent bookie again. If it has a hole, begin a new fragment first."""
        if not self._pipeline.has_hole(index):
            self._failed.settle(index)
            self._absences.end(index)
            return [*self._pipeline.resend(index)]
        if self._may_change:
            returned[index] = self._pipeline.ensemble[index]
        return []

    def _go_on_without(self, unreplaced: tuple[int, ...]) -> list[m.Effect]:
        """Continue to confirm runs with the other bookies, and list the bookies again later."""
        effects = self._resume()
        ensemble = self._pipeline.ensemble
        first_waits = [i for i in self._failed.waiting if self._failed.rounds.get(i) == 1]
        missing = self._failed.answers_at(i for i in first_waits if i in unreplaced)
        if missing:
            effects.append(m.NoReplacement(missing, len(ensemble)))
        self._absences.make_room()
        return [*effects, *self._wait_to_look_again()]

    def _wait_to_look_again(self) -> list[m.Effect]:
        if not self._failed or self._retry_timer:
            return []
        delay_ms: int | None = self._settings.absence_poll_ms
        if present := self._absences.others:
            rounds = max(self._failed.rounds.get(index, 1) for index in present)
            delay_ms = self._settings.replacement.delay_ms(rounds)
            if delay_ms is None and self._absences.leave_out(present):
                delay_ms = self._settings.absence_poll_ms
        if delay_ms is None:
            return self._fail_for_bookies()
        self._retry_timer = self._numbers.next()
        return [m.StartTimer(self._retry_timer, delay_ms)]

    def _fail_for_bookies(self) -> list[m.Effect]:
        ensemble, missing = self._pipeline.ensemble, self._failed.indexes
        return self._fail(
            m.Failure.NOT_ENOUGH_BOOKIES,
            is_definite=False,
            bookie_ids=tuple(ensemble[index] for index in missing),
            wanted=len(ensemble),
            available=len(ensemble) - len(missing),
        )

    def _resume(self) -> list[m.Effect]:
        """Resume confirmation, even of runs that the change did not touch (PROTOCOL.md#B10)."""
        self.phase = WriterPhase.OPEN
        self._pipeline.is_paused = False
        return [*self._pipeline.confirm()]

    def _on_updated(self, result: UpdateResult) -> list[m.Effect]:
        self.metadata = result.current
        if self.phase is WriterPhase.CLOSING:
            return self._on_close_settled(result)
        return self._on_change_settled(result)

    def _on_change_settled(self, result: UpdateResult) -> list[m.Effect]:
        if result.failure is not None:
            return self._fail(result.failure, is_definite=False)
        assert self._change is not None
        change, self._change = self._change, None
        self.ensemble_changes += 1
        effects = self._adopt(change)
        if self._failed and not self._retry_timer:
            if self._absences.others:
                return [*effects, *self._begin_change()]
            return [*effects, *self._resume(), *self._wait_to_look_again()]
        return [*effects, *self._resume()]

    def _adopt(self, change: FragmentChange) -> list[m.Effect]:
        """Send runs to the replacements, because the metadata now names them (PROTOCOL.md#B19)."""
        fragment = self.metadata.value.last_fragment
        for index, (failed, _) in change.replacements.items():
            self._failed.replaced(index, failed)
            self._busy.forget(index)
            self._absences.replaced(index)
        for index in change.returned:
            self._failed.settle(index)
            self._absences.end(index)
        replaced = tuple(failed for failed, _ in change.replacements.values())
        returned = tuple(change.returned.values())
        changed = m.EnsembleChanged(fragment.first_entry_id, fragment.ensemble, replaced, returned)
        sends = self._pipeline.replace(fragment.ensemble, change.indexes)
        return [changed, *self._holes_left(self._pipeline.take_holes()), *sends]

    def _on_close_requested(self, _event: m.CloseRequested) -> list[m.Effect]:
        """Close at the last add confirmed, even during a change (PROTOCOL.md#D2-D3)."""
        self.phase = WriterPhase.CLOSING
        self._withdraw()
        return self._begin_update(
            self.metadata, LedgerClose(*self._close_at()), may_be_written=self._may_be_closed
        )

    def _on_close_after_failure(self, event: m.CloseRequested) -> list[m.Effect]:
        assert self._failure is not None
        if self._failure.failure in (m.Failure.FENCED, m.Failure.CLOSED, m.Failure.NOT_FOUND):
            return [self._failure]
        return self._on_close_requested(event)

    def _close_at(self) -> tuple[int, int]:
        return self._pipeline.last_add_confirmed, self._pipeline.length

    def _on_close_settled(self, result: UpdateResult) -> list[m.Effect]:
        if result.failure is None:
            self.phase = WriterPhase.CLOSED
            return [*self._holes_left(self._holes), m.LedgerClosed(result.current)]
        # The caller may close again. Until the metadata is read, the outcome of the first close is
        # unknown.
        self._may_be_closed = not result.is_definite
        return self._fail(result.failure, is_definite=result.is_definite)

    def _fail(self, failure: m.Failure, *, is_definite: bool, **about: Any) -> list[m.Effect]:
        """Stop the writer. Later replies never confirm a pending add (PROTOCOL.md#A10)."""
        self.phase = WriterPhase.FAILED
        self._update = None
        # The replies of the bookies are ignored from now on, so no copy counts as in flight.
        self._pipeline.note_holes(range(len(self._pipeline.ensemble)))
        self._withdraw()
        self._failure = m.LedgerFailed(
            failure,
            is_definite=is_definite and self._withdrawn_from is None,
            last_add_confirmed=self._pipeline.last_add_confirmed,
            first_unknown_entry_id=self._withdrawn_from,
            is_retriable=failure is m.Failure.METADATA_UNAVAILABLE,
            codes=self._failed.answers,
            **about,
        )
        return [self._failure]

    def _withdraw(self) -> None:
        """Drop all pending runs, and keep only the holes of the confirmed runs."""
        self._pipeline.note_holes_of_suspended()
        self._holes += self._pipeline.take_holes()
        withdrawn = self._pipeline.withdraw()
        if self._withdrawn_from is None:
            self._withdrawn_from = withdrawn

    def _holes_left(self, holes: tuple[m.HoleLeft, ...]) -> list[m.Effect]:
        return [m.HolesLeft(self.metadata.value, holes)] if holes else []


ADDING = (WriterPhase.OPEN, WriterPhase.LISTING, WriterPhase.CHANGING)

_ADDS = (
    on(m.AddRequested, LedgerWriter._on_add_requested),
    on(m.AddReplied, LedgerWriter._on_add_replied),
    on(m.CloseRequested, LedgerWriter._on_close_requested),
    on(m.TimerFired, LedgerWriter._on_timer_fired),
)
_WRITES = (
    on(m.MetadataWritten, LedgerWriter._on_update_reply),
    on(m.MetadataLoaded, LedgerWriter._on_update_reply),
)
_REPLIES = (m.AddReplied, m.BookiesListed, m.MetadataLoaded, m.MetadataWritten, m.TimerFired)
_LISTS = (on(m.BookiesListed, LedgerWriter._on_bookies_listed),)
_NEWS = (m.MemberLost,)
_CALLS = (m.AddRequested, m.CloseRequested)

WRITER_TABLE: Table[LedgerWriter, m.Effect] = {
    WriterPhase.OPEN: row(*_ADDS, *_LISTS, on(m.MemberLost, LedgerWriter._on_member_lost)),
    WriterPhase.LISTING: row(*_ADDS, *_LISTS, ignored=_NEWS),
    WriterPhase.CHANGING: row(*_ADDS, *_WRITES, ignored=(m.BookiesListed, *_NEWS)),
    WriterPhase.CLOSING: row(
        *_WRITES,
        on(m.TimerFired, LedgerWriter._on_update_reply),
        ignored=(m.AddReplied, m.BookiesListed, *_NEWS),
        refused=_CALLS,
    ),
    WriterPhase.CLOSED: row(ignored=(*_REPLIES, *_NEWS), refused=_CALLS),
    WriterPhase.FAILED: row(
        on(m.CloseRequested, LedgerWriter._on_close_after_failure),
        ignored=(*_REPLIES, *_NEWS),
        refused=(m.AddRequested,),
    ),
}
"""The handler of each event in each phase of a writer."""
LedgerWriter.table = WRITER_TABLE
