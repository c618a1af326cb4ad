"""The machines of the checks, played step by step."""

from __future__ import annotations

from typing import Any

import pytest

from ledgerlog_spark.model import Fragment, LedgerMetadata, LedgerState, Quorum, Version
from ledgerlog_spark.protocol.autorecovery.audit import messages as m
from ledgerlog_spark.protocol.autorecovery.audit.check_machine import (
    HOLES_MAX,
    NOTE_ATTEMPTS_MAX,
    bounded,
)
from ledgerlog_spark.protocol.autorecovery.audit.digests import (
    POSITION_SIZE_BYTES,
    UNKNOWN_ENTRIES_MAX,
    VERIFIED_ENTRIES_MAX,
    DigestSettings,
    owned_from,
)
from ledgerlog_spark.protocol.autorecovery.audit.replicas import (
    SILENT_MAX,
)
from ledgerlog_spark.protocol.autorecovery.audit.unknown import (
    ROUND_MS,
    ROUNDS,
    UNKNOWN_MAX,
    UnknownCopies,
    UnknownCopy,
)
from ledgerlog_spark.protocol.ledger.messages import StartTimer
from tests.unit.autorecovery.check_player import (
    LISTED,
    NAMES,
    UNKNOWN,
    Played,
    digest_check,
    record,
    replica_check,
)


def test_a_hole_is_reported_with_its_fragment_and_its_first_and_last_entry() -> None:
    played = Played(replica_check(), record(1))
    played.lists["b"] = LISTED, [(0, 3), (5, 6), (8, 9)]
    hole = played.run(m.WriteHole)
    assert hole.holes == (m.FoundHole("b", 0, 4, 7),)


def test_an_unregistered_member_is_not_listed() -> None:
    played = Played(replica_check(), record(1))
    played.registered = frozenset("ab")
    played.run(m.CheckEnded)
    assert [each.bookie_id for each in played.seen_of(m.ListCopies)] == ["a", "b"]


def test_a_record_that_changed_after_the_lists_is_checked_again() -> None:
    played = Played(replica_check(), record(1))
    played.lists["b"] = LISTED, []

    def move() -> None:
        played.records[1] = record(1, version=1, names="adc")
        played.registered |= {"d"}

    played.on_load = move
    ended = played.run(m.CheckEnded)
    assert not played.seen_of(m.WriteHole)
    assert ended.holes == 0


def test_a_list_that_is_unknown_counts_as_missing_only_after_all_rounds() -> None:
    played = Played(replica_check(rounds_between_laps=100), record(1))
    played.lists["c"] = UNKNOWN, ()
    hole = played.run(m.WriteHole)
    assert hole.holes == (m.FoundHole("c", 0, 0, 9),)
    waits = [each for each in played.seen_of(StartTimer) if each.delay_ms == ROUND_MS]
    assert len(waits) == ROUNDS


def test_an_answer_in_a_round_ends_the_wait() -> None:
    unknown = UnknownCopies()
    played = Played(replica_check(unknown), record(1))
    played.lists["c"] = UNKNOWN, ()
    played.run(m.ListCopies, times=5)
    assert len(unknown) == 1
    played.lists["c"] = LISTED, [(0, 8)]
    assert played.run(m.WriteHole).holes == (m.FoundHole("c", 0, 9, 9),)
    assert len(unknown) == 0


def test_a_round_leaves_the_copies_of_a_silent_bookie_to_the_next_one() -> None:
    unknown = UnknownCopies()
    played = Played(replica_check(unknown), *map(record, range(1, 9)))
    played.lists["c"] = UNKNOWN, ()
    played.run(m.CheckEnded)
    assert len(unknown) == 8
    listed = len(played.seen_of(m.ListCopies))
    played.run(StartTimer, times=len(played.seen_of(StartTimer)) + 1)
    asked = played.seen_of(m.ListCopies)[listed:]
    assert [each.ledger_id for each in asked] == [1, 2, 3]
    assert len(asked) == SILENT_MAX
    played.run(StartTimer, times=len(played.seen_of(StartTimer)) + 1)
    assert [each.ledger_id for each in played.seen_of(m.ListCopies)[listed + 3 :]] == [4, 5, 6]


def test_unknown_copies_are_bounded() -> None:
    unknown = UnknownCopies()
    for ledger_id in range(UNKNOWN_MAX + 5):
        unknown.note(UnknownCopy(ledger_id, "a"))
    assert len(unknown) == UNKNOWN_MAX


def test_a_lap_checks_only_ledgers_that_changed_while_no_whole_check_is_due() -> None:
    played = Played(replica_check(rounds_between_laps=1), record(1))
    played.elapsed_ms = 0
    played.run(m.CheckEnded)
    assert not played.seen_of(m.ListCopies)
    played.records[2] = record(2)
    played.run(m.CheckEnded, times=2)
    assert {each.ledger_id for each in played.seen_of(m.ListCopies)} == {2}
    assert not played.seen_of(m.StoreCheckTime)


def test_the_time_of_a_whole_check_is_stored_at_its_end() -> None:
    played = Played(replica_check(), record(1))
    stored = played.run(m.StoreCheckTime)
    assert (stored.kind, stored.is_complete) == (m.CheckKind.REPLICAS, True)


def test_a_disabled_auto_recovery_stops_the_check() -> None:
    played = Played(replica_check(), record(1))
    played.is_enabled = False
    played.run(StartTimer, times=5)
    assert not played.seen_of(m.ReadRecords)


def test_a_suspended_check_writes_no_note_and_gives_up_after_some_attempts() -> None:
    played = Played(replica_check(), record(1))
    played.lists["b"] = LISTED, []
    assert played.machine.handle(m.StoreSuspended()) == []
    played.run(m.CheckEnded)
    assert not played.seen_of(m.WriteHole)
    assert len(played.seen_of(StartTimer)) >= NOTE_ATTEMPTS_MAX


def test_a_note_that_fails_is_written_again() -> None:
    played = Played(replica_check(), record(1))
    played.lists["b"] = LISTED, []
    played.notes_fail = True
    played.run(m.WriteHole, times=3)
    played.notes_fail = False
    played.run(m.CheckEnded)
    assert len(played.seen_of(m.WriteHole)) == 3


def test_a_note_has_a_bounded_number_of_holes() -> None:
    fragments = tuple(Fragment(number, NAMES) for number in range(HOLES_MAX))
    metadata = LedgerMetadata(Quorum(3, 3, 2), fragments, LedgerState.CLOSED, HOLES_MAX, 1)
    played = Played(replica_check(), m.LedgerRecord(1, metadata, Version(1, 0)))
    for name in NAMES:
        played.lists[name] = LISTED, []
    holes = played.run(m.WriteHole).holes
    assert holes == tuple(m.FoundHole(name, -1, 0, HOLES_MAX) for name in NAMES)


@pytest.mark.parametrize("step", [2, 3])
def test_no_damaged_copy_is_left_out_of_a_note(step: int) -> None:
    played = Played(digest_check(), record(1, last=20_000))
    played.reads["b"] = lambda request, ids: m.CopiesVerified(
        request, ids[-1], damaged=tuple(one for one in ids if one % step == 0), size_bytes=1
    )
    (hole,) = played.run(m.WriteHole).holes
    assert hole == m.FoundHole("b", 0, 0, 20_000 // step * step, is_damaged=True)


def test_damaged_copies_are_first_in_a_note() -> None:
    missing = [m.FoundHole(f"m{one}", 0, 1, 1) for one in range(HOLES_MAX)]
    damaged = [m.FoundHole("d", 0, one, one, is_damaged=True) for one in (3, 9)]
    found = bounded([*missing, *damaged])
    assert len(found) == HOLES_MAX
    assert found[0] == m.FoundHole("d", -1, 3, 9, is_damaged=True)
    assert bounded(damaged) == tuple(damaged)


def test_a_ledger_of_days_is_left_when_auto_recovery_is_disabled() -> None:
    played = Played(digest_check(), record(1, last=100_000))
    played.reads["a"] = lambda request, ids: m.CopiesVerified(request, ids[-1], size_bytes=8 << 20)
    played.run(m.VerifyCopies, times=3)
    played.is_enabled = False
    read = len(played.seen_of(m.VerifyCopies))
    for _ in range(100):
        played._take(played.machine.handle(played._reply(played.open)))
    assert len(played.seen_of(m.VerifyCopies)) <= read + POSITION_SIZE_BYTES // (8 << 20)


def test_a_rate_that_is_too_low_for_the_interval_is_reported_once_a_day() -> None:
    day_ms = 86_400_000
    settings: dict[str, Any] = {"interval_ms": 2 * day_ms, "rate_bytes_per_second": 1_000}
    played = Played(digest_check(**settings), *[record(one) for one in range(100)])
    for name in NAMES:
        # A third of an hour for each copy, so an hour for each ledger.
        played.reads[name] = lambda request, ids: m.CopiesVerified(
            request, ids[-1], size_bytes=1_200_000
        )
    played.run(m.CheckEnded)
    late = played.seen_of(m.CheckLate)
    hours = [(one.elapsed_ms // 3_600_000, one.after) for one in late]
    assert hours == [(49, 48), (74, 73), (99, 98)]
    successor = Played(digest_check(**settings), *[record(one) for one in range(10)])
    successor.elapsed_ms, successor.after = 3 * day_ms, 5
    successor.run(m.CheckEnded)
    assert len(successor.seen_of(m.CheckLate)) == 1
    on_time = Played(digest_check(**settings), record(1))
    on_time.elapsed_ms = 3 * day_ms
    on_time.run(m.CheckEnded)
    assert not on_time.seen_of(m.CheckLate)


def test_a_machine_whose_session_ended_does_nothing_more() -> None:
    played = Played(replica_check(), record(1))
    assert played.machine.handle(m.SessionEnded()) == [m.SteppedDown()]
    assert played.machine.handle(m.ClusterRead(1, None)) == []


# Digests.


def test_each_copy_is_read_and_absent_and_damaged_ones_are_reported() -> None:
    played = Played(digest_check(), record(1))
    played.reads["b"] = lambda request, ids: m.CopiesVerified(
        request, ids[-1], (2,), (5,), size_bytes=9
    )
    hole = played.run(m.WriteHole)
    assert hole.holes == (
        m.FoundHole("b", 0, 2, 2),
        m.FoundHole("b", 0, 5, 5, is_damaged=True),
    )
    assert played.run(m.CheckEnded).size_bytes == 2_009
    assert {each.bookie_id for each in played.seen_of(m.VerifyCopies)} == set(NAMES)


def test_a_short_answer_is_continued() -> None:
    played = Played(digest_check(), record(1))
    played.reads["a"] = lambda request, ids: m.CopiesVerified(request, ids[0], size_bytes=1)
    played.run(m.CheckEnded)
    asked = [each.entry_ids[0] for each in played.seen_of(m.VerifyCopies) if each.bookie_id == "a"]
    assert asked == list(range(10))


def test_unknown_entries_are_skipped_up_to_a_limit_and_looked_at_again() -> None:
    unknown = UnknownCopies()
    played = Played(digest_check(unknown), record(1))
    played.reads["a"] = lambda request, ids: m.CopiesVerified(request, ids[0] - 1, is_unknown=True)
    played.run(m.CheckEnded)
    entries = [each.entry_id for each in unknown.pending]
    assert entries == list(range(UNKNOWN_ENTRIES_MAX))

    again = Played(replica_check(unknown, rounds_between_laps=100), record(1))
    again.elapsed_ms = 0
    again.reads["a"] = lambda request, ids: m.CopiesVerified(request, ids[0] - 1, is_unknown=True)
    assert again.run(m.WriteHole).holes == (m.FoundHole("a", 0, 0, 0, is_damaged=True),)
    again.reads["a"] = lambda request, ids: m.CopiesVerified(request, ids[0])
    again.lists["a"] = LISTED, [(0, 9)]
    again.run(m.CheckEnded, times=len(again.seen_of(m.CheckEnded)) + 1)
    assert len(unknown) == 0


def test_reads_wait_for_the_time_that_their_bytes_are_worth() -> None:
    played = Played(digest_check(rate_bytes_per_second=10_000), record(1))
    played.run(m.CheckEnded)
    *waits, pause = [each.delay_ms for each in played.seen_of(StartTimer)]
    assert sum(waits) == 300
    # After a pass, the end of it is stored before the position is read again.
    assert pause == DigestSettings().poll_ms
    assert len(played.seen_of(m.ReadCheckTime)) == 1


def test_a_pass_is_due_again_only_after_its_interval() -> None:
    played = Played(digest_check(interval_ms=1_000), record(1))
    played.elapsed_ms = 999
    played.run(StartTimer, times=3)
    assert not played.seen_of(m.VerifyCopies)
    played.elapsed_ms = 1_000
    played.run(m.CheckEnded)
    assert played.seen_of(m.StoreCheckTime)[-1] == m.StoreCheckTime(m.CheckKind.DIGESTS, 1, True)


def test_a_successor_continues_at_the_position() -> None:
    played = Played(digest_check(), record(1), record(2), record(3))
    played.elapsed_ms, played.after = 0, 2
    played.run(m.CheckEnded)
    assert {each.record.ledger_id for each in played.seen_of(m.VerifyCopies)} == {3}


@pytest.mark.parametrize("quorum", [Quorum(3, 3, 2), Quorum(5, 3, 2)])
def test_the_next_entries_of_a_stripe_are_bounded(quorum: Quorum) -> None:
    assert len(owned_from(quorum, 1, 0, 10_000)) == VERIFIED_ENTRIES_MAX
    assert owned_from(quorum, 1, 7, 7) == ()
