"""One schedule: producers, replaced runs, sweepers, sealers and upkeep of one log."""

from __future__ import annotations

import contextlib
import heapq
import itertools
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.errors import LedgerLogError, NeedsOperatorError
from ledgerlog_spark.log.maintenance import sweeper
from ledgerlog_spark.metadata.logs.producers import MarkedLedger
from ledgerlog_spark.protocol.ledger.messages import MetadataOutcome as Outcome
from ledgerlog_spark.protocol.log import messages as m
from ledgerlog_spark.protocol.log.change.expiry import ExpiryMachine
from ledgerlog_spark.protocol.log.commit.epoch import JobKind
from ledgerlog_spark.protocol.log.read.versions import ListingMachine
from ledgerlog_spark.protocol.log.seal import FloorMachine
from ledgerlog_spark.protocol.log.state.records import StagedRange, WriteMode
from ledgerlog_spark.protocol.log.sweep import LedgerSweep, PagesSweep, StagedSweep
from tests.sim.log import jobs, rows, sealing, upkeep
from tests.sim.log.checks import ENTRY_ROWS, INDEX, Checks, Place, Violation
from tests.sim.log.store import Register, Session, SimStore
from tests.unit.log.log_values import new_head, token

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledgerlog_spark.model import Version
    from ledgerlog_spark.protocol.log.commit.result import KnownLog
    from ledgerlog_spark.protocol.log.machine import LogMachine
    from ledgerlog_spark.protocol.log.state.records import Item

STAGING_TTL_MS = 300
GRACE_MS = 300
RETENTION_MS = 400
EVENTS_MAX = 20_000
REQUESTS_MAX = 1_000
"""Maximum number of requests of one machine, whose number of attempts is limited."""
Actor = Generator[Any, Any, None]


@dataclass
class Ledger:
    """The state of one ledger.

    Attributes:
        entries: Names of the entries on their ack quorum: entry k (from 1) has the name `entries[k
            - 1]`. An entry has `ENTRY_ROWS` rows.
        schema: The schema of its rows.
        password: The password in its metadata.
    """

    entries: list[int] = field(default_factory=list)
    schema: bytes = b""
    password: bytes = b""
    sealed_at: int | None = None
    is_deleted: bool = False

    @property
    def last(self) -> int:
        return len(self.entries)


@dataclass
class World:
    """Virtual time, actors, and the checks."""

    seed: int
    random: Random = field(init=False)
    extra: Random = field(init=False)
    """Random numbers for situations added later, so that the schedules of a seed stay similar."""
    now: int = 1_000
    ledgers: dict[int, Ledger] = field(default_factory=dict)
    owners: dict[Place, tuple[str, int, str]] = field(default_factory=dict)
    """The app, batch and run that wrote each range."""
    known: dict[str, KnownLog] = field(default_factory=dict)
    """By app, the log that one of its commits knew, from which later commits may start."""
    open: dict[tuple[str, str], int] = field(default_factory=dict)
    """The ledger that each run of an app continues to write."""
    usual_schema: bytes = field(init=False)
    """The schema of most first writes."""
    password: bytes = field(init=False)
    """The password that jobs should give. The first commit decides which one the log has."""
    is_old_release: bool = field(init=False)
    """Whether some jobs store no password information in the head, but list ledgers."""

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.extra = Random(self.seed * 71 + 13)
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._numbers = itertools.count(1)
        self._entries = itertools.count(1)
        self._running: dict[Actor, None] = {}
        self.password = rows.drawn_password(self.random)
        self.usual_schema = rows.drawn_schema(self.random)
        self.is_old_release = self.random.random() < 0.15
        is_bare = self.random.random() < 0.6
        head, pages = new_head(schema=b"" if is_bare else rows.drawn_schema(self.random))
        self.checks = Checks(self)
        self.store = SimStore(
            head,
            self.random,
            self.later,
            lambda: self.now,
            self.checks.change,
            self.drop,
            pages=pages,
            password_of=self.password_of,
        )

    def later(self, delay_ms: int, call: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (self.now + delay_ms, next(self._order), call))

    def spawn(self, actor: Actor, after_ms: int = 0) -> None:
        self._running[actor] = None
        self.later(after_ms, lambda: self._step(actor, None, None))

    def _step(self, actor: Actor, value: Any, error: BaseException | None) -> None:
        try:
            wanted = actor.throw(error) if error else actor.send(value)
        except StopIteration:
            del self._running[actor]
            return
        wanted(lambda value, error=None: self._step(actor, value, error))

    def run(self) -> None:
        for _ in range(EVENTS_MAX):
            if not self._queue:
                self.check_all_ended()
                return
            self.now, _, call = heapq.heappop(self._queue)
            call()
        raise self.violation("the schedule does not end")

    def check_all_ended(self) -> None:
        """Check that each actor has ended, or died during a request."""
        names = [getattr(actor, "__name__", "?") for actor in self._running]
        is_explained = len(names) == self.store.unanswered
        self.require(is_explained, f"{self.store.unanswered} clients died, and {names} do not end")

    # --- what actors yield ---

    def sleep(self, ms: int) -> Callable[[Any], None]:
        return lambda resume: self.later(ms, lambda: resume(None))

    def drive(self, session: Session, machine: LogMachine[Any]) -> Callable[[Any], None]:
        def begin(resume: Any) -> None:
            requests = 0
            tokens: set[str] = set()

            def go(effects: list[Any]) -> None:
                nonlocal requests
                kind = type(machine).__name__
                self.require(len(effects) == 1, f"{kind} stands still: {effects}")
                (effect,) = effects
                is_end = isinstance(effect, m.Finished | m.Failed)
                self.require(machine.has_ended == is_end, f"{kind} neither ended nor asks")
                requests += 1
                self.require(requests <= REQUESTS_MAX, f"{kind} goes on for ever: {effect}")
                if isinstance(effect, m.Finished):
                    resume(effect.result)
                elif isinstance(effect, m.Failed):
                    self.require(not rows.leaks_in(effect.error), f"{kind} shows a password")
                    if effect.error.definite:
                        self.checks.failed_for_certain(tokens)
                    resume(None, effect.error)
                else:
                    if isinstance(effect, m.WriteHead):
                        tokens.add(effect.token)
                    answer = lambda reply: go(machine.handle(reply))  # noqa: E731
                    self.store.submit(session, effect, answer)

            go(machine.start())

        return begin

    def request(self, session: Session, request: Any) -> Callable[[Any], None]:
        return lambda resume: self.store.submit(session, request, resume)

    def expected(self, version: int) -> int | None:
        """Return the version that a job expects: mostly None, and sometimes a wrong version."""
        if self.extra.random() < 0.8:
            return None
        return version if self.extra.random() < 0.8 else max(0, version - 1)

    def new_token(self) -> str:
        return token(self.random.getrandbits(100) << 16)

    # --- actors ---

    def new_ledger(
        self, session: Session, app: str, version: Version, *, schema: bytes, password: bytes
    ) -> Generator[Any, Any, int | None]:
        """Register a new ledger; return None unless it was definitely registered."""
        ledger_id = next(self._numbers)
        answer = yield self.request(session, Register(0, app, version, ledger_id))
        if answer.outcome is not Outcome.OK:
            return None
        self.ledgers[ledger_id] = Ledger(schema=schema, password=password)
        return ledger_id

    def password_of(self, ledger_id: int) -> bytes | None:
        """Return the password in the metadata of a ledger; None without metadata."""
        ledger = self.ledgers.get(ledger_id)
        return None if ledger is None or ledger.is_deleted else ledger.password

    def written(
        self, ledger_id: int, owner: tuple[str, int, str], count: int, copies: Sequence[int] = ()
    ) -> StagedRange:
        """Append new entries, or copies of others, to a ledger, and return their range."""
        ledger = self.ledgers[ledger_id]
        new = list(copies) or [next(self._entries) for _ in range(count)]
        first = ledger.last + 1
        self.owners[ledger_id, first] = owner
        ledger.entries += new
        rows, index = len(new) * ENTRY_ROWS, -1
        if self.random.random() < 0.3:
            ledger.entries.append(INDEX)
            index = ledger.last
        return StagedRange(ledger_id, first, ledger.last, index, rows=rows, size_bytes=rows * 10)

    def new_session(self) -> Session:
        """Return a session that may be slow, or whose changes always conflict with others."""
        random = self.random
        return Session(is_slow=random.random() < 0.15, is_crossed=random.random() < 0.06)

    def sweeps(self) -> Actor:
        session = self.new_session()
        for _ in range(self.random.randint(2, 6)):
            yield self.sleep(self.random.randint(20, 300))
            state = self.store.state
            sweeps: list[LogMachine[Any]] = [
                ExpiryMachine("log", version_retention_ms=RETENTION_MS, token=self.new_token()),
                PagesSweep("log", tuple(sorted(state.pages))),
                LedgerSweep("log", self.some_due()),
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
        """Sweep pages all the time, including those of running commits."""
        session = self.new_session()
        for _ in range(12):
            yield self.sleep(self.random.randint(10, 150))
            tokens = tuple(sorted(self.store.state.pages))
            with contextlib.suppress(LedgerLogError):
                yield self.drive(session, PagesSweep("log", tokens))

    def due(self) -> dict[int, int]:
        listed = self.checks.listed_ever
        marks = [
            MarkedLedger(ledger_id, at, is_staged=ledger_id not in listed)
            for ledger_id, at in sorted(self.store.state.marks.items())
        ]
        return sweeper.due_ledgers(marks, self.now, GRACE_MS)

    def some_due(self) -> dict[int, int]:
        """Return the due ledgers of one step, in any order."""
        due = list(self.due().items())
        self.random.shuffle(due)
        return dict(due)

    def sealer(self) -> Actor:
        """Seal ledgers while bookies are missing, so that some entries may not be found."""
        session = Session()
        for _ in range(3):
            yield self.sleep(self.random.randint(50, 400))
            try:
                items: tuple[Item, ...] = yield self.drive(session, ListingMachine("log"))
                ledger_id = self.random.choice(items).ledger_id if items else -1
                listed = self.listed_last(ledger_id)
                floors = yield self.drive(session, FloorMachine("log", {ledger_id: 0}))
            except LedgerLogError:
                continue
            if items:
                floor = floors[ledger_id]
                listed = min(listed, self.listed_last(ledger_id))
                # A seal may miss a listed entry. Other entries are not reported to any reader.
                last = self.ledgers[ledger_id].last
                found = last - (last == listed and self.random.random() < 0.3)
                self.close(ledger_id, found, floor)

    def listed_last(self, ledger_id: int) -> int:
        """Return the last entry of a ledger that is listed now; -1 for none."""
        items = self.checks.items(self.store.state)
        return max((i.last_entry_id for i in items if i.ledger_id == ledger_id), default=-1)

    def close(self, ledger_id: int, last_entry_id: int, floor: int) -> bool:
        ledger = self.ledgers[ledger_id]
        if ledger.sealed_at is None:
            try:
                sealing.check_close(ledger_id, last_entry_id=last_entry_id, floor_entry_id=floor)
            except NeedsOperatorError:
                return False
            ledger.sealed_at = last_entry_id
            self.checks.ledgers(self.store.state)
        return True

    def drop(self, ledger_id: int) -> bool:
        ledger = self.ledgers.get(ledger_id)
        if ledger is not None:
            if ledger.sealed_at is None:
                ledger.sealed_at = ledger.last
            ledger.is_deleted = True
            self.checks.ledgers(self.store.state)
        return True

    def violation(self, what: str) -> Violation:
        return Violation(f"seed {self.seed}, at {self.now} ms: {what}")

    def require(self, holds: bool, what: str) -> None:
        if not holds:
            raise self.violation(what)


def schedule(seed: int) -> World:
    """Run one random schedule to its end, or raise `Violation`."""
    world = World(seed)
    try:
        _play(world)
    except Violation:
        raise
    except Exception as error:
        raise world.violation(repr(error)) from error
    return world


def _play(world: World) -> None:
    random = world.random
    for app in ("stream", "batch"):
        kind = JobKind.STREAM if app == "stream" else JobKind.BATCH
        for batch_id in range(random.randint(2, 5)):
            for number in range(random.choice((1, 1, 2, 3))):
                run = (
                    f"{app}-{batch_id // 2}-{number}" if app == "stream" else f"b{batch_id}{number}"
                )
                mode = WriteMode.OVERWRITE if random.random() < 0.25 else WriteMode.APPEND
                job = jobs.job(world, app, batch_id, run, mode, kind)
                world.spawn(job, batch_id * 150 + random.randint(0, 200))
    for number in range(3):
        app = f"once-{number}"
        job = jobs.job(world, app, 0, app, WriteMode.APPEND, JobKind.BATCH)
        world.spawn(job, random.randint(0, 600))
    world.spawn(world.sweeps())
    world.spawn(world.sweeps())
    world.spawn(world.pages_sweeper())
    world.spawn(world.sealer())
    for actor in upkeep.actors(world):
        world.spawn(actor, random.randint(0, 700))
    world.run()
    world.store.faulty = False
    world.spawn(upkeep.settle(world))
    world.run()
