"""A session of the memory tree whose requests take time, get lost, or return old data."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.errors import MetadataUnavailableError
from ledgerlog_spark.metadata.store_clock import StoreClock
from ledgerlog_spark.metadata.tree import SetNode
from ledgerlog_spark.testing.memory.tree import Fault, MemoryTree

if TYPE_CHECKING:
    from ledgerlog_spark.metadata.store_clock import EstimatedClock
    from ledgerlog_spark.testing.memory.nodes import NodeMap
    from tests.sim.log.hosts.base import Hosts

SESSION_MS = 1_000
DELAY_MS_MAX = 12
LATE_MS = (20, 100, 400)
STALL_MS_MAX = 2_500
"""Maximum time for which a process may stall during a request, as if it were swapped out."""


class SimTree(MemoryTree):
    """The session of one process.

    Attributes:
        requests: Number of its requests.
        faults: Number of faults of its requests.
        is_dead: Whether its process crashed. After this, its requests have no effect.
        stall_probability: Probability of a stall during a request.
        is_crossed: Whether another change of a head comes just before each of its changes.
    """

    def __init__(self, world: Hosts) -> None:
        super().__init__(world.nodes, session_timeout_ms=SESSION_MS)
        self._world = world
        self._random = world.random
        self._clock = StoreClock(elapsed=world.elapsed_ns)
        self.requests = 0
        self.faults = 0
        self.is_dead = False
        self.stall_probability = 0.004
        self.is_crossed = False

    @property
    def clock(self) -> EstimatedClock:
        return self._clock

    async def pause(self) -> None:
        """Wait at a scheduling point, sometimes longer. A crashed process ends here."""
        self._world.events += 1
        self.requests += 1
        if self.is_dead:
            raise MetadataUnavailableError("the process crashed", retriable=False)
        delay_ms = self._random.randint(1, DELAY_MS_MAX)
        if (still_ms := self._world.still_until_ms - self._world.now_ms()) > 0:
            self._fault("store stands still")
            delay_ms += still_ms
        if self._happens(self.stall_probability):
            self._fault("stalls")
            delay_ms = self._random.randint(300, STALL_MS_MAX)
        await asyncio.sleep(delay_ms / 1e3)
        if self.is_dead:
            raise MetadataUnavailableError("the process crashed", retriable=False)

    def _happens(self, probability: float) -> bool:
        return self._world.is_faulty and self._random.random() < probability

    def _fault(self, what: str) -> None:
        self.faults += 1
        self._world.counts[what] += 1

    async def _view(self) -> NodeMap:
        await self.pause()
        if self._happens(0.004):
            self._fault("reads lost")
            raise MetadataUnavailableError("the metadata store did not answer")
        if self._held is None and self._happens(0.06):
            self._world.counts["replicas behind"] += 1
            self.hold_reads()
        elif self._held is not None and not self._happens(0.85):
            self.release_reads()
        return await super()._view()

    async def _write(self, operations: Any, version: Any = None) -> Any:
        await self.pause()
        if self._happens(0.015):
            self._fault("expired sessions")
            self.expire_session()
        if self._happens(0.01):
            self._fault("writes not sent")
            self.inject(Fault.NOT_SENT)
        elif self._happens(0.03):
            self._fault("requests lost")
            self.inject(Fault.REQUEST_LOST)
        elif self._happens(0.04):
            self._fault("replies lost")
            self.inject(Fault.REPLY_LOST)
        elif self._happens(0.04):
            self._fault("late writes")
            self.inject(Fault.DELAYED)
            late_ms = self._random.randint(1, self._random.choice(LATE_MS))
            self._world.loop.call_later(late_ms / 1e3, self.deliver_delayed)
        if self.is_crossed:
            self._cross(operations)
        outcome = await super()._write(operations, version)
        self._clock.note(self._world.now_ms())
        await self.answer()
        return outcome

    async def answer(self) -> None:
        """Wait for the answer to a change that was made."""
        await self.pause()

    def _cross(self, operations: Any) -> None:
        for operation in operations:
            if isinstance(operation, SetNode) and operation.path.endswith("/head"):
                data = self.nodes.current.node(operation.path).data
                self.nodes.commit([SetNode(operation.path, data, None)], self.session_id)

    def crash(self) -> None:
        """Let the process die. The store ends its session after the session timeout."""
        if self.is_dead:
            return
        self.is_dead = True
        self._world.loop.call_later(SESSION_MS / 1e3, self._end)

    def _end(self) -> None:
        self._stop_listening()
        self.nodes.end_session(self.session_id)
