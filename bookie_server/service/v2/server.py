"""Accepts v2 connections. At a stop, closes the connections after their requests are answered."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Collection
from ipaddress import ip_address
from typing import Final

from bookie_server.config import BookieSettings
from bookie_server.service.logging import get_logger
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
"""Divisor: 1/8 of the connections is reserved for hosts that already got an answer to a request."""

_logger = get_logger("v2")


class V2Server:
    """The data plane of one bookie; lanes and counters are shared with the gRPC service."""

    def __init__(self, settings: BookieSettings, shared: V2Shared) -> None:
        self.is_stopping = False
        self._shared = shared
        self._connections_max = settings.connections_max
        self._connections: set[PeerConnection] = set()
        self._server: asyncio.Server | None = None
        self.sweeper = ConnectionSweeper(
            self._connections, shared.lanes, settings, shared.counters, shared.loop.time
        )
        shared.relieve = self.sweeper.relieve
        self._sweeping: asyncio.Task[None] | None = None

    @property
    def connections_count(self) -> int:
        """Number of open connections."""
        return len(self._connections)

    async def start(self, listener: socket.socket) -> None:
        """Serve the connections of `listener`, a socket from `listen`. `stop` closes the socket."""
        self._server = await self._shared.loop.create_server(
            lambda: V2Operations(self._shared, self.admit, self.left),
            sock=listener,
            backlog=LISTEN_BACKLOG,
        )
        self._sweeping = asyncio.create_task(self.sweeper.run(), name="v2 sweeper")

    def admit(self, connection: PeerConnection) -> bool:
        """Add a new connection and return True. Return False if the server has no room for it."""
        if self.is_stopping or not self._has_place(connection):
            self._shared.counters.connections_refused += 1
            _logger.warning("connection_refused", peer=connection.peer, open=self.connections_count)
            return False
        self._shared.counters.connections_opened += 1
        self._connections.add(connection)
        return True

    def _has_place(self, newcomer: PeerConnection) -> bool:
        """Return whether the newcomer has a place. If necessary, close an idle connection first."""
        is_known = newcomer.host in self._shared.known_hosts
        if not is_full(len(self._connections), self._connections_max, is_known_host=is_known):
            return True
        replaced = to_replace(self._connections, is_known_host=is_known)
        if replaced is None:
            return False
        _logger.warning("connection_closed", peer=replaced.peer, reason="its place is needed")
        self._shared.counters.connections_replaced += 1
        replaced.close(is_abrupt=True)
        self._connections.discard(replaced)
        return True

    def left(self, connection: PeerConnection) -> None:
        """Remove a closed connection, if it was admitted."""
        self._connections.discard(connection)

    async def stop(self, drain_timeout_ms: int) -> bool:
        """Answer accepted requests, then close all connections. Return False if time ran out."""
        self.is_stopping = True
        if self._sweeping is not None:
            self._sweeping.cancel()
        if self._server is not None:
            self._server.close()
        for connection in self._connections:
            connection.stop_receiving()
        deadline = self._shared.loop.time() + drain_timeout_ms / 1_000
        while not self._is_idle() and self._shared.loop.time() < deadline:  # noqa: ASYNC110 -- once
            await asyncio.sleep(DRAIN_STEP_MS / 1_000)
        is_drained = self._is_idle()
        for connection in list(self._connections):
            connection.close(is_abrupt=not is_drained)
        return is_drained

    def _is_idle(self) -> bool:
        return all(connection.is_idle for connection in self._connections)


def is_full(open_count: int, connections_max: int, *, is_known_host: bool) -> bool:
    """Return whether a new connection needs the place of another connection."""
    if is_known_host:
        return open_count >= connections_max
    return open_count >= connections_max - connections_max // KNOWN_HOSTS_PART


def to_replace(
    connections: Collection[PeerConnection], *, is_known_host: bool
) -> PeerConnection | None:
    """Return the idle connection that a new connection replaces, or None.

    Connections that are not proven (`is_proven`) are replaced first. A connection of an unknown
    host can replace only a connection that is not proven. Among several connections, the server
    chooses a connection of the host with the most connections. Of these, it chooses the connection
    that was silent for the longest time.
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
