"""Metrics text of a bookie, as Prometheus fetches it."""

from __future__ import annotations

import contextlib
import io
import socket
import struct
import sys
import threading
import urllib.request
from typing import TYPE_CHECKING

import pytest

from bookie_server.errors import PortInUseError
from bookie_server.service.metrics.counters import ServiceCollector, ServiceCounters
from bookie_server.service.metrics.loop_lag import LoopLag
from bookie_server.service.metrics.server import (
    CONNECTION_SECONDS_MAX,
    CONNECTIONS_MAX,
    REQUEST_BYTES_MAX,
    MetricsServer,
)
from ledgerlog_spark.model import Code
from tests.abuse.loop_lags import Lag, LoopLags
from tests.fixtures.patience import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENCE_SECONDS = 20


def _collector(counters: ServiceCounters) -> ServiceCollector:
    return ServiceCollector(
        counters, {"in_flight_bytes": lambda: 5}, lambda: {"groups": 3}, LoopLag()
    )


def test_metrics_text_has_counters_answers_gauges_and_storage() -> None:
    counters = ServiceCounters(add_requests=12)
    counters.answers[Code.FENCED] = 4
    collector = _collector(counters)
    for seconds in (0.002, 0.03, 1.5, 9.0):
        collector._loop_lag.wall.note(seconds)
    server = MetricsServer("127.0.0.1", 0, collector)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=5) as answer:
            text = answer.read().decode()
    finally:
        server.close()
    assert "ledgerlog_bookie_add_requests_total 12.0" in text
    assert 'ledgerlog_bookie_answers_total{code="fenced"} 4.0' in text
    assert "ledgerlog_bookie_in_flight_bytes 5.0" in text
    assert "ledgerlog_bookie_storage_groups 3.0" in text
    assert 'ledgerlog_bookie_loop_lag_seconds_bucket{le="0.05"} 2.0' in text
    assert 'ledgerlog_bookie_loop_lag_seconds_bucket{le="+Inf"} 4.0' in text
    assert "ledgerlog_bookie_loop_lag_max_seconds 9.0" in text
    assert 'ledgerlog_bookie_loop_lag_cpu_seconds_bucket{le="0.05"} 0.0' in text
    assert "ledgerlog_bookie_loop_lag_cpu_max_seconds 0.0" in text


class Loop:
    """A loop under a probe, whose wake-ups come late by what is given, computing or not."""

    def __init__(self) -> None:
        self.now = self.cpu = 0.0
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.lag = LoopLag(
            lambda: self.now,
            lambda: self.cpu,
            lambda seconds, wake: self.timers.append((self.now + seconds, wake)),
        )
        self.lag.start()

    def wake(self, late: float, computing: float) -> None:
        due, wake = self.timers.pop()
        self.now = due + late
        self.cpu += computing
        wake()


def test_loop_that_stands_still_is_seen_and_one_that_does_not_is_not() -> None:
    loop = Loop()
    for late in (0.0, 0.0, 0.4, 0.0):
        loop.wake(late, computing=0.001)
    wall = loop.lag.wall
    assert wall.max_seconds == pytest.approx(0.4)
    assert wall.counts[0] == 3
    assert sum(wall.counts) == 4
    loop.lag.stop()
    loop.timers.pop()[1]()
    assert loop.timers == []


def test_a_lag_counts_as_computing_as_far_as_the_thread_had_the_cpu() -> None:
    loop = Loop()
    loop.wake(0.4, computing=0.003)  # the machine had no CPU for it
    assert loop.lag.cpu.max_seconds == pytest.approx(0.003)
    loop.wake(0.2, computing=0.21)  # it computed, before and while it was late
    assert loop.lag.cpu.max_seconds == pytest.approx(0.2)
    loop.wake(0.0, computing=0.02)  # busy, and on time
    assert loop.lag.cpu.max_seconds == pytest.approx(0.2)
    assert loop.lag.wall.max_seconds == pytest.approx(0.4)


def test_the_abuse_test_reads_the_longest_lag_since_its_last_look() -> None:
    counters = ServiceCounters()
    collector = _collector(counters)
    server = MetricsServer("127.0.0.1", 0, collector)
    try:
        wall, cpu = collector._loop_lag.wall, collector._loop_lag.cpu
        wall.note(0.3)
        lags = LoopLags([server.port])
        assert lags.since_last() == Lag()
        wall.note(0.31)
        cpu.note(0.012)
        assert lags.since_last() == Lag(0.31, 0.012)
        wall.note(0.04)  # no longer than before: its bucket is all that shows
        cpu.note(0.06)
        lag = lags.since_last()
        assert lag == Lag(0.05, 0.06)
        assert lag.is_too_long
        assert lags.since_last() == Lag()
    finally:
        server.close()


def test_metrics_port_in_use_is_refused_by_number() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PortInUseError, match=str(port)):
            MetricsServer("127.0.0.1", port, _collector(ServiceCounters()))


class Served:
    """A metrics server on a clock of the test's own, and raw peers of it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.peers: list[socket.socket] = []
        self.server = MetricsServer(
            "127.0.0.1", 0, _collector(ServiceCounters()), clock=lambda: self.now
        )

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
def served() -> Iterator[Served]:
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
    # Threads of tests before this one may end meanwhile.
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
    """What threads say that begin from now on: those of tests before this one may log as well."""

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
