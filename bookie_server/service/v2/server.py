"""Listens for v2 connections, admits them, drains them."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Callable, Collection
from ipaddress import ip_address
from typing import Final

from bookie_server.config import BookieSettings
from bookie_server.core.requests import EntryStorage
from bookie_server.service.limits.budget import Budget
from bookie_server.service.limits.lanes import Lanes
from bookie_server.service.logging import get_logger
from bookie_server.service.metrics.counters import ServiceCounters
from bookie_server.service.port_claim import claim
from bookie_server.service.v2.connection import PeerConnection
from bookie_server.service.v2.operations import V2Operations
from bookie_server.service.v2.shared import V2Shared
from bookie_server.service.v2.sweeper import ConnectionSweeper
from ledgerlog_spark.transport.v2.sockets import unpace

LISTEN_BACKLOG: Final = 512
DRAIN_STEP_MS: Final = 10
RECEIVE_BUFFER_BYTES: Final = 1 << 20
KNOWN_HOSTS_PART: Final = 8
"""This part of the places is reserved for hosts that had a request answered."""

_logger = get_logger("v2")


class V2Server:
    """The data plane of one bookie; lanes and counters are shared with the gRPC service."""

    def __init__(
        self,
        settings: BookieSettings,
        storage: EntryStorage,
        lanes: Lanes,
        counters: ServiceCounters,
    ) -> None:
        self.is_stopping = False
        self._shared = V2Shared(settings, storage, lanes, counters)
        self._counters = counters
        self._loop = self._shared.loop
        self._settings = settings
        self._connections: set[PeerConnection] = set()
        self._server: asyncio.Server | None = None
        self._sweeper = ConnectionSweeper(
            self._connections, lanes, settings, counters, self._shared.loop.time
        )
        self._shared.relieve = self._sweeper.relieve
        self._sweeping: asyncio.Task[None] | None = None

    @property
    def connections_count(self) -> int:
        """Connections open now."""
        return len(self._connections)

    def relieve_also(self, relieve: Callable[[Budget, float], None]) -> None:
        """Set another function for a full lane, called with the lane and its holders' grace."""
        self._sweeper.others.append(relieve)

    async def start(self, listener: socket.socket) -> None:
        """Serve the connections of `listener`, made by `listen`; takes ownership of it."""
        self._server = await self._loop.create_server(
            lambda: V2Operations(self._shared, self.admit, self.left),
            sock=listener,
            backlog=LISTEN_BACKLOG,
        )
        self._sweeping = asyncio.create_task(self._sweeper.run(), name="v2 sweeper")

    def admit(self, connection: PeerConnection) -> bool:
        """Return whether a new connection may stay; counts it if so."""
        if self.is_stopping or not self._has_place(connection):
            self._counters.connections_refused += 1
            _logger.warning("connection_refused", peer=connection.peer, open=self.connections_count)
            return False
        self._counters.connections_opened += 1
        self._connections.add(connection)
        return True

    def _has_place(self, newcomer: PeerConnection) -> bool:
        """Return whether there is a place, possibly after an idle connection was closed."""
        is_known = newcomer.host in self._shared.known_hosts
        if not is_full(
            len(self._connections), self._settings.connections_max, is_known_host=is_known
        ):
            return True
        replaced = to_replace(self._connections, is_known_host=is_known)
        if replaced is None:
            return False
        _logger.warning("connection_closed", peer=replaced.peer, reason="its place is needed")
        self._counters.connections_replaced += 1
        replaced.close(is_abrupt=True)
        self._connections.discard(replaced)
        return True

    def left(self, connection: PeerConnection) -> None:
        """Remove a closed connection; does nothing if it was never admitted."""
        self._connections.discard(connection)

    async def stop(self, drain_timeout_ms: int) -> bool:
        """Stop accepting, answer accepted requests, close; returns False when the time ran out."""
        self.is_stopping = True
        if self._sweeping is not None:
            self._sweeping.cancel()
        if self._server is not None:
            self._server.close()
        for connection in self._connections:
            connection.stop_receiving()
        deadline = self._loop.time() + drain_timeout_ms / 1_000
        while not self._is_idle() and self._loop.time() < deadline:  # noqa: ASYNC110 -- once a life
            await asyncio.sleep(DRAIN_STEP_MS / 1_000)
        is_drained = self._is_idle()
        for connection in list(self._connections):
            connection.close(is_abrupt=not is_drained)
        return is_drained

    def _is_idle(self) -> bool:
        return all(connection.is_idle for connection in self._connections)


def is_full(open_count: int, connections_max: int, *, is_known_host: bool) -> bool:
    """Return whether a new connection must replace another one."""
    if is_known_host:
        return open_count >= connections_max
    return open_count >= connections_max - connections_max // KNOWN_HOSTS_PART


def to_replace(
    connections: Collection[PeerConnection], *, is_known_host: bool
) -> PeerConnection | None:
    """Return the idle connection whose place a new one gets; None when all of them are busy.

    The first choice are peers without an answered request (an unknown host gets no other place),
    then the host with most connections, then the connection that was silent longest.
    """
    of_host = Counter(connection.host for connection in connections)
    return min(
        (
            connection
            for connection in connections
            if connection.is_idle and (is_known_host or not connection.is_proven)
        ),
        key=lambda connection: (
            connection.is_proven,
            -of_host[connection.host],
            connection.watch.received_at,
        ),
        default=None,
    )


def listen(address: str, port: int) -> socket.socket:
    """Return a socket bound to the address; clients are refused until a server listens on it."""
    listener = claim(address, port, "port")
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
    if ip_address(listener.getsockname()[0]).is_loopback:
        unpace(listener)
    listener.setblocking(False)
    return listener
