"""A session whose answers may come after the client's time limit, or be refusals."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.errors import (
    MetadataError,
    MetadataUnavailableError,
    MetadataUnknownError,
)
from tests.sim.log.hosts.tree import SimTree

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledgerlog_spark.metadata.tree import CancelWatch
    from ledgerlog_spark.model import Versioned
    from ledgerlog_spark.testing.memory.nodes import NodeMap

EARLIER_SECONDS = 3.0
"""Maximum age of the data of a server that is behind."""

WATCH_SECONDS_MAX = 0.03

LATE_SECONDS = 5.0
"""Longer than any client of this simulation waits for the store."""


class HandleTree(SimTree):
    """The session of one process.

    Attributes:
        refusals: Number of requests that an access list refused.
        refuses: Whether an access list refuses every change.
        loses_answer: Whether the next change is made, but its answer is lost, and the store is away
            after that.
        behind: The data that reads see until the next sync, if the session's server is behind.
        answer_delay_ms: Time between a read in the store and its answer.
        returns: Number of sessions that began with a server that was behind.
    """

    refusals = 0
    returns = 0
    _earlier: tuple[float, NodeMap] | None = None
    refuses = False
    loses_answer = False
    answer_delay_ms = 0.0
    behind: NodeMap | None = None
    _away_until = 0.0
    _is_behind = False
    _hangs = True

    def go_away(self, seconds: float, *, hangs: bool = True) -> None:
        """Let no request succeed for this time. With `hangs`, requests fail only at its end."""
        self._fault("outages of the store")
        self._hangs = hangs
        self._away_until = self._world.loop.time() + seconds

    async def pause(self) -> None:
        left = self._away_until - self._world.loop.time()
        if left > 0:
            await asyncio.sleep(left if self._hangs else 0.002)
            raise MetadataUnavailableError("the metadata store was away")
        await super().pause()

    async def answer(self) -> None:
        """Wait for the answer to a change. If the store goes away, the result stays unknown."""
        try:
            await super().answer()
        except MetadataUnavailableError as error:
            raise MetadataUnknownError("the metadata store went away") from error

    def watch_children(self, path: str, on_change: Callable[[], None]) -> CancelWatch:
        """Watch children. The notification reaches the caller a little later."""
        is_wanted = True

        def changed() -> None:
            self._world.loop.call_later(self._random.uniform(0, WATCH_SECONDS_MAX), late)

        def late() -> None:
            if is_wanted:
                on_change()

        cancel_inner = super().watch_children(path, changed)

        def cancel() -> None:
            nonlocal is_wanted
            is_wanted = False
            cancel_inner()

        return cancel

    def expire_session(self) -> None:
        """Expire the session. The server of the next session may have older data."""
        super().expire_session()
        if self._earlier is not None and self._happens(0.7):
            self._held, self._is_behind = self._earlier[1], True
            self.returns += 1

    def _catch_up(self) -> None:
        super()._catch_up()
        if self._is_behind:
            self._is_behind = False
            self._call_all_watches()  # the data changes to that of the new server

    async def sync(self, path: str = "/") -> None:
        """Sync. Later servers of this process are never behind the data after a sync."""
        self.behind = None
        await super().sync(path)
        self._earlier = self._world.loop.time(), self.nodes.current.copy()

    async def get(self, path: str) -> Versioned[bytes]:
        found = await super().get(path)
        await asyncio.sleep(self.answer_delay_ms / 1e3)
        return found

    async def children(self, path: str) -> list[str]:
        found = await super().children(path)
        await asyncio.sleep(self.answer_delay_ms / 1e3)
        return found

    async def _view(self) -> NodeMap:
        if self.behind is not None:
            await self.pause()
            return self.behind
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
        if self.refuses or self._happens(0.004):
            self._fault("refusals")
            self.refusals += 1
            raise MetadataError("closed to us by an access list")
        outcome = await super()._write(operations, version)
        if self.loses_answer:
            self.loses_answer = False
            self.go_away(LATE_SECONDS + 10, hangs=False)
            await asyncio.sleep(LATE_SECONDS)
        if self._happens(0.04):
            self._fault("answers too late")
            await asyncio.sleep(LATE_SECONDS)
        return outcome
