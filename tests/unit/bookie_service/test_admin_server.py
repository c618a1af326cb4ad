"""The bounds of the HTTP server of the metrics port."""

from __future__ import annotations

import contextlib
import io
import socket
import struct
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from bookie_server.errors import PortInUseError
from bookie_server.service.admin import server
from bookie_server.service.admin.server import (
    CONNECTION_SECONDS_MAX,
    CONNECTIONS_MAX,
    REQUEST_BYTES_MAX,
    AdminServer,
)
from tests.fixtures.patience import until

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from wsgiref.types import StartResponse, WSGIEnvironment

PATIENCE_SECONDS = 20


def answer_ok(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    body = b"read: " + environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]


def test_metrics_port_in_use_is_refused_by_number() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PortInUseError, match=str(port)):
            AdminServer("127.0.0.1", port, answer_ok)


class Served:
    """A metrics server on a clock of the test, and raw peers."""

    def __init__(self) -> None:
        self.now = 0.0
        self.peers: list[socket.socket] = []
        self.heads: list[str] = []  # methods of the processed requests
        self.server = AdminServer("127.0.0.1", 0, self._answer_ok, clock=lambda: self.now)

    def _answer_ok(
        self, environ: WSGIEnvironment, start_response: StartResponse
    ) -> Iterable[bytes]:
        self.heads.append(environ["REQUEST_METHOD"])
        return answer_ok(environ, start_response)

    def peer(self) -> socket.socket:
        peer = socket.create_connection(("127.0.0.1", self.server.port), timeout=PATIENCE_SECONDS)
        self.peers.append(peer)
        return peer

    def answer(self, request: bytes) -> bytes:
        peer = self.peer()
        peer.sendall(request)
        return _rest_of(peer)


def _rest_of(peer: socket.socket) -> bytes:
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while part := peer.recv(65_536):
            parts.append(part)
    return b"".join(parts)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setattr(server, "LOOK_SECONDS", 0.01)  # `close` waits for a look
    served = Served()
    yield served
    for peer in served.peers:
        peer.close()
    served.server.close()


def test_the_metrics_port_has_few_places_and_they_come_free(served: Served) -> None:
    silent = [served.peer() for _ in range(CONNECTIONS_MAX)]
    until(lambda: len(served.server._server._until) == CONNECTIONS_MAX)
    threads = set(threading.enumerate())
    for _ in range(50):
        assert _rest_of(served.peer()) == b"", "there is no place for it"
    # Threads of earlier tests may end at any time.
    begun = set(threading.enumerate()) - threads
    assert not [thread for thread in begun if "process_request" in thread.name]
    silent[0].close()
    until(lambda: len(served.server._server._until) < CONNECTIONS_MAX)
    assert served.answer(b"GET /metrics HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.0 200")


def test_a_request_for_metrics_that_comes_in_drops_ends_in_time(served: Served) -> None:
    peer = served.peer()
    until(lambda: len(served.server._server._until) == 1)
    for byte in b"GET /met":
        served.now += CONNECTION_SECONDS_MAX / 10
        peer.sendall(bytes([byte]))
    assert len(served.server._server._until) == 1
    served.now = CONNECTION_SECONDS_MAX
    assert _rest_of(peer) == b""
    until(lambda: not len(served.server._server._until))


@pytest.mark.parametrize("request_", [b"GET /", b"GET / HTTP/1.0\r\nA: "])
def test_a_request_for_metrics_is_read_up_to_its_bound(served: Served, request_: bytes) -> None:
    peer = served.peer()
    peer.sendall(request_ + b"x" * (REQUEST_BYTES_MAX - len(request_)))
    assert peer.recv(1), "it is answered without a byte more"


class Heard(io.StringIO):
    """The log records of threads that begin from now on, because earlier threads may log too."""

    def __init__(self) -> None:
        super().__init__()
        self._others = set(threading.enumerate()) - {threading.current_thread()}

    def write(self, text: str) -> int:
        return len(text) if threading.current_thread() in self._others else super().write(text)


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Heard:
    heard = Heard()
    monkeypatch.setattr(sys, "stdout", heard)
    monkeypatch.setattr(sys, "stderr", heard)
    return heard


def test_peers_of_the_metrics_port_that_go_away_or_send_garbage_leave_no_trace(
    heard: Heard, served: Served
) -> None:
    for request in (b"", b"\0" * 100, b"POST / HTTP/1.0\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"):
        peer = served.peer()
        peer.sendall(request)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()
    assert served.answer(b"GET / HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.0 200")
    until(lambda: not len(served.server._server._until))
    assert heard.getvalue() == ""


def test_a_body_is_read_with_the_rest_of_the_bound_of_a_request(served: Served) -> None:
    head = b"PUT / HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % REQUEST_BYTES_MAX
    assert served.answer(head + b"x" * REQUEST_BYTES_MAX).count(b"x") == REQUEST_BYTES_MAX - len(
        head
    )


CUT_HEADS = [
    b"PUT / HTTP/1.0\r\n",
    b"PUT / HTTP/1.0\r\nA: b\r\n",
    b"PUT / HTTP/1.0\r\nContent-Le",
    b"PUT / HTTP/1.0",
    b"GET /metr",
]


@pytest.mark.parametrize("head", CUT_HEADS)
def test_a_request_without_its_whole_head_is_not_carried_out(head: bytes, served: Served) -> None:
    """The lost rest may have had a body that requests less than a request without a body."""
    peer = served.peer()
    peer.sendall(head)
    peer.shutdown(socket.SHUT_WR)
    assert _rest_of(peer) == b""
    slow = served.peer()
    slow.sendall(head)
    until(lambda: len(served.server._server._until) == 1)
    served.now += CONNECTION_SECONDS_MAX
    assert _rest_of(slow) == b""
    assert served.heads == []


@pytest.mark.parametrize(
    ("begin", "status"),
    [
        (b"PUT /", b"414"),
        (b"PUT / HTTP/1.0\r\nA: ", b"431"),
        (b"PUT / HTTP/1.0\r\n" + b"A: b\r\n" * 90 + b"C: ", b"431"),
        (b"PUT / HTTP/1.0\r\n" + b"A: b\r\n" * 2_000, b"431"),
    ],
)
def test_a_head_beyond_the_bound_is_refused(begin: bytes, status: bytes, served: Served) -> None:
    answer = served.answer(begin.ljust(REQUEST_BYTES_MAX, b"x"))
    assert answer.split(b"\r\n")[0].split(b" ")[1] == status
    assert served.heads == []
