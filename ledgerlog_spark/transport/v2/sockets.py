"""Sockets of clients and bookies: connections within one machine, and writes of many pieces."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections.abc import Sequence
from typing import Final

UNPACED: Final = b"reno"
"""Name of a congestion control without pacing. Every Linux kernel has it, and all users may set
it."""

_ANY_PORT: Final = 9

_VERSION: Final = sys.version_info[:3]
PAUSES: Final = not ((3, 12) <= _VERSION < (3, 12, 9) or (3, 13) <= _VERSION < (3, 13, 2))


async def connected_within_host(host: str, port: int) -> socket.socket | None:
    """Connect to `host` if it is an address of this machine; return the socket, otherwise None."""
    made = _socket_within_host(host)
    if made is None:
        return None
    try:
        await asyncio.get_running_loop().sock_connect(made, (host, port))
    except BaseException:
        made.close()
        raise
    return made


def _socket_within_host(host: str) -> socket.socket | None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.inet_pton(family, host)
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            # For UDP, `connect` sends nothing, but selects the local address from which packets
            # would be sent.
            probe.connect((host, _ANY_PORT))
            if probe.getsockname()[0] != host:
                return None
        made = socket.socket(family, socket.SOCK_STREAM)
    except OSError:
        return None
    made.setblocking(False)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    unpace(made)
    return made


def unpace(unconnected: socket.socket) -> None:
    """Set the congestion control `reno`, which has no pacing, on a socket or on a listener.

    The connections that a listener accepts have the same congestion control.

    BBR, the default of many machines, estimates the rate of the network and uses timers to send at
    this rate. Within one machine there is no network to protect, and the timers are expensive: with
    BBR, appends of 64 KiB to three local bookies took 9 % more CPU. The socket must not be
    connected yet, because a connection that began with BBR would keep its timers. If the system
    does not have `reno`, nothing changes.
    """
    if hasattr(socket, "TCP_CONGESTION"):
        with contextlib.suppress(OSError):
            unconnected.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, UNPACED)


def write_all(
    transport: asyncio.WriteTransport, pieces: Sequence[bytes | bytearray | memoryview]
) -> None:
    """Write the pieces in order. If too many bytes are unsent, the transport pauses its protocol.

    `writelines` of asyncio does not pause the protocol in Python 3.12.0 to 3.12.8, 3.13.0 and
    3.13.1 (CVE-2024-12254). In these versions, the number of unsent bytes would have no limit. So
    this function calls `write`, which pauses the protocol in all Python versions.
    """
    if PAUSES or not type(transport).__module__.startswith("asyncio"):
        transport.writelines(pieces)
    else:
        transport.write(b"".join(pieces))
