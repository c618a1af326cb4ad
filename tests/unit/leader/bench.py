"""Leaders of one log, step by step: every request waits until the test answers it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ledgerlog_spark.errors import (
    LedgerFencedError,
    MetadataUnavailableError,
    NotEnoughBookiesError,
)
from ledgerlog_spark.model import NO_ENTRY, LedgerState
from ledgerlog_spark.protocol.leader import messages as lm
from ledgerlog_spark.protocol.leader.leader import LeaderLog
from ledgerlog_spark.protocol.leader.messages import LeaderPhase, LeaderSettings
from ledgerlog_spark.protocol.ledger.messages import MetadataOutcome, Start, StartTimer, TimerFired
from ledgerlog_spark.protocol.log import messages as m
from ledgerlog_spark.protocol.log.claim import claim_of
from ledgerlog_spark.retry import RetryPolicy
from tests.sim.leader.ledgers import Entry, SimLedger
from tests.sim.leader.world import leader_head
from tests.unit.log.log_values import OneLog, token

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ledgerlog_spark.protocol.log.state.records import LogHead

SETTINGS = LeaderSettings(retry=RetryPolicy(first_delay_ms=10, delay_max_ms=40, attempts_max=3))
SESSION_TIMEOUT_MS = 100
APPEND = 100
"""Size of an entry in bytes."""


class Bench:
    """One log, its ledgers, and the processes that lead it.

    Attributes:
        log: The head and the pages.
        ledgers: The ledgers by id, in the order of their creation.
        dropped: The deleted ledgers, in order.
        candidates: The claims of the candidate nodes.
    """

    def __init__(self, properties: Mapping[str, str] | None = None) -> None:
        self.log = OneLog(leader_head(properties or {}))
        self.ledgers: dict[int, SimLedger] = {}
        self.dropped: list[int] = []
        self.candidates: set[str] = set()
        self._processes = 0

    @property
    def head(self) -> LogHead:
        return self.log.head.value

    @property
    def claim(self) -> str:
        return claim_of(self.head)

    @property
    def open_ids(self) -> list[int]:
        return [ledger.ledger_id for ledger in self.head.open_ledgers]

    def process(self) -> Process:
        self._processes += 1
        return Process(self, self._processes)

    def leader(self) -> Process:
        """Return a process that leads the log. All its requests succeed."""
        process = self.process()
        process.start()
        process.settle()
        assert process.machine.phase is LeaderPhase.LEADING, process.said
        return process

    def seal(self, ledger_id: int, keep: int | None = None) -> lm.LedgerEnd:
        """Recover and close a ledger with `count` entries, by default all stored ones."""
        ledger = self.ledgers[ledger_id]
        if ledger.state is not LedgerState.CLOSED:
            kept = len(ledger.stored) if keep is None else keep
            assert ledger.quorum <= kept <= len(ledger.stored)
            ledger.state = LedgerState.CLOSED
            ledger.is_fenced = ledger.is_sealed_by_other = True
            ledger.last_entry_id = kept - 1
        return ledger.end()

    def content(self) -> list[Entry]:
        """All entries of the listed closed ledgers. A gap or a duplicate is an error."""
        found: list[Entry] = []
        offset = self.head.oldest_offset
        for item in self.log.items():
            for entry in self.ledgers[item.ledger_id].entries:
                assert entry.first_offset == offset, f"a gap before {entry}"
                found.append(entry)
                offset = entry.end_offset
        assert offset == self.head.end_offset
        names = [entry.name for entry in found]
        assert len(set(names)) == len(names), f"twice: {names}"
        return found


class Process:
    """A leader, its pending requests, and its indications.

    Attributes:
        machine: The leader.
        waiting: The requests without an answer, oldest first.
        orders: All `AppendEntry` effects.
        said: All indications.
        open_timer: The timer that ends the opening.
        session_id: The session with the store.
    """

    open_timer: StartTimer

    def __init__(self, bench: Bench, number: int) -> None:
        self.bench = bench
        self.number = number
        self.machine = LeaderLog("flights", token=token(number << 64), settings=SETTINGS)
        self.waiting: list[Any] = []
        self.orders: list[lm.AppendEntry] = []
        self.said: list[Any] = []
        self.time_ms = 5_000
        self.session_id = number

    # --- events ---

    def start(self) -> None:
        self.tell(Start())

    def append(self, records: int = 1) -> None:
        self.time_ms += 10
        self.tell(lm.AppendRequested(records, APPEND, self.time_ms))

    def confirm(self, ledger_id: int, count: int | None = None) -> bool:
        """Let entries reach their quorum, and notify the writer. Return False if a fence prevents
        this.

        Args:
            ledger_id: The id of a ledger of this leader.
            count: Number of entries so far that are confirmed; by default all.
        """
        ledger = self.bench.ledgers[ledger_id]
        if ledger.is_fenced:
            return False
        ledger.quorum = ledger.confirmed = len(ledger.stored) if count is None else count
        self.tell(lm.EntriesConfirmed(ledger_id, ledger.confirmed - 1))
        return True

    def break_ledger(self, ledger_id: int, *, is_lost: bool = False) -> None:
        self.bench.ledgers[ledger_id].is_broken = True
        error = LedgerFencedError("fenced") if is_lost else NotEnoughBookiesError("no bookie left")
        self.tell(lm.LedgerBroken(ledger_id, error))

    def tell(self, event: Any) -> None:
        for effect in self.machine.handle(event):
            if isinstance(effect, lm.AppendEntry):
                self._store(effect)
            elif isinstance(effect, StartTimer) and self.machine.phase is LeaderPhase.OPENING:
                self.open_timer = effect
            elif hasattr(effect, "request"):
                self.waiting.append(effect)
            else:
                self.said.append(effect)

    def _store(self, order: lm.AppendEntry) -> None:
        self.orders.append(order)
        ledger = self.bench.ledgers[order.ledger_id]
        if not ledger.is_broken:
            assert order.entry_id == len(ledger.stored)
            name = (self.number, order.append)
            ledger.stored.append(
                Entry(name, order.first_offset, order.records, order.append_time_ms)
            )

    # --- answers ---

    def has(self, kind: type) -> bool:
        return any(isinstance(ask, kind) for ask in self.waiting)

    def take(self, kind: type) -> Any:
        """Take the oldest request of this kind, without an answer."""
        ask = next(ask for ask in self.waiting if isinstance(ask, kind))
        self.waiting.remove(ask)
        return ask

    def answer(self, kind: type) -> None:
        """Carry out the oldest request of this kind, and answer it."""
        self.tell(self.carry_out(self.take(kind)))

    def answer_until(self, kind: type) -> None:
        """Answer requests, oldest first, until one of this kind is pending."""
        while not self.has(kind):
            self.answer(type(self._requests()[0]))

    def answer_until_listing(self) -> None:
        """Answer requests, oldest first, until a change that lists a ledger is pending."""
        while not any(isinstance(ask, m.WriteHead) and ask.listed for ask in self.waiting):
            self.answer(type(self._requests()[0]))

    def settle(self) -> None:
        """Answer everything except timers."""
        while work := self._requests():
            self.answer(type(work[0]))

    def _requests(self) -> list[Any]:
        return [ask for ask in self.waiting if not isinstance(ask, StartTimer)]

    def fire(self, request: int | None = None) -> None:
        """Fire the given timer, or the oldest timer except those for a ledger's age."""
        timers = [ask for ask in self.waiting if isinstance(ask, StartTimer)]
        if request is None:
            timers = [ask for ask in timers if ask.delay_ms < SESSION_TIMEOUT_MS]
        timer = next(ask for ask in timers if request in (None, ask.request))
        self.waiting.remove(timer)
        self.tell(TimerFired(timer.request))

    def lose_reply(self, *, applied: bool) -> None:
        """Lose the reply to the pending write of the head, which happened or not."""
        ask = self.take(m.WriteHead)
        if applied:
            self.carry_out(ask)
        self.tell(m.Written(ask.request, MetadataOutcome.UNKNOWN))

    def fail(self, kind: type) -> None:
        """Let the request of this kind fail with a definite, retriable error."""
        ask = self.take(kind)
        error = MetadataUnavailableError("nobody there")
        reply: Any
        match ask:
            case lm.CreateLedger():
                reply = lm.LedgerCreated(ask.request, error=error)
            case lm.SealLedger():
                reply = lm.LedgerSealed(ask.request, error=error)
            case lm.CloseLedger():
                reply = lm.CloseAnswered(ask.request, error=error)
            case lm.RecoverLedger():
                reply = lm.CloseAnswered(ask.request, error=error)
            case lm.JoinCandidates():
                reply = lm.CandidatesJoined(ask.request, MetadataOutcome.UNAVAILABLE)
            case lm.ReadCandidate():
                reply = lm.CandidateRead(ask.request, MetadataOutcome.UNAVAILABLE)
            case m.Sync():
                reply = m.Synced(ask.request, MetadataOutcome.UNAVAILABLE)
            case _:
                reply = m.Written(ask.request, MetadataOutcome.UNAVAILABLE)
        self.tell(reply)

    def carry_out(self, ask: Any) -> Any:  # noqa: PLR0911 - one for each request
        bench = self.bench
        match ask:
            case lm.CreateLedger():
                ledger_id = 900 - 7 * len(bench.ledgers)
                bench.ledgers[ledger_id] = SimLedger(ledger_id, self.number)
                return lm.LedgerCreated(ask.request, ledger_id)
            case lm.SealLedger():
                end = bench.seal(ask.ledger_id)
                return lm.LedgerSealed(ask.request, end)
            case lm.CloseLedger():
                return self._close(ask)
            case lm.RecoverLedger():
                return self._recover(ask)
            case lm.JoinCandidates() | lm.ReadCandidate():
                return self._reply_of_candidates(ask)
            case m.DropLedger():
                bench.seal(ask.ledger_id)
                bench.dropped.append(ask.ledger_id)
                return m.Written(ask.request, MetadataOutcome.OK)
            case m.WriteHead() if ask.head_version != bench.log.head.version:
                return m.Written(ask.request, MetadataOutcome.CONFLICT)
        return bench.log.reply(ask)

    def _reply_of_candidates(self, ask: lm.JoinCandidates | lm.ReadCandidate) -> Any:
        candidates = self.bench.candidates
        if isinstance(ask, lm.JoinCandidates):
            candidates.add(ask.claim)
            return lm.CandidatesJoined(ask.request, MetadataOutcome.OK)
        session = self.session_id, SESSION_TIMEOUT_MS
        return lm.CandidateRead(ask.request, MetadataOutcome.OK, ask.claim in candidates, *session)

    def _recover(self, ask: lm.RecoverLedger) -> lm.CloseAnswered:
        last = self.bench.seal(ask.ledger_id).last_entry_id
        return lm.CloseAnswered(ask.request, last, APPEND * (last + 1))

    def _close(self, ask: lm.CloseLedger) -> lm.CloseAnswered:
        ledger = self.bench.ledgers[ask.ledger_id]
        if ledger.state is LedgerState.OPEN:
            ledger.state = LedgerState.CLOSED
            ledger.last_entry_id = ledger.confirmed - 1
            ledger.is_fenced = True
        last = ledger.confirmed - 1
        if ledger.last_entry_id != last:
            error = LedgerFencedError("closed by somebody else")
            return lm.CloseAnswered(ask.request, error=error)
        size_bytes = 0 if last == NO_ENTRY else APPEND * (last + 1)
        return lm.CloseAnswered(ask.request, last, size_bytes)

    # --- what was said ---

    def acknowledged(self) -> list[int]:
        """The numbers of acknowledged appends, in order."""
        done: list[int] = []
        for said in self.said:
            if isinstance(said, lm.AppendsAcknowledged):
                done += range(said.first_append, said.last_append + 1)
        return done

    def last_said(self, kind: type) -> Any:
        found = [said for said in self.said if isinstance(said, kind)]
        assert found, f"no {kind.__name__} in {self.said}"
        return found[-1]
