"""The line that shows the progress of a vacation."""

from __future__ import annotations

from dataclasses import replace

from ledgerlog_spark.autorecovery.vacate.runner import BLOCKED, UNREADABLE
from ledgerlog_spark.cli.vacations import BLOCKED_SHOWN_MAX, progress_text
from ledgerlog_spark.protocol.autorecovery.vacate.speed import VacatingRate
from ledgerlog_spark.wire.repair_notes import BlockedLedger, Vacation, VacationKind, VacationPhase

RATE = VacatingRate(1.0, 2e6, 75.0)
VACATION = Vacation(
    VacationKind.DRAIN,
    VacationPhase.VACATING,
    walks=1,
    ledgers_total=9,
    bytes_total=900,
    ledgers_left=4,
    bytes_left=400,
)


def test_a_vacation_shows_what_is_left_and_for_how_long() -> None:
    assert progress_text(replace(VACATION, walks=0), RATE) == "vacating: the ledgers are counted"
    assert progress_text(VACATION, RATE) == (
        "vacating: 4 of 9 ledgers and 400 of 900 bytes are left, 2.0 MB/s, about 1:15 min to go"
    )
    unknown = VacatingRate(0.0, 0.0, None)
    assert progress_text(VACATION, unknown).endswith("are left")


def test_the_wait_at_the_end_is_explained() -> None:
    waiting = replace(VACATION, ledgers_left=0, bytes_left=0)
    text = progress_text(waiting, VacatingRate(1.0, 2e6, 0.0))
    assert "to go" not in text
    assert "waiting about a minute" in text
    over = replace(waiting, phase=VacationPhase.VACATED)
    assert "waiting" not in progress_text(over, RATE)


def test_ledgers_that_do_not_move_are_named_with_the_reason() -> None:
    blocked = [BlockedLedger(one, BLOCKED) for one in range(BLOCKED_SHOWN_MAX + 1)]
    unreadable = [BlockedLedger(77, UNREADABLE)]
    both = replace(VACATION, blocked=(*blocked, *unreadable), blocked_count=31)
    text = progress_text(both, RATE)
    assert "30 open ledgers wait for a writer" in text
    assert "(0, 1, 2, 3, 4, ...)" in text
    assert "the metadata of ledgers 77 cannot be read" in text
    only = progress_text(replace(VACATION, blocked=tuple(unreadable), blocked_count=1), RATE)
    assert "writer" not in only
    assert "`ledgerlog ledgers check`" in only
