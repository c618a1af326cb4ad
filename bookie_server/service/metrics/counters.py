"""Counts requests and connections, and reports the counts to Prometheus.

A request only increments integers. `ServiceCollector` reads these integers at each scrape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from bookie_server.service.metrics.loop_lag import Lags, LoopLag
from ledgerlog_spark.model import Code


@dataclass(slots=True)
class ServiceCounters:
    """Counters of one bookie's servers; docs/generate/metrics.py explains them."""

    add_requests: int = 0
    add_entries: int = 0
    add_bytes: int = 0
    read_requests: int = 0
    read_entries: int = 0
    read_bytes: int = 0
    slice_requests: int = 0
    slice_entries: int = 0
    slice_bytes: int = 0
    fence_requests: int = 0
    recovery_requests: int = 0
    auth_requests: int = 0
    bad_frames: int = 0
    pauses: int = 0
    connections_opened: int = 0
    connections_refused: int = 0
    connections_replaced: int = 0
    connections_swept: int = 0
    connections_closed_by_us: int = 0
    answers: dict[Code, int] = field(default_factory=lambda: dict.fromkeys(Code, 0))


class ServiceCollector:
    """Reads the counters, and calls the functions of the gauges, at each scrape."""

    def __init__(
        self,
        counters: ServiceCounters,
        gauges: Mapping[str, Callable[[], float]],
        storage: Callable[[], Mapping[str, float]],
        loop_lag: LoopLag,
    ) -> None:
        self._counters = counters
        self._gauges = dict(gauges)
        self._storage = storage
        self._loop_lag = loop_lag

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics, for prometheus-client."""
        for name in ServiceCounters.__slots__:
            if name != "answers":
                value = getattr(self._counters, name)
                yield CounterMetricFamily(f"ledgerlog_bookie_{name}", _words(name), value=value)
        answers = CounterMetricFamily(
            "ledgerlog_bookie_answers", "Answers by outcome.", labels=["code"]
        )
        for code, count in self._counters.answers.items():
            answers.add_metric([code.value], count)
        yield answers
        for name, gauge in self._gauges.items():
            yield GaugeMetricFamily(f"ledgerlog_bookie_{name}", _words(name), value=gauge())
        yield from _lag_metrics(
            "loop_lag",
            "Delay of the event loop, measured every 20 ms.",
            self._loop_lag.wall,
        )
        yield from _lag_metrics(
            "loop_lag_cpu",
            "The part of the delay of the event loop in which its thread was computing.",
            self._loop_lag.cpu,
        )
        for name, value in self._storage().items():
            yield GaugeMetricFamily(f"ledgerlog_bookie_storage_{name}", _words(name), value=value)


def _lag_metrics(name: str, meaning: str, lags: Lags) -> Iterator[Metric]:
    yield HistogramMetricFamily(
        f"ledgerlog_bookie_{name}_seconds",
        meaning,
        buckets=lags.buckets(),
        sum_value=lags.sum_seconds,
    )
    yield GaugeMetricFamily(
        f"ledgerlog_bookie_{name}_max_seconds",
        "The longest of these delays since the start.",
        value=lags.max_seconds,
    )


def _words(name: str) -> str:
    return name.replace("_", " ").capitalize() + "."
