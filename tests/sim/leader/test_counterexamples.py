"""Scripted counterexamples: each passes with the shipped code, and fails with its mutation.

Those of chaining ledgers to a log have the numbers that LOGS.md#J1 and LOGS.md#J4 name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ledgerlog_spark.errors import LeaderDeposedError, LedgerLogError
from ledgerlog_spark.protocol.leader import messages as lm
from ledgerlog_spark.protocol.leader.messages import LeaderPhase
from ledgerlog_spark.protocol.leader.standing import (
    ABSENT_SESSION_TIMES,
    LOOKS_IN_A_SESSION_TIME,
)
from ledgerlog_spark.protocol.ledger.messages import CloseRequested
from ledgerlog_spark.protocol.log import messages as m
from ledgerlog_spark.protocol.log.change.truncate import TruncateMachine
from tests.sim.leader.mutations import MUTATIONS, applied
from tests.unit.leader.bench import Bench, Process
from tests.unit.log.log_values import token

if TYPE_CHECKING:
    from collections.abc import Callable


def rolling(bench: Bench) -> Process:
    """Return a leader with one pending append in its ledger. The next ledger is listed."""
    leader = bench.leader()
    leader.append()
    leader.tell(lm.RollRequested())
    leader.answer(lm.CreateLedger)
    change_list(leader)
    assert len(bench.open_ids) == 2
    return leader


def change_list(process: Process) -> None:
    """Answer only the requests of a change of the list."""
    for kind in (m.Sync, m.ReadHead, m.WriteHead):
        process.answer(kind)


def t31_both_open_ledgers_are_sealed() -> None:
    """A lists ledger n+1 while an add in n is pending; B seals only n+1; A's add is confirmed."""
    bench = Bench()
    a = rolling(bench)
    first, second = bench.open_ids
    b = bench.process()
    b.start()
    b.answer_until(lm.SealLedger)
    while b.machine.phase is LeaderPhase.OPENING:
        if b.has(lm.SealLedger):
            sealed = b.take(lm.SealLedger)
            # The pending entry is on no bookie that the recovery finds.
            end = bench.seal(sealed.ledger_id, keep=0)
            b.tell(lm.LedgerSealed(sealed.request, end))
        else:
            b.answer(type(b.waiting[0]))
    assert not a.confirm(first), "an add of the old leader got through after the seal"
    assert not a.confirm(second)
    a.break_ledger(first, is_lost=True)
    a.settle()
    assert a.acknowledged() == []
    assert a.last_said(lm.LeaderStopped).first_unknown_append == 0


def t32_nothing_is_served_before_the_list_names_the_ledger() -> None:
    """A created its ledger and changes the list, but B's change is first; A serves meanwhile."""
    bench = Bench()
    a = bench.process()
    a.start()
    a.answer_until(lm.CreateLedger)
    a.answer(lm.CreateLedger)
    assert not a.machine.can_add, "a leader serves before its ledger is listed"
    b = bench.leader()
    a.settle()
    assert isinstance(a.last_said(lm.LeaderStopped).error, LeaderDeposedError)
    assert b.machine.phase is LeaderPhase.LEADING
    assert bench.open_ids == [b.bench.head.open_ledgers[0].ledger_id]


def t33_lost_reply_of_the_opening_is_settled_by_the_list() -> None:
    """The list has A's ledger, but A got no reply. A neither fails nor creates another ledger."""
    bench = Bench()
    a = bench.process()
    a.start()
    a.answer_until_listing()
    a.lose_reply(applied=True)
    a.settle()
    assert a.machine.phase is LeaderPhase.LEADING, a.said
    assert bench.open_ids == list(bench.ledgers)
    assert not bench.dropped


def t33_lost_reply_of_a_roll_is_settled_by_the_list() -> None:
    """The same for the next ledger: if it is listed, it is used, and no third one is created."""
    bench = Bench()
    a = bench.leader()
    a.append()
    a.tell(lm.RollRequested())
    a.answer_until(m.WriteHead)
    a.lose_reply(applied=True)
    a.settle()
    first, second = bench.open_ids
    assert a.confirm(first)
    a.settle()
    a.append()
    assert a.orders[-1].ledger_id == second
    assert bench.open_ids == [second]
    assert list(bench.ledgers) == [first, second]


def relisting_a_ledger_that_another_leader_took_off() -> None:
    """A's ledger was listed, but A got no reply. B seals and removes it; A lists it again."""
    bench = Bench()
    a = bench.process()
    a.start()
    a.answer_until_listing()
    (taken,) = bench.ledgers
    a.lose_reply(applied=True)
    bench.leader()
    assert taken not in bench.open_ids
    a.settle()
    assert taken not in bench.open_ids, "a ledger was listed again that is closed"
    assert bench.dropped == [taken]
    assert isinstance(a.last_said(lm.LeaderStopped).error, LeaderDeposedError)


def attempt_that_failed_is_made_again_as_it_was() -> None:
    """The reply to listing n+1 is lost, then n breaks and is closed: one change, then the other."""
    bench = Bench()
    a = bench.leader()
    a.append()
    (first,) = bench.open_ids
    a.tell(lm.RollRequested())
    a.answer_until(m.WriteHead)
    a.lose_reply(applied=True)
    a.fail(m.Sync)
    a.break_ledger(first)
    a.answer(lm.CloseLedger)
    a.fire()
    a.settle()
    assert a.machine.phase is LeaderPhase.LEADING, a.said
    assert [order.ledger_id for order in a.orders] == [first, *bench.open_ids]


def roll_waits_for_the_close_before_the_last() -> None:
    """Three open ledgers, of which a new leader seals two."""
    bench = Bench()
    a = rolling(bench)
    first, second = bench.open_ids
    assert a.confirm(first)
    a.append()
    assert a.orders[-1].ledger_id == second
    a.tell(lm.RollRequested())
    assert a.has(lm.CloseLedger)
    assert not a.has(lm.CreateLedger), "a roll began before the close of the ledger before"
    a.fail(lm.CloseLedger)
    assert not a.has(lm.CreateLedger)
    a.fire()
    a.settle()
    assert len(bench.open_ids) == 2
    assert first not in bench.open_ids


def nothing_is_acknowledged_across_a_roll() -> None:
    """The entry in n+1 is confirmed before the one in n, which is then cut off: a hole."""
    bench = Bench()
    a = rolling(bench)
    first, second = bench.open_ids
    a.append()
    a.confirm(second)
    assert a.acknowledged() == [], "acknowledged while an earlier append is pending"
    assert a.confirm(first)
    assert a.acknowledged() == [0]
    a.confirm(second)
    assert a.acknowledged() == [0, 1]


def no_entry_goes_to_the_next_ledger_before_the_current_one_ran_dry() -> None:
    """Entry 1 is stored in n+1 without an acknowledgement. n is cut before entry 0: 1 without 0."""
    bench = Bench()
    a = rolling(bench)
    first, _ = bench.open_ids
    a.append()
    bench.seal(first, keep=0)
    b = bench.leader()
    b.tell(CloseRequested())
    b.settle()
    assert bench.content() == []
    assert b.last_said(lm.LeaderClosed).end_offset == 0


def unacknowledged_appends_wait_for_the_close() -> None:
    """n broke with an entry on some bookie. If it were appended to n+1, it would be there twice."""
    bench = Bench()
    a = bench.leader()
    a.append()
    (first,) = bench.open_ids
    a.break_ledger(first)
    a.answer(lm.CreateLedger)
    change_list(a)
    assert len(a.orders) == 1, "appended again while the ledger before may still keep the entry"
    b = bench.leader()
    b.tell(CloseRequested())
    b.settle()
    assert [entry.name for entry in bench.content()] == [(1, 0)]


def nothing_is_appended_again_when_somebody_else_closed_the_ledger() -> None:
    """n broke, and its close finds that a recovery kept the entry: the append is done."""
    bench = Bench()
    a = bench.leader()
    a.append()
    (first,) = bench.open_ids
    a.break_ledger(first)
    bench.seal(first, keep=1)
    a.settle()
    assert a.acknowledged() == [0]
    assert len(a.orders) == 1
    assert a.machine.phase is LeaderPhase.LEADING
    assert [entry.name for entry in bench.content()] == [(1, 0)]


def list_is_never_left_empty() -> None:
    """A's list is empty for a moment. B leads, appends and ends. A continues at B's offsets."""
    bench = Bench()
    a = bench.leader()
    a.append()
    (first,) = bench.open_ids
    assert a.confirm(first)
    a.break_ledger(first)
    a.answer(lm.CloseLedger)
    if a.has(m.Sync):
        change_list(a)
    b = bench.leader()
    b.append(5)
    b.confirm(b.orders[-1].ledger_id)
    b.tell(CloseRequested())
    b.settle()
    a.settle()
    assert a.machine.phase is LeaderPhase.STOPPED, "the old leader goes on"
    assert isinstance(a.last_said(lm.LeaderStopped).error, LeaderDeposedError)
    assert [entry.name for entry in bench.content()] == [(1, 0), (2, 0)]


def truncation_changes_the_list_before_anything_is_deleted() -> None:
    """If a crash came between a deletion and the change of the list, a listed ledger is gone."""
    bench = Bench()
    a = bench.leader()
    a.append(4)
    (first,) = bench.open_ids
    a.confirm(first)
    a.tell(CloseRequested())
    a.settle()
    truncated = bench.log.run(TruncateMachine("flights", offset=4, token=token(99)))
    assert truncated.unlisted == (first,)
    assert bench.log.items() == ()
    assert bench.head.end_offset == 4
    b = bench.leader()
    assert b.machine.next_offset == 4


def fence(process: Process, *, keep: int) -> None:
    """Let another program recover the ledger in use, with `keep` entries, and tell its writer."""
    (ledger_id,) = process.bench.open_ids
    process.bench.seal(ledger_id, keep=keep)
    process.break_ledger(ledger_id, is_lost=True)


def claimed(bench: Bench) -> Process:
    """Return an opener that has claimed the log, and has not sealed anything yet."""
    opener = bench.process()
    opener.start()
    opener.answer_until(lm.SealLedger)
    return opener


def opener_claims_before_it_seals() -> None:
    """B seals A's ledger. A goes on in another ledger, which B seals, and so on."""
    bench = Bench()
    a = bench.leader()
    a.append()
    b = claimed(bench)
    fence(a, keep=1)
    a.settle()
    assert a.machine.phase is LeaderPhase.STOPPED, "the leader goes on against the opener"
    b.settle()
    assert b.machine.phase is LeaderPhase.LEADING


def opener_whose_claim_was_replaced_fails() -> None:
    """B and C claim the log, in this order, and B lists its ledger."""
    bench = Bench()
    bench.leader()
    b, c = claimed(bench), claimed(bench)
    b.settle()
    assert isinstance(b.last_said(lm.LeaderStopped).error, LeaderDeposedError)
    assert len(bench.ledgers) == 1
    c.settle()
    assert c.machine.phase is LeaderPhase.LEADING


def fence_without_a_claim_costs_a_roll() -> None:
    """An auto-recovery closes the ledger of an idle leader, which then appends."""
    bench = Bench()
    a = bench.leader()
    a.append()
    (first,) = bench.open_ids
    a.confirm(first)
    fence(a, keep=1)
    a.append()
    a.settle()
    assert a.machine.phase is LeaderPhase.LEADING, a.said
    (second,) = bench.open_ids
    assert [order.ledger_id for order in a.orders] == [first, second]
    assert a.confirm(second)


def claimant_that_died_deposes_nobody() -> None:
    """B claims the log and dies. Later an auto-recovery fences A's ledger."""
    bench = Bench()
    a = bench.leader()
    claimed(bench)
    bench.candidates.remove(bench.claim)
    a.append()
    fence(a, keep=0)
    a.settle()
    for _ in range(ABSENT_SESSION_TIMES * LOOKS_IN_A_SESSION_TIME):
        assert a.machine.phase is LeaderPhase.LEADING, a.said
        a.fire()
        a.settle()
    assert a.machine.phase is LeaderPhase.LEADING, a.said
    assert bench.claim == a.machine._candidacy.claim
    assert [order.append for order in a.orders] == [0, 0]


def claim_of_a_live_client_deposes() -> None:
    """B claims the log. An auto-recovery fences A's ledger before B seals it."""
    bench = Bench()
    a = bench.leader()
    a.append()
    b = claimed(bench)
    fence(a, keep=1)
    a.settle()
    assert isinstance(a.last_said(lm.LeaderStopped).error, LeaderDeposedError)
    assert len(bench.open_ids) == 1
    b.settle()
    assert b.machine.phase is LeaderPhase.LEADING


def what_a_recovery_found_is_not_appended_again() -> None:
    """An auto-recovery keeps two of three pending entries. Only the third is appended again."""
    bench = Bench()
    a = bench.leader()
    for _ in range(3):
        a.append()
    (first,) = bench.open_ids
    fence(a, keep=2)
    a.settle()
    assert a.acknowledged() == [0, 1]
    (second,) = bench.open_ids
    assert [(o.ledger_id, o.append) for o in a.orders[3:]] == [(second, 2)]
    assert a.confirm(second)
    a.tell(CloseRequested())
    a.settle()
    assert [entry.name for entry in bench.content()] == [(1, 0), (1, 1), (1, 2)]
    assert first != second


SCRIPTS: dict[Callable[[], None], str] = {
    t31_both_open_ledgers_are_sealed: "seal_last_only",
    t32_nothing_is_served_before_the_list_names_the_ledger: "serve_before_cas",
    t33_lost_reply_of_the_opening_is_settled_by_the_list: "unknown_cas_is_failure",
    t33_lost_reply_of_a_roll_is_settled_by_the_list: "",
    relisting_a_ledger_that_another_leader_took_off: "relist_after_lost_reply",
    attempt_that_failed_is_made_again_as_it_was: "forget_attempt",
    roll_waits_for_the_close_before_the_last: "roll_before_close",
    nothing_is_acknowledged_across_a_roll: "ack_across_roll",
    no_entry_goes_to_the_next_ledger_before_the_current_one_ran_dry: "offset_gap_after_seal",
    unacknowledged_appends_wait_for_the_close: "reappend_without_close",
    nothing_is_appended_again_when_somebody_else_closed_the_ledger: "reappend_after_lost_close",
    list_is_never_left_empty: "list_left_empty",
    truncation_changes_the_list_before_anything_is_deleted: "truncate_deletes_first",
    opener_claims_before_it_seals: "seals_before_claim",
    opener_whose_claim_was_replaced_fails: "lists_without_claim",
    fence_without_a_claim_costs_a_roll: "fence_deposes",
    claimant_that_died_deposes_nobody: "dead_claimant_deposes",
    claim_of_a_live_client_deposes: "leader_ignores_claim",
    what_a_recovery_found_is_not_appended_again: "reappends_recovered",
}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_counterexample_holds_with_the_shipped_code(script: Callable[[], None]) -> None:
    script()


@pytest.mark.parametrize(
    ("script", "mutation"),
    [(script, mutation) for script, mutation in SCRIPTS.items() if mutation],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_counterexample_fails_with_its_mutation(script: Callable[[], None], mutation: str) -> None:
    with applied(mutation), pytest.raises((AssertionError, LedgerLogError)):
        script()


def test_every_mutation_has_a_counterexample() -> None:
    assert {name for name in SCRIPTS.values() if name} == set(MUTATIONS)
