"""Metrics text of a bookie, as Prometheus fetches it."""

from __future__ import annotations

import socket
import urllib.request
from typing import TYPE_CHECKING

import pytest

from bookie_server.errors import PortInUseError
from bookie_server.service.loop_lag import LoopLag
from bookie_server.service.metrics import MetricsServer, ServiceCollector, ServiceCounters
from ledgerlog_spark.model import Code

if TYPE_CHECKING:
    from collections.abc import Callable


def _collector(counters: ServiceCounters) -> ServiceCollector:
    return ServiceCollector(
        counters, {"in_flight_bytes": lambda: 5}, lambda: {"groups": 3}, LoopLag()
    )


def test_metrics_text_has_counters_answers_gauges_and_storage() -> None:
    counters = ServiceCounters(add_requests=12)
    counters.answers[Code.FENCED] = 4
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    collector = _collector(counters)
    for seconds in (0.002, 0.03, 1.5, 9.0):
        collector._loop_lag.note(seconds)
    server = MetricsServer("127.0.0.1", port, collector)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
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


def test_loop_that_stands_still_is_seen_and_one_that_does_not_is_not() -> None:
    now = 0.0
    timers: list[tuple[float, Callable[[], None]]] = []
    lag = LoopLag(lambda: now, lambda seconds, wake: timers.append((now + seconds, wake)))
    lag.start()
    for held_up in (0.0, 0.0, 0.4, 0.0):
        due, wake = timers.pop()
        now = due + held_up
        wake()
    assert lag.max_seconds == pytest.approx(0.4)
    assert lag.counts[0] == 3
    assert sum(lag.counts) == 4
    lag.stop()
    timers.pop()[1]()
    assert timers == []


def test_metrics_port_in_use_is_refused_by_number() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PortInUseError, match=str(port)):
            MetricsServer("127.0.0.1", port, _collector(ServiceCounters()))
