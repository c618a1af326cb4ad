"""A leader whose ledger was fenced, and clients that claim its log."""

from __future__ import annotations

import pytest

from ledgerlog_spark.errors import (
    DataLossError,
    LeaderDeposedError,
    LedgerFencedError,
    LedgerNotFoundError,
    LogNotFoundError,
    MetadataFormatError,
    MetadataUnavailableError,
)
from ledgerlog_spark.model import Versioned
from ledgerlog_spark.protocol.leader import messages as lm
from ledgerlog_spark.protocol.leader.messages import LeaderPhase
from ledgerlog_spark.protocol.leader.rolling import RollStep
from ledgerlog_spark.protocol.leader.standing import (
    ABSENT_SESSION_TIMES,
    LOOKS_IN_A_SESSION_TIME,
)
from ledgerlog_spark.protocol.ledger.messages import CloseRequested, MetadataOutcome, TimerFired
from ledgerlog_spark.protocol.log import machine as log_machine
from ledgerlog_spark.protocol.log import messages as m
from ledgerlog_spark.protocol.log.properties import PropertiesMachine
from tests.unit.leader.bench import SESSION_TIMEOUT_MS, SETTINGS, Bench, Process
from tests.unit.leader.test_leader_log import closed, delete, filled, stopped
from tests.unit.log.log_values import token

LOOKS = ABSENT_SESSION_TIMES * LOOKS_IN_A_SESSION_TIME


def fence(process: Process, ledger_id: int | None = None, *, keep: int | None = None) -> int:
    """Let another program recover a ledger, by default the oldest open one, and tell its writer."""
    ledger_id = process.bench.open_ids[0] if ledger_id is None else ledger_id
    process.bench.seal(ledger_id, keep=keep)
    process.break_ledger(ledger_id, is_lost=True)
    return ledger_id


def claimed(bench: Bench) -> Process:
    """Return a client that has claimed the log, and has sealed nothing yet."""
    opener = bench.process()
    opener.start()
    opener.answer_until(lm.SealLedger)
    return opener


def claim_of(process: Process) -> str:
    return process.machine._candidacy.claim


# --- the opener ---


def test_the_claim_is_stored_before_a_ledger_is_sealed_and_the_node_exists_before() -> None:
    bench = Bench()
    filled(bench)
    opener = bench.process()
    opener.start()
    opener.answer_until(lm.JoinCandidates)
    assert bench.claim != claim_of(opener)
    opener.answer_until(lm.SealLedger)
    assert bench.claim == claim_of(opener)
    assert claim_of(opener) in bench.candidates


def test_the_claim_is_read_again_before_each_seal() -> None:
    bench = Bench()
    leader = filled(bench)
    leader.append()
    leader.tell(lm.RollRequested())
    for kind in (lm.CreateLedger, m.Sync, m.ReadHead, m.WriteHead):
        leader.answer(kind)
    first, second = bench.open_ids
    opener = claimed(bench)
    opener.answer(lm.SealLedger)
    other = claimed(bench)
    opener.settle()
    assert isinstance(stopped(opener).error, LeaderDeposedError)
    assert stopped(opener).error.definite
    assert bench.ledgers[first].is_fenced
    assert not bench.ledgers[second].is_fenced, "it sealed although the log was claimed meanwhile"
    other.settle()
    assert other.machine.phase is LeaderPhase.LEADING


def test_an_opening_that_cannot_join_ends_with_the_stores_error() -> None:
    bench = Bench()
    opener = bench.process()
    opener.start()
    opener.answer_until(lm.JoinCandidates)
    opener.fail(lm.JoinCandidates)
    error = stopped(opener).error
    assert isinstance(error, MetadataUnavailableError)
    assert error.definite
    assert bench.claim == ""


def test_a_claim_whose_reply_was_lost_is_found_in_the_head() -> None:
    bench = Bench()
    opener = bench.process()
    opener.start()
    opener.answer_until(m.WriteHead)
    opener.lose_reply(applied=True)
    opener.settle()
    assert opener.machine.phase is LeaderPhase.LEADING
    assert bench.log.heads_written == 2


def test_a_claim_that_was_not_stored_is_stored_again() -> None:
    bench = Bench()
    opener = bench.process()
    opener.start()
    opener.answer_until(m.WriteHead)
    opener.lose_reply(applied=False)
    bench.log.run(PropertiesMachine("flights", {"rollMs": "1000"}, token=token(99)))
    opener.settle()
    assert opener.machine.phase is LeaderPhase.LEADING
    assert bench.claim == claim_of(opener)


def test_an_opener_does_not_replace_the_claim_that_may_have_replaced_its_own() -> None:
    bench = Bench()
    opener = bench.process()
    opener.start()
    opener.answer_until(m.WriteHead)
    opener.lose_reply(applied=True)
    other = bench.leader()
    opener.settle()
    error = stopped(opener).error
    assert isinstance(error, LeaderDeposedError)
    assert "open the log with lead=True again" in str(error)
    assert bench.claim == claim_of(other)


def test_the_claim_survives_a_clean_close_and_a_change_of_properties() -> None:
    bench = Bench()
    leader = filled(bench)
    bench.log.run(PropertiesMachine("flights", {"rollMs": "1000"}, token=token(99)))
    closed(leader)
    assert bench.claim == claim_of(leader)
    assert bench.head.properties["rollMs"] == "1000"
    assert bench.leader().machine.properties.roll_ms == 1_000


def test_an_older_release_does_not_write_to_a_claimed_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench()
    leader = filled(bench)
    monkeypatch.setattr(log_machine, "WRITER_FEATURES", ("passwordCheck",))
    leader.tell(lm.RollRequested())
    leader.settle()
    error = stopped(leader).error
    assert isinstance(error, MetadataFormatError)
    assert error.features == ("leaderClaim",)


# --- the candidate node ---


@pytest.mark.parametrize("is_open", [False, True])
def test_a_new_session_gets_a_node_with_the_same_claim(*, is_open: bool) -> None:
    bench = Bench()
    process = filled(bench) if is_open else bench.process()
    if not is_open:
        process.start()
        process.answer_until(m.WriteHead)
    bench.candidates.clear()
    process.tell(lm.SessionReplaced())
    process.answer(lm.JoinCandidates)
    assert bench.candidates == {claim_of(process)}


@pytest.mark.parametrize("is_open", [False, True])
def test_a_node_that_was_not_created_is_created_later(*, is_open: bool) -> None:
    bench = Bench()
    process = filled(bench) if is_open else bench.process()
    if not is_open:
        process.start()
        process.answer_until(m.WriteHead)
    bench.candidates.clear()
    opening = getattr(process, "open_timer", None)
    process.tell(lm.SessionReplaced())
    process.tell(lm.SessionReplaced())
    process.fail(lm.JoinCandidates)
    assert not process.has(lm.JoinCandidates), "it waits before it tries again"
    if is_open:
        process.fire()
    else:
        process.tell(TimerFired(process.open_timer.request))
        assert opening is not None
    process.answer(lm.JoinCandidates)
    assert bench.candidates == {claim_of(process)}
    assert not process.has(lm.JoinCandidates)


# --- the fenced leader ---


def test_an_idle_leader_that_is_fenced_goes_on_after_one_roll() -> None:
    bench = Bench()
    leader = filled(bench, entries=3)
    first = fence(leader)
    leader.settle()
    assert leader.machine.phase is LeaderPhase.LEADING
    (second,) = bench.open_ids
    assert second != first
    leader.append()
    leader.settle()
    assert leader.orders[-1].ledger_id == second
    assert leader.confirm(second)
    assert leader.acknowledged() == [0, 1, 2, 3]
    assert [item.ledger_id for item in bench.log.items()] == [first]


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_the_closed_record_decides_which_appends_are_repeated(keep: int) -> None:
    bench = Bench()
    leader = filled(bench)
    leader.append()
    leader.append()
    first = fence(leader, keep=keep)
    leader.settle()
    assert leader.acknowledged() == list(range(keep))
    (second,) = bench.open_ids
    repeated = [order.append for order in leader.orders if order.ledger_id == second]
    assert repeated == list(range(keep, 3))
    assert first != second
    if repeated:
        leader.confirm(second)
    closed(leader)
    assert [entry.name[1] for entry in bench.content()] == [0, 1, 2]


def test_the_recovery_has_the_last_confirmed_entry_as_its_floor() -> None:
    bench = Bench()
    leader = filled(bench, entries=2)
    leader.append()
    first = fence(leader)
    leader.answer_until(lm.RecoverLedger)
    request = leader.take(lm.RecoverLedger)
    assert (request.ledger_id, request.floor_entry_id) == (first, 1)


def test_a_ledger_closed_below_an_acknowledged_entry_is_a_loss() -> None:
    bench = Bench()
    leader = filled(bench, entries=2)
    first = fence(leader)
    leader.answer_until(lm.RecoverLedger)
    leader.tell(lm.CloseAnswered(leader.take(lm.RecoverLedger).request, 0, 100))
    error = stopped(leader).error
    assert isinstance(error, DataLossError)
    assert (error.ledger_id, error.last_entry_id, error.definite) == (first, 0, False)


def test_nothing_is_created_or_listed_until_the_claim_was_read() -> None:
    bench = Bench()
    leader = filled(bench)
    fence(leader)
    assert [type(ask) for ask in leader._requests()] == [m.Sync]
    leader.answer(m.Sync)
    assert [type(ask) for ask in leader._requests()] == [m.ReadHead]


def test_a_fence_found_by_the_close_of_a_left_ledger_costs_nothing() -> None:
    bench = Bench()
    leader = filled(bench)
    first = bench.open_ids[0]
    leader.tell(lm.RollRequested())
    leader.answer_until(lm.CloseLedger)
    bench.seal(first)
    request = leader.take(lm.CloseLedger).request
    leader.tell(lm.CloseAnswered(request, error=LedgerFencedError("fenced")))
    leader.settle()
    assert leader.machine.phase is LeaderPhase.LEADING
    assert [item.ledger_id for item in bench.log.items()] == [first]
    leader.append()
    assert leader.confirm(bench.open_ids[0])


def test_a_leader_that_closes_recovers_its_fenced_ledger_and_ends() -> None:
    bench = Bench()
    leader = filled(bench)
    leader.append()
    leader.tell(CloseRequested())
    fence(leader, keep=2)
    leader.settle()
    assert leader.machine.phase is LeaderPhase.CLOSED
    assert [entry.name[1] for entry in bench.content()] == [0, 1]


def test_a_next_ledger_that_was_fenced_before_it_was_listed_is_replaced() -> None:
    bench = Bench()
    leader = filled(bench)
    (first,) = bench.open_ids
    leader.tell(lm.RollRequested())
    created = leader.carry_out(leader.take(lm.CreateLedger))
    fence(leader, created.ledger_id)
    leader.tell(created)
    leader.append()
    leader.settle()
    assert leader.confirm(first)
    leader.settle()
    leader.append()
    (third,) = bench.open_ids
    assert third not in (first, created.ledger_id)
    assert leader.confirm(third)
    assert leader.acknowledged() == [0, 1, 2]


def test_a_recovery_that_fails_is_repeated_while_nothing_waits() -> None:
    bench = Bench()
    leader = filled(bench)
    fence(leader)
    for _ in range(2 * SETTINGS.retry.attempts_max):
        leader.answer_until(lm.RecoverLedger)
        leader.fail(lm.RecoverLedger)
        assert leader.machine.roll_wait[0] is RollStep.CLOSING
        leader.fire()
    leader.settle()
    assert leader.machine.phase is LeaderPhase.LEADING


def test_a_check_that_fails_is_repeated_a_limited_time_while_an_append_waits() -> None:
    bench = Bench()
    leader = filled(bench)
    leader.append()
    fence(leader, keep=1)
    for attempt in range(SETTINGS.retry.attempts_max):
        if attempt:
            leader.fire()
        leader.fail(m.Sync)
    last = stopped(leader)
    assert isinstance(last.error, MetadataUnavailableError)
    assert (last.first_unknown_append, last.first_unsent_append) == (1, 2)


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_ledger_that_does_not_exist_any_more_deposes_its_leader(*, is_gone: bool) -> None:
    bench = Bench()
    leader = filled(bench)
    gone = LedgerNotFoundError("no such ledger", ledger_id=bench.open_ids[0])
    leader.tell(lm.LedgerBroken(bench.open_ids[0], gone if is_gone else LedgerFencedError("f")))
    leader.answer_until(lm.RecoverLedger)
    leader.tell(lm.CloseAnswered(leader.take(lm.RecoverLedger).request, error=gone))
    assert isinstance(stopped(leader).error, LeaderDeposedError)


def test_a_fence_in_a_deleted_log_ends_the_leader() -> None:
    bench = Bench()
    leader = filled(bench)
    fence(leader)
    delete(bench)
    leader.settle()
    assert isinstance(stopped(leader).error, LogNotFoundError)


def test_a_list_of_another_leader_deposes() -> None:
    bench = Bench()
    leader = filled(bench)
    first = bench.open_ids[0]
    other = bench.leader()
    bench.candidates.discard(claim_of(other))
    fence(leader, first)
    leader.settle()
    assert isinstance(stopped(leader).error, LeaderDeposedError)
    assert bench.claim == claim_of(other)


# --- claims of dead clients ---


def look(leader: Process, times: int) -> None:
    """Let this number of pauses end, without a change."""
    for _ in range(times):
        assert leader.machine.phase is LeaderPhase.LEADING
        assert not leader._requests()
        leader.fire()
        leader.settle()


def dead_claim(bench: Bench) -> None:
    """Claim the log by a client that dies."""
    bench.candidates.discard(claim_of(claimed(bench)))


def test_the_claim_of_a_dead_client_is_replaced_after_two_session_times() -> None:
    bench = Bench()
    leader = filled(bench)
    dead_claim(bench)
    fence(leader)
    leader.settle()
    pauses = [ask.delay_ms for ask in leader.waiting if ask.delay_ms < SESSION_TIMEOUT_MS]
    assert pauses == [SESSION_TIMEOUT_MS // LOOKS_IN_A_SESSION_TIME]
    assert LOOKS * pauses[0] == 2 * SESSION_TIMEOUT_MS
    look(leader, LOOKS - 1)
    assert bench.claim != claim_of(leader)
    look(leader, 1)
    assert bench.claim == claim_of(leader)
    assert leader.machine.phase is LeaderPhase.LEADING
    assert len(bench.open_ids) == 1


def test_a_claimant_whose_node_appears_again_deposes() -> None:
    bench = Bench()
    leader = filled(bench)
    opener = claimed(bench)
    bench.candidates.discard(claim_of(opener))
    fence(leader)
    leader.settle()
    look(leader, LOOKS - 1)
    bench.candidates.add(claim_of(opener))
    leader.fire()
    leader.settle()
    assert isinstance(stopped(leader).error, LeaderDeposedError)
    assert bench.claim == claim_of(opener)


def test_only_time_in_one_session_of_the_leader_counts() -> None:
    bench = Bench()
    leader = filled(bench)
    dead_claim(bench)
    fence(leader)
    leader.settle()
    look(leader, LOOKS - 1)
    leader.session_id += 100
    look(leader, LOOKS)
    assert bench.claim != claim_of(leader)
    look(leader, 1)
    assert bench.claim == claim_of(leader)


def test_another_claim_meanwhile_is_looked_for_from_the_beginning() -> None:
    bench = Bench()
    leader = filled(bench)
    dead_claim(bench)
    fence(leader)
    leader.settle()
    look(leader, LOOKS - 1)
    leader.fire()
    leader.answer_until(m.WriteHead)
    dead_claim(bench)
    leader.settle()
    assert bench.claim != claim_of(leader)
    look(leader, LOOKS)
    assert bench.claim == claim_of(leader)


def test_a_conflict_with_another_change_does_not_begin_the_wait_again() -> None:
    bench = Bench()
    leader = filled(bench)
    dead_claim(bench)
    fence(leader)
    leader.settle()
    look(leader, LOOKS - 1)
    leader.fire()
    leader.answer_until(m.WriteHead)
    bench.log.run(PropertiesMachine("flights", {"rollMs": "1000"}, token=token(99)))
    leader.settle()
    assert bench.claim == claim_of(leader)


def test_a_store_that_cannot_be_reached_is_no_proof_of_a_death() -> None:
    bench = Bench()
    leader = filled(bench)
    dead_claim(bench)
    fence(leader)
    leader.answer_until(lm.ReadCandidate)
    leader.fail(lm.ReadCandidate)
    assert leader.machine.phase is LeaderPhase.LEADING
    leader.fire()
    leader.settle()
    look(leader, LOOKS)
    assert bench.claim == claim_of(leader)


def test_a_claim_that_was_replaced_without_an_answer_is_found() -> None:
    bench = Bench()
    leader = filled(bench)
    dead_claim(bench)
    fence(leader)
    leader.settle()
    look(leader, LOOKS - 1)
    leader.fire()
    leader.answer_until(m.WriteHead)
    written = bench.log.heads_written
    leader.lose_reply(applied=True)
    leader.answer_until(lm.RecoverLedger)
    assert bench.log.heads_written == written + 1
    assert bench.claim == claim_of(leader)


def test_a_leader_that_ends_during_the_check_ignores_its_replies() -> None:
    bench = Bench()
    leader = filled(bench)
    dead_claim(bench)
    fence(leader)
    leader.answer_until(lm.ReadCandidate)
    leader.tell(lm.GiveUp(MetadataUnavailableError("the client was closed")))
    said = len(leader.said)
    leader.settle()
    assert len(leader.said) == said
    leader.tell(m.Written(-7, MetadataOutcome.OK))
    assert isinstance(bench.log.head, Versioned)
