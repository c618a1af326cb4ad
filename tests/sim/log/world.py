"""One schedule: producers, zombies, sweepers and sealers on one log, and what must always hold."""

from __future__ import annotations

import contextlib
import heapq
import itertools
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.errors import LedgerLogError, MetadataUnavailableError, NeedsOperatorError
from ledgerlog_spark.protocol import log_messages as m
from ledgerlog_spark.protocol import log_seal
from ledgerlog_spark.protocol.log_changes import CommitRequest
from ledgerlog_spark.protocol.log_codec import decode_page
from ledgerlog_spark.protocol.log_commit import CommitMachine, CommitStatus
from ledgerlog_spark.protocol.log_epoch import EpochMachine, JobKind
from ledgerlog_spark.protocol.log_expiry import ExpiryMachine
from ledgerlog_spark.protocol.log_read import ListingMachine, SnapshotMachine
from ledgerlog_spark.protocol.log_records import StagedRange, WriteMode
from ledgerlog_spark.protocol.log_rows import HISTORY, ITEMS, SCHEMAS
from ledgerlog_spark.protocol.log_sweep import LedgerSweep, PagesSweep, StagedSweep
from ledgerlog_spark.protocol.log_walk import Walk
from ledgerlog_spark.protocol.messages import MetadataOutcome as Outcome
from tests.sim.log.store import Register, Session, SimStore, State
from tests.unit.log.log_values import new_head, token

if TYPE_CHECKING:
    from ledgerlog_spark.protocol.log_known import KnownLog
    from ledgerlog_spark.protocol.log_machine import LogMachine
    from ledgerlog_spark.protocol.log_records import Item

STAGING_TTL_MS = 300
GRACE_MS = 300
RETENTION_MS = 400
EVENTS_MAX = 20_000
Actor = Generator[Any, Any, None]


class Violation(AssertionError):  # noqa: N818 (it is no error of ours to handle)
    """Something that must never be, with the seed that shows it."""


@dataclass
class Ledger:
    """What became of one ledger; entries 1..`last` are on their ack quorum."""

    app: str
    batch_id: int
    run: str
    last: int
    sealed_at: int | None = None
    is_deleted: bool = False


@dataclass
class Attempt:
    """One job's commit, and what its caller was told."""

    app: str
    batch_id: int
    run: str
    ledger_ids: tuple[int, ...]
    said_unknown: bool = False
    said_committed: bool = False
    said_failed: bool = False


@dataclass
class World:
    """Virtual time, actors, and the checks."""

    seed: int
    random: Random = field(init=False)
    now: int = 1_000
    ledgers: dict[int, Ledger] = field(default_factory=dict)
    attempts: list[Attempt] = field(default_factory=list)
    committed: dict[tuple[str, int], int] = field(default_factory=dict)
    listed_ever: set[int] = field(default_factory=set)
    last_batch: dict[str, int] = field(default_factory=dict)
    known: dict[str, KnownLog] = field(default_factory=dict)
    """What some commit of an app left, which its later commits may start from."""

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._numbers = itertools.count(1)
        head, _ = new_head()
        self.store = SimStore(
            head, self.random, self.later, lambda: self.now, self.check_change, self.drop
        )

    def later(self, delay_ms: int, call: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (self.now + delay_ms, next(self._order), call))

    def spawn(self, actor: Actor, after_ms: int = 0) -> None:
        self.later(after_ms, lambda: self._step(actor, None, None))

    def _step(self, actor: Actor, value: Any, error: BaseException | None) -> None:
        try:
            wanted = actor.throw(error) if error else actor.send(value)
        except StopIteration:
            return
        wanted(lambda value, error=None: self._step(actor, value, error))

    def run(self) -> None:
        for _ in range(EVENTS_MAX):
            if not self._queue:
                return
            self.now, _, call = heapq.heappop(self._queue)
            call()
        raise self.violation("the schedule does not end")

    # --- what actors yield ---

    def sleep(self, ms: int) -> Callable[[Any], None]:
        return lambda resume: self.later(ms, lambda: resume(None))

    def drive(self, session: Session, machine: LogMachine) -> Callable[[Any], None]:
        def begin(resume: Any) -> None:
            def go(effects: list[Any]) -> None:
                (effect,) = effects
                if isinstance(effect, m.Finished):
                    resume(effect.result)
                elif isinstance(effect, m.Failed):
                    resume(None, effect.error)
                else:
                    answer = lambda reply: go(machine.handle(reply))  # noqa: E731
                    self.store.submit(session, effect, answer)

            go(machine.start())

        return begin

    def ask(self, session: Session, request: Any) -> Callable[[Any], None]:
        return lambda resume: self.store.submit(session, request, resume)

    def new_token(self) -> str:
        return token(self.random.getrandbits(100) << 16)

    # --- actors ---

    def job(self, app: str, batch_id: int, run: str, mode: WriteMode, kind: JobKind) -> Actor:
        """Begin, write, commit, and commit again when the outcome was unknown."""
        session = Session()
        planned = self.store.state.head.value.version
        ranges: list[StagedRange] = []
        wanted = self.random.randint(1, 4)
        try:
            while len(ranges) < wanted:
                staged = yield from self.staged_range(session, app, batch_id, run, kind)
                ranges.append(staged)
        except LedgerLogError:
            return
        if self.random.random() < 0.3:
            yield self.sleep(self.random.randint(50, 600))
        request = CommitRequest(
            app=app,
            run=run,
            batch_id=batch_id,
            ranges=tuple(ranges),
            mode=mode,
            planned_version=planned,
            overwrite_if_changed=self.random.random() < 0.5,
        )
        attempt = Attempt(app, batch_id, run, tuple(r.ledger_id for r in ranges))
        self.attempts.append(attempt)
        for _ in range(3):
            known = self.known.get(app) if self.random.random() < 0.7 else None
            machine = CommitMachine(
                "log", request, token=self.new_token(), known=known, now_ms=self.now
            )
            try:
                result = yield self.drive(session, machine)
            except LedgerLogError as error:
                if not error.definite:
                    attempt.said_unknown = True
                    continue
                # Unavailable speaks of this call alone: an earlier one may have got through.
                is_silent = isinstance(error, MetadataUnavailableError)
                if not (is_silent and (attempt.said_unknown or attempt.said_committed)):
                    attempt.said_failed = True
                    self.check_failed(attempt)
                return
            attempt.said_committed = True
            self.check_reported(attempt, result)
            if machine.known_after is not None and self.random.random() < 0.8:
                self.known[app] = machine.known_after
            if self.random.random() < 0.2:
                continue  # as after a driver that died behind its commit
            return

    def staged_range(
        self, session: Session, app: str, batch_id: int, run: str, kind: JobKind
    ) -> Generator[Any, Any, StagedRange]:
        while True:
            machine = EpochMachine(
                "log",
                app=app,
                run=run,
                batch_id=batch_id,
                kind=kind,
                syncs_first=self.random.random() < 0.5,
            )
            joined = yield self.drive(session, machine)
            ledger_id = next(self._numbers)
            written = yield self.ask(session, Register(0, app, joined.version, ledger_id))
            if written.outcome is Outcome.OK:
                break
        last = self.random.randint(1, 9)
        self.ledgers[ledger_id] = Ledger(app, batch_id, run, last)
        yield self.sleep(self.random.randint(1, 40))
        return StagedRange(ledger_id, 1, last, -1, rows=last * 10, size_bytes=last * 100)

    def sweeper(self) -> Actor:
        session = Session()
        for _ in range(self.random.randint(2, 6)):
            yield self.sleep(self.random.randint(20, 300))
            state = self.store.state
            sweeps: list[LogMachine] = [
                ExpiryMachine("log", version_retention_ms=RETENTION_MS, token=self.new_token()),
                PagesSweep("log", tuple(sorted(state.pages))),
                LedgerSweep("log", self.due()),
            ]
            sweeps += [
                StagedSweep("log", app=app, staging_ttl_ms=STAGING_TTL_MS)
                for app in sorted(state.producers)
            ]
            self.random.shuffle(sweeps)
            for machine in sweeps:
                try:
                    yield self.drive(session, machine)
                except LedgerLogError:
                    continue

    def pages_sweeper(self) -> Actor:
        """Sweeps pages all the time, also those of commits that are on their way."""
        session = Session()
        for _ in range(12):
            yield self.sleep(self.random.randint(10, 150))
            tokens = tuple(sorted(self.store.state.pages))
            with contextlib.suppress(LedgerLogError):
                yield self.drive(session, PagesSweep("log", tokens))

    def due(self) -> tuple[int, ...]:
        marks = sorted(self.store.state.marks.items())
        return tuple(i for i, at in marks if self.now - at >= GRACE_MS or i not in self.listed_ever)

    def sealer(self) -> Actor:
        """Seals ledgers although bookies are missing, so that less than all may be found."""
        session = Session()
        for _ in range(3):
            yield self.sleep(self.random.randint(50, 400))
            try:
                items: tuple[Item, ...] = yield self.drive(session, ListingMachine("log"))
            except LedgerLogError:
                continue
            if items:
                ledger_id = self.random.choice(items).ledger_id
                found = self.ledgers[ledger_id].last - (self.random.random() < 0.3)
                self.close(ledger_id, found, log_seal.floor_of(ledger_id, items))

    def close(self, ledger_id: int, last_entry_id: int, floor: int) -> bool:
        ledger = self.ledgers[ledger_id]
        if ledger.sealed_at is None:
            try:
                log_seal.check_close(ledger_id, last_entry_id=last_entry_id, floor_entry_id=floor)
            except NeedsOperatorError:
                return False
            ledger.sealed_at = last_entry_id
            self.check_ledgers(self.store.state)
        return True

    def drop(self, ledger_id: int) -> bool:
        ledger = self.ledgers.get(ledger_id)
        if ledger is not None:
            if ledger.sealed_at is None:
                ledger.sealed_at = ledger.last
            ledger.is_deleted = True
            self.check_ledgers(self.store.state)
        return True

    # --- what must always hold ---

    def violation(self, what: str) -> Violation:
        return Violation(f"seed {self.seed}, at {self.now} ms: {what}")

    def require(self, holds: bool, what: str) -> None:
        if not holds:
            raise self.violation(what)

    def check_change(self, ask: Any, old: State, new: State) -> None:
        if isinstance(ask, m.WriteHead):
            self.check_head(ask, old, new)
        if isinstance(ask, m.WriteProducer):
            runs = new.producers[ask.app].value.runs
            self.require(len(set(runs)) == len(runs), f"{ask.app}: a run took over twice: {runs}")
        if isinstance(ask, (m.WriteHead, m.DeletePages)):
            self.check_pages(new)
            self.check_ledgers(new)

    def check_head(self, ask: m.WriteHead, old: State, new: State) -> None:
        before, after = old.head.value, new.head.value
        self.require(
            after.start_offset >= before.start_offset and after.end_offset >= before.end_offset,
            "an interval moved back",
        )
        added = [i for i in self.items(new) if i.first_offset >= before.end_offset]
        if after.version == before.version:
            self.require(not added, "items without a version")
            return
        self.require(after.version == before.version + 1, "a version was skipped")
        self.require(after.commit_time_ms > before.commit_time_ms, "commit times do not rise")
        self.check_batch(ask, [i.ledger_id for i in added])
        offset = before.end_offset
        for item in added:
            self.require(item.first_offset == offset, "offsets have a gap")
            offset = item.end_offset
        self.require(offset == after.end_offset, "rows without an item")

    def check_batch(self, ask: m.WriteHead, ledger_ids: list[int]) -> None:
        """The version holds exactly one job's ranges, and no batch comes twice (S5-S8)."""
        owner = self.ledgers[ledger_ids[0]]
        batch = (owner.app, owner.batch_id)
        wholes = [a.ledger_ids for a in self.attempts]
        self.require(tuple(ledger_ids) in wholes, f"a part of batch {batch} was committed")
        self.require(batch not in self.committed, f"batch {batch} was committed twice")
        last = self.last_batch.get(owner.app, -1)
        self.require(owner.batch_id > last, f"batch {batch} after batch {last}")
        assert ask.producer is not None
        self.require(ask.producer.current_run == owner.run, f"zombie {owner.run} committed")
        self.committed[batch] = self.store.state.head.value.version
        self.last_batch[owner.app] = owner.batch_id
        self.listed_ever.update(ledger_ids)
        for attempt in self.attempts:
            if attempt.said_failed:
                self.check_failed(attempt)

    def check_failed(self, attempt: Attempt) -> None:
        appeared = set(attempt.ledger_ids) & self.listed_ever
        self.require(not appeared, f"{attempt} was said to have failed, and it is in the log")

    def check_reported(self, attempt: Attempt, result: Any) -> None:
        batch = (attempt.app, attempt.batch_id)
        if result.status is CommitStatus.COMMITTED:
            is_there = set(attempt.ledger_ids) <= self.listed_ever
            self.require(is_there, f"{batch} was said to be committed, and it is not")
        else:
            last = self.last_batch.get(attempt.app, -1)
            self.require(last >= attempt.batch_id, f"{batch} was never committed")

    def check_pages(self, state: State) -> None:
        """Every page that the head names is there."""
        self.items(state)
        head = state.head.value
        self.walk(state, Walk(HISTORY, head.history, head.oldest_version, head.version + 1))
        self.walk(state, Walk(SCHEMAS, head.schemas, 0, head.schema_id + 1))

    def check_ledgers(self, state: State) -> None:
        """Every listed ledger is there, up to the listed end."""
        for item in self.items(state):
            ledger = self.ledgers[item.ledger_id]
            self.require(not ledger.is_deleted, f"listed ledger {item.ledger_id} was deleted")
            sealed = ledger.sealed_at
            whole = sealed is None or sealed >= item.last_entry_id
            self.require(whole, f"ledger {item.ledger_id} was closed below its listed end")

    def items(self, state: State) -> tuple[Item, ...]:
        head = state.head.value
        return self.walk(state, Walk(ITEMS, head.items, head.oldest_offset, head.end_offset))

    def walk(self, state: State, walk: Walk[Any]) -> tuple[Any, ...]:
        while walk.wanted:
            pages = []
            for page in walk.wanted:
                data = state.pages.get(page.ref.token, (0, {}))[1].get(page.ref.number)
                if data is None:
                    raise self.violation(f"page {page.ref.token}/{page.ref.number} is missing")
                pages.append(decode_page(page.kind, data))
            walk.feed(pages)
        return walk.records()


def schedule(seed: int) -> World:
    """One random schedule to its end; raises `Violation`."""
    world = World(seed)
    random = world.random
    for app in ("stream", "batch"):
        kind = JobKind.STREAM if app == "stream" else JobKind.BATCH
        for batch_id in range(random.randint(2, 4)):
            for number in range(random.choice((1, 1, 2, 3))):
                run = (
                    f"{app}-{batch_id // 2}-{number}" if app == "stream" else f"b{batch_id}{number}"
                )
                mode = WriteMode.OVERWRITE if random.random() < 0.25 else WriteMode.APPEND
                job = world.job(app, batch_id, run, mode, kind)
                world.spawn(job, batch_id * 150 + random.randint(0, 200))
    for number in range(3):
        app = f"once-{number}"
        job = world.job(app, 0, app, WriteMode.APPEND, JobKind.BATCH)
        world.spawn(job, random.randint(0, 600))
    world.spawn(world.sweeper())
    world.spawn(world.sweeper())
    world.spawn(world.pages_sweeper())
    world.spawn(world.sealer())
    world.run()
    world.store.faulty = False
    world.spawn(_look(world))
    world.run()
    return world


def _look(world: World) -> Actor:
    snapshot = yield world.drive(Session(), SnapshotMachine("log"))
    rows = sum(item.rows for item in snapshot.items)
    world.require(rows == snapshot.interval.rows, f"{rows} rows of {snapshot.interval.rows}")
