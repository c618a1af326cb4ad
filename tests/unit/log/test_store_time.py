"""Only the store's clock decides times and deletions, not the clocks of processes."""

from __future__ import annotations

import time
from typing import Any

import pytest

from ledgerlog_spark.log import clock
from ledgerlog_spark.protocol.leader.opening import LeaderOpening
from ledgerlog_spark.protocol.log import messages as m
from ledgerlog_spark.protocol.log.change.expiry import ExpiryMachine
from ledgerlog_spark.protocol.log.change.retention import RetentionMachine
from ledgerlog_spark.protocol.log.change.truncate import TruncateMachine
from ledgerlog_spark.protocol.log.commit.commit import CommitMachine
from ledgerlog_spark.protocol.log.commit.epoch import EpochMachine, JobKind
from ledgerlog_spark.protocol.log.commit.plan import CommitRequest
from ledgerlog_spark.protocol.log.read.versions import SnapshotMachine, StateMachine
from ledgerlog_spark.protocol.log.read.view import ViewMachine
from tests.unit.log.leader_world import LeaderWorld
from tests.unit.log.log_values import OneLog, staged, token
from tests.unit.log.log_world import DAY_MS, SCHEMA, LogWorld, commit, of, payloads

YEAR_MS = 365 * DAY_MS


@pytest.fixture(params=[-YEAR_MS, YEAR_MS], ids=["a year behind", "a year ahead"])
def wrong_clock(request: Any, monkeypatch: pytest.MonkeyPatch) -> int:
    """Make every wall clock of this process wrong."""
    off_ms: int = request.param
    wall_ns = time.time_ns

    def set_wrong() -> None:
        monkeypatch.setattr(clock, "now_ms", lambda: 1_700_000_000_000 + off_ms)
        monkeypatch.setattr(time, "time_ns", lambda: wall_ns() + off_ms * 1_000_000)
        monkeypatch.setattr(time, "time", lambda: (wall_ns() + off_ms * 1_000_000) / 1e9)

    request.node.set_wrong = set_wrong
    return off_ms


async def test_versions_are_dated_by_the_store(
    world: LogWorld, wrong_clock: int, request: pytest.FixtureRequest
) -> None:
    del wrong_clock
    request.node.set_wrong()
    before_ms = world.now_ms
    log = await world.logs().create("flights", properties={"retentionMs": str(7 * DAY_MS)})
    for name in "xyz":
        await commit(log, name)
    history = await log.history()
    assert all(before_ms < v.commit_time_ms <= world.now_ms for v in history)
    assert all(before_ms < i.newest_ms <= world.now_ms for i in (await log.snapshot()).items)
    await log.truncate(60)
    assert before_ms < (await log.history())[-1].commit_time_ms <= world.now_ms
    await log.delete()
    head = await world.logs().store.read_head(log.log_id)
    assert head is not None
    assert before_ms < head.value.deleted_ms <= world.now_ms


async def test_a_process_whose_clock_is_wrong_drops_what_is_due_by_the_stores_and_nothing_else(
    world: LogWorld, wrong_clock: int, request: pytest.FixtureRequest
) -> None:
    del wrong_clock
    request.node.set_wrong()
    logs = world.logs()
    log = await logs.create("flights", properties={"retentionMs": str(8 * DAY_MS)})
    for name in "xyz":
        await commit(log, name)
    running = await log.begin(schema=SCHEMA)
    await log.retain()
    await logs.sweeper().sweep(log.log_id)
    assert await payloads(log) == of("x", "y", "z")
    assert (await log.state()).head.oldest_version == 0
    assert running.app in await logs.store.producers.names(log.log_id)
    world.skip(7 * DAY_MS + 1_000)
    await log.retain()
    await logs.sweeper().sweep(log.log_id)
    assert await payloads(log) == of("x", "y", "z")
    assert (await log.state()).head.oldest_version == 3
    world.skip(DAY_MS)
    await log.retain()
    assert await payloads(log) == []


async def test_orphans_are_as_old_as_the_store_says(
    world: LogWorld, wrong_clock: int, request: pytest.FixtureRequest
) -> None:
    del wrong_clock
    request.node.set_wrong()
    log = await world.logs().create("flights")
    await commit(log, "x")
    listed = (await log.snapshot()).items[0].ledger_id
    client = world.client()
    custom = (await client.ledger_metadata(listed)).custom
    orphan = await client.create_ledger(custom_metadata=custom)
    assert (await log.check()).orphans == ()
    assert await log.delete_orphans() == ()
    world.skip(120_000)
    assert (await log.check()).orphans == (orphan.id,)
    assert await log.delete_orphans() == ()
    world.skip(8 * DAY_MS)
    assert await log.delete_orphans() == (orphan.id,)


async def test_appends_of_a_leader_are_dated_by_the_store(
    world: LeaderWorld, wrong_clock: int, request: pytest.FixtureRequest
) -> None:
    del wrong_clock
    now_ms = [1_700_000_000_000]

    def tick() -> int:
        now_ms[0] += 1
        return now_ms[0]

    world.nodes._clock_ms = tick
    request.node.set_wrong()
    before_ms = now_ms[0]
    leader = await world.lead()
    for number in range(3):
        await leader.append(b"%d" % number)
    await leader.close()
    found = [record.append_time_ms async for record in (await world.reader()).read()]
    assert len(found) == 3
    assert all(before_ms < time_ms < now_ms[0] for time_ms in found)
    await world.lead()
    (item,) = (await (await world.log()).snapshot()).items
    assert before_ms < item.newest_ms <= now_ms[0]


def times_needed(machine: Any, log: OneLog | None = None) -> set[m.TimeNeeded]:
    """The times that a machine requests until it ends."""
    store = log or OneLog()
    times = set()
    (ask,) = machine.start()
    while not isinstance(ask, m.Finished | m.Failed):
        if isinstance(ask, m.ReadHead | m.ReadProducer):
            times.add(ask.time)
        (ask,) = machine.handle(store.reply(ask))
    return times


NONE, RECENT, EXACT = m.TimeNeeded


@pytest.mark.parametrize(
    ("machine", "times"),
    [
        (StateMachine("flights"), {NONE}),
        (SnapshotMachine("flights"), {NONE}),
        (ViewMachine("flights"), {NONE}),
        (TruncateMachine("flights", offset=0, token=token(9)), {RECENT}),
        (ExpiryMachine("flights", version_retention_ms=1, token=token(9)), {EXACT}),
        (
            RetentionMachine("flights", retention_ms=1, retention_bytes=-1, token=token(9)),
            {EXACT},
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_readers_ask_for_no_time_and_what_drops_by_age_asks_the_store(
    machine: Any, times: set[m.TimeNeeded]
) -> None:
    assert times_needed(machine) == times


def test_writers_date_by_what_the_store_said_last() -> None:
    assert LeaderOpening.time_needed is RECENT
    epoch = EpochMachine("flights", app="app", run="run", batch_id=0, kind=JobKind.BATCH)
    assert times_needed(epoch) == {RECENT}
    log = OneLog()
    log.producer("app", "run")
    log.register("app", 7)
    request = CommitRequest("app", "run", 0, (staged(7),))
    assert times_needed(CommitMachine("flights", request, token=token(9)), log) == {RECENT, NONE}
    assert log.head.value.commit_time_ms == log.now_ms == log.producers["app"].value.time_ms


def test_items_are_dropped_and_versions_kept_by_a_step_without_a_retention_time() -> None:
    log = OneLog()
    for number in range(3):
        log.commit(staged(number))
    log.now_ms += YEAR_MS
    log.run(ExpiryMachine("flights", version_retention_ms=None, token=token(1 << 40)))
    assert log.head.value.oldest_version == 0
