"""The reference of the metrics of a bookie and of a scan, and of the events of upkeep."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import MagicMock

from bookie_server.service.lifecycle import bookie_gauges
from bookie_server.service.limits.lanes import Lanes
from bookie_server.service.metrics.counters import ServiceCollector, ServiceCounters
from bookie_server.service.metrics.loop_lag import LoopLag
from bookie_server.storage.shared import StorageCounters
from docs.generate.markdown import table
from ledgerlog_spark.upkeep import service as upkeep_service

if TYPE_CHECKING:
    from prometheus_client.core import Metric

SCAN_METRICS = (
    Path(__file__).parents[2] / "jvm-shim/src/main/scala/io/ledgerlog/spark/scan/ScanMetrics.scala"
)
PREFIX = "ledgerlog_bookie_"

INTRODUCTION = """\
# Metrics

## A bookie

A bookie with a [`metrics_port`](settings.md) serves these metrics at `http://HOST:PORT/metrics` as text for Prometheus.
[Collect metrics](../how-to/metrics.md) has an example and the important alarms. All names begin with
`ledgerlog_bookie_`. All counters begin at 0 when the process starts.

"""

MEANINGS = {
    "add_requests": "Requests to store entries.",
    "add_entries": "Entries in the requests of `add_requests`.",
    "add_bytes": "Bytes of the entries in `add_entries`.",
    "read_requests": "Requests that read entries or slices of entries.",
    "read_entries": "Whole entries that were sent to readers.",
    "read_bytes": "Bytes of the entries in `read_entries`.",
    "slice_requests": "Requests that read only slices of entries. `read_requests` counts them too.",
    "slice_entries": "Entries of which slices were sent. `read_entries` does not contain these entries.",
    "slice_bytes": "Bytes of slices that were sent. `read_bytes` does not contain these bytes.",
    "fence_requests": "Requests that fence a ledger.",
    "recovery_requests": "Adds by clients that recover a ledger.",
    "auth_requests": "AUTH frames of Apache's clients.",
    "bad_frames": "Invalid requests, which were refused before they reached the storage.",
    "pauses": "How often the bookie stopped reading from a connection for a time, because there was no room for its requests.",
    "connections_opened": "Data connections that were accepted.",
    "connections_refused": "Data connections that were refused, because `connections_max` connections were open and none was idle.",
    "connections_replaced": "Idle data connections that were closed to make room for new connections.",
    "connections_swept": "Connections that were closed because they held bytes of a full lane and made no progress.",
    "connections_closed_by_us": "The connections in `connections_swept`, and connections that stalled, never sent a request or sent bytes that are not a frame.",
    "answers": "Answers by outcome, over all operations and both protocols; the label `code` contains the outcome.",
    "connections": "Data connections that are open.",
    "ledgers": "Ledgers that the bookie keeps in memory, including deleted ledgers until the bookie forgets them.",
    "writable": "1 while the bookie accepts new entries, 0 while it is read-only.",
    "disk_used_part": "The used part of the device of the entries, from 0 to 1. Freed files that the bookie keeps for reuse count as free.",
    "disk_free_bytes": "Free bytes of this device, including freed files that the bookie keeps for reuse.",
    "disk_total_bytes": "The size of this device.",
    "disk_is_high": "1 while more of the device is used than `disk_usage_warn`, and while the bookie is read-only because of `disk_usage_max`.",
    "calls": "Calls of the control service that are open.",
    "calls_refused": "Calls that were refused because too many calls were open.",
    "calls_ended": "Calls that were ended to make room for a call of another client.",
    "watches": "Watches of a last add confirmed that are open.",
    "watches_refused": "Watches that were refused because too many watches were open.",
    "watches_ended": "Watches that were ended to make room for a watch of another client.",
    "log_lines_dropped": "Log lines that were dropped because standard error did not accept them.",
    "in_flight_bytes": "Bytes that the bookie holds for its peers, in all lanes.",
    "loop_lag_seconds": "Delay of the event loop, which is measured every 20 ms.",
    "loop_lag_max_seconds": "The longest delay of the event loop since the start.",
    "loop_lag_cpu_seconds": "The part of the event loop's delay in which the thread of the loop was computing.",
    "loop_lag_cpu_max_seconds": "The largest part of a delay in which the thread was computing, since the start.",
    "storage_boot_replayed_records": "At the start: records that were read back from unfinished files.",
    "storage_boot_rewritten_records": "At the start: valid records after the durable part of a file, which were copied to a new file.",
    "storage_boot_torn_tails": "At the start: files that end with an incomplete or damaged group of records.",
    "storage_boot_damaged_records": "At the start: records that were acknowledged and cannot be read. **Above 0: the disk lost data.**",
    "storage_boot_damaged_headers": "At the start: damaged headers of files. They have no other effect.",
    "storage_boot_rebuilt_indexes": "At the start: indexes of finished files that were rebuilt.",
    "storage_log_records": "Records that were written, including padding and copies.",
    "storage_log_groups": "Groups of records. Each group is written and synced at once.",
    "storage_log_bytes_written": "Bytes that were written to files, including padding.",
    "storage_log_syncs": "Syncs of files with entries.",
    "storage_log_busy_ms": "Milliseconds that writes and syncs took. The rate shows how busy the disk is.",
    "storage_checkpoints": "Syncs of entry-log files in the write modes `journal` and `unjournaled`.",
    "storage_boot_redone_groups": "At the start: groups that were written from journal files to entry-log files.",
    "storage_files_freed": "Files that were released because all ledgers with entries in them were deleted.",
    "storage_files_recycled": "New files that use the slot of a released file.",
    "storage_adds": "Runs of entries that were stored.",
    "storage_entries": "Entries that were stored.",
    "storage_add_bytes": "Bytes of the entries that were stored.",
    "storage_adds_repeated": "Adds of an entry that was stored already, with the same bytes.",
    "storage_add_overlap": "Adds of an entry that was stored already, with other bytes.",
    "storage_fences": "Ledgers that were fenced.",
    "storage_damage": "Reads that found a damaged entry. **Above 0: the disk lost data.**",
    "storage_drops": "Ledgers whose entries were deleted.",
    "storage_tombstones_forgotten": "Deleted ledgers that the bookie forgot after their grace period.",
    "storage_compactions": "Compactions that found files to compact.",
    "storage_compaction_bytes_copied": "Bytes of the entries that compaction copied.",
    "storage_compaction_bytes_freed": "Size of the files that compaction freed, less the size of the files that it wrote.",
    "storage_compaction_sources_withdrawn": "Files that compaction could not read. **Above 0: the disk lost data.**",
}
"""The meaning of each metric, by its name without the prefix. The metrics of lanes follow below."""

LANES = {
    "adds": "entries that peers send",
    "writes": "entries that wait for the disk",
    "reads": "answers to reads",
    "control": "recovery and fencing",
}
OF_A_LANE = {
    "bytes": "Bytes held for peers in the lane {lane}: {holds}.",
    "bytes_max": "The limit of the bytes in the lane {lane}, without the reserves of the connections.",
    "waiting": "Requests that wait for room in the lane {lane}.",
    "waits": "How often a request waited for room in the lane {lane}.",
    "refused": "How often a request was refused because the lane {lane} was full.",
}


def families() -> list[Metric]:
    """Every metric that a bookie exports."""
    storage, v2, grpc, servicer, dropped = (MagicMock() for _ in range(5))
    names = bookie_gauges(storage, v2, grpc, servicer, Lanes(1, 1 << 20), dropped)
    collector = ServiceCollector(
        ServiceCounters(),
        {name: lambda: 0 for name in names},
        StorageCounters().by_metric,
        LoopLag(),
    )
    return list(collector.collect())


def meanings() -> dict[str, str]:
    """What each metric means, by its name without prefix."""
    lanes = {
        f"in_flight_{lane}_{kind}": text.format(lane=f"`{lane}`", holds=holds)
        for lane, holds in LANES.items()
        for kind, text in OF_A_LANE.items()
    }
    return MEANINGS | lanes


def page() -> str:
    """The whole page."""
    meaning = meanings()
    groups: dict[str, list[tuple[str, str, str]]] = {"The server": [], "The storage": []}
    for family in families():
        name = family.name.removeprefix(PREFIX)
        shown = f"{name}_total" if family.type == "counter" else name
        title = "The storage" if name.startswith("storage_") else "The server"
        groups[title].append((f"`{shown}`", family.type, meaning[name]))
    parts = [INTRODUCTION]
    for title, rows in groups.items():
        parts.append(f"### {title}\n\n{table(('metric', 'type', 'meaning'), rows)}\n")
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
    "entriesFiltered": "Entries of which only the columns of the filter were read, because no row can pass.",
    "payloadBytesRead": "Bytes of the payloads of the entries in `entriesRead`. If slices of an entry were read, only the bytes of the slices count.",
    "requestsSent": "Requests to bookies.",
    "replicasTried": "Bookies to which the tasks sent requests.",
    "readsRetried": "Requests that were repeated to another bookie, because a bookie refused or its answer was wrong.",
    "readsHedged": "Requests that were also sent to another bookie, because a bookie was slow.",
    "slicesGivenUp": "Requests for slices that no bookie answered correctly, so that whole entries were read. **Above 0: an index or its entries are damaged, or bookies are too old or too busy.**",
}
"""What each metric of `ScanMetrics.scala` means."""


def scan_metrics_in_code() -> set[str]:
    """The names of all metrics of a scan in the source of the JVM engine."""
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
        "a log was changed, or could not be maintained; in the second case, `errors` is not empty",
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
    """The names of all events in the source of the upkeep service."""
    source = inspect.getsource(upkeep_service)
    return set(re.findall(r'(?:_write|_line)\(\s*"(\w+)"', source))


def _upkeep() -> str:
    rows = [(f"`{event}`", keys, meaning) for event, (keys, meaning) in EVENTS.items()]
    return UPKEEP + table(("event", "further keys", "meaning"), rows)
