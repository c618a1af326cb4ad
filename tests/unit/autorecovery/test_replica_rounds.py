"""The replica check: its laps, its rounds, and requests that fail or come late."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ledgerlog_spark.model import Fragment, LedgerMetadata, Quorum, Version
from ledgerlog_spark.protocol.autorecovery.audit import messages as m
from ledgerlog_spark.protocol.autorecovery.audit.replicas import SILENT_MAX
from ledgerlog_spark.protocol.autorecovery.audit.unknown import UnknownCopies, UnknownCopy
from ledgerlog_spark.protocol.ledger.messages import StartTimer
from tests.unit.autorecovery.check_player import (
    LISTED,
    NAMES,
    UNKNOWN,
    Played,
    record,
    replica_check,
)


def next_round(played: Played) -> None:
    """Play the round after the pause in which the check is, up to the next pause."""
    pauses = [each for each in played.seen_of(StartTimer) if each.delay_ms > 1_000]
    for _ in range(1_000):
        found = [each for each in played.seen_of(StartTimer) if each.delay_ms > 1_000]
        if len(found) > len(pauses):
            return
        played.run(StartTimer, times=len(played.seen_of(StartTimer)) + 1)
    raise AssertionError("no round")


def test_a_reply_to_another_request_is_not_taken() -> None:
    played = Played(replica_check(), record(1))
    played.run(m.ListCopies)
    late = replace(played._reply(played.open), request=played.open.request - 1)
    assert played.machine.handle(late) == []
    played.lists["c"] = LISTED, []
    assert played.run(m.WriteHole).holes == (m.FoundHole("c", 0, 0, 9),)


def test_a_record_that_could_not_be_read_is_read_again() -> None:
    played = Played(replica_check(), record(1))
    played.lists["b"] = LISTED, []
    played.loads_fail = 3
    assert played.run(m.WriteHole).holes == (m.FoundHole("b", 0, 0, 9),)
    assert len(played.seen_of(m.LoadRecords)) == 4
    assert not played.seen_of(m.CheckEnded), "all in the same lap"


def test_a_fragment_that_ended_is_checked_in_the_next_lap() -> None:
    opened = LedgerMetadata(Quorum(3, 3, 2), (Fragment(0, NAMES),))
    played = Played(replica_check(rounds_between_laps=1), m.LedgerRecord(1, opened, Version(1, 0)))
    played.elapsed_ms = 0
    played.run(m.CheckEnded)
    longer = replace(opened, fragments=(*opened.fragments, Fragment(10, ("a", "b", "d"))))
    played.records[1] = m.LedgerRecord(1, longer, Version(1, 1))
    played.run(m.CheckEnded, times=2)
    assert [each.bookie_id for each in played.seen_of(m.ListCopies)] == list(NAMES)


def test_a_record_that_changes_is_checked_again_in_the_same_lap() -> None:
    played = Played(replica_check(), record(1))
    played.lists["b"] = LISTED, []

    def write() -> None:
        played.records[1] = record(1, version=1)

    played.on_load = write
    assert played.run(m.CheckEnded).holes == 1
    assert played.seen_of(m.WriteHole)[0].holes == (m.FoundHole("b", 0, 0, 9),)


def test_an_answer_in_the_next_check_ends_the_doubt() -> None:
    unknown = UnknownCopies()
    played = Played(replica_check(unknown, rounds_between_laps=0), record(1))
    played.lists["c"] = UNKNOWN, ()
    played.run(m.CheckEnded)
    assert len(unknown) == 1
    del played.lists["c"]
    played.run(m.CheckEnded, times=2)
    assert len(unknown) == 0


def test_a_round_forgets_copies_that_are_not_owed_any_more() -> None:
    for change in ("not registered", "not named", "deleted"):
        unknown = UnknownCopies()
        played = Played(replica_check(unknown, rounds_between_laps=100), record(1))
        played.lists["c"] = UNKNOWN, ()
        played.run(m.CheckEnded)
        next_round(played)
        listed = len(played.seen_of(m.ListCopies))
        if change == "not registered":
            played.registered = frozenset("ab")
        elif change == "not named":
            played.records[1] = record(1, version=1, names="abd")
        else:
            del played.records[1]
        next_round(played)
        assert len(unknown) == 0, change
        assert len(played.seen_of(m.ListCopies)) == listed, change
        assert not played.seen_of(m.WriteHole)


def of_entries(count: int, **reads: Any) -> tuple[UnknownCopies, Played]:
    """Play a round in which some entries of `a` are unknown."""
    unknown = UnknownCopies()
    for entry_id in range(count):
        unknown.note(UnknownCopy(1, "a", entry_id))
    played = Played(replica_check(unknown, rounds_between_laps=100), record(1))
    played.elapsed_ms = 0
    played.reads.update(reads)
    played.run(m.CheckEnded)
    next_round(played)
    return unknown, played


def test_a_round_reads_few_entries_of_a_silent_bookie() -> None:
    _, played = of_entries(
        8, a=lambda request, ids: m.CopiesVerified(request, ids[0] - 1, is_unknown=True)
    )
    assert len(played.seen_of(m.VerifyCopies)) == SILENT_MAX


def test_an_entry_that_is_absent_after_all_is_missing_and_not_damaged() -> None:
    unknown, played = of_entries(
        1, a=lambda request, ids: m.CopiesVerified(request, ids[0], absent=ids)
    )
    assert played.seen_of(m.WriteHole)[0].holes == (m.FoundHole("a", 0, 0, 0),)
    assert len(unknown) == 0


def test_an_entry_of_another_stripe_is_not_read() -> None:
    """The bookie has another place in the ensemble now."""
    unknown = UnknownCopies()
    unknown.note(UnknownCopy(1, "a", 0))
    striped = LedgerMetadata(Quorum(3, 2, 2), (Fragment(0, ("b", "c", "a")),)).closed(
        last_entry_id=9, length=10
    )
    played = Played(
        replica_check(unknown, rounds_between_laps=100),
        m.LedgerRecord(1, striped, Version(1, 0)),
    )
    played.elapsed_ms = 0
    played.run(m.CheckEnded)
    next_round(played)
    assert len(unknown) == 0
    assert not played.seen_of(m.VerifyCopies)
