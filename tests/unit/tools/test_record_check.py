"""Faults in the metadata of a ledger."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ledgerlog_spark.model import Fragment, LedgerMetadata, Quorum
from ledgerlog_spark.tools.findings import Severity, ToolFinding
from ledgerlog_spark.tools.record_check import KnownMembers, check_record

ABC = ("a", "b", "c")
OPEN = LedgerMetadata(Quorum(3, 3, 2), (Fragment(0, ABC),))
CLOSED = OPEN.closed(last_entry_id=9, length=40)
ALL = KnownMembers(frozenset("abcd"), frozenset("abcd"))


def found(metadata: LedgerMetadata, members: KnownMembers = ALL) -> list[tuple[Severity, str]]:
    return [(each.severity, each.what) for each in check_record(7, metadata, members)]


def only(metadata: LedgerMetadata, members: KnownMembers = ALL) -> ToolFinding:
    (finding,) = check_record(7, metadata, members)
    assert finding.ledger_id == 7
    return finding


@pytest.mark.parametrize(
    "metadata",
    [
        OPEN,
        CLOSED,
        OPEN.closed(last_entry_id=-1, length=0),
        OPEN.closed(last_entry_id=3, length=0),  # entries without payload
        CLOSED.with_fragments((Fragment(0, ABC), Fragment(9, ("a", "b", "d")))),
    ],
)
def test_sound_records_have_no_finding(metadata: LedgerMetadata) -> None:
    assert found(metadata) == []


def test_a_length_without_an_entry_is_wrong() -> None:
    finding = only(OPEN.closed(last_entry_id=-1, length=5))
    assert finding.severity is Severity.WRONG
    assert "length is 5 bytes" in finding.what


def test_a_bookie_twice_in_an_ensemble_is_wrong() -> None:
    finding = only(OPEN.with_fragments((Fragment(0, ("a", "b", "a")),)))
    assert finding.severity is Severity.WRONG
    assert "has a twice" in finding.what


@pytest.mark.parametrize(("first", "severity"), [(10, Severity.NOTE), (11, Severity.WRONG)])
def test_a_fragment_after_the_end_is_wrong_unless_it_begins_there(
    first: int, severity: Severity
) -> None:
    finding = only(CLOSED.with_fragments((Fragment(0, ABC), Fragment(first, ABC))))
    assert finding.severity is severity
    assert bool(finding.advice) == (severity is Severity.WRONG)


@pytest.mark.parametrize(
    ("known", "severity", "left"),
    [("abd", Severity.WARNING, 2), ("ad", Severity.WRONG, 1), ("d", Severity.WRONG, 0)],
)
def test_bookies_without_a_cookie_are_wrong_once_an_ack_quorum_may_be_gone(
    known: str, severity: Severity, left: int
) -> None:
    members = KnownMembers(frozenset(known), frozenset(known))
    finding = only(OPEN, members)
    assert finding.severity is severity
    assert f"at most {left} of 3 copies" in finding.what


def test_striped_ensembles_count_the_worst_write_set() -> None:
    striped = LedgerMetadata(Quorum(4, 2, 2), (Fragment(0, ("a", "b", "c", "x")),))
    assert only(striped).severity is Severity.WRONG
    assert "at most 1 of 2" in only(striped).what
    assert only(replace(striped, quorum=Quorum(4, 2, 1))).severity is Severity.WARNING


@pytest.mark.parametrize(
    ("running", "severity"),
    [("ab", Severity.NOTE), ("a", Severity.NOTE), ("", Severity.WARNING)],
)
def test_bookies_that_do_not_run_are_a_note_while_entries_can_be_read(
    running: str, severity: Severity
) -> None:
    finding = only(OPEN, KnownMembers(frozenset("abc"), frozenset(running)))
    assert finding.severity is severity
    assert f"At least {len(running)} of 3" in finding.what


def test_a_recovery_and_an_old_format_are_notes() -> None:
    old = replace(OPEN.in_recovery(), format_version=2)
    assert [severity for severity, _ in found(old)] == [Severity.NOTE, Severity.NOTE]
    assert "ledgers seal 7" in next(check_record(7, old, ALL)).advice
