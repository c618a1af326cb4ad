"""The one writer of a leader log (LOGS.md#J1-J12).

`LeaderLog` opens the log as its leader and gives every append its offset. It writes each append to
the current ledger and acknowledges the appends in order. It rolls to new ledgers, closes the old
ledgers and updates the list in the head. It stops forever when another leader may have taken over.

After an event, `_advance` starts all operations that are due and do not run yet. At most one
creation, one close and one change of the list run at the same time.
"""

# ruff: noqa: SLF001 (the table below the class holds its methods)

from __future__ import annotations

from typing import Any

from ledgerlog_spark.errors import (
    LeaderDeposedError,
    LedgerLogError,
    LedgerNotFoundError,
    LogNotFoundError,
)
from ledgerlog_spark.protocol.dispatch import Table, TableMachine, on, on_each, row
from ledgerlog_spark.protocol.leader.appends import LeaderAppends, LeaderLedger
from ledgerlog_spark.protocol.leader.attempts import RequestAttempts
from ledgerlog_spark.protocol.leader.list import ListChange
from ledgerlog_spark.protocol.leader.messages import (
    LOST,
    AppendRequested,
    CloseAnswered,
    CloseLedger,
    CreateLedger,
    EntriesConfirmed,
    GiveUp,
    HeadChanged,
    LeaderClosed,
    LeaderEffect,
    LeaderEvent,
    LeaderOpened,
    LeaderPhase,
    LeaderSettings,
    LedgerBroken,
    LedgerCreated,
    LedgerRolled,
    LedgerSealed,
    ListChanged,
    ListReply,
    RollRequested,
)
from ledgerlog_spark.protocol.leader.opening import LeaderOpening
from ledgerlog_spark.protocol.leader.rolling import Change, LeaderLedgers, RollStep
from ledgerlog_spark.protocol.ledger.messages import CloseRequested, Start, StartTimer, TimerFired
from ledgerlog_spark.protocol.log.machine import token_after
from ledgerlog_spark.protocol.log.messages import (
    DropLedger,
    Failed,
    Finished,
    HeadRead,
    LogEffect,
    LogEffects,
    PagesRead,
    PagesWritten,
    Synced,
    Written,
)
from ledgerlog_spark.protocol.log.properties import LogProperties
from ledgerlog_spark.protocol.log.read.versions import HeadMachine
from ledgerlog_spark.protocol.log.state.records import LogHead
from ledgerlog_spark.protocol.log.transaction import HeadTransaction
from ledgerlog_spark.protocol.request_numbers import RequestNumbers

_TOKENS_OF_A_CHANGE = 1_000
"""Number of tokens for one change of the list; each attempt of the change uses one."""


class LeaderLog(TableMachine[LeaderEvent, LeaderEffect]):
    """One client's leadership of one log, from `Start` to `LeaderClosed` or `LeaderStopped`."""

    def __init__(self, log: str, *, token: str, settings: LeaderSettings | None = None) -> None:
        self.log = log
        self.phase = LeaderPhase.NEW  # never returns to an earlier phase
        self.properties = LogProperties()  # the properties that this leader last read
        self._settings = settings or LeaderSettings()  # never changes
        self._token = token  # for the next change of the list; each change gets another token
        self._numbers = numbers = RequestNumbers()  # shared: a number names only one request
        self._appends = LeaderAppends(log, self._settings.window)  # empty before LEADING
        self._ledgers: LeaderLedgers  # set by `_on_opened`; not used before that
        # the machine of the opening; when the leader is LEADING, it has ended
        self._opening = LeaderOpening(log, token=self._take_token(), numbers=numbers)
        self._list: HeadTransaction[LogHead] = self._opening  # the newest change of the list
        self._change: Change | None = None  # stays until an attempt settles it (LOGS.md#J4)
        # `_closing` and `_creating` number their requests; `_list` and `_look` number the others.
        attempts = [RequestAttempts(self._settings.retry, numbers) for _ in range(4)]
        self._closing, self._creating, self._listing, self._looking = attempts
        self._look: HeadMachine | None = None  # the newest read of the head (LOGS.md#J12)
        self._is_look_due = False  # the head has changed since the newest read began
        self._to_close: LeaderLedger | None = None  # the ledger that `_closing` closes
        self._open_timer = 0  # set in OPENING
        self._age_timer = 0  # 0 while it does not run
        self._aging: LeaderLedger | None = None  # the ledger that the age timer was started for
        self._dropping: set[int] = set()  # pending requests that delete a ledger
        self._is_unsure = False  # an attempt at `_change` may have changed the list
        self._broken_early: set[int] = set()  # ledgers that broke before `LedgerCreated` arrived
        self._now_ms = 0  # time of the newest append; before it, when the first ledger was opened

    @property
    def can_add(self) -> bool:
        """Whether `AppendRequested` is allowed now."""
        return self.phase is LeaderPhase.LEADING and self._appends.can_add

    @property
    def next_offset(self) -> int:
        """The offset that the next append gets."""
        return self._appends.next_offset

    @property
    def end_offset(self) -> int:
        """The offset after the last acknowledged record. This offset never decreases."""
        return self._appends.end_offset

    @property
    def roll_wait(self) -> tuple[RollStep, LedgerLogError | None]:
        """The step that a roll waits for, and the error of its newest attempt, or None."""
        errors = self._closing.error, self._creating.error, self._listing.error
        return self._ledgers.roll_wait(errors, is_closing=self._is_finishing)

    # --- opening ---

    def _on_start(self, _event: Start) -> list[LeaderEffect]:
        self.phase = LeaderPhase.OPENING
        self._open_timer = self._numbers.next()
        timer = StartTimer(self._open_timer, self._settings.open_timeout_ms)
        return [timer, *self._on_list_step(self._opening.start())]

    def _on_open_timer(self, event: TimerFired) -> list[LeaderEffect]:
        if event.request != self._open_timer:
            return []
        return self._on_opening_failed(self._opening.give_up(self._settings.open_timeout_ms))

    def _on_opening_given_up(self, _event: GiveUp) -> list[LeaderEffect]:
        return self._on_opening_failed(self._opening.cancel())

    def _on_opened(self, head: LogHead) -> list[LeaderEffect]:
        own = head.open_ledgers[-1]
        first = LeaderLedger(own.ledger_id)
        first.opened_ms = own.opened_ms
        first.is_broken = first.ledger_id in self._broken_early
        self._ledgers = LeaderLedgers(first)
        self._now_ms = first.opened_ms
        self.properties = self.properties.updated(head.properties)
        self._appends.begin(next_offset=head.end_offset, last_ms=head.commit_time_ms)
        self.phase = LeaderPhase.LEADING
        effects: list[LeaderEffect] = [LeaderOpened(head), *self._arm_age_timer()]
        return [*effects, *self._look_at_head(), *self._advance()]

    def _on_opening_failed(self, error: LedgerLogError) -> list[LeaderEffect]:
        self.phase = LeaderPhase.STOPPED
        return [*self._drop(self._opening.unlisted_ledger), self._appends.stopped(error)]

    def _on_broken_early(self, event: LedgerBroken) -> list[LeaderEffect]:
        """Record that a ledger is broken. Its `LedgerCreated` may not have arrived yet."""
        self._broken_early.add(event.ledger_id)
        return []

    # --- appends ---

    def _on_append(self, event: AppendRequested) -> list[LeaderEffect]:
        appends, ledgers = self._appends, self._ledgers
        is_first = appends.is_empty
        appends.add(event)
        if ledgers.current.is_broken and is_first:
            self._forgive()
        self._now_ms = event.now_ms
        if not ledgers.takes_entries:
            return []
        effects: list[LeaderEffect] = [*appends.order(ledgers.current)]
        ledgers.look_at_size_and_age(self.properties, event.now_ms)
        if ledgers.wants_roll:
            effects += self._advance()
        return effects

    def _on_confirmed(self, event: EntriesConfirmed) -> list[LeaderEffect]:
        ledger = self._ledgers.find(event.ledger_id)
        if ledger is None:
            return []
        effects: list[LeaderEffect] = [*self._appends.confirm(ledger, event.last_entry_id)]
        if self._ledgers.next is not None or self.phase is LeaderPhase.CLOSING:
            effects += self._advance()
        return effects

    def _on_broken(self, event: LedgerBroken) -> list[LeaderEffect]:
        ledger = self._ledgers.find(event.ledger_id)
        if ledger is None:
            return self._on_broken_early(event)
        if isinstance(event.error, LOST):
            return self._stop(self._appends.deposed(event.error))
        ledger.is_broken = True
        self._forgive()
        return self._advance()

    def _on_roll_requested(self, _event: RollRequested) -> list[LeaderEffect]:
        self._ledgers.wants_roll = self._ledgers.wants_roll or self._ledgers.current.entries > 0
        return self._advance()

    def _on_given_up(self, event: GiveUp) -> list[LeaderEffect]:
        return self._stop(event.error)

    def _on_close_requested(self, _event: CloseRequested) -> list[LeaderEffect]:
        self.phase = LeaderPhase.CLOSING
        self._ledgers.wants_roll = False
        self._forgive()
        return self._advance()

    def _advance(self) -> list[LeaderEffect]:
        """Start every operation that is due and does not run yet."""
        effects = self._switch()
        effects += self._close_one()
        effects += self._create()
        effects += self._change_list()
        if self._is_all_done():
            self.phase = LeaderPhase.CLOSED
            effects.append(LeaderClosed(self._appends.end_offset))
        return effects

    @property
    def _is_finishing(self) -> bool:
        """Whether the leader is closing, and only has to close and list its ledgers."""
        return self.phase is LeaderPhase.CLOSING and self._appends.is_empty

    def _switch(self) -> list[LeaderEffect]:
        ledgers, appends = self._ledgers, self._appends
        if self._is_finishing or not ledgers.may_switch(appends):
            return []
        ledgers.switch(self._now_ms)
        again = appends.requeue_ordered()
        rolled = LedgerRolled(ledgers.current.ledger_id, appends.end_offset, again)
        effects: list[LeaderEffect] = [rolled]
        if ledgers.takes_entries:
            effects += appends.order(ledgers.current)
        return [*effects, *self._arm_age_timer()]

    def _close_one(self) -> list[LeaderEffect]:
        if not self._closing.is_idle:
            return []
        self._to_close = self._ledgers.to_close(is_closing=self._is_finishing)
        if self._to_close is None:
            return []
        return [CloseLedger(self._closing.begin(), self._to_close.ledger_id)]

    def _on_close_answered(self, event: CloseAnswered) -> list[LeaderEffect]:
        ledger = self._to_close
        assert ledger is not None
        assert event.request == self._closing.request
        if isinstance(event.error, LOST):
            return self._stop(self._appends.deposed(event.error))
        if event.error is not None:
            return self._try_again(self._closing, event.error)
        self._closing.succeed()
        acknowledged = self._appends.confirm(ledger, event.last_entry_id)
        ledger.close_at(event.last_entry_id, event.size_bytes)
        return [*acknowledged, *self._advance()]

    def _create(self) -> list[LeaderEffect]:
        is_due = self._creating.is_idle and self._ledgers.may_create()
        if self._is_finishing or not is_due:
            return []
        return [CreateLedger(self.properties, request=self._creating.begin())]

    def _on_created(self, event: LedgerCreated) -> list[LeaderEffect]:
        assert event.request == self._creating.request
        if event.error is not None:
            return self._try_again(self._creating, event.error)
        self._creating.succeed()
        self._ledgers.next = LeaderLedger(event.ledger_id)
        self._ledgers.next.is_broken = event.ledger_id in self._broken_early
        return self._advance()

    def _on_created_too_late(self, event: LedgerCreated) -> list[LeaderEffect]:
        return self._drop(event.ledger_id) if event.error is None else []

    def _try_again(self, attempts: RequestAttempts, error: LedgerLogError) -> list[LeaderEffect]:
        """Wait before a retry. After too many failures, stop if appends wait or `close` waits."""
        timer = attempts.fail(error)
        is_needed = self._ledgers.current.is_broken and not self._appends.is_empty
        if attempts.is_hopeless and (is_needed or self.phase is LeaderPhase.CLOSING):
            return self._stop(error)
        return [timer, *self._advance()]

    def _forgive(self) -> None:
        """Reset the numbers of failures, because no call waited when these failures happened."""
        for attempts in (self._closing, self._creating, self._listing):
            attempts.forgive()

    # --- the list ---

    def _change_list(self) -> list[LeaderEffect]:
        """Start the change of the list that is due, or repeat a failed change (LOGS.md#J4)."""
        ledgers = self._ledgers
        if not self._list.has_ended or not self._listing.is_idle:
            return []
        dropped: list[LeaderEffect] = []
        if self._change is None:
            dropped = self._drop_next() if self._is_finishing else []
            self._change = ledgers.change_due(is_closing=self._is_finishing)
            if self._change is None:
                return dropped
        closed, added = self._change
        self._list = ListChange(
            self.log,
            mine=[ledger.ledger_id for ledger in ledgers.listed],
            closed=closed,
            added=None if added is None else added.ledger_id,
            token=self._take_token(),
            numbers=self._numbers,
        )
        return [*dropped, *self._on_list_step(self._list.start())]

    def _on_list_reply(self, event: ListReply | LedgerSealed | LedgerCreated) -> list[LeaderEffect]:
        reply: Any = event  # an opening also gets replies about ledgers
        if self._look is not None and self._look.awaits(reply):
            return self._on_looked(*self._look.handle(reply))
        if event.request not in self._dropping:
            return self._on_list_step(self._list.handle(reply))
        self._dropping.remove(event.request)
        return self._advance()

    def _on_list_step(self, effects: LogEffects[LogHead]) -> list[LeaderEffect]:
        (effect,) = effects
        if isinstance(effect, Finished):
            return self._on_list_done(effect.result)
        return self._on_list_failed(effect.error) if isinstance(effect, Failed) else [effect]

    def _on_list_done(self, head: LogHead) -> list[LeaderEffect]:
        if self.phase is LeaderPhase.OPENING:
            return self._on_opened(head)
        assert self._change is not None
        self._listing.succeed()
        self._ledgers.relist(*self._change)
        self._change = None
        self._is_unsure = False
        self.properties = self.properties.updated(head.properties)
        return [ListChanged(head), *self._advance()]

    def _on_list_failed(self, error: LedgerLogError) -> list[LeaderEffect]:
        if self.phase is LeaderPhase.OPENING:
            return self._on_opening_failed(error)
        if isinstance(error, LeaderDeposedError | LedgerNotFoundError):
            self._change, self._is_unsure = None, False  # no attempt can succeed any more
        if isinstance(error, LeaderDeposedError):
            return self._stop(self._appends.deposed(error))
        if isinstance(error, LedgerNotFoundError):
            return [*self._drop_next(), *self._try_again(self._listing, error)]
        self._is_unsure = self._is_unsure or not error.definite
        if error.retriable:
            return self._try_again(self._listing, error)
        return self._stop(self._appends.deleted() if isinstance(error, LogNotFoundError) else error)

    # --- the head, after a change ---

    def _on_head_changed(self, _event: HeadChanged) -> list[LeaderEffect]:
        self._is_look_due = True
        return [] if self.phase is LeaderPhase.OPENING else self._look_at_head()

    def _look_at_head(self) -> list[LeaderEffect]:
        """Read the head after a change, to detect that the log was deleted (LOGS.md#J12)."""
        is_looking = self._look is not None and not self._look.has_ended
        if not self._is_look_due or is_looking or not self._looking.is_idle:
            return []
        self._is_look_due = False
        self._look = HeadMachine(self.log, is_fresh=False, numbers=self._numbers)
        return self._on_looked(*self._look.start())

    def _on_looked(self, effect: LogEffect[LogHead]) -> list[LeaderEffect]:
        """Perform or end the read of the head.

        A failed read is retried without a limit, because a leader needs the store only for its next
        change of the list. That change also reports a head that cannot be decoded.
        """
        if isinstance(effect, Failed) and isinstance(effect.error, LogNotFoundError):
            return self._stop(self._appends.deleted())
        if isinstance(effect, Failed) and effect.error.retriable:
            self._is_look_due = True
            return [self._looking.fail(effect.error)]
        if not isinstance(effect, Finished | Failed):
            return [effect]
        self._looking.succeed()
        return self._look_at_head()

    # --- the end ---

    def _is_all_done(self) -> bool:
        is_idle = not (self._creating.request or self._closing.request or self._dropping)
        is_list_done = self._list.has_ended and not self._ledgers.listed
        return self._is_finishing and is_idle and is_list_done

    def _stop(self, error: LedgerLogError) -> list[LeaderEffect]:
        self.phase = LeaderPhase.STOPPED
        return [*self._drop_next(), self._appends.stopped(error)]

    def _drop_next(self) -> list[LeaderEffect]:
        """Drop the next ledger, unless it is in the list or an attempt may still add it."""
        ledgers = self._ledgers
        if ledgers.next is None or ledgers.is_next_listed:
            return []
        is_tried = self._change is not None and self._change[1] is ledgers.next
        if is_tried and (self._is_unsure or self._list.may_write):
            return []
        unused, ledgers.next = ledgers.next, None
        return self._drop(unused.ledger_id)

    def _on_late_reply(self, event: ListReply) -> list[LeaderEffect]:
        """Drop a created ledger if a reply after the end shows that no attempt can list it."""
        self._dropping.discard(event.request)
        if not self._list.leave(event) or self._is_unsure:
            return []
        is_opening = self._list is self._opening
        return self._drop(self._opening.unlisted_ledger) if is_opening else self._drop_next()

    # --- timers and numbers ---

    def _on_timer(self, event: TimerFired) -> list[LeaderEffect]:
        if event.request == self._age_timer:
            return self._on_age_timer()
        if self._looking.wake(event.request):
            return self._look_at_head()
        woken = [
            each.wake(event.request) for each in (self._closing, self._creating, self._listing)
        ]
        return self._advance() if any(woken) else []

    def _arm_age_timer(self) -> list[LeaderEffect]:
        """Start the timer for a roll by age, unless it runs. The timer also rolls an idle log."""
        if self._age_timer:
            return []
        self._age_timer, self._aging = self._numbers.next(), self._ledgers.current
        return [StartTimer(self._age_timer, self.properties.roll_ms)]

    def _on_age_timer(self) -> list[LeaderEffect]:
        self._age_timer = 0
        if self._aging is self._ledgers.current and self.phase is LeaderPhase.LEADING:
            self._ledgers.wants_roll = self._ledgers.wants_roll or self._ledgers.current.entries > 0
        return [*self._arm_age_timer(), *self._advance()]

    def _take_token(self) -> str:
        token, self._token = self._token, token_after(self._token, _TOKENS_OF_A_CHANGE)
        return token

    def _drop(self, ledger_id: int | None) -> list[LeaderEffect]:
        """Delete the ledger, which no attempt can list any more. None deletes nothing."""
        if ledger_id is None:
            return []
        request = self._numbers.next()
        self._dropping.add(request)
        return [DropLedger(ledger_id, request=request)]


_LIST_REPLIES: tuple[type[ListReply], ...] = (Synced, HeadRead, PagesRead, PagesWritten, Written)
_CALLS = (AppendRequested, RollRequested, CloseRequested)
_OF_LEDGERS = (LedgerSealed, CloseAnswered, EntriesConfirmed, LedgerBroken)
_AFTER_THE_END = (TimerFired, HeadChanged, GiveUp)
_OPENS = (
    *on_each(_LIST_REPLIES, LeaderLog._on_list_reply),
    on(LedgerSealed, LeaderLog._on_list_reply),
    on(LedgerCreated, LeaderLog._on_list_reply),
    on(LedgerBroken, LeaderLog._on_broken_early),
    on(TimerFired, LeaderLog._on_open_timer),
    on(HeadChanged, LeaderLog._on_head_changed),
    on(GiveUp, LeaderLog._on_opening_given_up),
)
_LEADS = (
    *on_each(_LIST_REPLIES, LeaderLog._on_list_reply),
    on(EntriesConfirmed, LeaderLog._on_confirmed),
    on(LedgerBroken, LeaderLog._on_broken),
    on(LedgerCreated, LeaderLog._on_created),
    on(CloseAnswered, LeaderLog._on_close_answered),
    on(TimerFired, LeaderLog._on_timer),
    on(HeadChanged, LeaderLog._on_head_changed),
    on(GiveUp, LeaderLog._on_given_up),
)
_LATE = (
    *on_each(_LIST_REPLIES, LeaderLog._on_late_reply),
    on(LedgerCreated, LeaderLog._on_created_too_late),
)

LEADER_TABLE: Table[LeaderLog, LeaderEffect] = {
    LeaderPhase.NEW: row(on(Start, LeaderLog._on_start), refused=_CALLS),
    LeaderPhase.OPENING: row(*_OPENS, refused=_CALLS),
    LeaderPhase.LEADING: row(
        *_LEADS,
        on(AppendRequested, LeaderLog._on_append),
        on(RollRequested, LeaderLog._on_roll_requested),
        on(CloseRequested, LeaderLog._on_close_requested),
    ),
    LeaderPhase.CLOSING: row(*_LEADS, refused=_CALLS),
    # A leader is closed after the replies to all its requests, except a read of the head.
    LeaderPhase.CLOSED: row(ignored=(Synced, HeadRead, *_AFTER_THE_END), refused=_CALLS),
    LeaderPhase.STOPPED: row(*_LATE, ignored=(*_OF_LEDGERS, *_AFTER_THE_END), refused=_CALLS),
}
"""The handler of each event in each phase of a leader."""
LeaderLog.table = LEADER_TABLE
