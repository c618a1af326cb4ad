"""Decides how long a machine of a log waits before it retries (LOGS.md#K15).

A conflict means that another writer succeeded. After the first conflict, a writer pauses for a
random time, which is at most the duration of its attempt. After the second conflict, the writer
waits in the log's queue, in which one writer at a time commits. Because of the queue, the number of
requests of a writer does not depend on the number of waiting writers. The queue protects no data.
If a writer cannot join the queue or waits too long, it pauses and tries again without the queue.

The first writer in the queue has conflicts only with writers outside the queue. Each of these
writers joins the queue after two conflicts. Because every conflict means that another change
succeeded, at least one writer always makes progress.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from random import Random

from ledgerlog_spark.errors import LedgerLogError
from ledgerlog_spark.metadata.logs.store import LogStore
from ledgerlog_spark.protocol.ledger.messages import MetadataOutcome
from ledgerlog_spark.retry import RetryPolicy
from ledgerlog_spark.waits import Deadline

PAUSE_MS_MIN = 2
PAUSE_MS_MAX = 2_000

OUTAGE_PAUSE_MS_FIRST = 10
"""Maximum pause after the first unanswered request, in milliseconds."""

QUEUE_FROM_CONFLICTS = 2
"""Number of conflicts in writes of the head after which a writer waits in the queue."""

TURN_CONFLICTS_MAX = 10
"""Maximum number of further conflicts after which the first writer in the queue retries without a
pause."""

TURN_MS = 2_000
"""Maximum time for which a writer may be first in the queue before other writers remove it."""

LEAVE_MS_MAX = 1_000
"""Maximum time for the request that leaves the queue.

A finished change must not wait until an outage ends."""

WAIT_MS_MAX = 60_000
"""Maximum time for which a writer waits in the queue.

After this time, the writer tries again without the queue.
"""


class _OverdueError(Exception):
    """The wait in the queue, or the request that leaves the queue, took too long."""


class Retries:
    """The retries of one machine: the number of its failures, and its place in the queue."""

    def __init__(self, store: LogStore, log_id: str, random: Random) -> None:
        """Create the retries of a machine that has not failed yet. `random` varies the pauses."""
        self._queue = store.queue(log_id)
        self._random = random
        self._began = asyncio.get_running_loop().time()
        self._conflicts = 0
        self._outages = 0
        self._name: str | None = None
        self._has_waited = False

    async def after(self, outcome: MetadataOutcome, *, is_of_head: bool) -> None:
        """Wait until the machine may retry.

        `outcome` is the outcome of the failed request. `is_of_head` states whether the request
        changes the log's head.
        """
        if outcome is not MetadataOutcome.CONFLICT:
            self._outages += 1
            await self._sleep(OUTAGE_PAUSE_MS_FIRST, self._outages)
            return
        loop = asyncio.get_running_loop()
        attempt_ms = max((loop.time() - self._began) * 1e3, PAUSE_MS_MIN)
        self._conflicts += 1
        if is_of_head and self._conflicts >= QUEUE_FROM_CONFLICTS:
            await self._in_turn(attempt_ms)
        else:
            await self._sleep(attempt_ms, self._conflicts)
        self._began = loop.time()

    async def end(self) -> None:
        """Leave the queue, if this writer is in the queue.

        After that, no other writer waits for this writer.
        """
        name, self._name = self._name, None
        if name is not None:
            # If the request fails, other writers remove this member, or the store removes the
            # member when the session ends.
            with contextlib.suppress(LedgerLogError, _OverdueError):
                async with Deadline(LEAVE_MS_MAX / 1e3, _OverdueError):
                    await self._queue.leave(name)

    async def _in_turn(self, attempt_ms: float) -> None:
        if not self._has_waited:
            self._has_waited = True
            with contextlib.suppress(LedgerLogError, _OverdueError):
                async with Deadline(WAIT_MS_MAX / 1e3, _OverdueError):
                    await self._wait_for_turn()
                return
        beyond = self._conflicts - QUEUE_FROM_CONFLICTS - TURN_CONFLICTS_MAX
        if self._name is None or beyond > 0:
            await self._sleep(attempt_ms, max(beyond, 1))

    async def _wait_for_turn(self) -> None:
        """Wait until all earlier members have left the queue. Remove idle members.

        Each member waits until the member before it leaves. If n members are before it, a member
        waits at most n times TURN_MS. If the first member is still in the queue after this time, no
        later member has removed the first member. Therefore all n members are idle, and this member
        removes these n members.
        """
        self._name = await self._queue.join(f"{self._random.getrandbits(64):016x}")
        while True:
            members = list(await self._queue.members())
            if self._name not in members:
                self._name = None  # other writers removed it, or the session was replaced
                return
            before = members[: members.index(self._name)]
            if not before:
                return
            try:
                async with Deadline(len(before) * TURN_MS / 1e3, _OverdueError):
                    if await self._queue.until_gone(before[-1]):
                        return
            except _OverdueError:
                if before[0] in await self._queue.members():
                    for name in before:
                        await self._queue.leave(name)

    async def _sleep(self, first_ms: float, failures: int) -> None:
        pauses = RetryPolicy(math.ceil(first_ms), PAUSE_MS_MAX)
        await asyncio.sleep(pauses.spread_ms(failures, self._random.uniform) / 1e3)
