"""Writes the reference of the metrics of a bookie and of a scan, and of the events of upkeep."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from unittest.mock import MagicMock

from bookie_server.service.limits.lanes import Lanes
from bookie_server.service.metrics.counters import OF_A_DIRECTORY, ServiceCounters
from bookie_server.service.metrics.descriptions import (
    COUNTER,
    GAUGE,
    HISTOGRAM,
    SUMMARY,
    Description,
    describe,
)
from bookie_server.service.metrics.gauges import bookie_gauges
from bookie_server.storage.shared import StorageCounters
from docs.generate.markdown import table
from ledgerlog_spark.upkeep import service as upkeep_service

SCAN_METRICS = (
    Path(__file__).parents[2] / "jvm-shim/src/main/scala/io/ledgerlog/spark/scan/ScanMetrics.scala"
)

INTRODUCTION = """\
# Metrics

## A bookie

A bookie with a [`metrics_port`](settings.md) serves these metrics at `http://HOST:PORT/metrics` as text for Prometheus.
[Collect metrics](../how-to/metrics.md) has an example and the important alarms. All counters begin at 0 when the
process starts.

If Apache BookKeeper has the same metric, the metric has the name that BookKeeper's exporter for
Prometheus uses. A counter with such a name has no suffix `_total`, so its type in the text is
`untyped`. BookKeeper also measures the durations of requests, but a bookie of this release only
counts requests. So the summaries of requests have the sample `_count` without the label `success`,
but no `_sum` and no quantiles. All other names begin with `ledgerlog_bookie_`. If BookKeeper has a
similar metric that counts something else, the last column names this metric.

"""

BOOKKEEPERS = "the same"
HEAD = ("metric", "type", "unit", "meaning", "BookKeeper")


def descriptions() -> list[Description]:
    """Return every metric that a bookie exports."""
    view, storage, v2, grpc, servicer, repair, dropped = (MagicMock() for _ in range(7))
    lanes = Lanes(1, 1 << 20)
    names = bookie_gauges(view, storage, v2, grpc, servicer, lanes, repair, dropped, MagicMock())
    lags = [("loop_lag_seconds", HISTOGRAM), ("loop_lag_max_seconds", GAUGE)]
    lags += [(key.replace("lag_", "lag_cpu_"), kind) for key, kind in lags]
    kinds = {
        **dict.fromkeys(ServiceCounters.__slots__, COUNTER),
        **dict.fromkeys(names, GAUGE),
        **{f"directory_{name}": GAUGE for name in OF_A_DIRECTORY},
        "sync_times": SUMMARY,
        **dict(lags),
        **{f"storage_{name}": GAUGE for name in StorageCounters().by_metric()},
    }
    return [describe(key, kind) for key, kind in kinds.items()]


def sample_name(metric: Description) -> str:
    """Return the name of a metric in the exported text, with the suffix of its type."""
    if metric.type == COUNTER and not metric.is_bookkeepers:
        return f"{metric.name}_total"
    return f"{metric.name}_count" if metric.type == SUMMARY else metric.name


def row(metric: Description) -> tuple[str, str, str, str, str]:
    """Return the row of a metric: name, type, unit, meaning, BookKeeper's name."""
    related = f"similar: `{metric.related}`" if metric.related else ""
    shown = metric.name if metric.key == "sync_times" else sample_name(metric)
    unit = metric.unit or "number"
    bookkeeper = BOOKKEEPERS if metric.is_bookkeepers else related
    return f"`{shown}`", metric.type, unit, metric.meaning, bookkeeper


def page() -> str:
    """Return the page about all metrics and events."""
    groups: dict[str, list[tuple[str, ...]]] = {"The server": [], "The storage": []}
    for metric in descriptions():
        is_of_storage = metric.key.startswith(("storage_", "sync_"))
        groups["The storage" if is_of_storage else "The server"].append(row(metric))
    parts = [INTRODUCTION]
    for title, rows in groups.items():
        parts.append(f"### {title}\n\n{table(HEAD, rows)}\n")
    return "".join([*parts, _scans(), _upkeep()])


SCANS = """\
## A scan

Spark's user interface shows these metrics of a scan of the [JVM engine](../how-to/jvm.md), summed over its tasks. The Python
source has no metrics in Spark. If its tasks give up slices, they write a line with a JSON object to the log of the worker:
`event` is `slices given up, so whole entries were read`, `count` is the value of `slicesGivenUp`, and `log` and `ledger_id`
name the ledger.

"""

OF_A_SCAN = {
    "entriesRead": "Entries that were read, whole or as slices, with index entries.",
    "entriesFiltered": "Entries of which only the columns of the filter were read, because none of their rows can pass the filter.",
    "payloadBytesRead": "Bytes of the payloads of the entries in `entriesRead`. If slices of an entry were read, only the bytes of the slices count.",
    "requestsSent": "Requests to bookies.",
    "replicasTried": "Bookies to which the tasks sent requests.",
    "readsRetried": "Requests that were repeated to another bookie, because the first bookie refused them or gave a wrong answer.",
    "readsHedged": "Requests that were also sent to another bookie, because the first bookie was slow.",
    "slicesGivenUp": "Requests for slices that no bookie answered correctly, so that whole entries were read. **If this metric is above 0, an index or its entries are damaged, or bookies are too old or too busy.**",
}
"""Meaning of each metric of `ScanMetrics.scala`, by the name of the metric."""


def scan_metrics_in_code() -> set[str]:
    """Return the names of all metrics of a scan in the source of the JVM engine."""
    return set(re.findall(r'value\("(\w+)"', SCAN_METRICS.read_text()))


def _scans() -> str:
    rows = [(f"`{name}`", meaning) for name, meaning in OF_A_SCAN.items()]
    return f"{SCANS}{table(('metric', 'meaning'), rows)}\n"


UPKEEP = """\
## Upkeep

`ledgerlog upkeep run` has no port. For each event, it writes a line with a JSON object to standard output.
Every line has `time_ms` and `event`. [Collect metrics](../how-to/metrics.md#upkeep) lists the alarms.

"""

EVENTS = {
    "started": ("`interval_seconds`", "the process has started"),
    "log": (
        "`log`, `ledgers_unlisted`, `ranges_merged`, `ledgers_deleted`, `ledgers_kept`, `is_removed`, `errors`",
        "a log was changed, or could not be maintained; if it could not be maintained, `errors` is not empty",
    ),
    "pass": ("`logs`, `logs_changed`", "only with `--once`: the pass has ended"),
    "held": ("`by`", "another process has the lease and does the work"),
    "failed": ("`error`", "a pass failed"),
    "unreachable": (
        "`error`, `retry_seconds`",
        "ZooKeeper cannot be reached; the process will retry",
    ),
    "lines_dropped": ("`count`", "standard output did not accept lines"),
    "ended": ("", "the process ends"),
}


def events_in_code() -> set[str]:
    """Return the names of all events in the source of the upkeep service."""
    source = inspect.getsource(upkeep_service)
    return set(re.findall(r'(?:_write|_line)\(\s*"(\w+)"', source))


def _upkeep() -> str:
    rows = [(f"`{event}`", keys, meaning) for event, (keys, meaning) in EVENTS.items()]
    return UPKEEP + table(("event", "further keys", "meaning"), rows)
