"""The rate of copies, and the pauses after failures (AUTORECOVERY.md#X11, AUTORECOVERY.md#X12)."""

from __future__ import annotations

from ledgerlog_spark.protocol.autorecovery.replicate import schedule
from ledgerlog_spark.protocol.autorecovery.replicate.messages import JobOutcome, TaskQueue
from ledgerlog_spark.protocol.autorecovery.replicate.pace import (
    FACTOR_MIN,
    UNLIMITED_RATE_MIN,
    CopyPace,
)
from ledgerlog_spark.protocol.autorecovery.replicate.schedule import TaskSchedule

KEY = (TaskQueue.MARK, 7)


def test_a_limit_spreads_the_bytes_over_the_time() -> None:
    pace = CopyPace(bytes_per_second_max=1_000)
    waited, now_ms = 0.0, 0.0
    for _ in range(10):
        wait_ms = pace.take(500, now_ms)
        now_ms += wait_ms
        waited += wait_ms
    assert waited == 5_000
    # Time in which nothing is copied gives no credit.
    assert pace.take(500, now_ms + 60_000) == 500


def test_without_a_limit_nothing_waits() -> None:
    pace = CopyPace()
    assert all(pace.take(1 << 20, now_ms) == 0 for now_ms in range(0, 5_000, 10))


def test_slow_targets_halve_the_rate_each_second_down_to_a_minimum() -> None:
    pace = CopyPace(bytes_per_second_max=6_400)
    for now_ms in range(0, 1_000, 10):
        pace.add_took(5, now_ms)
    assert pace.rate() == 6_400
    factors = []
    for second in range(1, 12):
        for step in range(10):
            pace.add_took(50, 1_000 * second + 100 * step)
        factors.append(pace.factor)
    assert factors[:3] == [0.5, 0.25, 0.125]
    assert factors[-1] == FACTOR_MIN
    assert pace.take(100, 12_000) == 1_000
    for now_ms in range(13_000, 40_000, 100):
        pace.add_took(5, now_ms)
    assert pace.factor == 1


def test_slow_targets_slow_down_a_worker_without_a_limit_too() -> None:
    pace = CopyPace()
    for now_ms in range(0, 2_000, 10):
        pace.take(1_000_000, now_ms)
        pace.add_took(5, now_ms)
    assert pace.rate() == 0
    for now_ms in range(2_000, 2_900, 10):
        pace.add_took(50, now_ms)
    assert 40e6 < pace.rate() < 60e6


def test_time_in_which_nothing_is_copied_makes_no_rate_small() -> None:
    """A worker was idle for a minute, and then copied 5 MB in half an hour."""
    pace = CopyPace()
    now_ms = 1e6  # of a machine that has run for a while
    pace.take(63_632, now_ms)
    pace.add_took(3, now_ms + 3)
    pace.take(803_936, now_ms + 5)
    pace.add_took(12, now_ms + 17)
    now_ms += 55_000
    waited_ms = 0.0
    for _ in range(6):
        wait_ms = pace.take(900_000, now_ms)
        waited_ms += wait_ms
        now_ms += wait_ms + 15
        pace.add_took(15, now_ms)
    assert waited_ms < 1_000 * 6 * 900_000 / UNLIMITED_RATE_MIN


def test_a_large_run_after_a_small_one_is_not_slow() -> None:
    pace = CopyPace()
    for now_ms in range(0, 5_000, 100):
        pace.add_took(1, now_ms, 1_000)
    for now_ms in range(5_000, 20_000, 100):
        pace.add_took(16, now_ms, 1 << 20)
    assert pace.factor == 1


def test_a_cluster_that_stays_slower_is_not_slow_for_ever() -> None:
    pace = CopyPace(bytes_per_second_max=6_400)
    for now_ms in range(0, 1_000, 10):
        pace.add_took(5, now_ms)
    factors = []
    for second in range(1, 200):
        pace.add_took(50, 1_000 * second)
        factors.append(pace.factor)
    assert min(factors) == FACTOR_MIN
    assert factors[60] < 1, "but for a while"
    assert factors[-1] == 1


def test_a_failed_task_waits_longer_each_time_and_a_new_bookie_makes_it_due() -> None:
    tasks = TaskSchedule()
    now_ms, pauses = 0.0, []
    for _ in range(9):
        assert list(tasks.due([KEY], now_ms)) == [KEY]
        tasks.begin(KEY)
        assert not list(tasks.due([KEY], now_ms))
        tasks.end(KEY, JobOutcome.NO_SPARE, now_ms)
        pauses.append(tasks.pause_ms(KEY) // 1_000)
        assert not list(tasks.due([KEY], now_ms))
        due_ms = tasks.next_due_ms([KEY])
        assert due_ms is not None
        now_ms = due_ms
    assert pauses == [5, 10, 20, 40, 80, 160, 300, 300, 300]
    tasks.begin(KEY)
    tasks.end(KEY, JobOutcome.NO_SPARE, now_ms)
    tasks.reset()
    assert list(tasks.due([KEY], now_ms)) == [KEY]


def test_a_ledger_has_one_job_and_a_taken_one_is_no_failure() -> None:
    tasks = TaskSchedule()
    tasks.begin(KEY)
    other_queue = (TaskQueue.HOLE, 7)
    assert not list(tasks.due([other_queue], 0))
    assert tasks.running == {7}
    assert tasks.end(KEY, JobOutcome.LOCKED, 0) == 0
    assert list(tasks.due([other_queue], 0)) == [other_queue]
    tasks.begin(KEY)
    assert tasks.end(KEY, JobOutcome.UNAVAILABLE, 5_000) == 1
    assert tasks.end(KEY, JobOutcome.HEALED, 6_000) == 0
    assert tasks.next_due_ms([KEY, other_queue]) is None
    assert tasks.end(KEY, None, 6_000) == 0


def test_failures_of_tasks_that_a_queue_has_no_more_are_forgotten() -> None:
    tasks = TaskSchedule()
    keys = [(TaskQueue.MARK, one) for one in (1, 5, 6, 9)]
    for key in (*keys, (TaskQueue.HOLE, 5)):
        tasks.end(key, JobOutcome.NO_SPARE, 0)
    tasks.scanned(TaskQueue.MARK, 4, 8, [6])
    assert [key for key in keys if tasks.pause_ms(key)] == [(TaskQueue.MARK, o) for o in (1, 6, 9)]
    assert tasks.pause_ms((TaskQueue.HOLE, 5))
    tasks.scanned(TaskQueue.MARK, -1, None, [6])
    assert [key for key in keys if tasks.pause_ms(key)] == [(TaskQueue.MARK, 6)]


def test_a_ledger_with_a_job_wakes_nobody() -> None:
    tasks = TaskSchedule()
    tasks.end(KEY, JobOutcome.NO_SPARE, 0)
    assert tasks.next_due_ms([(TaskQueue.MARK, 8)]) is None
    assert tasks.next_due_ms([KEY]) == 5_000
    tasks.begin((TaskQueue.HOLE, 7))
    assert tasks.next_due_ms([KEY]) is None


def test_the_number_of_remembered_failures_is_bounded() -> None:
    tasks = TaskSchedule()
    for ledger_id in range(schedule.FAILED_MAX + 10):
        tasks.end((TaskQueue.MARK, ledger_id), JobOutcome.WAITING, 0)
    due = list(tasks.due([(TaskQueue.MARK, one) for one in range(20)], 0))
    assert due == [(TaskQueue.MARK, one) for one in range(10)]
