"""Ends calls whose replies are not taken, while other calls wait for their bytes or places.

Their connections are closed first: the library keeps a reply that is being sent until then, even
if its call was ended. The bytes of such a call stay counted until its connection is closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from bookie_server.service.logging import get_logger

PEERS_LOGGED_MAX: Final = 10

_logger = get_logger("grpc")


@dataclass(frozen=True, slots=True)
class Stuck:
    """A call that blocks others."""

    peer: str  # as gRPC names it
    end: Callable[[], None]  # ends the call and gives back its bytes


class StuckCalls:
    """Ends stuck calls, all reported together at a time."""

    def __init__(self) -> None:
        # Closes those of peers, in a thread; None without a server.
        self.close_connections: Callable[[Collection[str]], object] | None = None
        self._closing: set[str] = set()
        self._waiting: list[Stuck] = []
        self._task: asyncio.Task[None] | None = None

    def is_closing(self, peer: str) -> bool:
        """Return whether a peer's connection is about to be closed."""
        return peer in self._closing or any(call.peer == peer for call in self._waiting)

    def end(self, calls: Collection[Stuck]) -> None:
        """Close their connections, then end them."""
        self._waiting += calls
        if self._waiting and self._task is None:
            self._task = asyncio.create_task(self._run(), name="stuck calls")

    async def _run(self) -> None:
        try:
            while self._waiting:
                calls, self._waiting = self._waiting, []
                await self._end(calls)
        finally:
            self._task = None

    async def _end(self, calls: list[Stuck]) -> None:
        self._closing = peers = {call.peer for call in calls}
        _logger.warning(
            "connections_closed", peers=sorted(peers)[:PEERS_LOGGED_MAX], count=len(peers)
        )
        try:
            if self.close_connections is not None:
                await asyncio.to_thread(self.close_connections, peers)
        except Exception as error:  # noqa: BLE001 -- whatever it is, the calls are in the way
            _logger.error("connections_not_closed", reason=repr(error))  # noqa: TRY400 (one line)
        finally:
            self._closing = set()
            for call in calls:
                call.end()
