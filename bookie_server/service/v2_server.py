"""Listens for v2 connections, admits them, drains them, and closes those that stall."""

from __future__ import annotations

import asyncio
import socket
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from bookie_server.service.logging import get_logger
from bookie_server.service.port_claim import claim
from bookie_server.service.v2_operations import V2Operations
from bookie_server.service.v2_shared import V2Shared
from ledgerlog_spark.transport.same_host import unpace

if TYPE_CHECKING:
    from bookie_server.config import BookieSettings
    from bookie_server.service.in_flight import InFlight
    from bookie_server.service.metrics import ServiceCounters
    from bookie_server.service.storage_port import EntryStorage
    from bookie_server.service.v2_connection import V2Connection

LISTEN_BACKLOG: Final = 512
DRAIN_STEP_MS: Final = 10
RECEIVE_BUFFER_BYTES: Final = 1 << 20

_log = get_logger("v2")


class V2Server:
    """The data plane of one bookie.

    Args:
        settings: Bounds and the address.
        storage: Where requests go.
        in_flight: Shared with the gRPC service.
        counters: Shared with the gRPC service.
    """

    def __init__(
        self,
        settings: BookieSettings,
        storage: EntryStorage,
        in_flight: InFlight,
        counters: ServiceCounters,
    ) -> None:
        self.is_stopping = False
        self._shared = V2Shared(settings, storage, in_flight, counters)
        self._counters = counters
        self._loop = self._shared.loop
        self._settings = settings
        self._connections: set[V2Connection] = set()
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.Task[None] | None = None

    @property
    def connections_count(self) -> int:
        """Connections open now."""
        return len(self._connections)

    async def start(self, listener: socket.socket) -> None:
        """Serve the connections of `listener`, which `listen` made; takes it over."""
        self._server = await self._loop.create_server(
            lambda: V2Operations(self._shared, self.admit, self.left),
            sock=listener,
            backlog=LISTEN_BACKLOG,
        )
        self._sweeper = asyncio.create_task(self._sweep(), name="v2 sweeper")

    def admit(self, connection: V2Connection) -> bool:
        """Whether a new connection may stay; counts it in if so."""
        if self.is_stopping or len(self._connections) >= self._settings.connections_max:
            self._counters.connections_refused += 1
            _log.warning("connection_refused", peer=connection.peer, open=self.connections_count)
            return False
        self._counters.connections_opened += 1
        self._connections.add(connection)
        return True

    def left(self, connection: V2Connection) -> None:
        """A connection is gone; fine when it never was admitted."""
        self._connections.discard(connection)

    async def stop(self, drain_timeout_ms: int) -> bool:
        """Stop accepting, answer what was accepted, close; False when the time ran out."""
        self.is_stopping = True
        if self._sweeper is not None:
            self._sweeper.cancel()
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

    async def _sweep(self) -> None:
        """Close connections whose peer made no progress for `stall_timeout_ms`."""
        period = self._settings.stall_timeout_ms / 1_000
        marks: dict[V2Connection, tuple[int, int, int] | None] = {}
        while True:
            await asyncio.sleep(period)
            now = {connection: connection.stall_mark for connection in self._connections}
            for connection, mark in now.items():
                if mark is not None and marks.get(connection) == mark:
                    _log.warning("connection_stalled", peer=connection.peer)
                    self._counters.connections_closed_by_us += 1
                    connection.close(is_abrupt=True)
            marks = now


def listen(address: str, port: int) -> socket.socket:
    """A socket bound to the address; clients are refused until a server listens on it.

    Raises:
        PortInUseError: Another process has the port; says what to do.
        StartupError: The address is not this machine's.
    """
    listener = claim(address, port, "port")
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
    if ip_address(listener.getsockname()[0]).is_loopback:
        unpace(listener)
    listener.setblocking(False)
    return listener
