"""Connections are closed by gRPC's names of their peers, and no other connection is closed."""

from __future__ import annotations

import contextlib
import os
import socket
from typing import TYPE_CHECKING

import psutil
import pytest

from bookie_server.service.grpc import stuck_calls
from bookie_server.service.grpc.stuck_calls import address_of, close_connections

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:127.0.0.1:4711", ("127.0.0.1", 4711)),
        ("ipv6:%5B::1%5D:4711", ("::1", 4711)),
        ("ipv6:[::1]:4711", ("::1", 4711)),
        ("ipv6:%5B::ffff:10.0.0.1%5D:1", ("10.0.0.1", 1)),
        ("ipv6:%5Bfe80::1%25eth0%5D:1", ("fe80::1", 1)),
    ],
)
def test_names_of_peers(peer: str, address: tuple[str, int]) -> None:
    assert address_of(peer) == address


Pair = tuple[socket.socket, socket.socket]


@contextlib.contextmanager
def connected(listener: socket.socket) -> Iterator[Pair]:
    host, port = listener.getsockname()[:2]
    with socket.create_connection((host, port), timeout=20) as client:
        served, _ = listener.accept()
        with served:
            yield client, served


def peer_of(pair: Pair) -> str:
    host, port = pair[0].getsockname()[:2]
    return f"ipv6:%5B{host}%5D:{port}" if ":" in host else f"ipv4:{host}:{port}"


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_only_the_named_connections_of_the_port_are_closed(family: socket.AddressFamily) -> None:
    host = "127.0.0.1" if family is socket.AF_INET else "::1"
    with (
        socket.create_server((host, 0), family=family) as listener,
        socket.create_server((host, 0), family=family) as other,
        connected(listener) as named,
        connected(listener) as unnamed,
        connected(other) as elsewhere,
    ):
        port = listener.getsockname()[1]
        assert close_connections(port, [peer_of(named), peer_of(elsewhere)]) == 1
        assert named[0].recv(1) == b""
        for client, served in (unnamed, elsewhere):
            served.sendall(b"x")
            assert client.recv(1) == b"x"
        named[1].close()
        assert close_connections(port, [peer_of(named)]) == 0, "it is closed already"


def test_a_descriptor_that_is_another_connections_by_now_stays_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        connected(listener) as named,
        connected(listener) as other,
    ):
        shut_down = stuck_calls._shut_down
        monkeypatch.setattr(
            stuck_calls, "_shut_down", lambda _, address: shut_down(other[1].fileno(), address)
        )
        assert close_connections(listener.getsockname()[1], [peer_of(named)]) == 0
        other[1].sendall(b"x")
        assert other[0].recv(1) == b"x"


@pytest.mark.parametrize("is_socket", [True, False])
def test_a_descriptor_that_is_no_connections_by_now_is_left_alone(
    tmp_path: Path, is_socket: bool
) -> None:
    pair = [*socket.socketpair()] if is_socket else []
    path = tmp_path / "file"
    path.touch()
    descriptor = pair[0].fileno() if pair else os.open(path, os.O_RDONLY)
    try:
        before = psutil.Process().num_fds()
        assert not stuck_calls._shut_down(descriptor, ("127.0.0.1", 4711))
        assert psutil.Process().num_fds() == before
        for end in pair[1:]:
            end.sendall(b"x")
            assert pair[0].recv(1) == b"x"
    finally:
        for end in pair:
            end.close()
        if not pair:
            os.close(descriptor)
