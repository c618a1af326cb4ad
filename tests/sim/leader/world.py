"""One schedule: rival leaders, truncations, sweepers and readers of one leader log."""

from __future__ import annotations

import contextlib
import itertools
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from ledgerlog_spark.errors import LedgerLogError
from ledgerlog_spark.model import LedgerState
from ledgerlog_spark.protocol.leader.messages import (
    CloseLedger,
    CreateLedger,
    HeadChanged,
    LeaderPhase,
)
from ledgerlog_spark.protocol.ledger.messages import MetadataOutcome
from ledgerlog_spark.protocol.log import messages as m
from ledgerlog_spark.protocol.log.change.truncate import TruncateMachine
from ledgerlog_spark.protocol.log.claim import claim_of
from ledgerlog_spark.protocol.log.commit.plan import created
from ledgerlog_spark.protocol.log.read.versions import SnapshotMachine
from ledgerlog_spark.protocol.log.state.records import LogContent, LogHead, LogKind
from ledgerlog_spark.protocol.log.sweep import LedgerSweep, PagesSweep
from tests.sim.leader.candidates import SimCandidates
from tests.sim.leader.checks import LeaderChecks
from tests.sim.leader.leader import SimLeader
from tests.sim.leader.ledgers import SimLedgers
from tests.sim.leader.takeover import lead_and_be_replaced
from tests.sim.log.checks import Violation
from tests.sim.log.store import Session, SimStore, State
from tests.sim.log.world import Actor, World
from tests.unit.log.log_values import token

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ledgerlog_spark.protocol.leader.messages import LeaderOpened
    from ledgerlog_spark.protocol.log.state.records import LogSnapshot
    from tests.sim.leader.leader import Append
    from tests.sim.leader.ledgers import Entry, SimLedger

GRACE_MS = 400
LEFT_AT = (CreateLedger, CloseLedger, m.DropLedger, m.ReadHead, m.ReadPages, m.WriteHead)
WATCH_MS_MAX = 30
"""Maximum time from a change of the head to the notification of a leader."""


def leader_head(properties: Mapping[str, str]) -> LogHead:
    """Return the head of an empty leader log."""
    head, _ = created(
        log_id=token(1),
        name="log",
        kind=LogKind.LEADER,
        content=LogContent.RECORDS,
        now_ms=1_000,
        token=token(1),
        properties=properties,
    )
    return head


class LeaderStore(SimStore):
    """A store that answers every request at some time. Only a dead client gets no answer.

    Attributes:
        loss: Additional probability that the reply to a write of the head is lost.
        silence: Factor of the probability that a read cannot reach the store.
    """

    loss = 0.0
    silence = 1.0
    still_until = 0
    """Time before which it answers no request. It carries the requests out at this time."""
    out_until = 0
    """Time before which all requests fail immediately, because the store cannot be reached."""
    late_ms = 0
    """Maximum delay of the answer to a read, which may come after news of later changes."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.extra = Random(0)
        self.claimed: set[int] = set()
        """Ledgers that the sweeper has claimed, so that they cannot be listed."""

    def submit(self, session: Session, request: Any, reply: Callable[[Any], None]) -> None:
        still_ms = self.still_until - self.now_ms()
        if self.out_until > self.now_ms():
            self.faults += 1
            self.later(3, lambda: reply(self.answer(request, MetadataOutcome.UNAVAILABLE)))
            return
        if self.late_ms and isinstance(request, m.ReadHead):
            reply = self._late(reply)
        if still_ms <= 0:
            super().submit(session, request, reply)
            return
        self.faults += 1
        submit = super().submit
        self.later(still_ms, lambda: submit(session, request, reply))

    def _late(self, reply: Callable[[Any], None]) -> Callable[[Any], None]:
        return lambda answer: self.later(self.extra.randint(0, self.late_ms), lambda: reply(answer))

    def _never_answer(self) -> None:
        """Do nothing: the answer of `_write` comes in any case."""

    def _apply(self, request: Any) -> Any:
        is_claimed = isinstance(request, m.WriteHead) and not self.claimed.isdisjoint(
            request.listed
        )
        if is_claimed and request.head_version == self.state.head.version:
            return self.answer(request, MetadataOutcome.GONE)
        return super()._apply(request)

    def _write(
        self, session: Session, request: Any, reply: Callable[[Any], None], delay: int
    ) -> None:
        unknown = self.answer(request, MetadataOutcome.UNKNOWN)
        if isinstance(request, m.WriteHead) and self._fails(self.loss):
            late = self.random.choice((0, 0, 30, 200))
            self.later(delay + self.random.randint(0, late), lambda: self._apply(request) and None)
            self.later(delay, lambda: reply(unknown))
            return
        answered = False

        def once(answer: Any) -> None:
            nonlocal answered
            if not answered:
                answered = True
                reply(answer)

        super()._write(session, request, once, delay)
        self.later(delay + 25, lambda: once(unknown))

    def _read(self, session: Session, request: Any, reply: Callable[[Any], None]) -> None:
        if self._fails(0.02 * (self.silence - 1)):
            reply(self.answer(request, MetadataOutcome.UNAVAILABLE))
            return
        super()._read(session, request, reply)


class LeaderWorld(World):
    """Virtual time, leaders and their ledgers, and the checks.

    Attributes:
        open_timeout_ms: Time limit of each opening.
        give_up_probability: Probability that a caller gives up an opening, or that the client of a
            leader is closed.
        staging_ttl_ms: Time after which the sweeper deletes a ledger that was not listed.
        set_back_ms: Maximum time by which the clock for append times is set back.
        leave_probability: Probability that a leader is given up while a request of one kind runs.
        early_break_probability: Probability that a writer fails before its leader has the ledger.
        behind_probability: Probability that a server without the log answers a leader's read.
        doom_probability: Probability that a client dies soon after it has sent its claim.
        deleted_ms: Time of the deletion of the log; None while it exists.
        extra: Random numbers for situations of only some schedules. They are separate, so that the
            other random numbers stay the same.
    """

    open_timeout_ms = 120_000
    give_up_probability = 0.0
    staging_ttl_ms = 604_800_000
    set_back_ms = 40
    leave_probability = 0.0
    early_break_probability = 0.0
    behind_probability = 0.0
    doom_probability = 0.0
    deleted_ms: int | None = None

    def __init__(self, seed: int, properties: Mapping[str, str] | None = None) -> None:
        self.seed = seed
        self.now = 1_000
        self.random = Random(seed)
        self.extra = Random(seed * 67 + 11)
        self.checks: Any = LeaderChecks(self)
        self._running: dict[Actor, None] = {}
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self.store: Any = LeaderStore(
            leader_head(properties or {}),
            self.random,
            self.later,
            lambda: self.now,
            self.check_change,
            self.drop,
        )
        self.ledgers: Any = SimLedgers(
            self.random, self.later, lambda: self.now, self._on_confirmed, self._on_broken
        )
        self.leaders: list[SimLeader] = []
        self.candidates = SimCandidates(self)
        self.made_ms: dict[int, int] = {}
        """Creation time of each ledger that was not listed, deleted or claimed later."""

    def leader(self) -> SimLeader:
        leader = SimLeader(self, len(self.leaders))
        self.leaders.append(leader)
        return leader

    def _on_confirmed(self, ledger: SimLedger, last_entry_id: int) -> None:
        from ledgerlog_spark.protocol.leader.messages import EntriesConfirmed

        self.leaders[ledger.writer].post(EntriesConfirmed(ledger.ledger_id, last_entry_id))

    def _on_broken(self, ledger: SimLedger, is_lost: bool) -> None:
        self.leaders[ledger.writer].notice_broken(ledger, is_lost=is_lost)

    def drop(self, ledger_id: int) -> bool:
        self.require(
            ledger_id not in self.checks.listed_now(self.store.state),
            f"ledger {ledger_id} was deleted while it is listed",
        )
        self.ledgers.drop(ledger_id)
        return True

    @property
    def events(self) -> int:
        """The number of events: requests to the store, and entries."""
        sent = sum(len(ledger.stored) for ledger in self.ledgers.by_id.values())
        return int(self.store.events) + sent

    @property
    def faults(self) -> int:
        """The number of faults."""
        return int(self.store.faults + self.ledgers.faults)

    def heal(self) -> None:
        """End all faults."""
        self.store.faulty = self.ledgers.faulty = False
        self.store.still_until = self.ledgers.still_until = 0
        self.store.out_until = self.ledgers.out_until = 0
        self.leave_probability = self.early_break_probability = self.behind_probability = 0.0
        self.doom_probability = 0.0

    def happens(self, probability: float) -> bool:
        """Decide whether a situation of only some schedules happens."""
        return probability > 0 and self.extra.random() < probability

    def drawn_end(self) -> type | None:
        """Return the kind of request at which a leader is given up; None for no such end."""
        return self.extra.choice(LEFT_AT) if self.happens(self.leave_probability) else None

    # --- actors ---

    def life(self, leader: SimLeader, appends: int) -> Actor:
        """Open a leader, append, and end in one of several ways; then close the client."""
        yield from self._leadership(leader, appends)
        leader.leave()

    def _leadership(self, leader: SimLeader, appends: int) -> Actor:
        random = self.random
        fate = random.random()
        leader.start()
        if random.random() < self.give_up_probability:
            self.later(random.randint(1, random.choice((250, 1_500))), leader.give_up)
        for _ in range(200):
            if leader.opened is not None or leader.has_ended:
                break
            yield self.sleep(10)
        for _ in range(appends):
            for _ in range(random.choice((0, 1, 1, 3))):
                leader.append(random.randint(1, 9))
            if random.random() < 0.08:
                leader.roll()
                leader.append(1)
            if fate < 0.3 and random.random() < 0.05:
                leader.pause(random.choice((30, 150, 600)))
            if leader.has_ended:
                return
            yield self.sleep(random.randint(1, 60))
        if fate < 0.5:
            leader.die()
            return
        for _ in range(100):
            leader.close()
            yield self.sleep(200)
            if leader.has_ended:
                return
        self.require(leader.has_ended, f"leader {leader.number} hangs")

    def standstill(self) -> Actor:
        """Let the store, the bookies, or both answer no request for a while."""
        yield self.sleep(self.random.randint(1, 1_500))
        until = self.now + self.random.choice((200, 1_200, 4_000))
        which = self.random.choice(("store", "bookies", "both"))
        if which != "bookies":
            self.store.still_until = until
        if which != "store":
            self.ledgers.still_until = until

    def outage(self) -> Actor:
        """Let the store, the bookies, or both be unreachable for a while."""
        extra = self.extra
        for _ in range(2):
            yield self.sleep(extra.randint(1, 1_000))
            until = self.now + extra.choice((50, 300, 900))
            which = extra.choice(("store", "bookies", "both"))
            if which != "bookies":
                self.store.out_until = until
            if which != "store":
                self.ledgers.out_until = until

    def healer(self) -> Actor:
        """Fence, recover and close open ledgers of the list, as an auto-recovery does."""
        extra = self.extra
        for _ in range(extra.randint(1, 12)):
            yield self.sleep(extra.randint(1, 300))
            self.recover_one()

    def recover_one(self) -> None:
        """Begin to recover a ledger of the list that may be in use."""
        listed = self.store.state.head.value.open_ledgers
        if listed:
            ledger = self.ledgers.by_id[self.extra.choice(listed).ledger_id]
            self.ledgers.seal(ledger, lambda _: None)

    def expirer(self) -> Actor:
        """Let the sessions of leaders expire."""
        for _ in range(self.extra.randint(1, 10)):
            yield self.sleep(self.extra.randint(1, 300))
            if self.leaders:
                self.candidates.expire(self.extra.choice(self.leaders))

    def truncator(self) -> Actor:
        session = Session()
        for _ in range(self.random.randint(1, 6)):
            yield self.sleep(self.random.randint(50, 500))
            head = self.store.state.head.value
            offset = self.random.randint(head.start_offset, head.end_offset)
            machine = TruncateMachine("log", offset=offset, token=self.new_token())
            with contextlib.suppress(LedgerLogError):
                yield self.drive(session, machine)

    def sweeper(self) -> Actor:
        session = Session()
        for _ in range(8):
            yield self.sleep(self.random.randint(50, 400))
            self.sweep_unlisted()
            marks = self.store.state.marks.items()
            due = {i: at for i, at in marks if self.now - at >= GRACE_MS}
            tokens = tuple(sorted(self.store.state.pages))
            for sweep in (LedgerSweep("log", due), PagesSweep("log", tokens)):
                with contextlib.suppress(LedgerLogError):
                    yield self.drive(session, sweep)

    def sweep_unlisted(self) -> None:
        """Delete the ledgers claimed by the last pass; claim old unlisted ledgers (LOGS.md#W11)."""
        if self.store.still_until > self.now:
            return
        for ledger_id in sorted(self.store.claimed):
            if not self.ledgers.by_id[ledger_id].is_deleted:
                self.drop(ledger_id)
        for ledger_id, made_ms in list(self.made_ms.items()):
            is_gone = self.ledgers.by_id[ledger_id].is_deleted
            is_due = self.now - made_ms > self.staging_ttl_ms
            if is_due or is_gone or ledger_id in self.checks.listed_ever:
                del self.made_ms[ledger_id]
            if is_due and not is_gone and ledger_id not in self.checks.listed_ever:
                self.store.claimed.add(ledger_id)

    def reader(self) -> Actor:
        """Follow the log from offset 0 on, and check what is read."""
        session = Session()
        position = 0
        for _ in range(25):
            yield self.sleep(self.random.randint(5, 120))
            try:
                snapshot: LogSnapshot = yield self.drive(session, SnapshotMachine("log"))
            except LedgerLogError:
                continue
            position = max(position, snapshot.interval.start_offset)
            position = self.read_items(snapshot, position)
            position = self.read_open(snapshot, position)

    def read_items(self, snapshot: LogSnapshot, position: int) -> int:
        for item in snapshot.items:
            if item.end_offset <= position:
                continue
            ledger = self.ledgers.by_id[item.ledger_id]
            if ledger.is_deleted:
                start: int = self.store.state.head.value.start_offset
                self.require(start >= item.end_offset, f"listed ledger {item.ledger_id} is gone")
                return max(position, start)
            for entry in ledger.entries:
                position = self.see(entry, position)
        return position

    def read_open(self, snapshot: LogSnapshot, position: int) -> int:
        """Read open ledgers. A later ledger is read only after the end of the earlier one."""
        if position < snapshot.interval.end_offset:
            return position
        for open_ledger in snapshot.open_ledgers:
            ledger = self.ledgers.by_id[open_ledger.ledger_id]
            if ledger.is_deleted:
                break
            for entry in ledger.stored[: ledger.readable]:
                position = self.see(entry, position)
            if ledger.state is not LedgerState.CLOSED:
                break
        return position

    def see(self, entry: Entry, position: int) -> int:
        """Check an entry that a reader at `position` reads, and return the next position."""
        if entry.end_offset <= position:
            return position
        self.require(
            entry.first_offset <= position,
            f"a reader at {position} finds a gap before {entry.first_offset}",
        )
        self.checks.note(entry)
        return entry.end_offset

    # --- what must always hold ---

    def check_change(self, request: Any, old: State, new: State) -> None:
        self.checks.change(request, old, new)
        if not isinstance(request, m.WriteHead):
            return
        self._check_added(old, new)
        seen = len(self.store.states) - 1
        for leader in self.leaders:
            delay_ms = self.random.randint(0, WATCH_MS_MAX)
            self.later(delay_ms, partial(self._notify, leader, seen))

    def has_rival_claim(self, leader: SimLeader) -> bool:
        """Whether another client claimed the log after this leader began to open it."""
        claims = [claim_of(state.head.value) for state in self.store.states[leader.began_at :]]
        changed = [after for before, after in itertools.pairwise(claims) if before != after]
        return any(claim != leader.claim for claim in changed)

    @property
    def claimed_back(self) -> int:
        """Number of times that a leader stored its claim again, in place of a dead client's."""
        claims = [claim_of(state.head.value) for state in self.store.states]
        changed = [after for before, after in itertools.pairwise(claims) if before != after]
        return len(changed) - len(set(changed))

    def _check_added(self, old: State, new: State) -> None:
        """Check that a leader with a definite error is not put on the list later.

        Also check that a client that takes over has the claim (LOGS.md#M9).
        """
        before = old.head.value.open_ledgers
        makers = {self.ledgers.by_id[ledger.ledger_id].writer for ledger in before}
        for ledger in new.head.value.open_ledgers:
            maker = self.leaders[self.ledgers.by_id[ledger.ledger_id].writer]
            is_new = all(ledger.ledger_id != other.ledger_id for other in before)
            self.require(
                not (is_new and maker.opening.denies),
                f"leader {maker.number} did not lead for certain, and is on the list",
            )
            self.require(
                not is_new
                or maker.number in makers
                or claim_of(old.head.value) == maker.claim == claim_of(new.head.value),
                f"leader {maker.number} takes over without a claim (LOGS.md#M9)",
            )

    def _notify(self, leader: SimLeader, seen: int) -> None:
        """Notify a leader of a change of the head. Its next read is at least as new."""
        leader.session.seen = max(leader.session.seen, seen)
        if leader.machine.phase is not LeaderPhase.NEW:
            leader.post(HeadChanged())

    def check_opened(self, leader: SimLeader, opened: LeaderOpened) -> None:
        del leader
        ledger_id = opened.head.open_ledgers[-1].ledger_id
        self.require(ledger_id in self.checks.listed_ever, "a leader serves unlisted (LOGS.md#M6)")

    def check_acknowledged(self, leader: SimLeader, number: int, append: Append) -> None:
        """Check that the ledger of an acknowledged append is listed, and the entry is permanent.

        See LOGS.md#M2 and LOGS.md#M6.
        """
        assert append.place is not None
        ledger_id, entry_id = append.place
        ledger = self.ledgers.by_id[ledger_id]
        self.require(
            ledger_id in self.checks.listed_ever,
            f"{append} was acknowledged in an unlisted ledger (LOGS.md#M6)",
        )
        if ledger.state is LedgerState.CLOSED:
            self.require(
                entry_id <= ledger.last_entry_id,
                f"{append} was acknowledged and cut off (LOGS.md#M2)",
            )
        entry = ledger.stored[entry_id]
        self.require(entry.name == (leader.number, number), f"{append} is not {entry}")
        self.checks.note(entry)

    # --- the end ---

    def check_whole(self) -> None:
        """Check the final log: no gaps, no append twice, acknowledged ones in real-time order."""
        state = self.store.state
        self.check_appends(self.checks.whole(state), state.head.value.oldest_offset)
        self.checks.order(append for leader in self.leaders for append in leader.appends)

    def check_appends(self, found: dict[tuple[int, int], Entry], oldest_offset: int) -> None:
        for leader in self.leaders:
            for number, append in enumerate(leader.appends):
                entry = found.get((leader.number, number))
                if append.is_failed:
                    self.require(entry is None, f"{append} failed for certain, and is there")
                is_kept = append.offset >= oldest_offset
                if append.acknowledged_ms is not None and is_kept:
                    self.require(
                        entry is not None, f"{append} was acknowledged and is lost (LOGS.md#M2)"
                    )


def drawn_properties(draws: Random) -> dict[str, str]:
    """Return random properties: small, short-lived ledgers, with or without ensemble changes."""
    return {
        "rollBytes": str(draws.choice((150, 300, 600, 5_000))),
        "rollMs": str(draws.choice((80, 400, 100_000))),
        "onBookieFailure": draws.choice(("change_ensemble", "roll_ledger")),
    }


def schedule(seed: int) -> LeaderWorld:
    """Run one schedule to its end, and then two more leaders without faults."""
    world = LeaderWorld(seed, drawn_properties(Random(seed * 31 + 7)))
    world.ledgers.break_probability = world.random.choice((0, 0.01, 0.06))
    world.ledgers.trouble = world.random.choice((1, 6))
    world.give_up_probability = world.random.choice((0, 0.15))
    world.staging_ttl_ms = Random(seed * 53 + 5).choice((20, *3 * (LeaderWorld.staging_ttl_ms,)))
    if world.random.random() < 0.25:
        world.open_timeout_ms = world.random.choice((400, 1_500))
        world.spawn(world.standstill())
    draw_extras(world)
    play_out(world, play)
    return world


def draw_extras(world: LeaderWorld) -> None:
    """Draw the situations that only some schedules have."""
    extra = world.extra
    world.set_back_ms = extra.choice((40, 40, 2_000))
    world.leave_probability = extra.choice((0, 0, 0.3))
    world.early_break_probability = extra.choice((0, 0, 0.1))
    world.behind_probability = extra.choice((0, 0, 0.1))
    world.doom_probability = extra.choice((0, 0, 0.2))
    if extra.random() < 0.2:
        world.spawn(world.outage())
    if extra.random() < 0.5:
        world.spawn(world.healer())
    if extra.random() < 0.3:
        world.spawn(world.expirer())


Played = TypeVar("Played", bound=LeaderWorld)


def play_out(world: Played, work: Callable[[Played], None]) -> None:
    """Run `work`. Any error is a violation of this seed."""
    try:
        work(world)
    except Violation:
        raise
    except Exception as error:
        raise world.violation(repr(error)) from error


def play(world: LeaderWorld) -> None:
    """Run the actors of a schedule, then two leaders without faults, then check the whole log."""
    random = world.random
    world.store.loss = random.choice((0, 0, 0.3))
    world.store.silence = random.choice((1, 1, 8))
    for _ in range(random.randint(1, 4)):
        world.spawn(
            world.life(world.leader(), random.randint(5, 40)), random.choice((0, 100, 600, 1_200))
        )
    for _ in range(2):
        world.spawn(world.reader())
    world.spawn(world.truncator())
    world.spawn(world.sweeper())
    world.run()
    for leader in world.leaders:
        if not leader.is_dead:
            leader.opening.check_left()
    world.heal()
    world.open_timeout_ms = LeaderWorld.open_timeout_ms
    world.spawn(lead_and_be_replaced(world, world.leader(), world.leader()))
    world.spawn(world.reader())
    world.run()
    world.check_whole()
