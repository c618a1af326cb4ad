"""State that one process stores between tasks of streams.

The state consists of the runs that the process joined, and of the ledgers that stay open for the
next batch. The state only saves time (LOGS.md#K13). No result depends on it, because a process may
end at any moment, or never run a second task.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Coroutine
from typing import Any, NamedTuple

from ledgerlog_spark.errors import LedgerLogError, LogNotFoundError
from ledgerlog_spark.log.committing.commits import LogCommits
from ledgerlog_spark.log.committing.job import Job
from ledgerlog_spark.log.committing.range_writer import RangeWriter, StagedLedger
from ledgerlog_spark.model import DigestType, Quorum
from ledgerlog_spark.protocol.log.commit.epoch import Joined
from ledgerlog_spark.protocol.log.properties import LogProperties
from ledgerlog_spark.protocol.log.state.records import WriteMode
from ledgerlog_spark.waits import forever

OPEN_MAX = 16
IDLE_SECONDS_MAX = 30.0
RUNS_MAX = 64
IDS_FIRST = 8
IDS_MAX = 64
"""Maximum number of ledger ids that a process takes from the store with two requests.

A process first takes only `IDS_FIRST` ids, because it may end soon. The number then doubles with
each pair of requests."""

_logger = logging.getLogger(__name__)


class _Key(NamedTuple):
    """The properties of a batch. Two batches can use the same ledger only if these are equal."""

    log_id: str
    app: str
    run: str
    schema: bytes
    quorum: Quorum
    digest_type: DigestType | str
    password: bytes


class _Idle(NamedTuple):
    ledger: StagedLedger
    timer: asyncio.Handle


class _Run(NamedTuple):
    """A run that this process joined, and the log that the run writes."""

    log_id: str
    joined: Joined


def log_deleted(log: str) -> LogNotFoundError:
    """Return the error of a query whose log was deleted."""
    return LogNotFoundError(
        f"log {log!r} was deleted while the query ran, and the query does not create it again: "
        "start the query again to write to a new, empty log",
        log=log,
    )


def log_made_again(log: str) -> LogNotFoundError:
    """Return the error of a query whose log was deleted and created again."""
    return LogNotFoundError(
        f"log {log!r} was deleted and created again while the query ran: start the query again to "
        "write to the new log",
        log=log,
    )


class StreamLedgers:
    """The joined runs and open ledgers of one process.

    Use this object only on the thread of the client's loop. A ledger is not in this object while
    one of its ranges is being written. The ledger is put back only when the range is finished, so a
    failed range needs no cleanup here.
    """

    def __init__(self) -> None:
        self._idle: OrderedDict[_Key, _Idle] = OrderedDict()
        self._runs: OrderedDict[tuple[str, str, str], _Run] = OrderedDict()
        self._ids: deque[int] = deque()
        self._ids_wanted = IDS_FIRST
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def idle(self) -> int:
        """Number of open ledgers for which no range is being written."""
        return len(self._idle)

    async def join(self, commits: LogCommits, job: Job) -> Joined:
        """Call `LogCommits.join`, but only once for each run in this process.

        The first process of a new run seals the ledgers of older runs in the background.
        """
        key = (job.log, job.app, job.run)
        known = self._runs.get(key)
        if known is None:
            known = _Run(job.log_id, await commits.join(job))
            self._runs[key] = known
            if len(self._runs) > RUNS_MAX:
                self._runs.popitem(last=False)
            if known.joined.took_over:
                self._begin(commits.seal_before(job.app, known.joined.epoch))
        if known.log_id != job.log_id:
            raise log_made_again(job.log)
        return known.joined

    async def open_range(self, commits: LogCommits, job: Job) -> RangeWriter:
        """Return a writer for the next range, in an open ledger or in a new ledger."""
        key = _key_of(job)
        ledger = self._taken(key)
        if ledger is not None and (
            ledger.is_full
            or not ledger.is_writable
            or (job.mode is WriteMode.OVERWRITE and ledger.is_mostly_unlisted(job.batch_id))
        ):
            self._begin(ledger.close())
            ledger = None
        if ledger is None:
            ledger = await commits.open_ledger(job, ledger_id=await self._new_id(commits))
        kept = ledger

        async def keep(written: RangeWriter) -> None:
            kept.note_range(job.batch_id, written.size_bytes)
            self._keep(key, kept)

        return RangeWriter(kept, keep)

    async def close(self) -> None:
        """Close all ledgers without a range in progress, and wait until the closes have ended."""
        for key in list(self._idle):
            self._close_idle(key)
        while self._tasks:
            await forever(asyncio.wait(self._tasks), "each close has a deadline")

    def _taken(self, key: _Key) -> StagedLedger | None:
        idle = self._idle.pop(key, None)
        if idle is None:
            return None
        idle.timer.cancel()
        return idle.ledger

    def _keep(self, key: _Key, ledger: StagedLedger) -> None:
        if ledger.is_full or not ledger.is_writable or key in self._idle:
            self._begin(ledger.close())
            return
        timer = asyncio.get_running_loop().call_later(IDLE_SECONDS_MAX, self._close_idle, key)
        self._idle[key] = _Idle(ledger, timer)
        if len(self._idle) > OPEN_MAX:
            self._close_idle(next(iter(self._idle)))

    def _close_idle(self, key: _Key) -> None:
        ledger = self._taken(key)
        if ledger is not None:
            self._begin(ledger.close())

    def _begin(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run `work` in the background. Its result is ignored, and its errors are only logged."""
        task = asyncio.get_running_loop().create_task(_quietly(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _new_id(self, commits: LogCommits) -> int:
        if not self._ids:
            count = self._ids_wanted
            self._ids_wanted = min(2 * count, IDS_MAX)
            self._ids.extend(await commits.new_ledger_ids(count))
        return self._ids.popleft()


def _key_of(job: Job) -> _Key:
    properties = LogProperties.from_mapping(job.properties)
    return _Key(
        log_id=job.log_id,
        app=job.app,
        run=job.run,
        schema=job.schema,
        quorum=properties.quorum,
        digest_type=properties.digest_type,
        password=job.password,
    )


async def _quietly(work: Coroutine[Any, Any, Any]) -> None:
    try:
        await work
    except LedgerLogError as error:
        _logger.info("work in the background failed; the sweeper will do it: %s", error)
