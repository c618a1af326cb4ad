"""Metrics text of a bookie, as Prometheus fetches it."""

from __future__ import annotations

import socket
import urllib.request

import pytest

from bookie_server.errors import PortInUseError
from bookie_server.service.metrics import MetricsServer, ServiceCollector, ServiceCounters
from ledgerlog_spark.model import Code


def _collector(counters: ServiceCounters) -> ServiceCollector:
    return ServiceCollector(counters, {"in_flight_bytes": lambda: 5}, lambda: {"groups": 3})


def test_metrics_text_has_counters_answers_gauges_and_storage() -> None:
    counters = ServiceCounters(add_requests=12)
    counters.answers[Code.FENCED] = 4
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = MetricsServer("127.0.0.1", port, _collector(counters))
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            text = answer.read().decode()
    finally:
        server.close()
    assert "ledgerlog_bookie_add_requests_total 12.0" in text
    assert 'ledgerlog_bookie_answers_total{code="fenced"} 4.0' in text
    assert "ledgerlog_bookie_in_flight_bytes 5.0" in text
    assert "ledgerlog_bookie_storage_groups 3.0" in text


def test_metrics_port_in_use_is_refused_by_number() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PortInUseError, match=str(port)):
            MetricsServer("127.0.0.1", port, _collector(ServiceCounters()))
