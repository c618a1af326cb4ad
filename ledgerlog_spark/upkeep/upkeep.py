"""One pass of upkeep over the logs of a cluster: retention, merging, sweeping (LOGS.md#U18).

One process at a time runs upkeep, because a pass needs a lease, of which a cluster has only one.
The lease only prevents unnecessary work. Every step is safe even if other processes run the same
step or other steps at the same time. The next pass finishes the work of a process that died.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from ledgerlog_spark.client.client import LedgerClient
from ledgerlog_spark.errors import (
    ConfigurationError,
    LedgerLogError,
    LogNotFoundError,
    MetadataUnavailableError,
    MetadataUnknownError,
)
from ledgerlog_spark.log.log import Log
from ledgerlog_spark.log.logs import logs_of
from ledgerlog_spark.log.maintenance.sweep_memory import (
    LOOK_AGAIN_MS,
    LogDue,
    PassClock,
    SweepMemory,
)
from ledgerlog_spark.log.maintenance.sweeper import Swept
from ledgerlog_spark.metadata.leases import Leases
from ledgerlog_spark.model import Versioned
from ledgerlog_spark.protocol.log.change.truncate import Truncated
from ledgerlog_spark.protocol.log.state.records import LogHead
from ledgerlog_spark.upkeep.merge_plan import BACKGROUND, MergePolicy
from ledgerlog_spark.upkeep.merging import LogMerger, Merged

if TYPE_CHECKING:
    from ledgerlog_spark.client.blocking.client import BlockingClient

T = TypeVar("T")

LEASE = "upkeep"
LEASE_POLL_SECONDS = 0.5
RELEASE_SECONDS_MAX = 30.0
"""Maximum time for which the release of the lease is tried again.

After a longer outage, the session has ended, and its lease too.
"""

RETENTION_STEPS_MAX = 100
"""Maximum number of retention steps in a pass over a log. One step deletes up to about 8,000
ranges. The next pass continues."""


_LOGGER = logging.getLogger("ledgerlog_spark.upkeep")

COMMITS_BETWEEN = 256
"""Number of commits between two passes.

A pass is due when the version of the log is a multiple of this number.
"""

THREAD_NAME = "ledgerlog-upkeep"


@dataclass(frozen=True, slots=True)
class Kept:
    """The result of one pass for one log. If a step failed, its result is None.

    `truncated` and `merged` are also None if the log no longer existed, or if an earlier pass
    showed that no retention and no merge can be due yet.
    """

    log: str  # name of the log, or the id of a deleted log
    truncated: Truncated | None = None  # result of the retention
    merged: Merged | None = None  # result of the merge; also None if the pass has no merge policy
    swept: Swept | None = None
    errors: tuple[LedgerLogError, ...] = ()  # errors of failed steps; the other steps ran

    def counts(self) -> dict[str, int]:
        """Return the results of the retention and the sweep, as numbers for JSON."""
        swept = self.swept or Swept(self.log)
        unlisted = len(self.truncated.unlisted) if self.truncated else 0
        return {
            "ledgers_unlisted": unlisted + swept.unlisted + swept.deregistered,
            "ledgers_deleted": swept.ledgers_deleted,
            "ledgers_kept": len(swept.ledgers_kept),
            "is_removed": swept.is_removed,
        }

    @property
    def did_something(self) -> bool:
        """Whether anything was deleted or merged, or a ledger that was due could not be deleted."""
        merged = self.merged is not None and self.merged.ledgers > 0
        pages = self.swept is not None and self.swept.pages_deleted > 0
        return merged or pages or any(self.counts().values())


class Upkeep:
    """Runs passes over the logs of the cluster to which a client is connected."""

    def __init__(
        self,
        client: LedgerClient,
        *,
        policy: MergePolicy | None = BACKGROUND,
        on_log: Callable[[Kept], None] = lambda _: None,
        memory: SweepMemory | None = None,
    ) -> None:
        """Prepare passes.

        If `policy` is None, they merge nothing. `memory` has earlier passes' findings.
        """
        self._client = client
        self._logs = logs_of(client)
        self._policy = policy
        self._on_log = on_log
        self._memory = memory or SweepMemory()

    async def run(
        self, names: Iterable[str] | None = None, *, wait_seconds: float = 0
    ) -> list[Kept] | None:
        """Run one pass over the logs `names`.

        If `names` is None, the pass maintains all logs, including deleted logs. The method waits at
        most `wait_seconds` for the lease. If another process still has the lease, it does nothing
        and returns None.

        Raises:
            MetadataUnavailableError: The session with the metadata store was replaced, so another
                process may have the lease now. The next pass maintains the remaining logs.
        """
        async with leased(self._client, wait_seconds=wait_seconds) as is_held:
            if not is_held:
                return None
            leases = _leases_of(self._client)
            session_id = leases.session_id
            if names is None:
                log_ids = await self._logs.store.ids()
                self._memory.forget_all_but(log_ids)
                # The ids are sufficient, because each head contains the name of its log.
                found = [self._logs.open_by_id(log_id, log_id) for log_id in log_ids]
            else:
                found = [await self._logs.open(name) for name in names]
            clock = PassClock(self._logs.store)
            kept = []
            for log in found:
                _require_session(leases, session_id)
                done = await self._keep(log, clock)
                self._on_log(done)
                kept.append(done)
            return kept

    async def _keep(self, log: Log, clock: PassClock) -> Kept:
        """Maintain one log. If nothing is due, only the head of the log is read."""
        errors: list[LedgerLogError] = []
        name, truncated, merged, swept = log.name, None, None, None
        head = await _tried(self._logs.store.read_head(log.log_id), errors)
        if head is not None and not head.value.deleted_ms:
            name = head.value.name
            living = self._logs.open_by_id(name, log.log_id)
            truncated, merged = await self._keep_rows(living, head, clock, errors)
        if not errors or head is not None:
            sweeper = self._logs.sweeper(memory=self._memory, clock=clock)
            swept = await _tried(sweeper.sweep(log.log_id, head), errors)
        return Kept(name, truncated, merged, swept, tuple(errors))

    async def _keep_rows(
        self, log: Log, head: Versioned[LogHead], clock: PassClock, errors: list[LedgerLogError]
    ) -> tuple[Truncated | None, Merged | None]:
        """Apply retention, and then merge.

        The method does nothing if an earlier pass found nothing to do for this head.
        """
        due = self._memory.of(log.log_id, head.value)
        now_ms = await _tried(clock.now_ms(log.log_id), errors)
        if now_ms is None:
            return None, None
        due.see(now_ms)
        if not due.has_rows_due(head.version, now_ms):
            return None, None
        truncated = await _retained(log, due, errors)
        if truncated is None:
            return None, None
        merged: Merged | None = None
        if self._policy is not None:
            merged = await _tried(LogMerger(log, self._client, self._policy).merge(), errors)
        is_merging = merged is not None and (merged.ledgers or merged.lost)
        if not errors and not truncated.unlisted and not is_merging:
            again_ms = now_ms + LOOK_AGAIN_MS
            due.rows = min(again_ms, truncated.next_due_ms or again_ms)
            due.rows_head = head.version
        return truncated, merged


async def _retained(log: Log, due: LogDue, errors: list[LedgerLogError]) -> Truncated | None:
    """Apply retention in steps while more rows are due. Return None if the first step failed."""
    done: Truncated | None = None
    for _ in range(RETENTION_STEPS_MAX):
        retained = log.retain(page_sizes=due.page_sizes, untimed_to=due.untimed_to)
        step = await _tried(retained, errors)
        if step is None:
            break
        due.untimed_to = step.untimed_to
        before = done.unlisted if done is not None else ()
        done = replace(step, unlisted=(*before, *step.unlisted))
        if not (step.is_more_due and step.is_complete):
            break
    return done


async def _tried(step: Awaitable[T], errors: list[LedgerLogError]) -> T | None:
    """Return the result of a step, or store its error in `errors` and return None.

    So the other steps run after an error. A deleted log is not an error.
    """
    try:
        return await step
    except LogNotFoundError:
        return None
    except LedgerLogError as error:
        errors.append(error)
        return None


@contextlib.asynccontextmanager
async def leased(client: LedgerClient, *, wait_seconds: float = 0) -> AsyncIterator[bool]:
    """Take the lease of upkeep for the duration of the block. Yield whether this succeeded.

    If another process has the lease, the function waits for it at most `wait_seconds`.
    """
    leases = _leases_of(client)
    this_process = {"host": socket.gethostname(), "pid": str(os.getpid())}
    loop_time = asyncio.get_running_loop().time
    deadline = loop_time() + wait_seconds
    is_held = False
    try:
        while not (is_held := await leases.acquire(LEASE, this_process)):
            if loop_time() >= deadline:
                break
            await asyncio.sleep(LEASE_POLL_SECONDS)
        yield is_held
    except BaseException as error:
        is_cancelled = isinstance(error, asyncio.CancelledError)
        # If the request for the lease got no answer, this process may have got the lease.
        if is_held or is_cancelled or isinstance(error, MetadataUnknownError):
            # A cancelled caller does not wait for an outage to end.
            await _released(leases, seconds=0 if is_cancelled else RELEASE_SECONDS_MAX)
        raise
    if is_held:
        await _released(leases, seconds=RELEASE_SECONDS_MAX)


def _require_session(leases: Leases, session_id: int) -> None:
    if leases.session_id != session_id:
        raise MetadataUnavailableError(
            "the lease of upkeep ended with its session: this pass ends, and the next pass takes "
            "the lease again"
        )


async def _released(leases: Leases, *, seconds: float) -> None:
    """Release the lease. Try again for at most `seconds` while the metadata store is unavailable.

    If the release fails, the lease ends with the session.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + seconds
    while True:
        try:
            await leases.release(LEASE)
        except LedgerLogError as error:
            if not error.retriable or clock() >= deadline:
                return
        else:
            return
        await asyncio.sleep(LEASE_POLL_SECONDS)


async def holder(client: LedgerClient) -> Mapping[str, str] | None:
    """Return the process that runs upkeep now (`host`, `pid`).

    The result is None if no process runs upkeep.
    """
    return await _leases_of(client).holder(LEASE)


def _leases_of(client: LedgerClient) -> Leases:
    leases = client.services.leases
    if leases is None:
        raise ConfigurationError(
            "this client does not support leases: connect with ledgerlog_spark.connect"
        )
    return leases


def upkeep_after_commit(client: BlockingClient, log: str, version: int | None) -> bool:
    """Start a pass over a log if a pass is due, and return whether it was started.

    The function does not wait for the end of the pass. The process that commits the batches of a
    stream calls this function. `client` must stay open until the process ends. `version` is the
    version that the commit made, or None if it made no version. The process runs at most one pass
    at a time, on a thread that ends with the process. The pass does nothing if another process runs
    upkeep. An error is logged, and the next pass tries again.
    """
    if not version or version % COMMITS_BETWEEN:
        return False
    if any(thread.name == THREAD_NAME for thread in threading.enumerate()):
        return False
    threading.Thread(target=_pass, args=(client, log), name=THREAD_NAME, daemon=True).start()
    return True


def _pass(client: BlockingClient, log: str) -> None:
    try:
        kept = client.run(lambda each: Upkeep(each).run([log])) or []
    except LedgerLogError as error:
        _LOGGER.warning("upkeep of log %s must wait: %s", log, error)
        return
    for done in kept:
        for failed in done.errors:
            _LOGGER.warning("upkeep of log %s must wait: %s", log, failed)
