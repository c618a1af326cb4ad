"""Marks that are renewed, and deleted logs with a ledger that cannot be sealed."""

from __future__ import annotations

import logging
from copy import copy
from typing import Any

import pytest

from ledgerlog_spark.errors import LedgerNotFoundError, LedgerRecoveryError, MetadataVersionError
from ledgerlog_spark.log.log import Log
from ledgerlog_spark.log.logs import Logs
from ledgerlog_spark.log.maintenance import sweeper as sweeper_module
from ledgerlog_spark.log.maintenance.sweep_memory import SweepMemory
from ledgerlog_spark.log.maintenance.sweeper import ATTEMPTS_MAX, FAILED_SEALS_MAX, Sweeper
from ledgerlog_spark.metadata.logs.producers import MarkedLedger
from ledgerlog_spark.protocol.ledger.messages import MetadataOutcome
from ledgerlog_spark.protocol.log import messages as m
from ledgerlog_spark.protocol.log.state.records import StagedRange, WriteMode
from ledgerlog_spark.protocol.log.sweep import LedgerSweep
from tests.fixtures.records import of_this_thread
from tests.unit.log.log_values import OneLog
from tests.unit.log.log_world import DAY_MS, SCHEMA, LogWorld, commit, of, payloads

HOUR_MS = 3_600_000


class Between:
    """A store in which something happens immediately after the marks were read."""

    def __init__(self, store: Any, happens: Any) -> None:
        self._store = store
        self._happens = happens
        self.producers = copy(store.producers)
        self.producers.marked = self._marked

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def _marked(self, log_id: str) -> list[MarkedLedger]:
        found = await self._store.producers.marked(log_id)
        await self._happens()
        return list(found)


async def is_there(world: LogWorld, ledger_id: int) -> bool:
    try:
        await world.client().ledger_metadata(ledger_id)
    except LedgerNotFoundError:
        return False
    return True


async def test_ledger_that_is_marked_anew_while_a_pass_runs_has_its_time_of_grace(
    world: LogWorld,
) -> None:
    logs = world.logs()
    log = await logs.create("flights", properties={"stagingTtlMs": str(90 * DAY_MS)})
    job = await log.begin(schema=SCHEMA, app="stream", run="run")
    ledger = await log.commits.open_ledger(job)
    for number in range(1, 5):
        await ledger.send(b"row %d" % number)
    ledger_id = ledger.ledger_id

    async def batch(number: int) -> None:
        one = await log.begin(schema=SCHEMA, app="stream", run="run", batch_id=number)
        staged = StagedRange(ledger_id, number + 1, number + 1, -1, rows=1, size_bytes=5)
        await log.commit(one, [staged])

    await batch(0)
    await commit(log, "x", mode=WriteMode.OVERWRITE)
    world.skip(8 * DAY_MS)
    await logs.sweeper().sweep(log.log_id)
    assert [mark.ledger_id for mark in await logs.store.producers.marked(log.log_id)] == [ledger_id]
    await batch(1)
    world.skip(2 * DAY_MS)
    await logs.sweeper().sweep(log.log_id)
    assert await is_there(world, ledger_id), "it is listed again"

    async def truncated() -> None:
        await log.truncate((await log.state()).head.end_offset)

    between: Any = Between(logs.store, truncated)
    await Logs(store=between, ledgers=world.client()).sweeper().sweep(log.log_id)
    assert await is_there(world, ledger_id), "who planned before the truncation reads it"
    world.skip(23 * HOUR_MS)
    await logs.sweeper().sweep(log.log_id)
    assert await is_there(world, ledger_id)
    world.skip(2 * HOUR_MS)
    await logs.sweeper().sweep(log.log_id)
    assert not await is_there(world, ledger_id)


def test_sweep_names_the_mark_that_made_each_ledger_due() -> None:
    sweep = LedgerSweep("flights", {8: 100, 9: 200})
    log = OneLog()
    dropped = []
    ask: Any
    (ask,) = sweep.start()
    while not isinstance(ask, m.Finished):
        if isinstance(ask, m.ReadRegistrations):
            (ask,) = sweep.handle(m.RegistrationsRead(ask.request, MetadataOutcome.OK))
        elif isinstance(ask, m.DropLedger):
            dropped.append((ask.ledger_id, ask.marked_ms))
            outcome = MetadataOutcome.CONFLICT if ask.ledger_id == 8 else MetadataOutcome.OK
            (ask,) = sweep.handle(m.Written(ask.request, outcome))
        else:
            (ask,) = sweep.handle(log.reply(ask))
    assert dropped == [(8, 100), (9, 200)]
    assert ask.result == (9,)


class Unsealable:
    """A client that cannot seal some ledgers."""

    def __init__(self, client: Any, ledger_ids: set[int]) -> None:
        self._client = client
        self.ledger_ids = ledger_ids
        self.tried: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def seal(self, ledger_id: int, **how: Any) -> Any:
        if ledger_id in self.ledger_ids:
            self.tried.append(ledger_id)
            raise LedgerRecoveryError("its bookies are gone")
        return await self._client.seal(ledger_id, **how)


async def committed(log: Log, ledgers: int) -> list[int]:
    """Ledgers, each with a listed row."""
    job = await log.begin(schema=SCHEMA)
    ranges = []
    for _ in range(ledgers):
        ledger = await log.commits.open_ledger(job)
        await ledger.send(b"row")
        ranges.append(StagedRange(ledger.ledger_id, 1, 1, -1, rows=1, size_bytes=3))
    await log.commit(job, ranges)
    return [staged.ledger_id for staged in ranges]


async def deleted_log(world: LogWorld, ledgers: int) -> tuple[Logs, Log, list[int]]:
    logs = world.logs()
    log = await logs.create("flights")
    ledger_ids = await committed(log, ledgers)
    await log.delete()
    world.skip(2 * DAY_MS)
    return logs, log, ledger_ids


async def test_deleted_log_with_a_ledger_that_cannot_be_sealed_ends_when_it_can(
    world: LogWorld, caplog: pytest.LogCaptureFixture
) -> None:
    logs, log, ledger_ids = await deleted_log(world, 6)
    stuck = ledger_ids[1]
    client: Any = Unsealable(world.client(), {stuck})
    sweeper = Logs(store=logs.store, ledgers=client).sweeper()
    with caplog.at_level(logging.WARNING):
        swept = await sweeper.sweep(log.log_id)
    assert (swept.ledgers_deleted, swept.ledgers_kept) == (5, (stuck,))
    assert not swept.is_removed
    assert [i for i in ledger_ids if await is_there(world, i)] == [stuck]
    assert len(of_this_thread(caplog)) == 1
    assert f"such as ledger {stuck}" in caplog.text
    for _ in range(3):
        swept = await sweeper.sweep(log.log_id)
        assert (swept.ledgers_deleted, swept.ledgers_kept) == (0, (stuck,))
    client.ledger_ids.clear()
    swept = await sweeper.sweep(log.log_id)
    assert (swept.ledgers_deleted, swept.is_removed) == (1, True)
    assert list(await logs.store.ids()) == []
    assert not await is_there(world, stuck)


async def test_all_ledgers_that_a_deleted_log_keeps_have_marks_before_its_list_goes(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their registrations ended long ago, so no other node names them."""
    monkeypatch.setattr(sweeper_module, "STEP_LEDGERS_MAX", 2)
    logs = world.logs()
    log = await logs.create("flights", properties={"stagingTtlMs": str(HOUR_MS)})
    ledger_ids = await committed(log, 6)
    world.skip(2 * HOUR_MS)
    await logs.sweeper().sweep(log.log_id)
    await log.delete()
    world.skip(2 * DAY_MS)
    assert await logs.store.producers.marked(log.log_id) == []
    client: Any = Unsealable(world.client(), set(ledger_ids[:5]))
    sweeper = Logs(store=logs.store, ledgers=client).sweeper()
    for _ in range(2):
        assert (await sweeper.sweep(log.log_id)).ledgers_kept == tuple(ledger_ids[:5])
        marks = await logs.store.producers.marked(log.log_id)
        assert [mark.ledger_id for mark in marks] == ledger_ids[:5]
    client.ledger_ids.clear()
    assert (await sweeper.sweep(log.log_id)).is_removed
    assert [i for i in ledger_ids if await is_there(world, i)] == []


async def test_ledger_that_was_never_committed_goes_with_its_deleted_log_in_one_pass(
    world: LogWorld,
) -> None:
    logs = world.logs()
    log = await logs.create("flights")
    ledger = await log.commits.open_ledger(await log.begin(schema=SCHEMA))
    await ledger.send(b"row")
    await log.delete()
    world.skip(2 * DAY_MS)
    swept = await logs.sweeper().sweep(log.log_id)
    assert (swept.ledgers_deleted, swept.is_removed) == (1, True)
    assert not await is_there(world, ledger.ledger_id)


async def test_registrations_are_looked_at_when_the_first_of_any_producer_is_due(
    world: LogWorld,
) -> None:
    logs = world.logs()
    log = await logs.create("flights", properties={"stagingTtlMs": str(6 * HOUR_MS)})
    for app in "ab":
        job = await log.begin(schema=SCHEMA, app=app, run="run")
        await (await log.commits.open_ledger(job)).send(b"row")
        world.skip(2 * HOUR_MS)
    memory = SweepMemory()

    async def sweep() -> int:
        sweeper = Sweeper(store=logs.store, ledgers=world.client(), memory=memory)
        return (await sweeper.sweep(log.log_id)).deregistered

    assert await sweep() == 0
    world.skip(2 * HOUR_MS + 1_000)
    assert await sweep() == 1
    world.skip(2 * HOUR_MS + 1_000)
    assert await sweep() == 1


async def test_log_that_is_changed_all_the_time_does_not_hold_up_a_pass(world: LogWorld) -> None:
    logs = world.logs()
    log = await logs.create("flights", properties={"versionRetentionMs": "1"})
    for name in "xyz":
        await commit(log, name, mode=WriteMode.OVERWRITE)
    world.skip(10)
    store: Any = logs.store
    tried = 0

    async def overtaken(*_: Any) -> Any:
        nonlocal tried
        tried += 1
        assert tried <= 10 * ATTEMPTS_MAX, "it never ends"
        raise MetadataVersionError("another commit was first")

    store.write_head = overtaken
    swept = await logs.sweeper().sweep(log.log_id)
    assert swept.unlisted == 0
    assert tried >= ATTEMPTS_MAX


async def test_deleted_log_also_ends_when_an_operator_deletes_what_it_waits_for(
    world: LogWorld,
) -> None:
    logs, log, ledger_ids = await deleted_log(world, 2)
    client: Any = Unsealable(world.client(), set(ledger_ids))
    sweeper = Logs(store=logs.store, ledgers=client).sweeper()
    assert (await sweeper.sweep(log.log_id)).ledgers_kept == tuple(ledger_ids)
    for ledger_id in ledger_ids:
        assert await logs.owner(ledger_id) is None, "the command line may delete it"
        await world.client().delete_ledger(ledger_id)
    assert (await sweeper.sweep(log.log_id)).is_removed


async def test_pass_over_a_deleted_log_tries_a_bounded_number_of_ledgers_that_cannot_be_sealed(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeper_module, "FAILED_SEALS_MAX", 3)
    assert FAILED_SEALS_MAX == 64
    logs, log, ledger_ids = await deleted_log(world, 12)
    client: Any = Unsealable(world.client(), set(ledger_ids[:8]))
    for closed in ledger_ids[8:10]:
        await world.client().seal(closed)
    sweeper = Logs(store=logs.store, ledgers=client).sweeper()
    swept = await sweeper.sweep(log.log_id)
    assert len(client.tried) == 3
    assert not {*ledger_ids[8:10]} & {*swept.ledgers_kept}, "closed ones need no seal"
    for _ in range(60):
        await sweeper.sweep(log.log_id)
    assert not await is_there(world, ledger_ids[-1]), "none is kept waiting for ever"
    assert not await is_there(world, ledger_ids[-2])


async def test_marks_are_of_the_newest_time_they_were_made(world: LogWorld) -> None:
    logs = world.logs()
    log = await logs.create("flights")
    await commit(log, "x")
    first = (await log.snapshot()).items[0].ledger_id
    assert await logs.store.producers.marked_ms(log.log_id, first) is None
    await commit(log, "y")
    await log.truncate(60)
    (mark, _) = await logs.store.producers.marked(log.log_id)
    assert mark.ledger_id == first
    assert await logs.store.producers.marked_ms(log.log_id, first) == mark.marked_ms
    assert await payloads(log) == of("y")


async def test_marked_ledger_that_cannot_be_sealed_is_not_counted_and_keeps_its_mark(
    world: LogWorld,
) -> None:
    logs = world.logs()
    log = await logs.create("flights")
    ledger_ids = await committed(log, 2)
    await log.truncate((await log.state()).head.end_offset)
    world.skip(2 * DAY_MS)
    client: Any = Unsealable(world.client(), {ledger_ids[0]})
    sweeper = Logs(store=logs.store, ledgers=client).sweeper()
    assert (await sweeper.sweep(log.log_id)).ledgers_deleted == 1
    marks = await logs.store.producers.marked(log.log_id)
    assert [mark.ledger_id for mark in marks] == ledger_ids[:1]
    assert await is_there(world, ledger_ids[0])
    client.ledger_ids.clear()
    assert (await sweeper.sweep(log.log_id)).ledgers_deleted == 1
    assert not await is_there(world, ledger_ids[0])
