"""The rate of copies, and the pauses after failures (AUTORECOVERY.md#X11, AUTORECOVERY.md#X12)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from heapq import heappop, heappush

import pytest

from ledgerlog_spark.protocol.autorecovery.replicate import schedule
from ledgerlog_spark.protocol.autorecovery.replicate.messages import JobOutcome, TaskQueue
from ledgerlog_spark.protocol.autorecovery.replicate.pace import (
    FACTOR_MIN,
    UNLIMITED_RATE_MIN,
    AddLoad,
    CopyPace,
)
from ledgerlog_spark.protocol.autorecovery.replicate.schedule import TaskSchedule

KEY = (TaskQueue.MARK, 7)
RUN_BYTES = 1 << 20


def took(pace: CopyPace, duration_ms: float, now_ms: float, size_bytes: int = 0) -> None:
    """Note an add that was in flight alone."""
    pace.add_took(duration_ms, now_ms, AddLoad(size_bytes, size_bytes))


class Copying:
    """Jobs that read a run and add it, again and again, in virtual time.

    Each target stores one run after the other, each in 10 ms. Before, all runs pass the worker,
    also one after the other.
    """

    def __init__(self, jobs: int, targets: int, worker_run_ms: float = 1.0) -> None:
        self.pace = CopyPace()
        self.run_ms = 10.0
        self.now_ms = 1e6
        self.factor_min = 1.0
        self._worker_run_ms = worker_run_ms
        self._worker_free_ms = 0.0
        self._free_ms = [0.0] * targets
        self._events: list[tuple[float, int, Callable[[int], None]]] = []
        self._ending: set[int] = set()
        self._adding: dict[int, tuple[float, AddLoad, ExitStack]] = {}
        self.start(range(jobs))

    def start(self, jobs: range) -> None:
        """Let more jobs copy."""
        for job in jobs:
            heappush(self._events, (self.now_ms, job, self._read))

    def end_after_add(self, jobs: range) -> None:
        """Let these jobs end when their add has ended."""
        self._ending.update(jobs)

    def run(self, seconds: float) -> float:
        """Copy for some seconds. Return the runs that targets stored in a second."""
        end_ms, stored = self.now_ms + 1e3 * seconds, 0
        while self._events[0][0] < end_ms:
            self.now_ms, job, step = heappop(self._events)
            step(job)
            stored += step == self._added
            self.factor_min = min(self.factor_min, self.pace.factor)
        return stored / seconds

    def _read(self, job: int) -> None:
        wait_ms = self.pace.take(RUN_BYTES, self.now_ms)
        heappush(self._events, (self.now_ms + 5 + wait_ms, job, self._add))

    def _add(self, job: int) -> None:
        target, stack = job % len(self._free_ms), ExitStack()
        load = stack.enter_context(self.pace.adding(f"bookie-{target}", RUN_BYTES))
        self._adding[job] = self.now_ms, load, stack
        self._worker_free_ms = max(self._worker_free_ms, self.now_ms) + self._worker_run_ms
        self._free_ms[target] = max(self._worker_free_ms, self._free_ms[target]) + self.run_ms
        heappush(self._events, (self._free_ms[target], job, self._added))

    def _added(self, job: int) -> None:
        begun_ms, load, stack = self._adding.pop(job)
        stack.close()
        self.pace.add_took(self.now_ms - begun_ms, self.now_ms, load)
        if job not in self._ending:
            self._read(job)


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
        took(pace, 5, now_ms)
    assert pace.rate() == 6_400
    factors = []
    for second in range(1, 12):
        for step in range(10):
            took(pace, 50, 1_000 * second + 100 * step)
        factors.append(pace.factor)
    assert factors[:3] == [0.5, 0.25, 0.125]
    assert factors[-1] == FACTOR_MIN
    assert pace.take(100, 12_000) == 1_000
    for now_ms in range(13_000, 40_000, 100):
        took(pace, 5, now_ms)
    assert pace.factor == 1


def test_slow_targets_slow_down_a_worker_without_a_limit_too() -> None:
    pace = CopyPace()
    for now_ms in range(0, 2_000, 10):
        pace.take(1_000_000, now_ms)
        took(pace, 5, now_ms)
    assert pace.rate() == 0
    for now_ms in range(2_000, 2_900, 10):
        took(pace, 50, now_ms)
    assert 40e6 < pace.rate() < 60e6


def test_time_in_which_nothing_is_copied_makes_no_rate_small() -> None:
    """A worker was idle for a minute, and then copied 5 MB in half an hour."""
    pace = CopyPace()
    now_ms = 1e6  # of a machine that has run for a while
    pace.take(63_632, now_ms)
    took(pace, 3, now_ms + 3)
    pace.take(803_936, now_ms + 5)
    took(pace, 12, now_ms + 17)
    now_ms += 55_000
    waited_ms = 0.0
    for _ in range(6):
        wait_ms = pace.take(900_000, now_ms)
        waited_ms += wait_ms
        now_ms += wait_ms + 15
        took(pace, 15, now_ms)
    assert waited_ms < 1_000 * 6 * 900_000 / UNLIMITED_RATE_MIN


def test_the_rate_before_a_pause_counts_after_it() -> None:
    pace = CopyPace()
    for now_ms in range(0, 3_000, 10):
        pace.take(100_000, now_ms)
        took(pace, 5, now_ms)
    pace.take(100_000, 63_000)
    for now_ms in range(63_000, 63_900, 10):
        took(pace, 50, now_ms)
    assert 4e6 < pace.rate() < 6e6


def test_a_large_run_after_a_small_one_is_not_slow() -> None:
    pace = CopyPace()
    for now_ms in range(0, 5_000, 100):
        took(pace, 1, now_ms, 1_000)
    for now_ms in range(5_000, 20_000, 100):
        took(pace, 16, now_ms, 1 << 20)
    assert pace.factor == 1


@pytest.mark.parametrize("targets", [1, 3, 8])
@pytest.mark.parametrize("jobs", [1, 2, 4, 8, 16])
def test_adds_that_only_wait_for_each_other_are_not_slow(jobs: int, targets: int) -> None:
    """The rate is that of the targets, or that of the worker, or that of one run at a time."""
    copying = Copying(jobs, targets)
    rate = copying.run(10)
    assert copying.factor_min == 1
    assert rate > 0.8 * min(jobs * 1_000 / 16, min(jobs, targets) * 1_000 / 10)
    busy = Copying(jobs, targets, worker_run_ms=8)
    busy.run(10)
    assert busy.factor_min == 1


@pytest.mark.parametrize("worker_run_ms", [1, 50])
def test_more_or_fewer_jobs_do_not_make_targets_slow(worker_run_ms: float) -> None:
    """The targets limit the rate in the first case, and the worker in the second."""
    copying = Copying(1, 8, worker_run_ms)
    copying.run(10)
    copying.start(range(1, 8))
    copying.run(10)
    copying.end_after_add(range(1, 8))
    copying.run(10)
    assert copying.factor_min == 1


def test_one_fast_add_is_not_the_usual_time() -> None:
    pace = CopyPace()
    for step in range(100):
        took(pace, 1 if step == 0 else 5, 1e6 + 100 * step)
        assert pace.factor == 1


@pytest.mark.parametrize("targets", [1, 3])
@pytest.mark.parametrize("jobs", [1, 4, 8])
def test_targets_that_become_slow_are_slow_for_each_number_of_jobs(jobs: int, targets: int) -> None:
    copying = Copying(jobs, targets)
    copying.run(5)
    copying.run_ms *= 4
    copying.run(5)
    assert copying.factor_min < 0.1


def test_targets_that_become_slow_at_once_leave_a_part_of_the_rate() -> None:
    """The rate was not yet measured for a second."""
    pace = CopyPace()
    for step in range(80):
        pace.take(RUN_BYTES, 1e6 + 10 * step)
        took(pace, 5 if step < 40 else 50, 1e6 + 10 * step)
    assert pace.factor == 0.5
    assert 20 * RUN_BYTES < pace.rate() < 60 * RUN_BYTES


def test_adds_in_flight_are_counted_by_target_until_they_end() -> None:
    pace = CopyPace()
    with (
        pytest.raises(TimeoutError),
        pace.adding("a", 10) as first,
        pace.adding("b", 20) as second,
        pace.adding("a", 30) as third,
    ):
        raise TimeoutError
    assert (first, second, third) == (AddLoad(10, 10), AddLoad(20, 30), AddLoad(40, 60))
    with pace.adding("a", 1) as last:
        assert last == AddLoad(1, 1)


def test_a_cluster_that_stays_slower_is_not_slow_for_ever() -> None:
    pace = CopyPace(bytes_per_second_max=6_400)
    for now_ms in range(0, 1_000, 10):
        took(pace, 5, now_ms)
    factors = []
    for second in range(1, 200):
        took(pace, 50, 1_000 * second)
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
    tasks.begin(KEY)
    assert tasks.end(KEY, JobOutcome.NO_SPARE, now_ms) == 1
    assert tasks.pause_ms(KEY) == 5_000, "the bookie may serve soon"


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
