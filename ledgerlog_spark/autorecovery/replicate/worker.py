"""A replication worker: takes ledgers from the three queues, and heals several at a time.

A worker has no state that another worker needs. If the worker crashes, its session ends. Then
another worker takes the ledgers of the crashed worker, and copies only the entries that the bookies
lack.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from itertools import islice
from random import Random
from typing import Any

from ledgerlog_spark.autorecovery.accepted import AcceptedEntries
from ledgerlog_spark.autorecovery.replicate.bookie_requests import (
    BookieRequests,
    ControlReads,
    CopyCounters,
    CopyTransport,
)
from ledgerlog_spark.autorecovery.replicate.job_runner import run_job
from ledgerlog_spark.autorecovery.replicate.quiet import QuietLedgers
from ledgerlog_spark.autorecovery.replicate.store_requests import (
    FencePace,
    Recover,
    StoreRequests,
)
from ledgerlog_spark.client.bookies import BookieChoice
from ledgerlog_spark.errors import LedgerLogError
from ledgerlog_spark.metadata.stores import MetadataStores
from ledgerlog_spark.metadata.tree import CancelWatch
from ledgerlog_spark.model import LedgerMetadata
from ledgerlog_spark.protocol.autorecovery.replicate.job import (
    LedgerReplication,
    ReplicationSettings,
)
from ledgerlog_spark.protocol.autorecovery.replicate.messages import JobEnded, JobOutcome, TaskQueue
from ledgerlog_spark.protocol.autorecovery.replicate.pace import CopyPace
from ledgerlog_spark.protocol.autorecovery.replicate.schedule import TaskKey, TaskSchedule
from ledgerlog_spark.protocol.ledger.messages import StartTimer, TimerFired
from ledgerlog_spark.wire.repair_notes import FailedAttempts, WorkerReport, WorkerTask

POLL_SECONDS = 10.0
"""Time after which the queues are read again, even if no watch reported a change."""
NEXT_PART_SECONDS = 1.0
"""Time after which the next part of a long queue is read, if no task of the last part is due."""
REPORT_SECONDS = 2.0
LOOK_MAX = 1_000
"""Maximum number of ledgers of a queue that are read at once. The next read continues with the
following ledgers."""
JOBS_OPEN_MAX = 1_000
"""Maximum number of jobs, including jobs that only wait for the writer of an open ledger."""
DETAIL_MAX = 500
"""Maximum number of characters of the text of an unexpected error in a note."""
NOTED_FAILURES = 3
"""Number of failures in a row after which a note states the reason why a ledger is not healed. Only
the first failure and the failure with this number are reported as events, so there are few log
lines about a ledger."""

Report = Callable[[str, Any], None]
"""A function that is called with the name of an event, and with the subject of the event."""


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """Limits of a worker.

    Attributes:
        jobs_max: Maximum number of ledgers that are healed at the same time.
        bytes_per_second_max: Maximum number of bytes that are copied per second; 0 means no limit.
        request_timeout_ms: Deadline of each request to a bookie.
        job: Limits of each job.
    """

    jobs_max: int = 8
    bytes_per_second_max: int = 0
    request_timeout_ms: int = 10_000
    job: ReplicationSettings = field(default_factory=ReplicationSettings)


@dataclass(slots=True)
class WorkerCounters(CopyCounters):
    """Counters of the work that a worker has done since its start."""

    ledgers_healed: int = 0
    jobs_failed: int = 0
    members_replaced: int = 0


@dataclass(frozen=True, slots=True)
class WorkerParts:
    """The stores, transports and functions that a worker uses.

    Attributes:
        stores: The stores of the cluster, with the session of the worker.
        transport: Sends requests to bookies.
        control: Sends recovery reads through the control services.
        bookies: Places of bookies, and the policy of placement.
        floor_of: Reads the last entry of a ledger that a log lists.
        recover: Fences and closes a ledger.
    """

    stores: MetadataStores
    transport: CopyTransport
    control: ControlReads
    bookies: BookieChoice
    floor_of: Callable[[int], Awaitable[int]]
    recover: Callable[[int, bytes, int], Awaitable[LedgerMetadata]]


class ReplicationWorker:
    """Heals ledgers until the call of `run` is cancelled.

    Attributes:
        counters: Counters of the work that the worker has done.
        state: State of the worker: `working`, `idle` or `disabled`.
    """

    def __init__(
        self,
        worker_id: str,
        parts: WorkerParts,
        report: Report = lambda _event, _subject: None,
        settings: WorkerSettings | None = None,
    ) -> None:
        """Create a worker that sends nothing before `run`.

        Args:
            worker_id: The id of the bookie, or `host:port` of the daemon.
            parts: The stores, transports and functions of the worker.
            report: Function that is called with each event.
            settings: The limits of the worker.
        """
        self._id = worker_id
        self._parts = parts
        self._report = report
        self._settings = settings or WorkerSettings()
        self.counters = WorkerCounters()
        self.state = "idle"
        self._pace = CopyPace(self._settings.bytes_per_second_max)
        self._requests = BookieRequests(
            parts.transport,
            parts.control,
            parts.stores.registration.info,
            self._pace,
            self.counters,
            self._settings.request_timeout_ms,
            AcceptedEntries(parts.stores.accepted_losses),
        )
        self._quiet = QuietLedgers()
        self._fences = FencePace()
        self._recover: Recover = parts.recover
        self._schedule = TaskSchedule()
        self._random = Random()  # noqa: S311 - for the order of ledgers, not for secrets
        self._jobs: dict[asyncio.Task[None], tuple[TaskKey, LedgerReplication]] = {}
        self._wake = asyncio.Event()
        self._candidates: list[TaskKey] = []  # tasks that the newest walk found, without a job
        self._places = asyncio.Semaphore(self._settings.jobs_max)
        self._waiting = 0  # number of jobs in their grace time, which do not count for `jobs_max`
        self._looked_to: dict[TaskQueue, int] = {}  # the ledger at which the walk of a queue ended
        self._walk_due = 0.0
        self._is_changed = True
        self._is_lost = False
        self._bytes_before = 0
        self._reported_at = 0.0

    async def run(self) -> None:
        """Heal ledgers until this call is cancelled."""
        cancels = self._watches()
        reporting = asyncio.create_task(self._report_for_ever())
        try:
            while True:
                await self._turn()
        finally:
            for cancel in cancels:
                cancel()
            reporting.cancel()
            await self._drop_jobs()
            await asyncio.gather(reporting, return_exceptions=True)
            with contextlib.suppress(LedgerLogError):
                await self._parts.stores.worker_reports.withdraw(self._id)

    def _watches(self) -> list[CancelWatch]:
        stores = self._parts.stores
        return [
            stores.marks.watch(self._on_queue),
            stores.holes.watch(self._on_queue),
            stores.moves.watch(self._on_queue),
            stores.recovery_switch.watch_enabled(self._wake.set),
            stores.registration.watch_writable(self._on_registration),
            stores.tree.watch_session(self._on_session),
        ]

    def _on_queue(self) -> None:
        self._is_changed = True
        self._wake.set()

    def _on_registration(self) -> None:
        self._schedule.reset()
        self._on_queue()

    def _on_session(self) -> None:
        """Cancel all jobs when another session begins, because their locks no longer exist."""
        self._is_lost = True
        self._wake.set()

    async def _turn(self) -> None:
        """Begin jobs, and wait until a job has ended, a queue has changed, or a task is due."""
        self._wake.clear()
        if self._is_lost:
            self._is_lost = False
            self._report("session_lost", self._id)
            await self._drop_jobs()
        try:
            await self._parts.stores.replication_locks.release_left()
            await self._begin_jobs()
        except LedgerLogError as error:
            self._report("queue_failed", error)
        due_ms = self._schedule.next_due_ms(self._candidates)
        wait_seconds = min(POLL_SECONDS, max(0.05, self._walk_due - _now_ms() / 1e3))
        if due_ms is not None and self._free_places() > 0:
            wait_seconds = min(wait_seconds, max(0.05, (due_ms - _now_ms()) / 1e3))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_seconds):
                await self._wake.wait()

    async def _begin_jobs(self) -> None:
        if not await self._parts.stores.recovery_switch.is_enabled():
            self.state = "disabled"
            return
        if not self._fill() and self._is_walk_due():
            self._candidates = await self._queued()
            self._fill()
        self.state = "working" if self._jobs else "idle"

    def _free_places(self) -> int:
        """Number of jobs that may begin now."""
        places = self._settings.jobs_max - len(self._jobs) + self._waiting
        return max(0, min(places, JOBS_OPEN_MAX - len(self._jobs)))

    def _fill(self) -> bool:
        """Begin jobs for the candidates that are due. Return whether no more jobs may begin."""
        due = self._schedule.due(tuple(self._candidates), _now_ms())
        # `due` omits ledgers with a job, so a ledger that is in two queues has only one job at a
        # time.
        for key in islice(due, self._free_places()):
            self._candidates.remove(key)
            self._begin(key)
        return not self._free_places()

    def _is_walk_due(self) -> bool:
        """Whether to read the queues now. Each ledger of a queue needs a request."""
        now = _now_ms() / 1e3
        if not self._is_changed and now < self._walk_due:
            return False
        self._is_changed, self._walk_due = False, now + POLL_SECONDS
        return True

    async def _queued(self) -> list[TaskKey]:
        """Return the next tasks of the queues, marks first. The order is random for each worker.

        A walk of a long queue begins where the last walk ended. So even if many failed tasks wait,
        the tasks after them are found.
        """
        stores = self._parts.stores
        found: list[TaskKey] = []
        for queue, notes in (
            (TaskQueue.MARK, stores.marks),
            (TaskQueue.HOLE, stores.holes),
            (TaskQueue.MOVE, stores.moves),
        ):
            after = self._looked_to.pop(queue, -1)
            some = [one async for one in _first(notes.walk(after), LOOK_MAX)]
            is_part = len(some) == LOOK_MAX
            if is_part:
                self._looked_to[queue] = some[-1]
                self._walk_due = _now_ms() / 1e3 + NEXT_PART_SECONDS
            self._schedule.scanned(queue, after, some[-1] if is_part else None, some)
            self._random.shuffle(some)
            found += [(queue, one) for one in some]
        return found

    def _begin(self, key: TaskKey) -> None:
        self._schedule.begin(key)
        machine = LedgerReplication(key[1], self._settings.job)
        task = asyncio.create_task(self._run_job(key, machine))
        self._jobs[task] = key, machine
        task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        key, _ = self._jobs.pop(task)
        self._wake.set()
        if task.cancelled():  # possibly before the first step of the task
            self._schedule.end(key, None, _now_ms())
        elif task.exception() is not None:
            self._report("job_crashed", task.exception())

    async def _wait_in_grace(self, effect: StartTimer) -> TimerFired:
        """Wait for a writer or a recovery. During the wait, another job may run instead."""
        self._waiting += 1
        self._places.release()
        self._wake.set()
        try:
            await asyncio.sleep(effect.delay_ms / 1e3)
        finally:
            await self._places.acquire()
            self._waiting -= 1
        return TimerFired(effect.request)

    async def _run_job(self, key: TaskKey, machine: LedgerReplication) -> None:
        queue, ledger_id = key
        requests = StoreRequests(
            self._parts.stores,
            queue,
            ledger_id,
            self._id,
            bookies=self._parts.bookies,
            floor_of=self._parts.floor_of,
            recover=self._recover,
            read_lac=self._requests.read_lac,
            quiet=self._quiet,
            fences=self._fences,
        )

        def metadata() -> LedgerMetadata:
            assert requests.record is not None, "copies are read after the record"
            return requests.record.value

        performers = {
            **requests.performs,
            **self._requests.performs(ledger_id, metadata),
            StartTimer: self._wait_in_grace,
        }
        ended: JobEnded | None = None
        try:
            async with self._places:
                ended = await run_job(machine, performers)
        except Exception as error:  # noqa: BLE001 - a defect must not end the other jobs
            self._report("job_crashed", error)
            ended = JobEnded(JobOutcome.CRASHED, f"{type(error).__name__}: {error}"[:DETAIL_MAX])
        finally:
            if ended is None or ended.outcome is JobOutcome.CRASHED:
                await asyncio.shield(requests.release())
        outcome = ended.outcome
        failures = self._schedule.end(key, outcome, _now_ms())
        if not outcome.ends_task and key not in self._candidates:
            self._candidates.append(key)
        await self._take_end(key, ended, failures)

    async def _take_end(self, key: TaskKey, ended: JobEnded, failures: int) -> None:
        counters = self.counters
        counters.ledgers_healed += ended.outcome is JobOutcome.HEALED
        counters.members_replaced += ended.replaced
        counters.jobs_failed += failures > 0
        if ended.outcome is not JobOutcome.LOCKED and failures in (0, 1, NOTED_FAILURES):
            self._report("job", (key[0].value, key[1], ended))
        with contextlib.suppress(LedgerLogError):
            await self._note(key, ended, failures)

    async def _note(self, key: TaskKey, ended: JobEnded, failures: int) -> None:
        """Store why a ledger is not healed, after three failures. Delete this after a success."""
        notes, ledger_id = self._parts.stores.attempts, key[1]
        if failures >= NOTED_FAILURES:
            now_ms = time.time_ns() // 1_000_000
            name, pause_ms = ended.outcome.name.lower(), self._schedule.pause_ms(key)
            attempt = FailedAttempts(failures, name, ended.detail, self._id, now_ms, pause_ms)
            await notes.add(ledger_id, attempt)
        elif ended.outcome in (JobOutcome.HEALED, JobOutcome.DELETED):
            found = await notes.load(ledger_id)
            if found is not None:
                await notes.delete(ledger_id, found.version)

    async def _drop_jobs(self) -> None:
        """Cancel all jobs.

        If the session of a job's lock has not ended, the job releases the lock.
        """
        jobs = list(self._jobs)
        for task in jobs:
            task.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)

    # Reports of the progress.

    @property
    def jobs_count(self) -> int:
        """Number of ledgers that are being healed."""
        return len(self._jobs)

    @property
    def candidates_count(self) -> int:
        """Number of tasks that the newest walk of the queues found, and that have no job."""
        return len(self._candidates)

    async def _report_for_ever(self) -> None:
        """Publish the progress every two seconds."""
        while True:
            try:
                await self._parts.stores.worker_reports.publish(self._id, self.progress())
            except LedgerLogError:
                pass  # this report is lost, and the next report replaces it
            except Exception as error:  # noqa: BLE001 - a defect must not end all later reports
                self._report("report_failed", error)
            await asyncio.sleep(REPORT_SECONDS)

    def progress(self) -> WorkerReport:
        """Return the progress of the worker. The rate is measured since the last call."""
        counters, now = self.counters, _now_ms() / 1e3
        elapsed = now - self._reported_at
        rate = int((counters.bytes_copied - self._bytes_before) / elapsed) if elapsed > 0 else 0
        self._bytes_before, self._reported_at = counters.bytes_copied, now
        tasks = tuple(
            WorkerTask(key[1], key[0].value, machine.entries_copied)
            for key, machine in self._jobs.values()
        )
        return WorkerReport(
            tasks=tasks,
            ledgers_healed=counters.ledgers_healed,
            entries_copied=counters.entries_copied,
            bytes_copied=counters.bytes_copied,
            bytes_per_second=rate,
            bytes_per_second_max=self._settings.bytes_per_second_max,
            state=self.state,
            reported_ms=time.time_ns() // 1_000_000,
        )


async def _first(walk: AsyncIterator[int], count_max: int) -> AsyncIterator[int]:
    count = 0
    async for ledger_id in walk:
        yield ledger_id
        count += 1
        if count == count_max:
            return


def _now_ms() -> float:
    return asyncio.get_running_loop().time() * 1e3
