"""The machine of a leader log: opening, appends, rolls, failures, the end."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any, get_args

import pytest

from ledgerlog_spark.errors import (
    ConfigurationError,
    DataLossError,
    LeaderDeposedError,
    LocalProtocolError,
    LogKindError,
    LogNotFoundError,
    MetadataUnavailableError,
    NotEnoughBookiesError,
)
from ledgerlog_spark.model import LedgerState, Versioned
from ledgerlog_spark.protocol.dispatch import IGNORED, REFUSED, Unhandled
from ledgerlog_spark.protocol.leader import messages as lm
from ledgerlog_spark.protocol.leader.leader import LEADER_TABLE, LeaderLog
from ledgerlog_spark.protocol.leader.messages import LeaderPhase, LeaderSettings
from ledgerlog_spark.protocol.ledger.messages import (
    CloseRequested,
    MetadataOutcome,
    Start,
    StartTimer,
    TimerFired,
)
from ledgerlog_spark.protocol.ledger.write.add_pipeline import Window
from ledgerlog_spark.protocol.log import messages as m
from ledgerlog_spark.protocol.log.change.truncate import TruncateMachine
from ledgerlog_spark.protocol.log.properties import PropertiesMachine
from ledgerlog_spark.protocol.log.state.records import LogKind
from ledgerlog_spark.protocol.log.sweep import LedgerSweep
from tests.unit.leader.bench import APPEND, SETTINGS, Bench, Process
from tests.unit.log.log_values import token

EVENTS: tuple[type, ...] = get_args(lm.LeaderEvent)
FLAT: set[Any] = {arg for event in EVENTS for arg in (get_args(event) or (event,))}


def filled(bench: Bench, entries: int = 1, records: int = 4) -> Process:
    """A leader whose first entries are acknowledged."""
    leader = bench.leader()
    for _ in range(entries):
        leader.append(records)
    assert leader.confirm(bench.open_ids[-1])
    return leader


def closed(process: Process) -> None:
    process.tell(CloseRequested())
    process.settle()
    assert process.machine.phase is LeaderPhase.CLOSED


def stopped(process: Process) -> lm.LeaderStopped:
    assert process.machine.phase is LeaderPhase.STOPPED
    last = process.said[-1]
    assert isinstance(last, lm.LeaderStopped)
    return last


# --- the table ---


def leader_in(phase: LeaderPhase) -> LeaderLog:
    bench = Bench()
    process = bench.process()
    if phase is LeaderPhase.OPENING:
        process.start()
    elif phase is not LeaderPhase.NEW:
        process = bench.leader()
    if phase is LeaderPhase.CLOSING:
        process.append()
        process.tell(CloseRequested())
    elif phase is LeaderPhase.CLOSED:
        closed(process)
    elif phase is LeaderPhase.STOPPED:
        process.append()
        process.tell(lm.GiveUp(LocalProtocolError("the client was closed")))
    assert process.machine.phase is phase
    return process.machine


def event_of(kind: type) -> Any:
    error = NotEnoughBookiesError("no bookies")
    return {
        Start: Start(),
        lm.AppendRequested: lm.AppendRequested(1, APPEND, 9),
        lm.EntriesConfirmed: lm.EntriesConfirmed(-7, 0),
        lm.LedgerBroken: lm.LedgerBroken(-7, error),
        lm.RollRequested: lm.RollRequested(),
        lm.HeadChanged: lm.HeadChanged(),
        lm.SessionReplaced: lm.SessionReplaced(),
        lm.CandidatesJoined: lm.CandidatesJoined(-7, MetadataOutcome.OK),
        lm.CandidateRead: lm.CandidateRead(-7, MetadataOutcome.OK),
        CloseRequested: CloseRequested(),
        lm.GiveUp: lm.GiveUp(error),
        lm.LedgerCreated: lm.LedgerCreated(-7, error=error),
        lm.LedgerSealed: lm.LedgerSealed(-7),
        lm.CloseAnswered: lm.CloseAnswered(-7),
        TimerFired: TimerFired(-7),
        m.Synced: m.Synced(-7, MetadataOutcome.OK),
        m.HeadRead: m.HeadRead(-7, MetadataOutcome.OK),
        m.PagesRead: m.PagesRead(-7, MetadataOutcome.OK),
        m.PagesWritten: m.PagesWritten(-7, MetadataOutcome.OK),
        m.Written: m.Written(-7, MetadataOutcome.OK),
    }[kind]


ASKED = (
    Start,
    lm.AppendRequested,
    lm.RollRequested,
    lm.HeadChanged,
    lm.SessionReplaced,
    CloseRequested,
    lm.GiveUp,
)
STRAY = (lm.EntriesConfirmed, lm.LedgerBroken, TimerFired)
"""Events that may come when they no longer matter. Replies always belong to a request."""


@pytest.mark.parametrize("phase", LeaderPhase, ids=lambda phase: phase.name)
@pytest.mark.parametrize("kind", sorted(FLAT, key=str), ids=lambda kind: kind.__name__)
def test_each_pair_of_phase_and_event_is_in_the_table_or_asserted(
    phase: LeaderPhase, kind: type
) -> None:
    leader = leader_in(phase)
    entry = LEADER_TABLE[phase].get(kind)
    event = event_of(kind)
    if entry is None:
        with pytest.raises(AssertionError):
            leader.handle(event)
    elif entry is REFUSED:
        with pytest.raises(LocalProtocolError):
            leader.handle(event)
    elif entry is IGNORED or kind in STRAY:
        assert leader.handle(event) == []
    elif kind not in ASKED and phase not in (LeaderPhase.CLOSED, LeaderPhase.STOPPED):
        with pytest.raises(AssertionError):
            leader.handle(event)
    else:
        leader.handle(event)


def test_every_phase_has_a_row_of_methods_of_the_leader() -> None:
    assert list(LEADER_TABLE) == list(LeaderPhase)
    for phase, phase_row in LEADER_TABLE.items():
        assert isinstance(phase, Enum)
        for event, handler in phase_row.items():
            assert event in FLAT
            is_method = handler is getattr(LeaderLog, getattr(handler, "__name__", ""), None)
            assert isinstance(handler, Unhandled) or is_method


def shown(handler: Any) -> str:
    """The text of a cell of the table in docs/LOGS.md."""
    if handler is None:
        return "cannot come"
    return handler.value if isinstance(handler, Unhandled) else f"`{handler.__name__}`"


def rendered() -> str:
    """The table in the form of docs/LOGS.md."""
    phases = list(LEADER_TABLE)
    lines = [
        "| event | " + " | ".join(phase.name for phase in phases) + " |",
        "|---" * (len(phases) + 1) + "|",
    ]
    for event in EVENTS_IN_ORDER:
        cells = [shown(LEADER_TABLE[phase].get(event)) for phase in phases]
        lines.append(f"| {event.__name__} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


EVENTS_IN_ORDER = (
    *ASKED, lm.EntriesConfirmed, lm.LedgerBroken, lm.LedgerCreated, lm.LedgerSealed,
    lm.CloseAnswered, TimerFired, m.Synced, m.HeadRead, m.PagesRead, m.PagesWritten, m.Written,
    lm.CandidatesJoined, lm.CandidateRead,
)  # fmt: skip


def test_the_table_in_the_documentation_is_the_table_of_the_machine() -> None:
    assert set(EVENTS_IN_ORDER) == FLAT
    text = (Path(__file__).parents[3] / "docs" / "LOGS.md").read_text()
    assert rendered() in text, "paste tests.unit.leader.test_leader_log.rendered()"


# --- opening ---


def test_opening_an_empty_log_claims_it_and_lists_one_ledger() -> None:
    bench = Bench()
    leader = bench.leader()
    opened = leader.last_said(lm.LeaderOpened)
    assert opened.head.end_offset == 0
    assert [ledger.ledger_id for ledger in opened.head.open_ledgers] == bench.open_ids
    assert bench.log.heads_written == 2
    assert (bench.claim, bench.head.writer_features) == (token(1 << 64), ("leaderClaim",))
    assert bench.candidates == {bench.claim}
    assert leader.machine.can_add


def test_opening_after_a_clean_close_goes_on_at_the_end() -> None:
    bench = Bench()
    closed(filled(bench, entries=3, records=5))
    assert bench.open_ids == []
    leader = bench.leader()
    assert leader.last_said(lm.LeaderOpened).head.end_offset == 15


def test_opening_takes_over_what_the_old_leader_had_not_acknowledged() -> None:
    bench = Bench()
    old = filled(bench, entries=2, records=3)
    old.append(7)
    (first,) = bench.open_ids
    leader = bench.leader()
    assert leader.last_said(lm.LeaderOpened).head.end_offset == 13
    assert [entry.first_offset for entry in bench.content()] == [0, 3, 6]
    (item,) = bench.log.items()
    assert (item.ledger_id, item.last_entry_id, item.index_entry_id) == (first, 2, -1)
    assert (item.rows, item.size_bytes) == (13, 300)
    assert item.newest_ms == bench.ledgers[first].entries[-1].append_time_ms


def test_opening_drops_empty_ledgers_and_marks_them() -> None:
    bench = Bench()
    bench.leader()
    (first,) = bench.open_ids
    bench.leader()
    assert bench.log.items() == ()
    assert bench.log.unlisted == [first]
    assert first not in bench.open_ids


def test_append_times_do_not_fall_when_a_new_leader_has_an_older_clock() -> None:
    bench = Bench()
    old = filled(bench, entries=5)
    newest_ms = bench.ledgers[bench.open_ids[0]].stored[-1].append_time_ms
    leader = bench.leader()
    leader.append()
    assert leader.orders[-1].append_time_ms == newest_ms > leader.time_ms
    del old


def test_opening_that_loses_the_change_starts_over_with_the_same_ledger() -> None:
    bench = Bench()
    process = bench.process()
    process.start()
    process.answer_until_listing()
    bench.log.run(PropertiesMachine("flights", {"rollMs": "1000"}, token=token(99)))
    process.settle()
    assert process.machine.phase is LeaderPhase.LEADING
    assert bench.open_ids == list(bench.ledgers)
    assert len(bench.ledgers) == 1


def test_opening_that_cannot_seal_makes_no_ledger() -> None:
    bench = Bench()
    filled(bench)
    process = bench.process()
    process.start()
    process.answer_until(lm.SealLedger)
    process.fail(lm.SealLedger)
    assert isinstance(stopped(process).error, MetadataUnavailableError)
    assert len(bench.ledgers) == 1
    assert not process.waiting


def test_opening_without_bookies_ends_with_their_error() -> None:
    process = Bench().process()
    process.start()
    process.answer_until(lm.CreateLedger)
    process.fail(lm.CreateLedger)
    assert isinstance(stopped(process).error, MetadataUnavailableError)


def test_opening_that_was_not_sent_lets_go_of_its_ledger() -> None:
    bench = Bench()
    process = bench.process()
    process.start()
    process.answer_until_listing()
    process.fail(m.WriteHead)
    assert stopped(process).error.definite
    process.settle()
    assert bench.dropped == list(bench.ledgers)


def test_opening_of_unknown_outcome_keeps_its_ledger() -> None:
    bench = Bench()
    process = bench.process()
    process.start()
    process.answer_until_listing()
    process.lose_reply(applied=True)
    process.fail(m.Sync)
    assert not stopped(process).error.definite
    process.settle()
    assert bench.dropped == []


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"kind": LogKind.TRANSACTIONAL}, LogKindError),
        ({"deleted_ms": 7}, LogNotFoundError),
        ({"properties": {"rollSpeed": "9"}}, ConfigurationError),
    ],
    ids=["transactional", "deleted", "unknown property"],
)
def test_log_that_cannot_be_led_is_refused(changed: dict[str, Any], error: type) -> None:
    bench = Bench()
    bench.log.head = Versioned(replace(bench.head, **changed), bench.log.head.version)
    process = bench.process()
    process.start()
    process.settle()
    assert isinstance(stopped(process).error, error)
    assert not bench.ledgers


def test_opening_refuses_a_ledger_that_does_not_begin_where_the_one_before_ends() -> None:
    bench = Bench()
    filled(bench, entries=3)
    (first,) = bench.open_ids
    lost = bench.ledgers[first]
    lost.stored[0] = replace(lost.stored[0], first_offset=2)
    process = bench.process()
    process.start()
    process.settle()
    error = stopped(process).error
    assert isinstance(error, DataLossError)
    assert (error.ledger_id, error.expected_offset, error.first_offset) == (first, 0, 2)
    assert len(bench.ledgers) == 1


# --- appends ---


def test_appends_get_dense_offsets_and_are_acknowledged_in_order() -> None:
    bench = Bench()
    leader = bench.leader()
    for records in (3, 1, 5):
        leader.append(records)
    (ledger_id,) = bench.open_ids
    assert [order.first_offset for order in leader.orders] == [0, 3, 4]
    assert [order.entry_id for order in leader.orders] == [0, 1, 2]
    leader.confirm(ledger_id, 2)
    assert leader.said[-1] == lm.AppendsAcknowledged(0, 1, ledger_id, 1, 4)
    assert leader.machine.end_offset == 4
    leader.confirm(ledger_id, 2)
    leader.confirm(ledger_id)
    assert leader.said[-1] == lm.AppendsAcknowledged(2, 2, ledger_id, 2, 9)


@pytest.mark.parametrize(
    "window", [Window(entries_max=2), Window(size_bytes_max=150)], ids=["entries", "bytes"]
)
def test_append_beyond_the_window_is_refused_and_changes_nothing(window: Window) -> None:
    bench = Bench()
    process = bench.process()
    process.machine = LeaderLog("x", token=token(3), settings=LeaderSettings(window=window))
    process.start()
    process.settle()
    process.append()
    process.append()
    assert not process.machine.can_add
    next_offset = process.machine.next_offset
    with pytest.raises(LocalProtocolError, match="window"):
        process.append()
    assert process.machine.next_offset == next_offset
    process.confirm(bench.open_ids[0])
    assert process.machine.can_add


@pytest.mark.parametrize("records", [0, -1, (1 << 63) - 1])
def test_append_of_an_impossible_number_of_records_is_refused(records: int) -> None:
    leader = filled(Bench())
    with pytest.raises(LocalProtocolError, match="records"):
        leader.append(records)
    assert leader.machine.next_offset == 4


# --- rolls ---


def test_full_ledger_is_rolled_without_a_pause_in_acknowledgements() -> None:
    bench = Bench({"rollBytes": str(2 * APPEND)})
    leader = filled(bench, entries=2)
    (first,) = bench.open_ids
    leader.answer_until(m.WriteHead)
    leader.append()
    assert leader.orders[-1].ledger_id == first, "the old ledger takes appends until the switch"
    leader.answer(m.WriteHead)
    assert bench.open_ids[0] == first
    leader.append()
    assert len(leader.orders) == 3, "nothing goes to the new ledger before the old one ran dry"
    assert leader.confirm(first)
    assert leader.last_said(lm.LedgerRolled).reordered == 0
    assert leader.orders[-1].ledger_id == bench.open_ids[1]
    assert leader.orders[-1].entry_id == 0
    leader.settle()
    assert len(bench.open_ids) == 1
    (item,) = bench.log.items()
    assert (item.ledger_id, item.rows) == (first, 9)
    assert bench.head.open_ledgers[0].first_offset == bench.head.end_offset == 9


def test_old_ledger_is_rolled_by_the_next_append() -> None:
    bench = Bench({"rollMs": "1000"})
    leader = filled(bench)
    leader.time_ms += 2_000
    leader.append()
    assert leader.has(lm.CreateLedger)


def test_old_ledger_that_nobody_appends_to_is_rolled_by_a_timer() -> None:
    bench = Bench({"rollMs": "1000"})
    leader = filled(bench)
    (timer,) = [ask for ask in leader.waiting if isinstance(ask, StartTimer)]
    assert timer.delay_ms == 1_000
    leader.fire(timer.request)
    assert leader.has(lm.CreateLedger)
    assert leader.has(StartTimer), "the next ledger has an age too"


@pytest.mark.parametrize("why", ["age", "request"])
def test_empty_ledger_is_not_rolled(why: str) -> None:
    bench = Bench({"rollMs": "1000"})
    leader = bench.leader()
    if why == "age":
        leader.fire(leader.waiting[0].request)
    else:
        leader.tell(lm.RollRequested())
    assert not leader.has(lm.CreateLedger)


def test_roll_that_fails_is_tried_for_ever_while_appends_get_through() -> None:
    bench = Bench()
    leader = filled(bench)
    leader.tell(lm.RollRequested())
    for _ in range(3 * SETTINGS.retry.attempts_max):
        leader.fail(lm.CreateLedger)
        assert not leader.has(lm.CreateLedger), "without a delay it would be tried in a loop"
        leader.append()
        assert leader.confirm(bench.open_ids[0])
        leader.fire()
    leader.answer(lm.CreateLedger)
    leader.fail(m.Sync)
    leader.fire()
    leader.settle()
    assert len(bench.log.items()) == 1
    assert leader.machine.phase is LeaderPhase.LEADING


def test_close_ends_a_roll_that_nobody_needs_any_more() -> None:
    bench = Bench()
    leader = filled(bench)
    leader.tell(lm.RollRequested())
    leader.append()
    leader.fail(lm.CreateLedger)
    leader.tell(CloseRequested())
    leader.fire()
    assert not leader.has(lm.CreateLedger)
    assert leader.confirm(bench.open_ids[0])
    leader.settle()
    assert leader.machine.phase is LeaderPhase.CLOSED
    assert len(bench.ledgers) == 1


def test_ledger_that_breaks_after_a_long_outage_gets_all_its_attempts() -> None:
    bench = Bench()
    leader = filled(bench)
    leader.tell(lm.RollRequested())
    for _ in range(2 * SETTINGS.retry.attempts_max):
        leader.fail(lm.CreateLedger)
        leader.fire()
    leader.append()
    leader.break_ledger(bench.open_ids[0])
    leader.fail(lm.CreateLedger)
    leader.fire()
    leader.settle()
    assert leader.orders[-1].ledger_id == bench.open_ids[0]


def test_ledger_that_breaks_while_nothing_is_appended_is_replaced_as_soon_as_it_can_be() -> None:
    bench = Bench()
    leader = filled(bench)
    leader.break_ledger(bench.open_ids[0])
    for _ in range(3 * SETTINGS.retry.attempts_max):
        leader.fail(lm.CreateLedger)
        leader.fire()
    assert leader.machine.phase is LeaderPhase.LEADING
    leader.append()
    leader.fail(lm.CreateLedger)
    leader.fire()
    leader.settle()
    assert leader.orders[-1].ledger_id == bench.open_ids[0]


def test_broken_ledger_is_closed_and_what_was_not_acknowledged_goes_to_the_next_once() -> None:
    bench = Bench({"onBookieFailure": "roll_ledger"})
    leader = filled(bench, entries=2, records=2)
    assert not leader.machine.properties.changes_ensemble
    (first,) = bench.open_ids
    leader.append(3)
    leader.append(1)
    before = leader.orders[-2:]
    leader.break_ledger(first)
    leader.append(6)
    leader.settle()
    (second,) = bench.open_ids
    rolled = leader.last_said(lm.LedgerRolled)
    assert (rolled.ledger_id, rolled.first_offset, rolled.reordered) == (second, 4, 2)
    again = leader.orders[-3:-1]
    assert [o._replace(ledger_id=0, entry_id=0) for o in again] == [
        o._replace(ledger_id=0, entry_id=0) for o in before
    ]
    assert [(o.ledger_id, o.entry_id) for o in leader.orders[-3:]] == [
        (second, 0), (second, 1), (second, 2),
    ]  # fmt: skip
    leader.confirm(second)
    assert leader.acknowledged() == [0, 1, 2, 3, 4]
    closed(leader)
    assert [entry.first_offset for entry in bench.content()] == [0, 2, 4, 7, 8]


def test_ledger_that_breaks_while_the_next_is_listed_needs_no_third() -> None:
    bench = Bench()
    leader = filled(bench)
    (first,) = bench.open_ids
    leader.append()
    leader.tell(lm.RollRequested())
    leader.answer_until(m.WriteHead)
    leader.answer(m.WriteHead)
    leader.break_ledger(first)
    leader.settle()
    assert len(bench.ledgers) == 2
    assert leader.orders[-1].ledger_id == bench.open_ids[0]
    assert leader.last_said(lm.LedgerRolled).reordered == 1


def test_ledger_that_breaks_before_it_is_used_is_replaced() -> None:
    bench = Bench()
    process = bench.process()
    process.start()
    process.answer_until_listing()
    process.break_ledger(next(iter(bench.ledgers)))
    process.settle()
    assert process.machine.phase is LeaderPhase.LEADING
    process.append()
    process.settle()
    assert process.orders[-1].ledger_id == bench.open_ids[0] == list(bench.ledgers)[1]


def test_ledger_that_breaks_before_its_creation_is_known_takes_no_append_to_its_grave() -> None:
    bench = Bench()
    leader = filled(bench)
    leader.tell(lm.RollRequested())
    created = leader.carry_out(leader.take(lm.CreateLedger))
    leader.break_ledger(created.ledger_id)
    leader.tell(created)
    leader.append()
    leader.confirm(bench.open_ids[0])
    leader.settle()
    leader.append()
    leader.settle()
    assert created.ledger_id not in {order.ledger_id for order in leader.orders}
    leader.confirm(bench.open_ids[-1])
    assert leader.acknowledged() == [0, 1, 2]


def test_broken_ledger_that_cannot_be_replaced_stops_the_leader_after_some_attempts() -> None:
    bench = Bench()
    leader = filled(bench)
    leader.append()
    leader.break_ledger(bench.open_ids[0])
    leader.append()
    for attempt in range(SETTINGS.retry.attempts_max):
        leader.fail(lm.CreateLedger)
        if attempt < SETTINGS.retry.attempts_max - 1:
            leader.fire()
    last = stopped(leader)
    assert isinstance(last.error, MetadataUnavailableError)
    assert (last.end_offset, last.first_unknown_append, last.first_unsent_append) == (4, 1, 2)


def test_properties_that_were_set_meanwhile_are_those_of_the_next_ledger() -> None:
    bench = Bench()
    leader = filled(bench)
    change = PropertiesMachine(
        "flights", {"rollBytes": "77", "onBookieFailure": "roll_ledger"}, token=token(50)
    )
    bench.log.run(change)
    leader.tell(lm.RollRequested())
    leader.settle()
    assert leader.machine.properties.roll_bytes == 77
    assert not leader.machine.properties.changes_ensemble


def test_truncation_by_somebody_else_does_not_depose_the_leader() -> None:
    bench = Bench()
    leader = filled(bench)
    leader.tell(lm.RollRequested())
    leader.settle()
    leader.append(2)
    leader.confirm(bench.open_ids[0])
    leader.tell(lm.RollRequested())
    leader.answer_until(m.WriteHead)
    truncated = bench.log.run(TruncateMachine("flights", offset=4, token=token(60)))
    assert truncated.start_offset == 4
    leader.settle()
    assert leader.machine.phase is LeaderPhase.LEADING
    assert bench.head.start_offset == 4
    assert [item.first_offset for item in bench.log.items()] == [4]


def test_truncation_never_reaches_into_an_open_ledger() -> None:
    bench = Bench()
    filled(bench)
    with pytest.raises(ConfigurationError, match="end at 0"):
        bench.log.run(TruncateMachine("flights", offset=4, token=token(60)))


# --- the end ---


def test_close_waits_for_acknowledgements_and_leaves_no_ledger_open() -> None:
    bench = Bench()
    leader = bench.leader()
    leader.append(3)
    leader.tell(CloseRequested())
    leader.settle()
    assert leader.machine.phase is LeaderPhase.CLOSING
    leader.confirm(bench.open_ids[0])
    leader.settle()
    assert leader.said[-1] == lm.LeaderClosed(3)
    assert bench.open_ids == []
    assert len(bench.content()) == 1


def test_close_of_a_log_without_appends_leaves_no_item() -> None:
    bench = Bench()
    closed(bench.leader())
    assert bench.log.items() == ()
    assert bench.log.unlisted == list(bench.ledgers)


def test_close_while_a_ledger_is_made_drops_that_ledger() -> None:
    bench = Bench()
    leader = filled(bench)
    leader.tell(lm.RollRequested())
    closed(leader)
    assert bench.dropped == list(bench.ledgers)[1:]


def test_close_while_the_next_ledger_is_listed_closes_both() -> None:
    bench = Bench()
    leader = filled(bench)
    leader.append()
    leader.tell(lm.RollRequested())
    leader.answer_until(m.WriteHead)
    leader.tell(CloseRequested())
    leader.confirm(bench.open_ids[0])
    leader.settle()
    assert leader.machine.phase is LeaderPhase.CLOSED
    assert [ledger.state for ledger in bench.ledgers.values()] == [LedgerState.CLOSED] * 2
    assert bench.open_ids == []
    assert len(bench.content()) == 2


def test_broken_ledger_while_closing_is_still_replaced_for_what_is_pending() -> None:
    bench = Bench()
    leader = bench.leader()
    leader.append()
    leader.tell(CloseRequested())
    leader.break_ledger(bench.open_ids[0])
    leader.settle()
    leader.confirm(bench.open_ids[0])
    leader.settle()
    assert leader.machine.phase is LeaderPhase.CLOSED
    assert len(bench.content()) == 1


def test_close_without_the_store_ends_with_an_error_and_keeps_what_was_acknowledged() -> None:
    bench = Bench()
    leader = filled(bench)
    leader.tell(CloseRequested())
    for attempt in range(SETTINGS.retry.attempts_max):
        leader.fail(lm.CloseLedger)
        if attempt < SETTINGS.retry.attempts_max - 1:
            leader.fire()
    last = stopped(leader)
    assert (last.end_offset, last.first_unknown_append, last.first_unsent_append) == (4, None, 1)
    bench.leader()
    assert len(bench.content()) == 1


def test_fenced_leader_stops_and_says_which_records_are_safe() -> None:
    bench = Bench()
    old = filled(bench, entries=2, records=3)
    old.append(2)
    old.append(8)
    (first,) = bench.open_ids
    bench.leader()
    old.break_ledger(first, is_lost=True)
    old.settle()
    last = stopped(old)
    assert isinstance(last.error, LeaderDeposedError)
    assert (last.error.end_offset, last.error.pending_end_offset) == (6, 16)
    assert not last.error.definite
    assert "open the log with lead=True again" in str(last.error)
    assert (last.first_unknown_append, last.first_unsent_append) == (2, 4)
    with pytest.raises(LocalProtocolError):
        old.append()


def test_idle_leader_finds_out_by_the_list() -> None:
    bench = Bench()
    old = filled(bench)
    bench.leader()
    old.tell(lm.RollRequested())
    old.settle()
    assert isinstance(stopped(old).error, LeaderDeposedError)
    assert bench.dropped == [list(bench.ledgers)[2]], "the ledger that was made to come next"


def test_appends_that_only_waited_failed_for_certain() -> None:
    bench = Bench()
    leader = filled(bench)
    leader.append()
    leader.tell(lm.RollRequested())
    leader.answer(lm.CreateLedger)
    for kind in (m.Sync, m.ReadHead, m.WriteHead):
        leader.answer(kind)
    leader.append()
    leader.break_ledger(bench.open_ids[0], is_lost=True)
    bench.leader()
    leader.settle()
    last = stopped(leader)
    assert (last.first_unknown_append, last.first_unsent_append) == (1, 2)


def test_ledger_that_comes_after_the_end_is_dropped() -> None:
    bench = Bench()
    leader = filled(bench)
    leader.append()
    leader.tell(lm.RollRequested())
    leader.break_ledger(bench.open_ids[0], is_lost=True)
    bench.leader()
    leader.settle()
    assert isinstance(stopped(leader).error, LeaderDeposedError)
    assert bench.dropped == [list(bench.ledgers)[2]]


def delete(bench: Bench) -> None:
    deleted = replace(bench.head, deleted_ms=9, token=token(70))
    bench.log.head = Versioned(deleted, replace(bench.log.head.version, number=99))


def test_deleted_log_stops_its_leader_at_the_next_change_of_the_list() -> None:
    bench = Bench()
    leader = filled(bench)
    delete(bench)
    leader.tell(lm.RollRequested())
    leader.settle()
    assert isinstance(stopped(leader).error, LogNotFoundError)


@pytest.mark.parametrize("is_swept", [False, True])
def test_change_of_the_head_that_deletes_the_log_stops_the_leader_without_a_change_of_the_list(
    is_swept: bool,
) -> None:
    bench = Bench()
    leader = filled(bench)
    leader.append(2)
    delete(bench)
    leader.tell(lm.HeadChanged())
    if is_swept:
        leader.tell(m.HeadRead(leader.take(m.ReadHead).request, MetadataOutcome.GONE))
        leader.answer(m.Sync)
        leader.tell(m.HeadRead(leader.take(m.ReadHead).request, MetadataOutcome.GONE))
    else:
        leader.answer(m.ReadHead)
    last = stopped(leader)
    assert isinstance(last.error, LogNotFoundError)
    assert not last.error.retriable
    assert "lead=True again" in str(last.error)
    assert (last.error.end_offset, last.error.pending_end_offset) == (4, 6)
    assert (last.first_unknown_append, last.first_unsent_append) == (1, 2)
    assert leader.acknowledged() == [0]
    with pytest.raises(LocalProtocolError):
        leader.append()


def test_head_that_a_replica_behind_does_not_have_stops_no_leader() -> None:
    bench = Bench()
    leader = filled(bench)
    for _ in range(2):
        leader.tell(lm.HeadChanged())
        leader.tell(m.HeadRead(leader.take(m.ReadHead).request, MetadataOutcome.GONE))
        leader.tell(m.Synced(leader.take(m.Sync).request, MetadataOutcome.UNAVAILABLE))
        assert not leader.has(m.ReadHead), "it waits before it asks again"
        leader.fire()
        leader.tell(m.HeadRead(leader.take(m.ReadHead).request, MetadataOutcome.GONE))
        leader.answer(m.Sync)
        leader.answer(m.ReadHead)
        assert leader.machine.phase is LeaderPhase.LEADING
    leader.append()
    assert leader.confirm(bench.open_ids[-1])


def test_changes_of_the_head_that_leave_the_log_there_cost_one_read_each_and_nothing_else() -> None:
    bench = Bench()
    leader = filled(bench)
    for _ in range(2):
        leader.tell(lm.HeadChanged())
        leader.answer(m.ReadHead)
        assert not leader.has(m.ReadHead)
    leader.append()
    assert leader.confirm(bench.open_ids[-1])
    assert leader.acknowledged() == [0, 1]


def test_change_of_the_head_during_a_look_is_looked_at_once_that_is_answered() -> None:
    bench = Bench()
    leader = filled(bench)
    leader.tell(lm.HeadChanged())
    older = leader.carry_out(leader.take(m.ReadHead))
    delete(bench)
    for _ in range(3):
        leader.tell(lm.HeadChanged())
    assert not leader.has(m.ReadHead)
    leader.tell(older)
    assert leader.machine.phase is LeaderPhase.LEADING
    leader.answer(m.ReadHead)
    assert isinstance(stopped(leader).error, LogNotFoundError)


def test_leader_goes_on_without_the_store_and_finds_the_log_deleted_when_it_is_back() -> None:
    bench = Bench()
    leader = filled(bench)
    leader.tell(lm.HeadChanged())
    for _ in range(3 * SETTINGS.retry.attempts_max):
        ask = leader.take(m.ReadHead)
        leader.tell(m.HeadRead(ask.request, MetadataOutcome.UNAVAILABLE))
        leader.tell(lm.HeadChanged())
        assert not leader.has(m.ReadHead), "it waits before it asks again"
        leader.append()
        assert leader.confirm(bench.open_ids[-1])
        leader.fire()
    delete(bench)
    leader.answer(m.ReadHead)
    assert isinstance(stopped(leader).error, LogNotFoundError)


def test_log_deleted_right_behind_the_opening_is_noticed_as_soon_as_it_is_opened() -> None:
    bench = Bench()
    leader = bench.process()
    leader.start()
    leader.answer_until_listing()
    opened = leader.carry_out(leader.take(m.WriteHead))
    delete(bench)
    leader.tell(lm.HeadChanged())
    assert not leader.waiting
    leader.tell(opened)
    leader.answer(m.ReadHead)
    assert isinstance(stopped(leader).error, LogNotFoundError)


def test_log_deleted_while_the_leader_closes_is_no_clean_end() -> None:
    bench = Bench()
    leader = filled(bench)
    leader.tell(CloseRequested())
    delete(bench)
    leader.tell(lm.HeadChanged())
    leader.answer(m.ReadHead)
    assert isinstance(stopped(leader).error, LogNotFoundError)
    leader.settle()
    assert not any(isinstance(said, lm.LeaderClosed) for said in leader.said)


def test_sweeper_leaves_an_open_ledger_alone() -> None:
    bench = Bench()
    bench.leader()
    (first,) = bench.open_ids
    sweep = LedgerSweep("flights", {first: 7})
    ask: Any
    (ask,) = sweep.start()
    while isinstance(ask, m.Sync | m.ReadHead):
        (ask,) = sweep.handle(bench.log.reply(ask))
    assert ask == m.Finished(())
