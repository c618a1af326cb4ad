"""The congestion control of connections within one machine."""

from __future__ import annotations

import socket

import pytest

from bookie_server.service.v2.server import listen
from ledgerlog_spark.transport.v2.sockets import UNPACED, connected_within_host

pytestmark = pytest.mark.skipif(
    not hasattr(socket, "TCP_CONGESTION"), reason="only Linux lets a program choose"
)


def chosen(connection: socket.socket) -> bytes:
    name = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
    return name.rstrip(b"\0")


async def test_both_ends_of_a_connection_to_a_local_bookie_are_not_paced() -> None:
    with listen("127.0.0.1", 0) as listener:
        listener.listen()
        connection = await connected_within_host(*listener.getsockname())
        assert connection is not None
        with connection, listener.accept()[0] as accepted:
            assert connection.getpeername() == listener.getsockname()
            assert [chosen(connection), chosen(accepted)] == [UNPACED, UNPACED]
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert not connection.getblocking()


@pytest.mark.parametrize("host", ["localhost", "bookie-1.example", "192.0.2.1", "2001:db8::1", ""])
async def test_names_and_other_machines_are_left_to_the_event_loop(host: str) -> None:
    assert await connected_within_host(host, 3181) is None


async def test_a_port_where_nobody_listens_is_refused_and_nothing_is_left_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        host, port = closed.getsockname()
    with pytest.raises(ConnectionRefusedError):
        await connected_within_host(host, port)


def test_a_bookie_for_other_machines_keeps_what_the_administrator_set() -> None:
    with socket.socket() as plain, listen("0.0.0.0", 0) as listener:
        assert chosen(listener) == chosen(plain)
