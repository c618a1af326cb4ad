"""Ledgers that were deleted, or claimed for a deletion, before their leader listed them."""

from __future__ import annotations

import pytest

from ledgerlog_spark.errors import LedgerNotFoundError, LocalProtocolError
from ledgerlog_spark.protocol.leader import messages as lm
from ledgerlog_spark.protocol.leader.messages import LeaderPhase
from ledgerlog_spark.protocol.ledger.messages import CloseRequested, MetadataOutcome
from ledgerlog_spark.protocol.log import messages as m
from tests.unit.leader.bench import SETTINGS, Bench, Process
from tests.unit.leader.test_leader_log import filled, stopped


def refuse(process: Process) -> int:
    """Refuse the pending change of the list, and return the ledger in it that was swept."""
    ask = process.take(m.WriteHead)
    process.tell(m.Written(ask.request, MetadataOutcome.GONE))
    (ledger_id,) = ask.listed
    return int(ledger_id)


@pytest.mark.parametrize("is_unsure", [False, True])
def test_a_roll_goes_on_in_another_ledger(*, is_unsure: bool) -> None:
    bench = Bench()
    leader = filled(bench)
    leader.tell(lm.RollRequested())
    leader.answer_until(m.WriteHead)
    if is_unsure:
        leader.lose_reply(applied=False)
        leader.answer_until(m.WriteHead)
    swept = refuse(leader)
    leader.settle()
    assert bench.dropped == [swept]
    first, second, third = bench.ledgers
    assert second == swept
    leader.fire()
    leader.settle()
    leader.append()
    assert leader.orders[-1].ledger_id == third
    assert leader.confirm(third)
    assert bench.open_ids == [third]
    assert [item.ledger_id for item in bench.log.items()] == [first]
    assert leader.acknowledged() == [0, 1]


def test_a_leader_that_needs_another_ledger_ends_when_each_is_swept() -> None:
    bench = Bench()
    leader = filled(bench)
    leader.append()
    leader.break_ledger(bench.open_ids[0])
    for attempt in range(SETTINGS.retry.attempts_max):
        if attempt:
            leader.fire()
        leader.answer_until(m.WriteHead)
        refuse(leader)
    error = stopped(leader).error
    assert isinstance(error, LedgerNotFoundError)
    assert error.retriable
    leader.settle()
    assert bench.dropped == list(bench.ledgers)[1:]


def test_a_leader_that_closes_does_not_wait_for_a_ledger_that_was_swept() -> None:
    bench = Bench()
    leader = filled(bench)
    leader.tell(lm.RollRequested())
    leader.answer_until(m.WriteHead)
    leader.tell(CloseRequested())
    swept = refuse(leader)
    leader.settle()
    leader.fire()
    leader.settle()
    assert leader.machine.phase is LeaderPhase.CLOSED
    assert bench.dropped == [swept]
    assert bench.open_ids == []


def test_a_leader_that_stops_meanwhile_drops_what_was_swept() -> None:
    bench = Bench()
    leader = filled(bench)
    leader.tell(lm.RollRequested())
    leader.answer_until(m.WriteHead)
    leader.tell(lm.GiveUp(LocalProtocolError("the client was closed")))
    swept = refuse(leader)
    leader.settle()
    assert bench.dropped == [swept]


def test_what_was_unsure_about_it_does_not_keep_the_ledger_behind_it() -> None:
    bench = Bench()
    leader = filled(bench)
    leader.tell(lm.RollRequested())
    leader.answer_until(m.WriteHead)
    leader.lose_reply(applied=False)
    leader.fail(m.Sync)
    leader.fire()
    leader.answer_until(m.WriteHead)
    refuse(leader)
    leader.settle()
    leader.fire()
    leader.answer_until(m.WriteHead)
    leader.tell(lm.GiveUp(LocalProtocolError("the client was closed")))
    leader.fail(m.WriteHead)
    leader.settle()
    assert bench.dropped == list(bench.ledgers)[1:]


@pytest.mark.parametrize("is_unsure", [False, True])
def test_an_opening_makes_another_ledger(*, is_unsure: bool) -> None:
    bench = Bench()
    process = bench.process()
    process.start()
    process.answer_until_listing()
    if is_unsure:
        process.lose_reply(applied=False)
        process.answer_until_listing()
    token = process.waiting[-1].token
    swept = refuse(process)
    process.answer_until_listing()
    assert process.waiting[-1].token != token, "a token names one change"
    process.settle()
    assert process.machine.phase is LeaderPhase.LEADING
    assert bench.dropped == [swept]
    assert bench.open_ids == list(bench.ledgers)[1:]


@pytest.mark.parametrize("waits_for", [m.DropLedger, lm.CreateLedger])
def test_an_opening_that_is_given_up_behind_it_does_not_lead_for_certain(waits_for: type) -> None:
    bench = Bench()
    process = bench.process()
    process.start()
    process.answer_until_listing()
    process.lose_reply(applied=False)
    process.answer_until_listing()
    refuse(process)
    process.answer_until(waits_for)
    process.tell(lm.GiveUp(LocalProtocolError("nobody waits")))
    assert stopped(process).error.definite
