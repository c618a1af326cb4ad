"""Counts requests and connections, and reports the counts to Prometheus.

A request only increments integers. `ServiceCollector` reads these integers at each scrape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from prometheus_client.core import HistogramMetricFamily, Metric

from bookie_server.service.metrics.descriptions import COUNTER, GAUGE, HISTOGRAM, SUMMARY, describe
from bookie_server.service.metrics.durations import Durations
from bookie_server.service.metrics.loop_lag import Lags, LoopLag
from bookie_server.storage.ledger_storage import LedgerStorage
from ledgerlog_spark.model import Code

QUANTILES: Final = (0.5, 0.75, 0.95, 0.99, 0.999, 1.0)


@dataclass(slots=True)
class ServiceCounters:
    """Counters of one bookie's servers; `descriptions` explains them."""

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


OF_A_DIRECTORY: Final[dict[str, Callable[[LedgerStorage], float]]] = {
    "ledgers": lambda directory: directory.ledgers_count,
    "entry_log_files": lambda directory: directory.files_count,
    "disk_used_part": lambda directory: directory.disk.space.used_part,
    "disk_free_bytes": lambda directory: directory.disk.space.free,
    "disk_total_bytes": lambda directory: directory.disk.space.total,
    "writable": lambda directory: directory.is_writable,
    "has_failed": lambda directory: directory.failure is not None,
}
"""The functions that return the gauges of a directory, by the name of the gauge."""


class ServiceCollector:
    """Reads the counters, and calls the functions of the gauges, at each scrape.

    All names and meanings are in `descriptions`.
    """

    def __init__(
        self,
        counters: ServiceCounters,
        gauges: Mapping[str, Callable[[], float]],
        storage: Callable[[], Mapping[str, float]],
        loop_lag: LoopLag,
        sync_times: Durations,
        directories: Sequence[LedgerStorage] = (),
    ) -> None:
        self._counters = counters
        self._gauges = dict(gauges)
        self._storage = storage
        self._directories = directories
        self._loop_lag = loop_lag
        self._sync_times = sync_times

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics, for prometheus-client."""
        for name in ServiceCounters.__slots__:
            if name != "answers":
                yield describe(name, COUNTER).family(getattr(self._counters, name))
        answers = describe("answers", COUNTER).family(0, labels=("code",))
        for code, count in self._counters.answers.items():
            answers.add_sample(f"{answers.name}_total", {"code": code.value}, count)
        yield answers
        for name, gauge in self._gauges.items():
            yield describe(name, GAUGE).family(_value(gauge))
        yield _summary("sync_times", self._sync_times)
        yield from _lag_metrics("loop_lag", self._loop_lag.wall)
        yield from _lag_metrics("loop_lag_cpu", self._loop_lag.cpu)
        for name, value in self._storage().items():
            yield describe(f"storage_{name}", GAUGE).family(value)
        for name, value_of in OF_A_DIRECTORY.items():
            metric = describe(f"directory_{name}", GAUGE).family(0, labels=("directory",))
            for directory in self._directories:
                metric.add_sample(metric.name, {"directory": directory.path}, value_of(directory))
            yield metric


def _value(gauge: Callable[[], float]) -> float:
    """Return the value of a gauge, or NaN if the operating system refuses it."""
    try:
        return gauge()
    except OSError:
        return float("nan")


def _summary(key: str, durations: Durations) -> Metric:
    """Return a summary with the label of BookKeeper's summaries."""
    found = durations.summary(QUANTILES)
    metric = describe(key, SUMMARY).family(0)
    name, labels = metric.name, {"success": "true"}
    metric.samples.clear()
    for quantile, value in zip(QUANTILES, found.quantiles, strict=True):
        metric.add_sample(name, {**labels, "quantile": str(quantile)}, value)
    metric.add_sample(f"{name}_count", labels, found.count)
    metric.add_sample(f"{name}_sum", labels, found.sum_ms)
    return metric


def _lag_metrics(name: str, lags: Lags) -> Iterator[Metric]:
    lag = describe(f"{name}_seconds", HISTOGRAM)
    yield HistogramMetricFamily(
        lag.name, lag.meaning, buckets=lags.buckets(), sum_value=lags.sum_seconds
    )
    yield describe(f"{name}_max_seconds", GAUGE).family(lags.max_seconds)
