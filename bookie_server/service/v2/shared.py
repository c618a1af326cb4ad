"""State shared by the v2 connections of one bookie: storage, limits, counters, memory."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final

from bookie_server.config import BookieSettings
from bookie_server.core.requests import EntryStorage
from bookie_server.service.limits.budget import Budget
from bookie_server.service.limits.lanes import Lanes
from bookie_server.service.metrics.counters import ServiceCounters
from ledgerlog_spark.wire.frames import ChunkPool

RECEIVE_POOL_BYTES: Final = 64 << 20
BATCH_COUNT_MAX: Final = 65_536
JOINED_BYTES_MAX: Final = 65_536
"""Maximum bytes of the answers that are copied into one buffer for a write. If the answers have
more bytes, they are written without a copy."""

TURNS_SECONDS: Final = 0.002
"""Time limit, in seconds, for work in one turn of the event loop. One such limit applies to the
requests of one connection. Another applies to all functions that `take_turn` has queued."""

HOSTS_KEPT_MAX: Final = 1_024


class V2Shared:
    """The state that all connections share. It is created once, on the event loop of the server."""

    def __init__(
        self,
        settings: BookieSettings,
        storage: EntryStorage,
        lanes: Lanes,
        counters: ServiceCounters,
    ) -> None:
        self.storage = storage
        self.lanes = lanes
        self.counters = counters
        self.loop = asyncio.get_running_loop()
        self.relieve: Callable[[Budget], None] = lambda _lane: None
        self.frame_size_bytes_max = settings.frame_size_bytes_max
        self.receive_pool = ChunkPool(RECEIVE_POOL_BYTES)
        self._is_turning = False
        self.turns: deque[Callable[[], None]] = deque()  # functions that resume connections
        self.known_hosts = RecentHosts()  # hosts of connections that are proven (`is_proven`)
        self.hosts_warned_of = RecentHosts()  # hosts with a logged warning about version 3

    def take_turn(self, resume: Callable[[], None]) -> None:
        """Call `resume` after the functions that are already queued.

        One turn of the event loop calls queued functions for `TURNS_SECONDS`. The remaining
        functions are called in later turns. Between the turns, the event loop receives new
        requests. So an add waits for only a few of the reads that other peers have sent before it.
        """
        self.turns.append(resume)
        if not self._is_turning:
            self._is_turning = True
            self.loop.call_soon(self._take_turns)

    def _take_turns(self) -> None:
        until = time.monotonic() + TURNS_SECONDS
        try:
            for _ in range(len(self.turns)):
                self.turns.popleft()()
                if time.monotonic() >= until:
                    break
        finally:
            self._is_turning = bool(self.turns)
            if self.turns:
                self.loop.call_soon(self._take_turns)


class RecentHosts:
    """The addresses that were noted most recently, at most HOSTS_KEPT_MAX."""

    __slots__ = ("_hosts",)

    def __init__(self) -> None:
        self._hosts: OrderedDict[str, None] = OrderedDict()

    def note(self, host: str) -> bool:
        """Add an address as the most recent, and return whether it is new."""
        is_new = host not in self._hosts
        self._hosts[host] = None
        self._hosts.move_to_end(host)
        if len(self._hosts) > HOSTS_KEPT_MAX:
            self._hosts.popitem(last=False)
        return is_new

    def __contains__(self, host: str) -> bool:
        return host in self._hosts
