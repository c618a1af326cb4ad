"""Becoming the leader, and a roll, have an overall deadline."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ledgerlog_spark.client.settings import ClientSettings
from ledgerlog_spark.errors import (
    LeaderTimeoutError,
    LocalProtocolError,
    MetadataUnavailableError,
    NotEnoughBookiesError,
)
from ledgerlog_spark.protocol.leader import messages as lm
from ledgerlog_spark.protocol.leader.messages import LeaderPhase
from ledgerlog_spark.protocol.leader.rolling import RollStep
from ledgerlog_spark.protocol.ledger.messages import TimerFired
from ledgerlog_spark.protocol.log import messages as m
from tests.fixtures.kinds import now
from tests.unit.leader.bench import SETTINGS, Bench, Process
from tests.unit.leader.test_leader_log import filled, stopped
from tests.unit.log.leader_world import LeaderWorld

if TYPE_CHECKING:
    from ledgerlog_spark.errors import LedgerLogError


def time_out(process: Process) -> LedgerLogError:
    process.tell(TimerFired(process.open_timer.request))
    error = stopped(process).error
    assert isinstance(error, LeaderTimeoutError)
    assert error.retriable
    assert error.timeout_ms == SETTINGS.open_timeout_ms
    return error


def test_a_seal_that_does_not_end_is_named() -> None:
    bench = Bench()
    filled(bench)
    process = bench.process()
    process.start()
    process.answer_until(lm.SealLedger)
    error = time_out(process)
    assert (error.definite, error.ledger_id) == (True, bench.open_ids[0])
    assert error.waited_for == "sealing an open ledger"
    assert f"sealing an open ledger ({bench.open_ids[0]}) did not end" in str(error)
    process.settle()
    assert len(bench.ledgers) == 1, "an answer that comes too late makes no ledger"


def test_a_ledger_that_comes_too_late_is_dropped() -> None:
    bench = Bench()
    process = bench.process()
    process.start()
    process.answer_until(lm.CreateLedger)
    error = time_out(process)
    assert (error.definite, error.waited_for) == (True, "creating a ledger")
    process.settle()
    assert bench.dropped == list(bench.ledgers) != []


@pytest.mark.parametrize("is_late", [False, True])
def test_a_list_that_does_not_answer_may_name_this_client_as_its_leader(is_late: bool) -> None:
    bench = Bench()
    process = bench.process()
    process.start()
    process.answer_until_listing()
    error = time_out(process)
    assert (error.definite, error.waited_for) == (False, "reading or changing the list")
    assert "may lead the log" in str(error)
    if is_late:
        process.settle()
        assert bench.open_ids == list(bench.ledgers)
    assert bench.dropped == []
    assert bench.leader().machine.phase is LeaderPhase.LEADING


def test_a_ledger_whose_attempt_lost_against_another_leader_is_dropped() -> None:
    bench = Bench()
    process = bench.process()
    process.start()
    process.answer_until_listing()
    bench.leader()
    process.answer(m.WriteHead)
    assert time_out(process).definite
    process.settle()
    assert len(bench.dropped) == 1


def test_a_leader_in_time_does_not_hear_of_the_deadline() -> None:
    leader = Bench().leader()
    leader.tell(TimerFired(leader.open_timer.request))
    assert leader.machine.phase is LeaderPhase.LEADING


async def never(*_: object, **__: object) -> Any:
    await asyncio.Event().wait()


async def test_a_takeover_ends_in_time_and_the_next_one_succeeds(world: LeaderWorld) -> None:
    earlier = await world.lead()
    await earlier.append(b"one")
    log = await world.log()
    seal = log.host.ledgers.seal
    log.host.ledgers.seal = never
    settings = ClientSettings(open_timeout_ms=5_000)
    began = asyncio.get_running_loop().time()
    with pytest.raises(LeaderTimeoutError) as failed:
        async with asyncio.timeout(60):
            await log.lead(settings)
    assert 5 <= asyncio.get_running_loop().time() - began < 6
    assert (failed.value.definite, failed.value.retriable) == (True, True)
    log.host.ledgers.seal = seal
    leader = await log.lead(settings)
    assert leader.end_offset == 1
    await leader.close()


async def test_a_roll_that_waits_for_the_metadata_store_ends_in_time_and_goes_on(
    world: LeaderWorld,
) -> None:
    log = await world.log()
    write_head = log.host.store.write_head
    leader = await log.lead(ClientSettings(close_timeout_ms=3_000))
    await leader.append(b"one")
    log.host.store.write_head = never
    began = asyncio.get_running_loop().time()
    with pytest.raises(LeaderTimeoutError) as failed:
        async with asyncio.timeout(60):
            await leader.roll()
    assert 3 <= asyncio.get_running_loop().time() - began < 4
    assert (failed.value.definite, failed.value.retriable) == (False, True)
    assert failed.value.waited_for == "reading or changing the list"
    assert failed.value.__cause__ is None
    assert (await leader.append(b"two")).offset == 1
    assert leader.is_leading
    log.host.store.write_head = write_head
    leader.abandon()


@pytest.mark.parametrize("call", ["roll", "truncate"])
async def test_a_roll_without_bookies_names_them(world: LeaderWorld, call: str) -> None:
    log = await world.log()
    leader = await log.lead(ClientSettings(close_timeout_ms=3_000))
    await leader.append(b"one")
    few = NotEnoughBookiesError("2 bookies are writable, and 3 are wanted")

    async def refuse(*_: Any, **__: Any) -> Any:
        raise few

    log.host.ledgers.create_registered_ledger = refuse
    with pytest.raises(LeaderTimeoutError, match=r"ledger did not end \(2 bookies") as failed:
        await (leader.roll() if call == "roll" else leader.truncate(1))
    assert failed.value.waited_for == "creating the next ledger"
    assert failed.value.__cause__ is few
    assert leader.is_leading
    leader.abandon()


def test_a_roll_says_at_each_step_what_it_waits_for_and_what_failed() -> None:
    bench = Bench()
    leader = filled(bench)
    waits: list[tuple[RollStep, type | None]] = []

    def look() -> None:
        step, error = leader.machine.roll_wait
        waits.append((step, type(error) if error else None))

    def fail(kind: type) -> None:
        look()
        leader.fail(kind)
        look()
        leader.fire()

    leader.tell(lm.RollRequested())
    fail(lm.CreateLedger)
    leader.answer(lm.CreateLedger)
    fail(m.Sync)
    leader.append()
    leader.answer_until(m.WriteHead)
    leader.answer(m.WriteHead)
    look()  # the earlier ledger takes no more appends, and one is pending in it
    assert leader.confirm(bench.open_ids[0])
    fail(lm.CloseLedger)
    leader.answer(lm.CloseLedger)
    look()
    failed = MetadataUnavailableError
    assert waits == [
        (RollStep.CREATING, None),
        (RollStep.CREATING, failed),
        (RollStep.LISTING, None),
        (RollStep.LISTING, failed),
        (RollStep.DRAINING, None),
        (RollStep.CLOSING, None),
        (RollStep.CLOSING, failed),
        (RollStep.LISTING, None),
    ]
    leader.settle()
    assert len(bench.log.items()) == 1


def test_of_what_a_roll_waits_for_the_one_that_failed_is_named() -> None:
    bench = Bench()
    leader = filled(bench)
    leader.break_ledger(bench.open_ids[0])
    assert leader.has(lm.CloseLedger)
    assert now(leader.machine.roll_wait) == (RollStep.CLOSING, None)
    leader.fail(lm.CreateLedger)
    step, error = leader.machine.roll_wait
    assert (step, type(error)) == (RollStep.CREATING, MetadataUnavailableError)


async def test_a_takeover_that_its_caller_gives_up_leads_nothing(world: LeaderWorld) -> None:
    log = await world.log()
    create = log.host.ledgers.create_registered_ledger
    is_asked, may_go_on = asyncio.Event(), asyncio.Event()

    async def slowly(*made: Any, **how: Any) -> Any:
        is_asked.set()
        await may_go_on.wait()
        return await create(*made, **how)

    log.host.ledgers.create_registered_ledger = slowly
    leading = asyncio.create_task(log.lead(ClientSettings()))
    await is_asked.wait()
    leading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leading
    may_go_on.set()
    await asyncio.sleep(10)
    found = await log.host.store.read_head(log.log_id)
    assert found is not None
    assert found.value.open_ledgers == ()
    assert [ledger_id async for ledger_id in log.host.ledgers.list_ledgers()] == []


@pytest.mark.parametrize("asked", [lm.CreateLedger, m.ReadHead, m.WriteHead])
@pytest.mark.parametrize("is_late", [False, True])
def test_an_opening_that_was_cancelled_leaves_no_ledger_that_is_not_listed(
    asked: type, is_late: bool
) -> None:
    bench = Bench()
    process = bench.process()
    process.start()
    if asked is m.WriteHead:
        process.answer_until_listing()
    else:
        process.answer_until(asked)
    process.tell(lm.GiveUp(LocalProtocolError("the client was closed")))
    error = stopped(process).error
    assert isinstance(error, LocalProtocolError)
    assert error.definite is (asked is not m.WriteHead)
    if is_late:
        process.settle()
        assert sorted((*bench.open_ids, *bench.dropped)) == sorted(bench.ledgers)
    assert bench.leader().machine.phase is LeaderPhase.LEADING


def test_the_default_leaves_time_for_a_seal_and_is_a_setting() -> None:
    assert ClientSettings().open_timeout_ms > 2 * ClientSettings().stall_ms
    assert replace(ClientSettings(), open_timeout_ms=1).open_timeout_ms == 1
