"""A session whose answers may come later than its client waits, and that may be refused."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.errors import MetadataError, MetadataUnavailableError
from tests.sim.log.hosts.tree import SimTree

if TYPE_CHECKING:
    from ledgerlog_spark.metadata.memory_nodes import NodeMap

EARLIER_SECONDS = 3.0
"""How far a server may be behind."""

LATE_SECONDS = 5.0
"""Longer than any client of this simulation waits for the store."""


class HandleTree(SimTree):
    """The session of one process.

    Attributes:
        refusals: Requests that an access list refused.
        returns: Sessions that began with a server that was behind.
    """

    refusals = 0
    returns = 0
    _earlier: tuple[float, NodeMap] | None = None

    def expire_session(self) -> None:
        """The next session may be with a server that is behind what the last one showed."""
        super().expire_session()
        if self._earlier is not None and self._happens(0.7):
            self._held = self._earlier[1]
            self.returns += 1

    async def sync(self, path: str = "/") -> None:
        """No server that this process meets is behind what a sync showed."""
        await super().sync(path)
        self._earlier = self._world.loop.time(), self.nodes.current.copy()

    async def _view(self) -> NodeMap:
        now = self._world.loop.time()
        if self._earlier is None or now - self._earlier[0] > EARLIER_SECONDS:
            self._earlier = now, self.nodes.current.copy()
        elif self._happens(0.01):
            self._fault("expired sessions")
            self.expire_session()
        if self._happens(0.015):
            self._fault("reads lost")
            raise MetadataUnavailableError("the metadata store did not answer")
        return await super()._view()

    async def _write(self, operations: Any, version: Any = None) -> Any:
        if self._happens(0.004):
            self._fault("refusals")
            self.refusals += 1
            raise MetadataError("closed to us by an access list")
        outcome = await super()._write(operations, version)
        if self._happens(0.04):
            self._fault("answers too late")
            await asyncio.sleep(LATE_SECONDS)
        return outcome
