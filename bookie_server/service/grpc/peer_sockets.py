"""Closes connections of the control service through gRPC's descriptors.

The library can end a call, but it keeps a reply that is being sent as long as the connection is
open. It cannot close a single connection.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
from collections.abc import Iterable
from urllib.parse import unquote

import psutil

Address = tuple[str, int]


def close_connections(local_port: int, peers: Iterable[str]) -> int:
    """Shut down this process's connections from some peers to a port; returns their number.

    Takes milliseconds. gRPC names peers as `ipv4:127.0.0.1:4711`, `ipv6:%5B::1%5D:4711`.
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
    """Return host and port of a peer, as gRPC names it."""
    host, _, port = unquote(peer).partition(":")[2].rpartition(":")
    return _plain(host.strip("[]"), int(port))


def _shut_down(descriptor: int, address: Address) -> bool:
    """Shut a descriptor down; returns whether it was still a connection with this peer."""
    try:
        # The library may have closed it since, and its number may belong to another file now.
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
    """Return one form of each address: IPv4 within IPv6 becomes IPv4."""
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        address = address.ipv4_mapped or address
    return str(address), port
