"""Binds ports early, so that a start without free ports fails before it changes stored data."""

from __future__ import annotations

import errno
import socket
from typing import Final

from bookie_server.errors import PortInUseError
from ledgerlog_spark.errors import StartupError

_NAMES: Final = {"port": "port", "grpc_port": "gRPC port", "metrics_port": "metrics port"}


def claim(address: str, port: int, setting: str) -> socket.socket:
    """Return a socket bound to the address. Clients are refused until the socket listens.

    If a server binds the port itself, the caller must first close this socket. Port 0 selects a
    free port. Raise PortInUseError or another StartupError if the port cannot be bound.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    claimed = socket.socket(family, socket.SOCK_STREAM)
    try:
        claimed.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        claimed.bind((address, port))
    except OSError as error:
        claimed.close()
        if error.errno == errno.EADDRINUSE:
            raise port_in_use(address, port, setting) from None
        raise not_available(address, port, setting, error) from None
    return claimed


def port_in_use(address: str, port: int, setting: str) -> PortInUseError:
    """Return the error for a port that another process uses."""
    return PortInUseError(
        f"{_NAMES[setting]} {port} on {address} is in use: stop the process that has it (ss -ltnp "
        f"shows it), or give this bookie another {setting}",
        address=address,
        port=port,
    )


def not_available(address: str, port: int, setting: str, error: OSError) -> StartupError:
    """Return the error for a port that cannot be bound although no other process uses it."""
    return StartupError(
        f"cannot listen on {address} {_NAMES[setting]} {port}: {error.strerror}",
        address=address,
        port=port,
        reason=error.strerror,
    )
