"""Decides which tasks of the queues a worker takes next, and when a failed task is tried again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ledgerlog_spark.protocol.autorecovery.replicate.messages import JobOutcome, TaskQueue
from ledgerlog_spark.retry import NO_LIMIT, RetryPolicy

RETRY = RetryPolicy(first_delay_ms=5_000, delay_max_ms=300_000, attempts_max=NO_LIMIT)
FAILED_MAX = 100_000
"""Maximum number of failed tasks that a worker remembers. It forgets the oldest failure first."""

TaskKey = tuple[TaskQueue, int]
"""The key of a task: its queue, and the id of its ledger."""


@dataclass(slots=True)
class FailedTask:
    """A failed task: its number of failures in a row, and the time when it is due again."""

    failures: int
    due_ms: float


class TaskSchedule:
    """The tasks that have a job now, and the pauses of failed tasks (AUTORECOVERY.md#X12)."""

    def __init__(self) -> None:
        self._failed: dict[TaskKey, FailedTask] = {}
        self._running: set[int] = set()  # ids of the ledgers that have a job now

    @property
    def running(self) -> frozenset[int]:
        """The ids of the ledgers that have a job now."""
        return frozenset(self._running)

    def due(self, keys: Iterable[TaskKey], now_ms: float) -> Iterator[TaskKey]:
        """Yield the tasks that may begin now. The caller calls `begin` for each task it takes."""
        for key in keys:
            failed = self._failed.get(key)
            is_due = failed is None or failed.due_ms <= now_ms
            if is_due and key[1] not in self._running:
                yield key

    def next_due_ms(self, keys: Iterable[TaskKey]) -> float | None:
        """Return the time when the next failed task without a job is due; None if there is none."""
        failed = (self._failed.get(key) for key in keys if key[1] not in self._running)
        return min((one.due_ms for one in failed if one is not None), default=None)

    def scanned(self, queue: TaskQueue, after: int, last: int | None, found: Iterable[int]) -> None:
        """Forget the failures of tasks that a queue does not contain any more.

        Args:
            queue: The queue that was read.
            after: The ledger id after which the reading began.
            last: The last ledger id that was read; None if the queue was read to its end.
            found: The ids of the ledgers that were found in the queue.
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
        """Note that a job of this task begins."""
        self._running.add(key[1])

    def end(self, key: TaskKey, outcome: JobOutcome | None, now_ms: float) -> int:
        """Note that a job has ended. Return the number of failures of its task in a row.

        `outcome` is None if the job was dropped. If another worker has the ledger, this does not
        count as a failure, and the task is due after the first pause.
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
        """Return the pause after the newest failure of a task; 0 if the task has not failed."""
        failed = self._failed.get(key)
        return 0 if failed is None else RETRY.pause_ms(max(1, failed.failures))

    def reset(self) -> None:
        """Make every failed task due now, with a short next pause, because a bookie has registered.

        The bookie may not answer requests yet. If the next attempt fails for this reason, the
        attempt after it must not wait for minutes.
        """
        for failed in self._failed.values():
            failed.due_ms = 0.0
            failed.failures = 0
