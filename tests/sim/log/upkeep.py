"""Actors that merge, truncate, restore and apply retention, and readers that must not notice."""

from __future__ import annotations

import contextlib
import itertools
from functools import partial
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.errors import LedgerLogError
from ledgerlog_spark.protocol.log.change import retention as log_retention
from ledgerlog_spark.protocol.log.change.expiry import ExpiryMachine
from ledgerlog_spark.protocol.log.change.retention import RetentionMachine
from ledgerlog_spark.protocol.log.change.truncate import TruncateMachine
from ledgerlog_spark.protocol.log.commit.epoch import EpochMachine, JobKind
from ledgerlog_spark.protocol.log.commit.merge import MergeMachine, MergeRequest
from ledgerlog_spark.protocol.log.commit.restore import RestoreMachine, RestoreRequest, cut_ranges
from ledgerlog_spark.protocol.log.commit.result import CommitStatus
from ledgerlog_spark.protocol.log.properties import PropertiesMachine, user_properties
from ledgerlog_spark.protocol.log.read.versions import SnapshotMachine
from ledgerlog_spark.protocol.log.sweep import LedgerSweep, PagesSweep, StagedSweep
from tests.sim.log.checks import ENTRY_ROWS
from tests.sim.log.store import Session

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from ledgerlog_spark.protocol.log.change.retention import PageSizes
    from ledgerlog_spark.protocol.log.machine import LogMachine
    from ledgerlog_spark.protocol.log.state.records import LogSnapshot, StagedRange
    from tests.sim.log.world import Actor, Ledger, World

NEVER_MS = 1 << 40
RETENTION_MS = 300
RETENTION_BYTES = 1_500
SETTLE_PASSES = 4


def actors(world: World) -> Iterator[Actor]:
    """Return some actors of each kind; none in some schedules."""
    random = world.random
    for _ in range(random.choice((0, 1, 1, 2))):
        yield merger(world)
    for _ in range(random.choice((0, 0, 1))):
        yield truncator(world)
    for _ in range(random.choice((0, 0, 1))):
        yield retainer(world)
    for number in range(random.choice((0, 0, 1, 2))):
        yield restorer(world, number)
    for _ in range(random.randint(1, 3)):
        yield reader(world)
    yield property_setter(world)


def _tried(
    world: World, session: Session, make: Any, attempts: int = 3
) -> Generator[Any, Any, Any]:
    """Return the result of a machine, or None if it failed. Retry while the outcome is unknown."""
    for _ in range(attempts):
        machine: LogMachine[Any] = make()
        try:
            return (yield world.drive(session, machine))
        except LedgerLogError as error:
            if error.definite and not error.retriable:
                return None
    return None


def _begun(world: World, session: Session, app: str) -> Generator[Any, Any, Any]:
    """Begin a new producer. None if this failed."""
    return (
        yield from _tried(
            world,
            session,
            lambda: EpochMachine("log", app=app, run=app, batch_id=0, kind=JobKind.BATCH),
        )
    )


def _copied(
    world: World, session: Session, app: str, names: list[int], of: Ledger
) -> Generator[Any, Any, StagedRange | None]:
    """Return a range of copies in a new ledger of the app; None if it could not be created."""
    joined = yield from _begun(world, session, app)
    if joined is None:
        return None
    ledger_id = yield from world.new_ledger(
        session, app, joined.version, schema=of.schema, password=of.password
    )
    if ledger_id is None:
        return None
    staged = world.written(ledger_id, (app, 0, app), 0, copies=names)
    yield world.sleep(world.random.randint(1, 60))
    return staged


def _released(world: World, session: Session, app: str) -> Generator[Any, Any, None]:
    yield from _tried(world, session, lambda: StagedSweep("log", app=app, staging_ttl_ms=-1))


def _snapshot(
    world: World, session: Session, version: int | None = None
) -> Generator[Any, Any, LogSnapshot | None]:
    found: LogSnapshot | None = yield from _tried(
        world, session, lambda: SnapshotMachine("log", version=version), 1
    )
    return found


def merger(world: World) -> Actor:
    """Copy consecutive ranges, and replace them by the copy; sometimes die in between."""
    session, random = world.new_session(), world.random
    for _ in range(random.randint(2, 5)):
        yield world.sleep(random.randint(30, 250))
        snapshot = yield from _snapshot(world, session)
        if snapshot is None or len(snapshot.items) < 2:
            continue
        first = random.randrange(len(snapshot.items) - 1)
        some = snapshot.items[first : first + random.randint(2, 6)]
        run = tuple(
            itertools.takewhile(partial(lambda of, i: i.schema_id == of.schema_id, some[0]), some)
        )
        if len(run) < 2:
            continue
        for item in run:
            world.checks.read(item, snapshot.interval)
        names = [name for item in run for name in world.checks.names(item)]
        app = f"job:merge-{world.new_token()}"
        copied = world.ledgers[run[0].ledger_id]
        staged = yield from _copied(world, session, app, names, copied)
        if staged is None or random.random() < 0.1:
            continue
        password = world.ledgers[staged.ledger_id].password
        request = MergeRequest(app, app, run, staged, password)
        yield from _tried(
            world, session, lambda r=request: MergeMachine("log", r, token=world.new_token()), 2
        )
        if random.random() < 0.8:
            yield from _released(world, session, app)


def truncator(world: World) -> Actor:
    session, random = world.new_session(), world.random
    for _ in range(random.randint(1, 2)):
        yield world.sleep(random.randint(100, 500))
        head = world.store.state.head.value
        places = (head.end_offset - head.start_offset) // ENTRY_ROWS
        offset = head.start_offset + random.randint(0, max(0, places // 2)) * ENTRY_ROWS
        done = yield from _tried(
            world,
            session,
            lambda at=offset: TruncateMachine("log", offset=at, token=world.new_token()),
        )
        if done is not None:
            start = world.store.state.head.value.start_offset
            world.require(start >= offset, f"truncated to {offset}, and it begins at {start}")


def retainer(world: World) -> Actor:
    session, random = world.new_session(), world.random
    page_sizes: PageSizes = {}
    for _ in range(random.randint(1, 4)):
        yield world.sleep(random.randint(50, 300))
        machine = _retention(world, by_age=random.random() < 0.5, page_sizes=page_sizes)
        with contextlib.suppress(LedgerLogError):
            yield world.drive(session, machine)
            _check_retained(world, machine)


def _retention(world: World, *, by_age: bool, page_sizes: PageSizes) -> RetentionMachine:
    return RetentionMachine(
        "log",
        retention_ms=RETENTION_MS if by_age else -1,
        retention_bytes=-1 if by_age else RETENTION_BYTES,
        token=world.new_token(),
        page_sizes=page_sizes,
    )


def _check_retained(world: World, machine: RetentionMachine) -> None:
    """Check that dropped ranges were too old or too many, and freed a ledger (LOGS.md#U8)."""
    states = world.store.states
    tokens = [state.head.value.token for state in states]
    if machine._token not in tokens:
        return
    place = tokens.index(machine._token)
    items = world.checks.items(states[place - 1])
    before, after = states[place - 1].head.value, states[place].head.value
    if after.start_offset == before.start_offset:
        return
    world.checks.counts["retentions"] += 1
    gone = [item for item in items if item.end_offset <= after.start_offset]
    kept = [item for item in items if item.end_offset > after.start_offset]
    if machine._retention_ms != -1:
        newest_ms = gone[-1].newest_ms if gone else 0
        is_old = 0 < newest_ms < machine._now_ms - RETENTION_MS
        world.require(is_old, f"rows of {newest_ms} were dropped at {machine._now_ms}")
    else:
        left = sum(item.size_bytes for item in kept)
        world.require(left >= RETENTION_BYTES, f"{left} bytes are left")
    if not machine.is_more_due and len(items) <= log_retention.ITEMS_AT_ONCE:
        frees = {item.ledger_id for item in gone} - {item.ledger_id for item in kept}
        world.require(bool(frees), "rows were dropped, and no ledger is free")


def restorer(world: World, number: int) -> Actor:
    session, random = world.new_session(), world.random
    yield world.sleep(random.randint(100, 700))
    head = world.store.state.head.value
    version = random.randint(head.oldest_version, head.version)
    planned = head.version
    snapshot = yield from _snapshot(world, session, version)
    if snapshot is None:
        return
    app = f"job:restore-{number}"
    copies = {}
    for part in cut_ranges(snapshot.interval, snapshot.items):
        world.checks.read(part.item, snapshot.interval)
        first, end = (offset // ENTRY_ROWS for offset in part.offsets)
        names = world.checks.truth[first:end]
        copied = world.ledgers[part.item.ledger_id]
        staged = yield from _copied(world, session, app, names, copied)
        if staged is None:
            return
        copies[part.offsets] = staged
    if not copies and (yield from _begun(world, session, app)) is None:
        return
    passwords = {world.ledgers[staged.ledger_id].password for staged in copies.values()}
    world.require(len(passwords) <= 1, "a version has rows of two passwords")
    request = RestoreRequest(
        version,
        app,
        app,
        planned,
        copies,
        overwrite_if_changed=random.random() < 0.5,
        password=next(iter(passwords), b""),
        expected_version=world.expected(planned),
    )
    world.checks.restores[app] = request
    since = len(world.store.states) - 1
    done = yield from _tried(
        world, session, lambda: RestoreMachine("log", request, token=world.new_token()), 2
    )
    if done is not None and done.status is CommitStatus.NOTHING_TO_COMMIT:
        heads = [state.head.value for state in world.store.states[since:]]
        wanted = snapshot.interval
        place = ((wanted.start_offset, wanted.end_offset), wanted.schema_id)
        is_there = any((head.interval, head.schema_id) == place for head in heads)
        world.require(is_there, f"version {version} is not what the log holds")
    yield from _released(world, session, app)


def reader(world: World) -> Actor:
    """Plan a read, read slowly, and end just before the grace period of the ranges may end."""
    from tests.sim.log.world import GRACE_MS

    session, random = world.new_session(), world.random
    for _ in range(random.randint(2, 6)):
        yield world.sleep(random.randint(10, 200))
        began = world.now
        head = world.store.state.head.value
        wanted = random.choice((None, random.randint(head.oldest_version, head.version)))
        snapshot = yield from _snapshot(world, session, wanted)
        if snapshot is None:
            continue
        rows = sum(item.rows for item in snapshot.items)
        world.require(rows >= snapshot.interval.rows, f"{rows} rows of {snapshot.interval.rows}")
        if world.now - began < GRACE_MS - 1:
            yield world.sleep(random.randint(0, GRACE_MS - 1 - (world.now - began)))
            for item in snapshot.items:
                world.checks.read(item, snapshot.interval)


def property_setter(world: World) -> Actor:
    session = world.new_session()
    yield world.sleep(world.random.randint(0, 900))
    before = user_properties(world.store.state.head.value.properties)
    done = yield from _tried(
        world,
        session,
        lambda: PropertiesMachine("log", {"rollMs": "60000"}, token=world.new_token()),
    )
    if done is not None:
        now = user_properties(world.store.state.head.value.properties)
        world.require(now == before | {"rollMs": "60000"}, f"properties are {now}")


def settle(world: World) -> Actor:
    """After all actors ended, let all grace periods pass. No unneeded data may be left.

    After that, read the whole newest version.
    """
    from tests.sim.log.world import GRACE_MS, STAGING_TTL_MS

    session = Session()
    for _ in range(SETTLE_PASSES):
        yield world.sleep(GRACE_MS + STAGING_TTL_MS + 1)
        is_complete = False
        while not is_complete:
            machine = ExpiryMachine("log", version_retention_ms=NEVER_MS, token=world.new_token())
            is_complete = (yield world.drive(session, machine)).is_complete
        for app in sorted(world.store.state.producers):
            is_complete = False
            while not is_complete:
                sweep = StagedSweep("log", app=app, staging_ttl_ms=STAGING_TTL_MS)
                is_complete = (yield world.drive(session, sweep)).is_complete
        due = world.due()
        for ledger_id, marked_ms in due.items():
            yield world.drive(session, LedgerSweep("log", {ledger_id: marked_ms}))
    yield world.drive(session, PagesSweep("log", tuple(sorted(world.store.state.pages))))
    world.checks.no_pages_left(world.store.state)
    listed = {item.ledger_id for item in world.checks.items(world.store.state)}
    left = {i for i, ledger in world.ledgers.items() if not ledger.is_deleted}
    world.require(left == listed, f"ledgers {sorted(left - listed)} stay for ever")
    snapshot = yield world.drive(session, SnapshotMachine("log"))
    names = [name for item in snapshot.items for name in world.checks.names(item)]
    wanted = world.checks.true_names(snapshot.interval)
    world.require(names[-len(wanted) :] == wanted or not wanted, "the newest version is not whole")
    yield world.sleep(RETENTION_MS + 1)
    is_complete = False
    while not is_complete:
        machine = ExpiryMachine("log", version_retention_ms=100, token=world.new_token())
        is_complete = (yield world.drive(session, machine)).is_complete
    head = world.store.state.head.value
    is_over = head.oldest_version == head.version
    world.require(is_over, f"versions {head.oldest_version} to {head.version} do not expire")
    for by_age in (False, True):
        yield from _retained_to_the_end(world, session, by_age=by_age)


def _retained_to_the_end(
    world: World, session: Session, *, by_age: bool
) -> Generator[Any, Any, None]:
    """Check that retention drops all due ranges step by step, for any list (LOGS.md#U8)."""
    page_sizes: PageSizes = {}
    is_due = True
    while is_due:
        machine = _retention(world, by_age=by_age, page_sizes=page_sizes)
        yield world.drive(session, machine)
        _check_retained(world, machine)
        is_due, is_complete = machine.is_more_due, False
        while not is_complete:
            expiry = ExpiryMachine("log", version_retention_ms=None, token=world.new_token())
            is_complete = (yield world.drive(session, expiry)).is_complete
    head = world.store.state.head.value
    items = world.checks.items(world.store.state)
    if by_age:
        due = max((item.end_offset for item in items if item.newest_ms), default=0)
    else:
        due, left = 0, sum(item.size_bytes for item in items)
        for item in items[:-1]:
            left -= item.size_bytes
            if left < RETENTION_BYTES:
                break
            due = item.end_offset
    gone = {item.ledger_id for item in items if item.end_offset <= due}
    kept = {item.ledger_id for item in items if item.end_offset > due}
    is_over = not gone - kept or head.start_offset >= due
    what = "age" if by_age else "size"
    world.require(is_over, f"rows up to {due} stay for ever, which are due by {what}")
