"""What is written past the loop's turn, and what is left to the transport."""

from __future__ import annotations

import os
import socket

import pytest

from ledgerlog_spark.transport.prompt_write import NO_DESCRIPTOR, descriptor_of, is_written_now

pytestmark = pytest.mark.skipif(os.name != "posix", reason="sockets are no file descriptors")


class Transport:
    """The part of a transport that is asked, over a real socket."""

    def __init__(self, connected: socket.socket | None) -> None:
        self.connected = connected
        self.is_ending = False
        self.unsent = b""

    def get_extra_info(self, name: str) -> socket.socket | None:
        assert name == "socket"
        return self.connected

    def is_closing(self) -> bool:
        return self.is_ending

    def get_write_buffer_size(self) -> int:
        return len(self.unsent)

    def write(self, data: bytes) -> None:
        self.unsent += data


@pytest.fixture
def ends():
    near, far = socket.socketpair()
    near.setblocking(False)
    with near, far:
        yield near, far


def test_data_is_on_its_way_at_once(ends) -> None:
    near, far = ends
    transport = Transport(near)
    assert is_written_now(transport, descriptor_of(transport), b"frame")
    assert far.recv(100) == b"frame"
    assert transport.unsent == b""


def test_nothing_passes_what_the_transport_still_has(ends) -> None:
    transport = Transport(ends[0])
    transport.write(b"before")
    assert not is_written_now(transport, descriptor_of(transport), b"frame")
    assert transport.unsent == b"before"


def test_a_closing_transport_is_not_written_to(ends) -> None:
    near, far = ends
    transport = Transport(near)
    transport.is_ending = True
    assert not is_written_now(transport, descriptor_of(transport), b"frame")
    near.close()
    assert far.recv(100) == b""


def test_what_the_system_does_not_take_is_left_to_the_transport(ends) -> None:
    near, far = ends
    transport = Transport(near)
    data = os.urandom(64 << 20)
    assert is_written_now(transport, descriptor_of(transport), data)
    taken = len(data) - len(transport.unsent)
    assert 0 < taken < len(data)
    assert transport.unsent == data[taken:]
    # Now it takes nothing at all.
    transport.unsent = b""
    assert not is_written_now(transport, descriptor_of(transport), b"frame")
    got = b""
    while len(got) < taken:
        got += far.recv(1 << 20)
    assert got == data[:taken]


def test_a_connection_that_is_gone_is_left_to_the_transport(ends) -> None:
    near, far = ends
    far.close()
    assert not is_written_now(Transport(near), near.fileno(), b"frame")


def test_a_transport_without_a_socket_is_never_written_to() -> None:
    transport = Transport(None)
    assert descriptor_of(transport) == NO_DESCRIPTOR
    assert not is_written_now(transport, NO_DESCRIPTOR, b"frame")
