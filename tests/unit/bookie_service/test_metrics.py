"""Metrics text of a bookie, as Prometheus fetches it."""

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from prometheus_client import CollectorRegistry, generate_latest, make_wsgi_app
from prometheus_client.openmetrics.exposition import generate_latest as open_metrics
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as open_metrics_families,
)
from prometheus_client.parser import text_string_to_metric_families

from bookie_server.service.admin.server import AdminServer
from bookie_server.service.metrics.counters import ServiceCollector, ServiceCounters
from bookie_server.service.metrics.descriptions import (
    BOOKKEEPER,
    RELATED,
    describe,
    meanings,
    unit_of,
)
from bookie_server.service.metrics.durations import BOUNDS_MS, WINDOW_SECONDS, Durations
from bookie_server.service.metrics.loop_lag import LoopLag
from ledgerlog_spark.model import Code
from tests.abuse.loop_lags import Lag, LoopLags

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def _collector(counters: ServiceCounters) -> ServiceCollector:
    gauges = {"in_flight_bytes": lambda: 5, "writable": lambda: -1}
    return ServiceCollector(
        counters, gauges, lambda: {"fences": 3, "add_bytes": 700}, LoopLag(), Durations()
    )


def _registry(collector: ServiceCollector) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    return registry


@contextmanager
def _served(collector: ServiceCollector) -> Iterator[int]:
    server = AdminServer("127.0.0.1", 0, make_wsgi_app(_registry(collector)))
    try:
        yield server.port
    finally:
        server.close()


def test_metrics_text_has_counters_answers_gauges_and_storage() -> None:
    counters = ServiceCounters(add_requests=12)
    counters.answers[Code.FENCED] = 4
    collector = _collector(counters)
    for seconds in (0.002, 0.03, 1.5, 9.0):
        collector._loop_lag.wall.note(seconds)
    collector._sync_times.note(0.004)
    text = generate_latest(_registry(collector)).decode()
    assert "bookkeeper_server_ADD_ENTRY_REQUEST_count 12.0" in text
    assert 'ledgerlog_bookie_answers_total{code="fenced"} 4.0' in text
    assert "ledgerlog_bookie_in_flight_bytes 5.0" in text
    assert "ledgerlog_bookie_storage_fences 3.0" in text
    assert "bookie_SERVER_STATUS -1.0" in text
    assert "\nbookie_WRITE_BYTES 700.0" in text
    assert 'bookie_journal_JOURNAL_SYNC_sum{success="true"} 4.0' in text
    assert 'bookie_journal_JOURNAL_SYNC{quantile="0.99",success="true"}' in text
    assert 'ledgerlog_bookie_loop_lag_seconds_bucket{le="0.05"} 2.0' in text
    assert 'ledgerlog_bookie_loop_lag_seconds_bucket{le="+Inf"} 4.0' in text
    assert "ledgerlog_bookie_loop_lag_max_seconds 9.0" in text
    assert 'ledgerlog_bookie_loop_lag_cpu_seconds_bucket{le="0.05"} 0.0' in text
    assert "ledgerlog_bookie_loop_lag_cpu_max_seconds 0.0" in text


class Loop:
    """A loop with a probe. Its wake-ups are late by a given time, computing or not."""

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
    loop.wake(0.4, computing=0.003)  # the machine had no free CPU
    assert loop.lag.cpu.max_seconds == pytest.approx(0.003)
    loop.wake(0.2, computing=0.21)  # it computed before and during the delay
    assert loop.lag.cpu.max_seconds == pytest.approx(0.2)
    loop.wake(0.0, computing=0.02)  # busy, and on time
    assert loop.lag.cpu.max_seconds == pytest.approx(0.2)
    assert loop.lag.wall.max_seconds == pytest.approx(0.4)


def test_the_abuse_test_reads_the_longest_lag_since_its_last_look() -> None:
    counters = ServiceCounters()
    collector = _collector(counters)
    with _served(collector) as port:
        wall, cpu = collector._loop_lag.wall, collector._loop_lag.cpu
        wall.note(0.3)
        lags = LoopLags([port])
        assert lags.since_last() == Lag()
        wall.note(0.31)
        cpu.note(0.012)
        assert lags.since_last() == Lag(0.31, 0.012)
        wall.note(0.04)  # not longer than before: only its bucket shows it
        cpu.note(0.06)
        lag = lags.since_last()
        assert lag == Lag(0.05, 0.06)
        assert lag.is_too_long
        assert lags.since_last() == Lag()


def test_each_form_of_the_text_can_be_parsed_and_has_the_same_samples() -> None:
    registry = _registry(_collector(ServiceCounters(add_requests=3, read_bytes=9)))
    plain = text_string_to_metric_families(generate_latest(registry).decode())
    strict = open_metrics_families(open_metrics(registry).decode())  # type: ignore[no-untyped-call]
    found = [
        {(sample.name, *sample.labels.values()): sample.value for f in each for sample in f.samples}
        for each in (plain, strict)
    ]
    names = {name for name, *_ in found[0]}
    assert names == {name for name, *_ in found[1]}
    assert found[0]["bookie_READ_BYTES",] == found[1]["bookie_READ_BYTES",] == 9


def test_a_gauge_that_the_system_refuses_is_nan_and_the_others_are_there() -> None:
    def refused() -> float:
        raise OSError("no such directory")

    collector = ServiceCollector(
        ServiceCounters(), {"disk_free_bytes": refused}, dict, LoopLag(), Durations()
    )
    values = {
        sample.name: sample.value
        for family in collector.collect()
        for sample in family.samples
        if not sample.labels
    }
    assert math.isnan(values["ledgerlog_bookie_disk_free_bytes"])
    assert values["bookie_READ_BYTES"] == 0


def test_a_metric_has_one_name() -> None:
    names = [describe(key, "gauge").name for key in meanings()]
    assert len(set(names)) == len(names)
    assert BOOKKEEPER.keys() | RELATED.keys() <= meanings().keys()
    assert not BOOKKEEPER.keys() & RELATED.keys()
    related = {name for name in RELATED.values() if "..." not in name}
    assert not related & set(names), "the name of BookKeeper for another thing"


@pytest.mark.parametrize(
    ("key", "unit"),
    [
        ("storage_add_bytes", "bytes"), ("in_flight_adds_bytes_max", "bytes"),
        ("loop_lag_max_seconds", "s"), ("storage_log_busy_ms", "ms"), ("ledgers", ""),
    ],
)  # fmt: skip
def test_the_unit_is_in_the_name(key: str, unit: str) -> None:
    assert unit_of(key) == unit


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_quantiles_are_those_of_the_last_windows() -> None:
    clock = Clock()
    durations = Durations(clock)
    assert all(map(math.isnan, durations.summary((0.5, 1.0)).quantiles))
    for milliseconds in range(1, 101):
        durations.note(milliseconds / 1_000)
    found = durations.summary((0.01, 0.5, 0.99, 1.0))
    assert found.count == 100
    assert found.sum_ms == pytest.approx(5_050)
    for value, exact in zip(found.quantiles, (1, 50, 99, 100), strict=True):
        assert exact <= value <= exact * 1.19
    clock.now = WINDOW_SECONDS
    durations.note(0.5)
    assert durations.summary((0.5,)).quantiles[0] < 60, "those of the window before count"
    clock.now = 2 * WINDOW_SECONDS
    assert 500 <= durations.summary((0.5,)).quantiles[0] < 600, "no longer those of the first"
    clock.now = 4 * WINDOW_SECONDS
    assert math.isnan(durations.summary((0.5,)).quantiles[0])
    durations.note(0.5)
    clock.now = 7 * WINDOW_SECONDS
    assert math.isnan(durations.summary((0.5,)).quantiles[0]), "its window was not the last one"
    assert durations.summary(()).count == 102


def test_a_duration_beyond_the_bounds_has_no_bound() -> None:
    durations = Durations()
    durations.note(BOUNDS_MS[-1] / 1_000 + 1)
    durations.note(0)
    assert durations.summary((0.5, 1.0)).quantiles == (BOUNDS_MS[0], math.inf)
