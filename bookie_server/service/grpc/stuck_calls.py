"""Ends a call whose client takes no replies, if other calls wait for its memory or its place.

The connection of such a call is closed first, because the library keeps a reply that is being sent
until the connection closes, even after the call ended. The bytes of the call stay counted until the
connection is closed. The library has no function that closes one connection, so this module shuts
down the socket of the connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import socket
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

import psutil

from bookie_server.service.logging import get_logger

PEERS_LOGGED_MAX: Final = 10
Address = tuple[str, int]

_logger = get_logger("grpc")


@dataclass(frozen=True, slots=True)
class Stuck:
    """A call that holds bytes or a place that other calls need."""

    peer: str  # gRPC's name for the peer
    end: Callable[[], object]  # ends the call and gives back its bytes


class StuckCalls:
    """Ends stuck calls. Calls that are reported at the same time are ended together."""

    def __init__(self) -> None:
        # A function that closes the connections of peers in a thread; None while there is no
        # server.
        self.close_connections: Callable[[Collection[str]], object] | None = None
        self._closing: set[str] = set()
        self._waiting: list[Stuck] = []
        self._task: asyncio.Task[None] | None = None

    def is_closing(self, peer: str) -> bool:
        """Return whether a peer's connection is about to be closed."""
        return peer in self._closing or any(call.peer == peer for call in self._waiting)

    def end(self, calls: Collection[Stuck]) -> None:
        """Close the connections of `calls`, then end the calls."""
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
        except Exception as error:  # noqa: BLE001 -- the calls must end after any error
            _logger.error(  # noqa: TRY400 (one line)
                "connections_not_closed",
                peers=sorted(peers)[:PEERS_LOGGED_MAX],
                reason=repr(error),
            )
        finally:
            self._closing = set()
            for call in calls:
                call.end()


def close_connections(local_port: int, peers: Iterable[str]) -> int:
    """Shut down the connections from `peers` to a port of this bookie, and return their number.

    This takes milliseconds. The peers are named as in gRPC, such as `ipv4:127.0.0.1:4711` and
    `ipv6:%5B::1%5D:4711`.
    """
    addresses = {address_of(peer) for peer in peers}
    return sum(
        _shut_down(connection.fd, address)
        for connection in psutil.Process().net_connections(kind="tcp")
        if connection.status != psutil.CONN_LISTEN
        and connection.laddr.port == local_port
        and (address := _plain(*connection.raddr)) in addresses
    )


def address_of(peer: str) -> Address:
    """Return host and port of a peer from its name in gRPC."""
    host, _, port = unquote(peer).partition(":")[2].rpartition(":")
    return _plain(host.strip("[]"), int(port))


def _shut_down(descriptor: int, address: Address) -> bool:
    """Shut down a connection, and return whether it was still a connection with this peer."""
    try:
        # The library may have closed the descriptor, and its number may belong to another file now.
        # So the check uses a duplicate of the descriptor, which the library cannot close.
        duplicate = os.dup(descriptor)
    except OSError:
        return False
    try:
        connection = socket.socket(fileno=duplicate)
    except OSError:
        os.close(duplicate)
        return False
    with connection, contextlib.suppress(OSError):
        is_internet = connection.family in (socket.AF_INET, socket.AF_INET6)
        if is_internet and _plain(*connection.getpeername()[:2]) == address:
            connection.shutdown(socket.SHUT_RDWR)
            return True
    return False


def _plain(host: str, port: int) -> Address:
    """Return an address in its only form: an IPv4 address within an IPv6 address becomes IPv4."""
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        address = address.ipv4_mapped or address
    return str(address), port
