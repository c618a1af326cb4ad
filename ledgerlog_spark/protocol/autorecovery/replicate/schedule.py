"""Decides which ledgers of the queues a worker takes next, and when a failed one is tried again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ledgerlog_spark.protocol.autorecovery.replicate.messages import JobOutcome, TaskQueue
from ledgerlog_spark.retry import NO_LIMIT, RetryPolicy

RETRY = RetryPolicy(first_delay_ms=5_000, delay_max_ms=300_000, attempts_max=NO_LIMIT)
FAILED_MAX = 100_000
"""Number of failed tasks that a worker remembers. The oldest one is forgotten first."""

TaskKey = tuple[TaskQueue, int]
"""A queue, and a ledger in it."""


@dataclass(slots=True)
class FailedTask:
    """A task that failed: the number of failures in a row, and the time when it is due again."""

    failures: int
    due_ms: float


class TaskSchedule:
    """The tasks under way, and the pauses of the failed ones (AUTORECOVERY.md#X12)."""

    def __init__(self) -> None:
        self._failed: dict[TaskKey, FailedTask] = {}
        self._running: set[int] = set()  # ledgers; each has at most one job at a time

    @property
    def running(self) -> frozenset[int]:
        """The ledgers that are under way."""
        return frozenset(self._running)

    def due(self, keys: Iterable[TaskKey], now_ms: float) -> Iterator[TaskKey]:
        """Yield the tasks that may begin now. The caller calls `begin` for each task it takes."""
        for key in keys:
            failed = self._failed.get(key)
            is_due = failed is None or failed.due_ms <= now_ms
            if is_due and key[1] not in self._running:
                yield key

    def next_due_ms(self, keys: Iterable[TaskKey]) -> float | None:
        """When the next failed task without a job is due; None if there is no such task."""
        failed = (self._failed.get(key) for key in keys if key[1] not in self._running)
        return min((one.due_ms for one in failed if one is not None), default=None)

    def scanned(self, queue: TaskQueue, after: int, last: int | None, found: Iterable[int]) -> None:
        """Forget the failures of tasks that a queue does not contain any more.

        Args:
            queue: The queue.
            after: The walk began above this id.
            last: The walk ended at this id; None if it ended at the end of the queue.
            found: The ledgers that the walk found.
        """
        kept = {(queue, ledger_id) for ledger_id in found}
        gone = [
            key
            for key in self._failed
            if key[0] is queue
            and key not in kept
            and key[1] > after
            and (last is None or key[1] <= last)
        ]
        for key in gone:
            del self._failed[key]

    def begin(self, key: TaskKey) -> None:
        """A job of this task begins."""
        self._running.add(key[1])

    def end(self, key: TaskKey, outcome: JobOutcome | None, now_ms: float) -> int:
        """Return a job has ended. Return the number of failures of its task in a row.

        `outcome` is None if the job was dropped. If another worker has the ledger, the job did not
        fail, and the task is due after the first pause.
        """
        self._running.discard(key[1])
        if outcome is None or outcome.ends_task:
            self._failed.pop(key, None)
            return 0
        before = self._failed.pop(key, None)
        failures = before.failures if before is not None else 0
        if outcome not in (JobOutcome.LOCKED, JobOutcome.CHANGED):
            failures += 1
        pause_ms = RETRY.pause_ms(max(1, failures))
        self._failed[key] = FailedTask(failures, now_ms + pause_ms)
        while len(self._failed) > FAILED_MAX:
            del self._failed[next(iter(self._failed))]
        return failures

    def pause_ms(self, key: TaskKey) -> int:
        """Return the pause after the newest failure of a task; 0 if it did not fail."""
        failed = self._failed.get(key)
        return 0 if failed is None else RETRY.pause_ms(max(1, failed.failures))

    def reset(self) -> None:
        """A bookie has registered: every failed task is due now, and its next pause is short.

        The bookie may not serve yet. If an attempt then fails, the next must not wait for minutes.
        """
        for failed in self._failed.values():
            failed.due_ms = 0.0
            failed.failures = 0
