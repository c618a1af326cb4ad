"""Ends calls whose clients do not move while others wait for what they hold.

Their connections are closed first: the library keeps a reply that is on its way until then, whether
or not its call was ended. What such a call holds stays counted until its connection is closed.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import psutil

from bookie_server.service.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

PEERS_LOGGED_MAX: Final = 10

_log = get_logger("grpc")


@dataclass(frozen=True, slots=True)
class Stuck:
    """A call that is in the way.

    Attributes:
        peer: Its client, as gRPC names it.
        end: Ends the call and gives back what it holds, if it still does.
    """

    peer: str
    end: Callable[[], None]


class StuckCalls:
    """Ends them, a list at a time.

    Attributes:
        close_connections: Closes those of peers, in a thread; None without a server.
    """

    def __init__(self) -> None:
        self.close_connections: Callable[[Collection[str]], object] | None = None
        self._ending: asyncio.Task[None] | None = None

    @property
    def is_ending(self) -> bool:
        """Whether the last list is not ended yet."""
        return self._ending is not None

    def end(self, calls: list[Stuck]) -> None:
        """Close their connections, then end them."""
        assert not self.is_ending
        self._ending = asyncio.create_task(self._end(calls), name="stuck calls")

    async def _end(self, calls: list[Stuck]) -> None:
        peers = {call.peer for call in calls}
        _log.warning("connections_closed", peers=sorted(peers)[:PEERS_LOGGED_MAX], count=len(peers))
        try:
            if self.close_connections is not None:
                await asyncio.to_thread(self.close_connections, peers)
        except psutil.Error as error:
            _log.error("connections_not_closed", reason=str(error))
        finally:
            self._ending = None
            for call in calls:
                call.end()
