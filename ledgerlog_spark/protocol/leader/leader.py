"""The one writer of a leader log (LOGS.md#J1-J15).

`LeaderLog` opens the log as its leader and gives every append its offset. It writes each append to
the current ledger and acknowledges the appends in order. It rolls to new ledgers, closes the old
ledgers and updates the list in the head. When a ledger was fenced, the leader stops forever if
another client takes the log over. Otherwise it recovers the ledger and continues.

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
from ledgerlog_spark.protocol.leader import messages as lm
from ledgerlog_spark.protocol.leader.appends import LeaderAppends, LeaderLedger
from ledgerlog_spark.protocol.leader.attempts import Attempts, LedgerDrops
from ledgerlog_spark.protocol.leader.candidacy import LeaderCandidacy
from ledgerlog_spark.protocol.leader.list import ListChange
from ledgerlog_spark.protocol.leader.look import HeadLook
from ledgerlog_spark.protocol.leader.opening import LeaderOpening
from ledgerlog_spark.protocol.leader.rolling import AgeTimer, Change, LeaderLedgers, RollStep
from ledgerlog_spark.protocol.leader.standing import LeaderStanding
from ledgerlog_spark.protocol.ledger.messages import CloseRequested, Start, StartTimer, TimerFired
from ledgerlog_spark.protocol.log import messages as m
from ledgerlog_spark.protocol.log.machine import token_after
from ledgerlog_spark.protocol.log.properties import LogProperties
from ledgerlog_spark.protocol.log.state.records import LogHead
from ledgerlog_spark.protocol.log.transaction import HeadTransaction
from ledgerlog_spark.protocol.request_numbers import RequestNumbers

_TOKENS_OF_A_CHANGE = 1_000
"""Number of tokens for one change of the list; each attempt of the change uses one token."""


class LeaderLog(TableMachine[lm.LeaderEvent, lm.LeaderEffect]):
    """One client's leadership of one log, from `Start` to `LeaderClosed` or `LeaderStopped`."""

    def __init__(self, log: str, *, token: str, settings: lm.LeaderSettings | None = None) -> None:
        self.log = log
        self.phase = lm.LeaderPhase.NEW  # never returns to an earlier phase
        self.properties = LogProperties()  # the properties that this leader last read
        self._settings = settings or lm.LeaderSettings()  # never changes
        self._token = token  # for the next change of the list; each change gets another token
        self._numbers = numbers = RequestNumbers()  # shared, so each number names only one request
        self._appends = LeaderAppends(log, self._settings.window)  # empty before LEADING
        retry = self._settings.retry
        # `token` is also the claim, which never changes (LOGS.md#J14)
        self._candidacy = LeaderCandidacy(log, claim=token, policy=retry, numbers=numbers)
        self._ledgers: LeaderLedgers  # set by `_on_opened`; not used before that
        # the machine that opens the log; it has ended before this machine is LEADING
        self._opening = LeaderOpening(log, claim=token, token=self._take_token(), numbers=numbers)
        self._list: HeadTransaction[LogHead] = self._opening  # the newest change of the list
        self._change: Change | None = None  # set until its outcome is known (LOGS.md#J4)
        # `_closing` and `_creating` number their requests; the machines number all other requests.
        attempts = [Attempts(retry, numbers) for _ in range(3)]
        self._closing, self._creating, self._listing = attempts
        self._look = HeadLook(log, retry, numbers)
        self._standing = LeaderStanding(log, claim=token, policy=retry, numbers=numbers)
        self._attempts = [*attempts, self._standing.attempts]  # limited if appends wait
        self._to_close: LeaderLedger | None = None  # the ledger that `_closing` closes
        self._open_timer = 0  # number of the timer that limits the time in OPENING
        self._age = AgeTimer(numbers)
        self._drops = LedgerDrops(numbers)
        self._is_unsure = False  # an attempt at `_change` may have changed the list
        # ledgers that broke before `LedgerCreated` arrived
        self._broken_early: dict[int, LedgerLogError] = {}
        self._now_ms = 0  # time of the newest append, or else of the opening of the first ledger

    @property
    def can_add(self) -> bool:
        """Whether `AppendRequested` is allowed now."""
        return self.phase is lm.LeaderPhase.LEADING and self._appends.can_add

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
        """The step that a roll waits for, and the error of its newest attempt, if there is one."""
        closing = self._standing.attempts.error or self._closing.error
        errors = closing, self._creating.error, self._listing.error
        return self._ledgers.roll_wait(errors, is_closing=self._is_finishing)

    # --- opening ---

    def _on_start(self, _event: Start) -> list[lm.LeaderEffect]:
        self.phase = lm.LeaderPhase.OPENING
        self._open_timer = self._numbers.next()
        timer = StartTimer(self._open_timer, self._settings.open_timeout_ms)
        return [timer, *self._on_list_step(self._opening.start())]

    def _on_open_timer(self, event: TimerFired) -> list[lm.LeaderEffect]:
        if self._candidacy.attempts.wake(event.request):
            return [*self._candidacy.begin()]
        if event.request != self._open_timer:
            return []
        return self._on_opening_failed(self._opening.give_up(self._settings.open_timeout_ms))

    def _on_opening_given_up(self, _event: lm.GiveUp) -> list[lm.LeaderEffect]:
        return self._on_opening_failed(self._opening.cancel())

    def _on_opened(self, head: LogHead) -> list[lm.LeaderEffect]:
        own = head.open_ledgers[-1]
        first = LeaderLedger(own.ledger_id)
        first.opened_ms = own.opened_ms
        self._break(first, self._broken_early.get(first.ledger_id))
        self._ledgers = LeaderLedgers(first)
        self._now_ms = first.opened_ms
        self.properties = self.properties.updated(head.properties)
        self._appends.begin(next_offset=head.end_offset, last_ms=head.commit_time_ms)
        self.phase = lm.LeaderPhase.LEADING
        effects: list[lm.LeaderEffect] = [lm.LeaderOpened(head), *self._arm_age_timer()]
        return [*effects, *self._look.begin(), *self._advance()]

    def _on_opening_failed(self, error: LedgerLogError) -> list[lm.LeaderEffect]:
        self.phase = lm.LeaderPhase.STOPPED
        return [*self._drops.begin(self._opening.unlisted_ledger), self._appends.stopped(error)]

    def _on_broken_early(self, event: lm.LedgerBroken) -> list[lm.LeaderEffect]:
        """Note that a ledger is broken; its `LedgerCreated` may not have arrived yet."""
        self._broken_early[event.ledger_id] = event.error
        return []

    def _break(self, ledger: LeaderLedger, error: LedgerLogError | None) -> None:
        """Note that the ledger's writer failed, if `error` is not None."""
        ledger.is_broken = ledger.is_broken or error is not None
        if isinstance(error, lm.LOST) and ledger.end is None:
            ledger.fence = error

    # --- appends ---

    def _on_append(self, event: lm.AppendRequested) -> list[lm.LeaderEffect]:
        appends, ledgers = self._appends, self._ledgers
        is_first = appends.is_empty
        appends.add(event)
        if ledgers.current.is_broken and is_first:
            self._forgive()
        self._now_ms = event.now_ms
        if not ledgers.takes_entries:
            return []
        effects: list[lm.LeaderEffect] = [*appends.order(ledgers.current)]
        ledgers.look_at_size_and_age(self.properties, event.now_ms)
        if ledgers.wants_roll:
            effects += self._advance()
        return effects

    def _on_confirmed(self, event: lm.EntriesConfirmed) -> list[lm.LeaderEffect]:
        ledger = self._ledgers.find(event.ledger_id)
        if ledger is None:
            return []
        effects: list[lm.LeaderEffect] = [*self._appends.confirm(ledger, event.last_entry_id)]
        if self._ledgers.next is not None or self.phase is lm.LeaderPhase.CLOSING:
            effects += self._advance()
        return effects

    def _on_broken(self, event: lm.LedgerBroken) -> list[lm.LeaderEffect]:
        ledger = self._ledgers.find(event.ledger_id)
        if ledger is None:
            return self._on_broken_early(event)
        self._break(ledger, event.error)
        self._forgive()
        return self._advance()

    def _on_roll_requested(self, _event: lm.RollRequested) -> list[lm.LeaderEffect]:
        self._ledgers.wants_roll = self._ledgers.wants_roll or self._ledgers.current.entries > 0
        return self._advance()

    def _on_given_up(self, event: lm.GiveUp) -> list[lm.LeaderEffect]:
        return self._stop(event.error)

    def _on_close_requested(self, _event: CloseRequested) -> list[lm.LeaderEffect]:
        self.phase = lm.LeaderPhase.CLOSING
        self._ledgers.wants_roll = False
        self._forgive()
        return self._advance()

    def _advance(self) -> list[lm.LeaderEffect]:
        """Start every operation that is due and does not run yet."""
        effects = [*self._switch(), *self._check_standing(), *self._close_one()]
        effects += [*self._create(), *self._change_list()]
        if self._is_all_done():
            self.phase = lm.LeaderPhase.CLOSED
            effects.append(lm.LeaderClosed(self._appends.end_offset))
        return effects

    @property
    def _is_finishing(self) -> bool:
        """Whether the leader is closing, and only has to close and list its ledgers."""
        return self.phase is lm.LeaderPhase.CLOSING and self._appends.is_empty

    def _switch(self) -> list[lm.LeaderEffect]:
        ledgers, appends = self._ledgers, self._appends
        if self._is_finishing or not ledgers.may_switch(appends):
            return []
        ledgers.switch(self._now_ms)
        again = appends.requeue_ordered()
        rolled = lm.LedgerRolled(ledgers.current.ledger_id, appends.end_offset, again)
        effects: list[lm.LeaderEffect] = [rolled]
        if ledgers.takes_entries:
            effects += appends.order(ledgers.current)
        return [*effects, *self._arm_age_timer()]

    def _close_one(self) -> list[lm.LeaderEffect]:
        if not self._closing.is_idle:
            return []
        ledger = self._to_close = self._ledgers.to_close(is_closing=self._is_finishing)
        if ledger is None or ledger.is_contested:
            return []
        request = self._closing.begin()
        if ledger.fence is None:
            return [lm.CloseLedger(request, ledger.ledger_id)]
        return [lm.RecoverLedger(request, ledger.ledger_id, ledger.last_confirmed)]

    def _on_close_answered(self, event: lm.CloseAnswered) -> list[lm.LeaderEffect]:
        ledger = self._to_close
        assert ledger is not None
        assert event.request == self._closing.request
        if isinstance(event.error, lm.LOST) and not ledger.may_recover:
            self._closing.succeed()
            self._break(ledger, event.error)
            return self._advance()
        if isinstance(event.error, LedgerNotFoundError):
            return self._stop(self._appends.deposed(event.error))
        if event.error is not None:
            return self._try_again(self._closing, event.error)
        self._closing.succeed()
        if event.last_entry_id < ledger.last_confirmed:
            return self._stop(self._appends.lost(ledger, event.last_entry_id))
        acknowledged = self._appends.confirm(ledger, event.last_entry_id)
        ledger.close_at(event.last_entry_id, event.size_bytes)
        return [*acknowledged, *self._advance()]

    def _create(self) -> list[lm.LeaderEffect]:
        is_due = self._creating.is_idle and self._ledgers.may_create()
        if self._is_finishing or not is_due or self._ledgers.contested:
            return []
        return [lm.CreateLedger(self.properties, request=self._creating.begin())]

    def _on_created(self, event: lm.LedgerCreated) -> list[lm.LeaderEffect]:
        assert event.request == self._creating.request
        if event.error is not None:
            return self._try_again(self._creating, event.error)
        self._creating.succeed()
        self._ledgers.next = LeaderLedger(event.ledger_id)
        self._break(self._ledgers.next, self._broken_early.get(event.ledger_id))
        return self._advance()

    def _on_created_too_late(self, event: lm.LedgerCreated) -> list[lm.LeaderEffect]:
        return [*self._drops.begin(event.ledger_id if event.error is None else None)]

    def _try_again(self, attempts: Attempts, error: LedgerLogError) -> list[lm.LeaderEffect]:
        """Wait before a retry. After too many failures, stop if an append or a close waits."""
        timer = attempts.fail(error)
        is_needed = self._ledgers.current.is_broken and not self._appends.is_empty
        if attempts.is_hopeless and (is_needed or self.phase is lm.LeaderPhase.CLOSING):
            return self._stop(error)
        return [timer, *self._advance()]

    def _forgive(self) -> None:
        """Reset the numbers of failures, because no call waited when these failures happened."""
        for attempts in self._attempts:
            attempts.forgive()

    # --- after a fence ---

    def _check_standing(self) -> list[lm.LeaderEffect]:
        """After a ledger was fenced, check whether this leader still leads (LOGS.md#J15)."""
        contested, standing = self._ledgers.contested, self._standing
        if not contested or standing.is_running or not standing.attempts.is_idle:
            return []
        mine = [ledger.ledger_id for ledger in self._ledgers.all]
        return [*standing.begin(contested, mine, self._take_token())]

    def _on_standing(self, event: lm.LeaderReply) -> list[lm.LeaderEffect]:
        standing = self._standing
        effects = standing.handle(event)
        if standing.is_running:
            return [*effects]
        error = standing.error
        if error is None:
            return self._advance()
        if isinstance(error, LeaderDeposedError):
            return self._stop(self._appends.deposed(standing.fence or error))
        if isinstance(error, LogNotFoundError):
            return self._stop(self._appends.deleted())
        return self._try_again(standing.attempts, error) if error.retriable else self._stop(error)

    def _on_session_replaced(self, _event: lm.SessionReplaced) -> list[lm.LeaderEffect]:
        return [*self._candidacy.on_session_replaced()]

    def _on_joined(self, event: lm.CandidatesJoined) -> list[lm.LeaderEffect]:
        if self._list.awaits(event):  # the reply to a request of an opening
            return self._on_reply(event)
        return [*self._candidacy.handle(event)]

    # --- the list ---

    def _change_list(self) -> list[lm.LeaderEffect]:
        """Start the change of the list that is due, or repeat a failed change (LOGS.md#J4)."""
        ledgers = self._ledgers
        if not self._list.has_ended or not self._listing.is_idle or ledgers.contested:
            return []
        dropped: list[lm.LeaderEffect] = []
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

    def _on_reply(self, event: lm.LeaderReply) -> list[lm.LeaderEffect]:
        reply: Any = event  # an opening also gets replies about ledgers
        if self._look.awaits(reply):
            return self._on_looked(self._look.handle(reply))
        if self._standing.awaits(reply):
            return self._on_standing(reply)
        if self._drops.end(event.request):
            return self._advance()
        return self._on_list_step(self._list.handle(reply))

    def _on_list_step(self, effects: m.LogEffects[LogHead]) -> list[lm.LeaderEffect]:
        (effect,) = effects
        if isinstance(effect, m.Finished):
            return self._on_list_done(effect.result)
        return self._on_list_failed(effect.error) if isinstance(effect, m.Failed) else [effect]

    def _on_list_done(self, head: LogHead) -> list[lm.LeaderEffect]:
        if self.phase is lm.LeaderPhase.OPENING:
            return self._on_opened(head)
        assert self._change is not None
        self._listing.succeed()
        self._ledgers.relist(*self._change)
        self._change = None
        self._is_unsure = False
        self.properties = self.properties.updated(head.properties)
        return [lm.ListChanged(head), *self._advance()]

    def _on_list_failed(self, error: LedgerLogError) -> list[lm.LeaderEffect]:
        if self.phase is lm.LeaderPhase.OPENING:
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

    def _on_head_changed(self, _event: lm.HeadChanged) -> list[lm.LeaderEffect]:
        self._look.on_change()
        is_opening = self.phase is lm.LeaderPhase.OPENING
        return [] if is_opening else self._on_looked(self._look.begin())

    def _on_looked(self, effects: list[Any]) -> list[lm.LeaderEffect]:
        """Return the effects of a read of the head, or stop if the log was deleted."""
        return self._stop(self._appends.deleted()) if self._look.is_deleted else effects

    # --- the end ---

    def _is_all_done(self) -> bool:
        requests = self._creating.request, self._closing.request, self._drops.pending
        is_idle = not any(requests) and not self._standing.is_running
        is_list_done = self._list.has_ended and not self._ledgers.listed
        return self._is_finishing and is_idle and is_list_done

    def _stop(self, error: LedgerLogError) -> list[lm.LeaderEffect]:
        self.phase = lm.LeaderPhase.STOPPED
        return [*self._drop_next(), self._appends.stopped(error)]

    def _drop_next(self) -> list[lm.LeaderEffect]:
        """Drop the next ledger, unless it is in the list or an attempt may still add it."""
        ledgers = self._ledgers
        if ledgers.next is None or ledgers.is_next_listed:
            return []
        is_tried = self._change is not None and self._change[1] is ledgers.next
        if is_tried and (self._is_unsure or self._list.may_write):
            return []
        unused, ledgers.next = ledgers.next, None
        return [*self._drops.begin(unused.ledger_id)]

    def _on_late_reply(self, event: lm.ListReply) -> list[lm.LeaderEffect]:
        """Drop a created ledger if a reply after the end shows that no attempt can list it."""
        self._drops.end(event.request)
        if not self._list.leave(event) or self._is_unsure:
            return []
        if self._list is not self._opening:
            return self._drop_next()
        return [*self._drops.begin(self._opening.unlisted_ledger)]

    # --- timers and numbers ---

    def _on_timer(self, event: TimerFired) -> list[lm.LeaderEffect]:
        if event.request == self._age.request:
            return self._on_age_timer()
        if self._look.attempts.wake(event.request):
            return self._on_looked(self._look.begin())
        if self._candidacy.attempts.wake(event.request):
            return [*self._candidacy.begin()]
        if self._standing.awaits(event):
            return self._on_standing(event)
        return self._advance() if any(a.wake(event.request) for a in self._attempts) else []

    def _arm_age_timer(self) -> list[lm.LeaderEffect]:
        return [*self._age.arm(self._ledgers.current, self.properties.roll_ms)]

    def _on_age_timer(self) -> list[lm.LeaderEffect]:
        current = self._ledgers.current
        if self._age.end(current) and self.phase is lm.LeaderPhase.LEADING:
            self._ledgers.wants_roll = self._ledgers.wants_roll or current.entries > 0
        return [*self._arm_age_timer(), *self._advance()]

    def _take_token(self) -> str:
        token, self._token = self._token, token_after(self._token, _TOKENS_OF_A_CHANGE)
        return token


_READ = (m.Synced, m.HeadRead, m.PagesRead)
_LIST_REPLIES: tuple[type[lm.ListReply], ...] = (*_READ, m.PagesWritten, m.Written)
_CALLS = (lm.AppendRequested, lm.RollRequested, CloseRequested)
_OF_LEDGERS = (lm.LedgerSealed, lm.CloseAnswered, lm.EntriesConfirmed, lm.LedgerBroken)
_AFTER_THE_END = (TimerFired, lm.HeadChanged, lm.SessionReplaced, lm.CandidatesJoined, lm.GiveUp)
_ALWAYS = (
    *on_each(_LIST_REPLIES, LeaderLog._on_reply),
    on(lm.HeadChanged, LeaderLog._on_head_changed),
    on(lm.SessionReplaced, LeaderLog._on_session_replaced),
    on(lm.CandidatesJoined, LeaderLog._on_joined),
)
_OPENS = (
    on(lm.LedgerSealed, LeaderLog._on_reply),
    on(lm.LedgerCreated, LeaderLog._on_reply),
    *_ALWAYS,
    on(lm.LedgerBroken, LeaderLog._on_broken_early),
    on(TimerFired, LeaderLog._on_open_timer),
    on(lm.GiveUp, LeaderLog._on_opening_given_up),
)
_LEADS = (
    on(lm.CandidateRead, LeaderLog._on_reply),
    *_ALWAYS,
    on(lm.EntriesConfirmed, LeaderLog._on_confirmed),
    on(lm.LedgerBroken, LeaderLog._on_broken),
    on(lm.LedgerCreated, LeaderLog._on_created),
    on(lm.CloseAnswered, LeaderLog._on_close_answered),
    on(TimerFired, LeaderLog._on_timer),
    on(lm.GiveUp, LeaderLog._on_given_up),
)
_LATE = (
    *on_each(_LIST_REPLIES, LeaderLog._on_late_reply),
    on(lm.LedgerCreated, LeaderLog._on_created_too_late),
)

LEADER_TABLE: Table[LeaderLog, lm.LeaderEffect] = {
    lm.LeaderPhase.NEW: row(on(Start, LeaderLog._on_start), refused=_CALLS),
    lm.LeaderPhase.OPENING: row(*_OPENS, refused=_CALLS),
    lm.LeaderPhase.LEADING: row(
        *_LEADS,
        on(lm.AppendRequested, LeaderLog._on_append),
        on(lm.RollRequested, LeaderLog._on_roll_requested),
        on(CloseRequested, LeaderLog._on_close_requested),
    ),
    lm.LeaderPhase.CLOSING: row(*_LEADS, refused=_CALLS),
    # When a leader is closed, only a read of the head may still be without a reply.
    lm.LeaderPhase.CLOSED: row(ignored=(m.Synced, m.HeadRead, *_AFTER_THE_END), refused=_CALLS),
    lm.LeaderPhase.STOPPED: row(
        *_LATE, ignored=(*_OF_LEDGERS, lm.CandidateRead, *_AFTER_THE_END), refused=_CALLS
    ),
}
"""The handler of each event in each phase of a leader."""
LeaderLog.table = LEADER_TABLE
