"""Hosts one `LeaderLog` in virtual time. Its events may be late, and its process may pause."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.errors import (
    LeaderDeposedError,
    LedgerFencedError,
    LedgerLogError,
    LedgerNotFoundError,
    LedgerRecoveryError,
    LocalProtocolError,
    LogNotFoundError,
    MetadataUnavailableError,
    NotEnoughBookiesError,
)
from ledgerlog_spark.model import NO_ENTRY
from ledgerlog_spark.protocol.leader import messages as lm
from ledgerlog_spark.protocol.leader.leader import LeaderLog
from ledgerlog_spark.protocol.leader.messages import LeaderPhase, LeaderSettings
from ledgerlog_spark.protocol.ledger.messages import (
    CloseRequested,
    MetadataOutcome,
    Start,
    StartTimer,
    TimerFired,
)
from ledgerlog_spark.protocol.ledger.write.add_pipeline import Window
from ledgerlog_spark.protocol.log.claim import claim_of
from ledgerlog_spark.protocol.log.messages import HeadRead, ReadHead, Sync, WriteHead
from ledgerlog_spark.retry import RetryPolicy
from tests.sim.leader.candidates import SESSION_TIMEOUT_MS
from tests.sim.leader.ledgers import Entry, SimLedger
from tests.sim.leader.openings import OpeningStory
from tests.sim.leader.patience import PatienceStory
from tests.sim.leader.rolls import ENTRY_SIZE_BYTES, RollStory
from tests.sim.liveness import Liveness
from tests.sim.log.store import Session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ledgerlog_spark.protocol.log.read.versions import HeadMachine
    from tests.sim.leader.world import LeaderWorld

SETTINGS = LeaderSettings(
    window=Window(entries_max=6, size_bytes_max=1_000),
    retry=RetryPolicy(first_delay_ms=5, delay_max_ms=100, attempts_max=8),
)


@dataclass
class Append:
    """One append, and the result that its caller got."""

    started_ms: int
    records: int
    offset: int
    acknowledged_ms: int | None = None
    place: tuple[int, int] | None = None
    is_failed: bool = False


class SimLeader:
    """One process that leads the log, or tries to lead it.

    Attributes:
        number: Number of the process.
        appends: The appends, in the numbering of the machine.
        opened: The indication that it leads the log; None before.
        stopped: The indication that it stopped; None before.
        resumed_ms: Time of the end of its last pause.
        session_id: Its session with the store, which holds its candidate node.
        claim: Its claim.
        is_doomed: Whether it dies soon after it has sent its claim.
        doom_ms_max: Maximum time from its claim to its death.
        recoveries: Number of its requests to recover a ledger that was fenced.
        began_at: Number of changes of the store before it began to open the log.
    """

    def __init__(self, world: LeaderWorld, number: int) -> None:
        self.world = world
        self.number = number
        settings = replace(SETTINGS, open_timeout_ms=world.open_timeout_ms)
        self.machine = LeaderLog("log", token=world.new_token(), settings=settings)
        self.opening = OpeningStory(self)
        self.rolls = RollStory(self)
        self.patience = PatienceStory(self, settings.retry)
        self.session = Session()
        self.session_id = world.candidates.new_session()
        self.claim = self.machine._candidacy.claim
        self.appends: list[Append] = []
        self.opened: lm.LeaderOpened | None = None
        self.stopped: lm.LeaderStopped | None = None
        self.is_closed = False
        self.is_dead = False
        self.resumed_ms = 0
        self.mine: list[SimLedger] = []
        self.recoveries = 0
        self.began_at = 0
        self._liveness = Liveness()
        self._open: dict[int, Any] = {}
        self._late = 0
        self._held: list[Any] | None = None
        self._leaves_at = world.drawn_end()
        self.is_doomed = world.happens(world.doom_probability)
        self.doom_ms_max = 60
        self._synced_look: HeadMachine | None = None

    @property
    def has_ended(self) -> bool:
        return self.is_dead or self.is_closed or self.stopped is not None

    @property
    def is_overtaken(self) -> bool:
        """Whether another client claimed the log while this one opened it."""
        stopped = self.stopped
        is_deposed = stopped is not None and isinstance(stopped.error, LeaderDeposedError)
        return is_deposed and self.opened is None

    @property
    def is_free(self) -> bool:
        """Whether it believes that it leads the log, and is not paused."""
        leads = self.machine.phase is LeaderPhase.LEADING
        return leads and self._held is None and not self.is_dead

    @property
    def is_paused(self) -> bool:
        return self._held is not None

    def start(self) -> None:
        self.began_at = len(self.world.store.states) - 1
        self.opening.begin()
        self.post(Start())

    def give_up(self) -> None:
        """Give up the opening, as a caller that stops waiting or a closed client does."""
        if self.has_ended or self.is_paused or self.machine.phase is LeaderPhase.NEW:
            return
        self.opening.give_up()
        self.post(lm.GiveUp(LocalProtocolError("its client was closed", log="log")))
        self.world.require(self.has_ended, f"leader {self.number} goes on after it was given up")

    def leave(self) -> None:
        """Close the client after its leader has ended. Nothing is left to do."""
        if self.is_closed or self.stopped is not None:
            left = lm.GiveUp(LocalProtocolError("its client was closed", log="log"))
            effects = self.machine.handle(left)
            self.world.require(not effects, f"leader {self.number} goes on after its end")

    def append(self, records: int) -> None:
        """Append one entry, if the window has room."""
        if self.is_free and self.machine.can_add:
            offset = self.machine.next_offset
            self.appends.append(Append(self.world.now, records, offset))
            # The store may have another server now, or the server's clock may have been set.
            is_set_back = self.world.ledgers.fails(0.03)
            set_back_ms = self.world.set_back_ms if is_set_back else 0
            now_ms = self.world.now + self.number * 7 - set_back_ms
            self.post(lm.AppendRequested(records, ENTRY_SIZE_BYTES, now_ms))
            self.rolls.append()
            pending = sum(append.acknowledged_ms is None for append in self.appends)
            self.world.require(
                pending <= SETTINGS.window.entries_max, f"{pending} appends of {self.number} wait"
            )

    def close(self) -> None:
        if self.is_free:
            self.post(CloseRequested())

    def roll(self) -> None:
        if self.is_free:
            self.rolls.request()
            self.post(lm.RollRequested())

    def die(self) -> None:
        """Let the process die. Its sent requests may still take effect; it gets no answers."""
        self.is_dead = True
        self.world.ledgers.die(self.number)
        self.world.candidates.end_later(self)

    def pause(self, duration_ms: int) -> None:
        if self._held is None:
            self._held = []
            if duration_ms > SESSION_TIMEOUT_MS:
                self.world.later(SESSION_TIMEOUT_MS, lambda: self.world.candidates.expire(self))
            self.world.later(duration_ms, self._resume)

    def _resume(self) -> None:
        held, self._held = self._held or [], None
        self.resumed_ms = self.world.now
        self._late = len(held)
        for event in held:
            self._late -= 1
            self.post(event)

    def post(self, event: Any) -> None:
        if self.is_dead:
            return
        if (held := self._held) is not None:
            held.append(event)
            return
        self._open.pop(getattr(event, "request", -1), None)
        self.opening.note_event(event)
        self.patience.note_event(event)
        for effect in self.machine.handle(event):
            if (request := getattr(effect, "request", None)) is not None:
                self._open[request] = effect
                self.opening.note_request(effect)
            self._perform(effect)
        if self._held is None and not self._late and not self.is_dead:
            stands = self._liveness.stands_still(self.machine, event, self._open_requests())
            self.world.require(not stands, f"leader {self.number} stands still after {event}")
            self.rolls.check_under_way(self._open_requests())

    def _open_requests(self) -> Iterator[Any]:
        """Yield what may let the machine continue: requests, timers, and adds to be confirmed.

        Some things do not count, because they do not lead to the work that is due: the timer for
        the age of ledgers, the read of a changed head, the renewal of the candidate node, and the
        time limit of an opening that ended.
        """
        look, renewal = self.machine._look, self.machine._candidacy.attempts
        idle = {self.machine._age.request, look.attempts._timer, renewal._timer, renewal.request}
        if self.opened is not None:
            idle.add(self.machine._open_timer)
        for request, effect in self._open.items():
            if request not in idle and not look.awaits(effect):
                yield effect
        for ledger in self.mine:
            if not ledger.is_broken and ledger.confirmed < len(ledger.stored):
                yield ledger

    # --- effects ---

    def _perform(self, effect: Any) -> None:
        if type(effect) is self._leaves_at:
            longest = self.world.extra.choice((3, 40))
            self.world.later(self.world.extra.randint(1, longest), self.give_up)
        match effect:
            case lm.AppendEntry():
                self._order(effect)
            case lm.CreateLedger():
                longest = 400 if self.world.ledgers.fails(0.1) else 15
                delay_ms = self.world.random.randint(1, longest)
                self.world.later(delay_ms, lambda: self._create(effect))
            case lm.SealLedger():
                ledger = self.world.ledgers.by_id[effect.ledger_id]
                self.world.ledgers.seal(ledger, lambda outcome: self._sealed(effect, outcome))
            case lm.CloseLedger():
                self._close(effect)
            case lm.RecoverLedger():
                ledger = self.world.ledgers.by_id[effect.ledger_id]
                self.recoveries += 1
                self.world.ledgers.seal(ledger, lambda outcome: self._recovered(effect, outcome))
            case lm.JoinCandidates() | lm.ReadCandidate():
                self.world.candidates.submit(self, effect, self.post)
            case StartTimer():
                self.patience.waits(effect)
                self.world.later(effect.delay_ms, lambda: self.post(TimerFired(effect.request)))
            case lm.LeaderOpened():
                self.opened = effect
                self.opening.opened()
                self.rolls.begin(effect.head.open_ledgers[-1].ledger_id, self.opening.began_ms)
                self.world.check_opened(self, effect)
            case lm.AppendsAcknowledged():
                self._acknowledge(effect)
            case lm.LeaderClosed():
                self.is_closed = True
                self.world.candidates.end(self)
                self.world.require(
                    all(a.acknowledged_ms is not None for a in self.appends),
                    f"leader {self.number} closed and left appends behind",
                )
            case lm.LeaderStopped():
                self._stop(effect)
            case lm.LedgerRolled():
                self.rolls.rolled(effect)
            case lm.ListChanged():
                self.patience.listed()
            case WriteHead() if self.is_doomed and claim_of(effect.head) == self.claim:
                self.world.later(self.world.extra.randint(1, self.doom_ms_max), self._meet_its_fate)
                self.world.store.submit(self.session, effect, self.post)
            case Sync() if self.machine._look.awaits(effect):
                self._synced_look = self.machine._look.newest
                self.world.store.submit(self.session, effect, self.post)
            case ReadHead() if self._is_missed(effect):
                gone = HeadRead(effect.request, MetadataOutcome.GONE)
                self.world.later(self.world.extra.randint(1, 15), lambda: self.post(gone))
            case _:
                self.world.store.submit(self.session, effect, self.post)

    def _is_missed(self, request: ReadHead) -> bool:
        """Whether a server without the log answers this read; never after a sync."""
        look = self.machine._look
        is_first = look.awaits(request) and look.newest is not self._synced_look
        return is_first and self.world.happens(self.world.behind_probability)

    def _order(self, order: lm.AppendEntry) -> None:
        ledger = self.world.ledgers.by_id[order.ledger_id]
        if not ledger.is_broken:
            self.world.require(
                order.entry_id == len(ledger.stored), f"{order} is not the next entry of {ledger}"
            )
        append = self.appends[order.append]
        self.world.require(append.offset == order.first_offset, f"{order} moved from {append}")
        name = (self.number, order.append)
        entry = Entry(name, order.first_offset, order.records, order.append_time_ms)
        self.world.ledgers.add(ledger, entry)

    def _create(self, request: lm.CreateLedger) -> None:
        ledgers = self.world.ledgers
        if ledgers.fails(0.06 * ledgers.trouble) or ledgers.is_out:
            error = NotEnoughBookiesError("no bookies", wanted=3, available=2)
            self.post(lm.LedgerCreated(request.request, error=error))
            return
        ledger = ledgers.create(self.number)
        self.mine.append(ledger)
        self.world.made_ms[ledger.ledger_id] = self.world.now
        if self.world.happens(self.world.early_break_probability):
            ledgers.fail_writer(ledger)
        self.post(lm.LedgerCreated(request.request, ledger.ledger_id))

    def _sealed(self, request: lm.SealLedger, ledger: SimLedger | None) -> None:
        if ledger is None:
            error = LedgerRecoveryError("too few bookies answered", ledger_id=request.ledger_id)
            self.post(lm.LedgerSealed(request.request, error=error))
        elif ledger.is_deleted:
            gone = LedgerNotFoundError("no such ledger", ledger_id=request.ledger_id)
            self.post(lm.LedgerSealed(request.request, error=gone))
        else:
            self.post(lm.LedgerSealed(request.request, ledger.end()))

    def _meet_its_fate(self) -> None:
        """Die with the claim, unless it leads already."""
        if self.opened is None and not self.has_ended:
            self.die()

    def _recovered(self, request: lm.RecoverLedger, ledger: SimLedger | None) -> None:
        error: LedgerLogError | None = None
        last = NO_ENTRY if ledger is None else ledger.last_entry_id
        if ledger is None:
            error = LedgerRecoveryError("too few bookies answered", ledger_id=request.ledger_id)
        elif ledger.is_deleted:
            error = LedgerNotFoundError("no such ledger", ledger_id=request.ledger_id)
        self.post(lm.CloseAnswered(request.request, last, 100 * (last + 1), error))

    def _close(self, request: lm.CloseLedger) -> None:
        ledger = self.world.ledgers.by_id[request.ledger_id]

        def closed(is_closed: bool | None) -> None:
            error: LedgerLogError | None = None
            if is_closed is None:
                error = MetadataUnavailableError("no answer")
            elif not is_closed:
                error = LedgerFencedError("others recover it")
            last = ledger.last_entry_id
            self.post(lm.CloseAnswered(request.request, last, 100 * (last + 1), error))

        self.world.ledgers.close(ledger, closed)

    # --- indications ---

    def _acknowledge(self, done: lm.AppendsAcknowledged) -> None:
        for number in range(done.first_append, done.last_append + 1):
            append = self.appends[number]
            entry_id = done.last_entry_id - done.last_append + number
            append.acknowledged_ms = self.world.now
            append.place = (done.ledger_id, entry_id)
            self.world.check_acknowledged(self, number, append)

    def _stop(self, stopped: lm.LeaderStopped) -> None:
        self.stopped = stopped
        self.world.candidates.end(self)
        self.patience.stopped(stopped.error)
        is_gone = isinstance(stopped.error, LogNotFoundError)
        self.world.require(
            not is_gone or self.world.deleted_ms is not None,
            f"leader {self.number} misses a log that is there: {stopped.error!r}",
        )
        if self.opened is None:
            self.opening.failed(stopped.error)
        for number, append in enumerate(self.appends):
            if append.acknowledged_ms is None:
                append.is_failed = number >= stopped.first_unsent_append
            else:
                self.world.require(
                    append.offset + append.records <= stopped.end_offset,
                    f"{stopped} does not count {append} as safe",
                )
        has_rival = self.world.has_rival_claim(self)
        self.world.require(
            has_rival or not isinstance(stopped.error, LeaderDeposedError),
            f"leader {self.number} was deposed by nobody: {stopped.error}",
        )
        first_unknown = stopped.first_unknown_append
        unknown = [n for n, a in enumerate(self.appends) if a.acknowledged_ms is None]
        if first_unknown is not None:
            self.world.require(unknown[0] == first_unknown, f"{stopped}: {unknown} are unknown")

    def notice_broken(self, ledger: SimLedger, *, is_lost: bool) -> None:
        """Handle a failure of the writer of one of its ledgers."""
        error = LedgerFencedError("fenced") if is_lost else NotEnoughBookiesError("a bookie failed")
        self.post(lm.LedgerBroken(ledger.ledger_id, error))
