"""The arrival times of records of a leader log, and the reported lag."""

from __future__ import annotations

from ledgerlog_spark.datasource.stream.source import report_of
from ledgerlog_spark.datasource.stream.watched_logs import LOOKS_MAX, ArrivalTimes
from ledgerlog_spark.model import NO_ENTRY
from ledgerlog_spark.protocol.log.read.view import LogView
from ledgerlog_spark.protocol.log.state.records import Item, LogKind


def ledger(number: int, first_offset: int, end_offset: int, newest_ms: int) -> Item:
    rows = end_offset - first_offset
    return Item(
        ledger_id=number,
        first_entry_id=0,
        last_entry_id=rows - 1,
        index_entry_id=NO_ENTRY,
        rows=rows,
        size_bytes=10 * rows,
        first_offset=first_offset,
        schema_id=0,
        newest_ms=newest_ms,
    )


def test_a_record_came_before_the_look_that_saw_it_first() -> None:
    arrivals = ArrivalTimes()
    arrivals.note([ledger(1, 0, 10, 1_000)])
    arrivals.note([ledger(1, 0, 15, 2_000)])
    arrivals.note([ledger(1, 0, 15, 2_000), ledger(2, 15, 20, 3_000)])
    found = [arrivals.came_ms(offset) for offset in (0, 9, 10, 14, 15, 19)]
    assert found == [1_000, 1_000, 2_000, 2_000, 3_000, 3_000]


def test_a_record_that_is_not_there_yet_did_not_come() -> None:
    arrivals = ArrivalTimes()
    assert arrivals.came_ms(0) == 0
    arrivals.note([ledger(1, 0, 10, 1_000)])
    assert arrivals.came_ms(10) == 0


def test_a_look_that_sees_nothing_new_or_less_changes_nothing() -> None:
    arrivals = ArrivalTimes()
    arrivals.note([ledger(1, 0, 10, 1_000)])
    arrivals.note([ledger(1, 0, 10, 1_000)])
    arrivals.note([ledger(1, 0, 5, 500)])
    assert [arrivals.came_ms(offset) for offset in (0, 5)] == [1_000, 1_000]


def test_of_very_many_looks_some_are_forgotten_and_times_are_never_too_early() -> None:
    arrivals = ArrivalTimes()
    looks = 3 * LOOKS_MAX
    for end in range(1, looks + 1):
        arrivals.note([ledger(1, 0, end, 1_000 + end)])
    found = [arrivals.came_ms(offset) for offset in range(looks)]
    assert found == sorted(found)
    assert all(came > 1_000 + offset for offset, came in enumerate(found))
    late = [came - 1_001 - offset for offset, came in enumerate(found)]
    assert set(late[-LOOKS_MAX // 4 :]) == {0}
    assert max(late) < 16


def test_lag_of_a_leader_log_counts_from_when_its_records_came() -> None:
    arrivals = ArrivalTimes()
    items = (ledger(1, 0, 10, 1_000), ledger(2, 10, 40, 9_000))
    arrivals.note(items)
    view = LogView("id", "orders", 0, 0, 40, 0, items, (), {}, 0, kind=LogKind.LEADER)
    behind = report_of(view, 4, now_ms=11_500, came_ms=arrivals.came_ms)
    assert behind["lag"] == {"rows": 36, "bytes": 360, "ms": 10_500}
    caught_up = report_of(view, 40, now_ms=11_500, came_ms=arrivals.came_ms)
    assert caught_up["lag"] == {"rows": 0, "bytes": 0, "ms": 0}
