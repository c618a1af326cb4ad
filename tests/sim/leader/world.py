"""One schedule: leaders that duel, truncations, sweepers and readers on one leader log (C1-C8)."""

from __future__ import annotations

import contextlib
import heapq
import itertools
from random import Random
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.errors import LedgerLogError
from ledgerlog_spark.model import LedgerState
from ledgerlog_spark.protocol import log_messages as m
from ledgerlog_spark.protocol.log_codec import decode_page
from ledgerlog_spark.protocol.log_commit_plan import created
from ledgerlog_spark.protocol.log_read import SnapshotMachine, listing_of
from ledgerlog_spark.protocol.log_records import LogContent, LogHead, LogKind
from ledgerlog_spark.protocol.log_sweep import LedgerSweep
from ledgerlog_spark.protocol.log_truncate import TruncateMachine
from ledgerlog_spark.protocol.messages import MetadataOutcome
from tests.sim.leader.leader import SimLeader
from tests.sim.leader.ledgers import SimLedgers
from tests.sim.log.store import Session, SimStore, State
from tests.sim.log.world import Actor, World
from tests.unit.log.log_values import token

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ledgerlog_spark.protocol.leader_messages import LeaderOpened
    from ledgerlog_spark.protocol.log_records import Item, LogSnapshot
    from tests.sim.leader.leader import Append
    from tests.sim.leader.ledgers import Entry, SimLedger

GRACE_MS = 400


def leader_head(properties: Mapping[str, str]) -> LogHead:
    """An empty leader log."""
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
    """Answers every request in the end: a client that never hears anything is one that died.

    Attributes:
        loss: Chance that the reply to a write of the head is lost, on top of what the store loses.
        silence: Factor to the chance that the store cannot be reached for a read.
    """

    loss = 0.0
    silence = 1.0

    def _write(self, session: Session, ask: Any, reply: Callable[[Any], None], delay: int) -> None:
        unknown = self.answer(ask, MetadataOutcome.UNKNOWN)
        if isinstance(ask, m.WriteHead) and self._fails(self.loss):
            late = self.random.choice((0, 0, 30, 200))
            self.later(delay + self.random.randint(0, late), lambda: self._apply(ask) and None)
            self.later(delay, lambda: reply(unknown))
            return
        answered = False

        def once(answer: Any) -> None:
            nonlocal answered
            if not answered:
                answered = True
                reply(answer)

        super()._write(session, ask, once, delay)
        self.later(delay + 25, lambda: once(unknown))

    def _read(self, session: Session, ask: Any, reply: Callable[[Any], None]) -> None:
        if self._fails(0.02 * (self.silence - 1)):
            reply(self.answer(ask, MetadataOutcome.UNAVAILABLE))
            return
        super()._read(session, ask, reply)


class LeaderWorld(World):
    """Virtual time, leaders and their ledgers, and the checks."""

    def __init__(self, seed: int, properties: Mapping[str, str] | None = None) -> None:
        self.seed = seed
        self.now = 1_000
        self.random = Random(seed)
        self.listed_ever: set[int] = set()
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
        self.log: dict[int, Entry] = {}
        """By first offset: every entry that was listed in a closed ledger, or seen by a reader."""

    def leader(self) -> SimLeader:
        leader = SimLeader(self, len(self.leaders))
        self.leaders.append(leader)
        return leader

    def _on_confirmed(self, ledger: SimLedger, last_entry_id: int) -> None:
        from ledgerlog_spark.protocol.leader_messages import EntriesConfirmed

        self.leaders[ledger.writer].tell(EntriesConfirmed(ledger.ledger_id, last_entry_id))

    def _on_broken(self, ledger: SimLedger, is_lost: bool) -> None:
        self.leaders[ledger.writer].notice_broken(ledger, is_lost=is_lost)

    def drop(self, ledger_id: int) -> bool:
        self.require(
            ledger_id not in self.listed_now(self.store.state),
            f"ledger {ledger_id} was deleted while it is listed",
        )
        self.ledgers.drop(ledger_id)
        return True

    @property
    def events(self) -> int:
        """What happened: requests to the store, and entries."""
        sent = sum(len(ledger.stored) for ledger in self.ledgers.by_id.values())
        return int(self.store.events) + sent

    @property
    def faults(self) -> int:
        """What went wrong."""
        return int(self.store.faults + self.ledgers.faults)

    def heal(self) -> None:
        """The end of all faults."""
        self.store.faulty = self.ledgers.faulty = False

    # --- actors ---

    def life(self, leader: SimLeader, appends: int) -> Actor:
        """Open, append, and end somehow."""
        random = self.random
        fate = random.random()
        leader.start()
        for _ in range(200):
            if leader.opened is not None or leader.has_ended:
                break
            yield self.sleep(10)
        for _ in range(appends):
            for _ in range(random.choice((0, 1, 1, 3))):
                leader.append(random.randint(1, 9))
            if random.random() < 0.03:
                leader.roll()
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
            marks = self.store.state.marks.items()
            due = {i: at for i, at in marks if self.now - at >= GRACE_MS}
            with contextlib.suppress(LedgerLogError):
                yield self.drive(session, LedgerSweep("log", due))

    def reader(self) -> Actor:
        """Follows the log from offset 0 on, and says what it sees."""
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
        """Nothing of a later ledger before the earlier one is closed and read to its end."""
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
        """A reader at `position` reads an entry of the log."""
        if entry.end_offset <= position:
            return position
        self.require(
            entry.first_offset <= position,
            f"a reader at {position} finds a gap before {entry.first_offset}",
        )
        self.note(entry)
        return entry.end_offset

    # --- what must always hold ---

    def note(self, entry: Entry) -> None:
        """All see the same (C7)."""
        known = self.log.setdefault(entry.first_offset, entry)
        self.require(known == entry, f"{known} and {entry} are at one offset")

    def items(self, state: State) -> tuple[Item, ...]:
        walk = listing_of(state.head.value)
        while walk.wanted:
            walk.feed(
                [
                    decode_page(page.kind, state.pages[page.ref.token][1][page.ref.number])
                    for page in walk.wanted
                ]
            )
        return walk.records()

    def listed_now(self, state: State) -> set[int]:
        opened = {ledger.ledger_id for ledger in state.head.value.open_ledgers}
        return opened | {item.ledger_id for item in self.items(state)}

    def check_change(self, ask: Any, old: State, new: State) -> None:
        if not isinstance(ask, m.WriteHead):
            return
        before, after = old.head.value, new.head.value
        opened_before = [ledger.ledger_id for ledger in before.open_ledgers]
        opened = [ledger.ledger_id for ledger in after.open_ledgers]
        self.require(after.start_offset >= before.start_offset, "the start moved back")
        self.check_open(opened_before, opened)
        left = [i for i in opened_before if i not in opened]
        self.require(opened_before[: len(left)] == left, f"{left} left from the middle (C1)")
        self.check_left(left, old, new, ask)
        self.check_items(new)
        for item in self.items(new):
            self.require(
                not self.ledgers.by_id[item.ledger_id].is_deleted,
                f"listed ledger {item.ledger_id} was deleted",
            )

    def check_open(self, opened_before: list[int], opened: list[int]) -> None:
        self.require(len(opened) <= 2, f"{opened} are open at once (C4)")
        added = [i for i in opened if i not in opened_before]
        for ledger_id in added:
            ledger = self.ledgers.by_id[ledger_id]
            self.require(ledger_id not in self.listed_ever, f"{ledger_id} is listed again (C1)")
            self.require(not ledger.is_deleted, f"deleted ledger {ledger_id} is listed")
            self.require(not ledger.stored, f"ledger {ledger_id} was used before it was listed")
            self.listed_ever.add(ledger_id)
        self.require(len(added) <= 1, f"{added} are added at once (C1)")
        self.require(opened[len(opened) - len(added) :] == added, f"{opened}: order (C1)")

    def check_left(self, left: list[int], old: State, new: State, ask: m.WriteHead) -> None:
        """What leaves the open ones is closed, and becomes exactly the item that it is (C2, C5)."""
        offset = old.head.value.end_offset
        items = {item.ledger_id: item for item in self.items(new)}
        for ledger_id in left:
            ledger = self.ledgers.by_id[ledger_id]
            self.require(ledger.state is LedgerState.CLOSED, f"{ledger_id} is not closed (C5)")
            end = ledger.end()
            if end.is_empty:
                self.require(ledger_id in ask.unlisted, f"empty ledger {ledger_id} has no mark")
                continue
            item = items.get(ledger_id)
            self.require(item is not None, f"ledger {ledger_id} left the list (C2)")
            assert item is not None
            self.require(item.last_entry_id == end.last_entry_id, f"{item} is not {end} (C2)")
            self.require(item.first_offset == end.first_offset == offset, f"{item}: gap (C3)")
            self.require(item.end_offset == end.end_offset, f"{item} is not {end} (C3)")
            offset = end.end_offset
            for entry in ledger.entries:
                self.note(entry)
        self.require(new.head.value.end_offset == offset, "the end is not that of the list (C3)")

    def check_items(self, state: State) -> None:
        head = state.head.value
        items = self.items(state)
        for first, second in itertools.pairwise(items):
            self.require(first.end_offset == second.first_offset, f"{first} {second}: gap (C3)")
        if head.open_ledgers:
            first_offset = head.open_ledgers[0].first_offset
            self.require(first_offset == head.end_offset, "open ledgers do not follow (C3)")

    def check_opened(self, leader: SimLeader, opened: LeaderOpened) -> None:
        del leader
        self.require(opened.ledger_id in self.listed_ever, "a leader serves unlisted (C6)")

    def check_acknowledged(self, leader: SimLeader, number: int, append: Append) -> None:
        """Its ledger is on the list, and the entry is in it for good (C2, C6)."""
        assert append.place is not None
        ledger_id, entry_id = append.place
        ledger = self.ledgers.by_id[ledger_id]
        self.require(
            ledger_id in self.listed_ever, f"{append} was acknowledged in an unlisted ledger (C6)"
        )
        if ledger.state is LedgerState.CLOSED:
            self.require(
                entry_id <= ledger.last_entry_id, f"{append} was acknowledged and cut off (C2)"
            )
        entry = ledger.stored[entry_id]
        self.require(entry.name == (leader.number, number), f"{append} is not {entry}")
        self.note(entry)

    # --- the end ---

    def check_whole(self) -> None:
        """The log that is left: dense, each append once, acknowledged ones in real-time order."""
        state = self.store.state
        head = state.head.value
        self.require(not head.open_ledgers, "the last leader left ledgers open")
        offset = self.items(state)[0].first_offset if self.items(state) else head.end_offset
        found: dict[tuple[int, int], Entry] = {}
        for item in self.items(state):
            for entry in self.ledgers.by_id[item.ledger_id].entries:
                self.require(entry.first_offset == offset, f"a gap before {entry} (C7)")
                self.require(entry.name not in found, f"{entry} is in the log twice (C7)")
                found[entry.name] = entry
                self.note(entry)
                offset = entry.end_offset
        self.require(offset == head.end_offset, f"the log ends at {offset}, not {head.end_offset}")
        self.check_appends(found, head.oldest_offset)
        self.check_names()
        self.check_order()

    def check_appends(self, found: dict[tuple[int, int], Entry], oldest_offset: int) -> None:
        for leader in self.leaders:
            for number, append in enumerate(leader.appends):
                entry = found.get((leader.number, number))
                if append.is_failed:
                    self.require(entry is None, f"{append} failed for certain, and is there")
                is_kept = append.offset >= oldest_offset
                if append.acknowledged_ms is not None and is_kept:
                    self.require(entry is not None, f"{append} was acknowledged and is lost (C2)")

    def check_names(self) -> None:
        """No append was ever at two offsets, also of what was truncated since (C7)."""
        names = [entry.name for entry in self.log.values()]
        self.require(len(names) == len(set(names)), "an append was in the log twice (C7)")
        times = [self.log[offset].append_time_ms for offset in sorted(self.log)]
        self.require(times == sorted(times), "append times fall")

    def check_order(self) -> None:
        """An append that ended before another began lies before it (C8)."""
        done = [
            append
            for leader in self.leaders
            for append in leader.appends
            if append.acknowledged_ms is not None
        ]
        earliest_end: list[tuple[int, int]] = []
        heapq.heapify(earliest_end)
        by_offset = sorted(done, key=lambda append: -append.offset)
        first_end = None
        for append in by_offset:
            assert append.acknowledged_ms is not None
            if first_end is not None:
                self.require(
                    first_end >= append.started_ms, f"{append} lies before an earlier one (C8)"
                )
            first_end = (
                append.acknowledged_ms
                if first_end is None
                else min(first_end, append.acknowledged_ms)
            )


def drawn_properties(draws: Random) -> dict[str, str]:
    """Small ledgers, short lives, both ways to go on without a bookie."""
    return {
        "rollBytes": str(draws.choice((150, 300, 600, 5_000))),
        "rollMs": str(draws.choice((80, 400, 100_000))),
        "onBookieFailure": draws.choice(("change_ensemble", "roll_ledger")),
    }


def schedule(seed: int) -> LeaderWorld:
    """Run one schedule to its end, then let one more leader open the log undisturbed."""
    world = LeaderWorld(seed, drawn_properties(Random(seed * 31 + 7)))
    world.ledgers.break_chance = world.random.choice((0, 0.01, 0.06))
    play(world)
    return world


def play(world: LeaderWorld) -> None:
    """The actors of a schedule, then one leader alone, and the check of the whole log."""
    random = world.random
    world.store.loss = random.choice((0, 0, 0.3))
    world.store.silence = random.choice((1, 1, 8))
    for _ in range(random.randint(1, 4)):
        world.spawn(
            world.life(world.leader(), random.randint(5, 40)), random.choice((0, 0, 100, 600))
        )
    for _ in range(2):
        world.spawn(world.reader())
    world.spawn(world.truncator())
    world.spawn(world.sweeper())
    world.run()
    world.heal()
    last = world.leader()
    world.spawn(_lead_undisturbed(world, last))
    world.spawn(world.reader())
    world.run()
    world.check_whole()


def _lead_undisturbed(world: LeaderWorld, leader: SimLeader) -> Actor:
    for other in world.leaders[:-1]:
        if not other.is_dead:
            other.die()
    leader.start()
    yield world.sleep(3_000)
    world.require(leader.opened is not None, f"nobody can lead the log: {leader.stopped}")
    for _ in range(5):
        leader.append(3)
        yield world.sleep(30)
    leader.close()
    yield world.sleep(3_000)
    world.require(leader.is_closed, f"the last leader does not end: {leader.stopped}")
