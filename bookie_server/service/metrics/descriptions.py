"""Every metric of a bookie: its exported name, its type and its meaning.

A metric that BookKeeper also exports has the name that BookKeeper's exporter for Prometheus writes.
BookKeeper's counters have no suffix `_total`, so the exported text gives them the type `untyped`.
BookKeeper also measures the times of requests. A bookie of this release only counts requests, so
its summaries of requests have a count, but no sum, no quantiles and no label `success`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

PREFIX: Final = "ledgerlog_bookie_"
COUNTER, GAUGE, HISTOGRAM, SUMMARY = "counter", "gauge", "histogram", "summary"

BOOKKEEPER: Final = {
    "add_requests": ("bookkeeper_server_ADD_ENTRY_REQUEST", SUMMARY),
    "read_requests": ("bookkeeper_server_READ_ENTRY_REQUEST", SUMMARY),
    "fence_requests": ("bookkeeper_server_READ_ENTRY_FENCE_REQUEST", SUMMARY),
    "recovery_requests": ("bookie_BOOKIE_RECOVERY_ADD_ENTRY", SUMMARY),
    "storage_add_bytes": ("bookie_WRITE_BYTES", COUNTER),
    "read_bytes": ("bookie_READ_BYTES", COUNTER),
    "writable": ("bookie_SERVER_STATUS", GAUGE),
    "sync_times": ("bookie_journal_JOURNAL_SYNC", SUMMARY),
    "storage_drops": ("bookie_gc_DELETED_LEDGER_TOTAL", COUNTER),
    "storage_compaction_bytes_freed": ("bookie_gc_RECLAIMED_COMPACTION_SPACE_BYTES", COUNTER),
    "entry_log_files": ("bookie_gc_ACTIVE_ENTRY_LOG_TOTAL", GAUGE),
}
"""BookKeeper's name and type of each metric that BookKeeper has too, by the key in `MEANINGS`."""

RELATED: Final = {
    "add_entries": "bookie_BOOKIE_ADD_ENTRY",
    "read_entries": "bookie_BOOKIE_READ_ENTRY",
    "ledgers": "bookie_gc_ACTIVE_LEDGER_TOTAL",
    "storage_log_bytes_written": "bookie_journal_JOURNAL_WRITE_BYTES",
    "storage_compactions": "bookie_gc_MAJOR_COMPACTION_TOTAL",
    "storage_releases": "bookie_gc_NUM_OVER_REPLICATED_LEDGERS",
    "disk_free_bytes": "bookie_ledger_dir_..._usage",
}
"""BookKeeper's most similar metric, by the key in `MEANINGS`. Its meaning is different."""

MEANINGS: Final = {
    "add_requests": "Requests to store entries.",
    "add_entries": "Entries in the requests to store entries.",
    "add_bytes": "Bytes of the entries in `add_entries`.",
    "read_requests": "Requests that read entries or slices of entries.",
    "read_entries": "Whole entries that were sent to readers.",
    "read_bytes": "Bytes of the whole entries that were sent to readers.",
    "slice_requests": (
        "Requests that read only slices of entries. "
        "`bookkeeper_server_READ_ENTRY_REQUEST_count` counts them too."
    ),
    "slice_entries": (
        "Entries of which slices were sent. `read_entries` does not contain these entries."
    ),
    "slice_bytes": (
        "Bytes of slices that were sent. `bookie_READ_BYTES` does not contain these bytes."
    ),
    "fence_requests": "Requests that fence a ledger.",
    "recovery_requests": "Adds by clients that recover a ledger.",
    "auth_requests": "AUTH frames of Apache's clients.",
    "bad_frames": "Invalid requests, which were refused before they reached the storage.",
    "pauses": (
        "Number of times that the bookie paused reading from a connection, because there was no "
        "room for its requests."
    ),
    "connections_opened": "Data connections that were accepted.",
    "connections_refused": (
        "Data connections that were refused, because `connections_max` connections were open and "
        "none was idle."
    ),
    "connections_replaced": (
        "Idle data connections that were closed to make room for new connections."
    ),
    "connections_swept": (
        "Connections that were closed because they held bytes of a full lane and made no progress."
    ),
    "connections_closed_by_us": (
        "The connections in `connections_swept`, and connections that stalled, never sent a "
        "request or sent bytes that are not a frame."
    ),
    "answers": (
        "Answers by outcome, over all operations and both protocols; the label `code` contains "
        "the outcome."
    ),
    "connections": "Data connections that are open.",
    "ledgers": (
        "Ledgers that the bookie keeps in memory, including deleted ledgers until the bookie "
        "forgets them."
    ),
    "entry_log_files": "Entry-log files that may hold entries, including the file that is written.",
    "scrub_ended_seconds": (
        "When the last whole scrub ended, in seconds since 1970; 0 if none has ended."
    ),
    "scrub_damaged_waiting": (
        "Damaged entries that the scrub found, and that wait for copies from other bookies."
    ),
    "doubt_epoch": (
        "Number of times that the directory may have lost entries. The bookie does not deny that "
        "an entry of a ledger in limbo exists."
    ),
    "in_doubt": (
        "1 while ledgers without a state on this bookie are in limbo, because not all ledgers are "
        "repaired after a possible loss."
    ),
    "ledgers_in_limbo": (
        "Ledgers with a state on this bookie that may have lost entries, at the last count. The "
        "bookie counts them after changes, at most once in a second."
    ),
    "disk_used_part": (
        "The used part of the device of the entries, from 0 to 1. If the bookie has several "
        "devices, this is the largest part. Freed files that the bookie keeps for reuse count as "
        "free."
    ),
    "disk_free_bytes": (
        "Free bytes of the devices of the entries, including freed files that the bookie keeps for "
        "reuse."
    ),
    "disk_total_bytes": "Size of the devices of the entries.",
    "disk_is_high": (
        "1 while more of a device is used than `disk_usage_warn`, and while the bookie is "
        "read-only because of `disk_usage_max`."
    ),
    "writable": (
        "1 while the bookie accepts new entries, 0 while it is read-only, -1 while it is not "
        "registered."
    ),
    "calls": "Calls of the control service that are open.",
    "calls_refused": "Calls that were refused because too many calls were open.",
    "calls_ended": "Calls that were ended to make room for a call of another client.",
    "watches": "Watches of a last add confirmed that are open.",
    "watches_refused": "Watches that were refused because too many watches were open.",
    "watches_ended": "Watches that were ended to make room for a watch of another client.",
    "autorecovery_is_auditor": (
        "1 while this bookie is the elected auditor. 0 on all bookies if an auditor of Apache or "
        "of a daemon is elected, or if no auditor is elected."
    ),
    "autorecovery_bookies_lost": (
        "Bookies that are away, according to the elected auditor: they are not registered, but "
        "have a cookie, or a ledger names them. 0 on the other bookies. **Above 0: new entries of "
        "some ledgers have fewer copies until the bookie is back or replaced.**"
    ),
    "autorecovery_jobs": "Ledgers that this bookie's replication worker is healing.",
    "autorecovery_tasks_waiting": (
        "Ledgers that wait for a replication worker, as this worker last found them in the queues. "
        "The worker reads 1,000 ledgers of each queue at a time."
    ),
    "autorecovery_ledgers_healed": "Ledgers that this worker healed since the start.",
    "autorecovery_jobs_failed": (
        "Attempts of this worker since the start that did not heal their ledger."
    ),
    "autorecovery_members_replaced": (
        "Bookies that this worker replaced in fragments of ledgers since the start."
    ),
    "autorecovery_entries_copied": "Entries that this worker copied since the start.",
    "autorecovery_bytes_copied": "Bytes of the entries in `autorecovery_entries_copied`.",
    "repair_ledgers_left": (
        "Ledgers that the repair still has to try, because the bookie may have lost entries of "
        "them. 0 while nothing is in limbo."
    ),
    "repair_needs_operator": (
        "Ledgers with entries that do not exist according to all other bookies. **Above 0: "
        "`ledgerlog bookie limbo list` shows these ledgers.**"
    ),
    "repair_ledgers_cleared": "Ledgers that left limbo by a repair since the start.",
    "repair_entries_fetched": "Entries that the repair fetched from other bookies since the start.",
    "repair_bytes_fetched": "Bytes of the entries in `repair_entries_fetched`.",
    "repair_entries_refused": (
        "Entries of other bookies that the repair refused, because their digest was wrong. **Above "
        "0: another bookie has damaged data.**"
    ),
    "log_lines_dropped": "Log lines that were dropped because standard error did not accept them.",
    "in_flight_bytes": "Bytes that the bookie holds for its peers, in all lanes.",
    "loop_lag_seconds": "Delay of the event loop, which is measured every 20 ms.",
    "loop_lag_max_seconds": "The longest delay of the event loop since the start.",
    "loop_lag_cpu_seconds": (
        "The part of the event loop's delay in which the thread of the loop was computing."
    ),
    "loop_lag_cpu_max_seconds": (
        "The largest part of a delay in which the thread was computing, since the start."
    ),
    "storage_boot_replayed_records": (
        "At the start: records that were read back from unfinished files."
    ),
    "storage_boot_rewritten_records": (
        "At the start: valid records that followed the durable part of a file. The start copied"
        " them to a new file."
    ),
    "storage_boot_torn_tails": (
        "At the start: files that end with an incomplete or damaged group of records."
    ),
    "storage_boot_damaged_records": (
        "At the start: records that were acknowledged and cannot be read. **Above 0: the disk "
        "lost data.**"
    ),
    "storage_boot_damaged_headers": (
        "At the start: damaged headers of files. A damaged header has no other effect."
    ),
    "storage_boot_rebuilt_indexes": "At the start: indexes of finished files that were rebuilt.",
    "storage_boot_redone_groups": (
        "At the start: groups of records that were rewritten from the journal."
    ),
    "storage_log_records": "Records that were written, including padding and copies.",
    "storage_log_groups": "Groups of records. Each group is written and synced at once.",
    "storage_log_bytes_written": "Bytes that were written to files, including padding.",
    "storage_log_syncs": ("Syncs of files with entries. The syncs of indexes are counted too."),
    "storage_log_busy_ms": (
        "Milliseconds that writes and syncs took. The rate shows how busy the disk is."
    ),
    "storage_files_freed": (
        "Files that were released because all ledgers with entries in them were deleted."
    ),
    "storage_files_recycled": "New files that use the slot of a released file.",
    "storage_adds": "Runs of entries that were stored.",
    "storage_entries": "Entries that were stored.",
    "storage_add_bytes": "Bytes of the entries that were stored.",
    "storage_adds_repeated": "Adds of an entry that was stored already, with the same bytes.",
    "storage_add_overlap": "Adds of an entry that was stored already, with other bytes.",
    "storage_fences": "Ledgers that were fenced.",
    "storage_damage": "Reads that found a damaged entry. **Above 0: the disk lost data.**",
    "storage_drops": "Deleted ledgers whose entries were deleted.",
    "storage_releases": (
        "Closed ledgers whose entries were deleted because their metadata no longer names the "
        "bookie."
    ),
    "storage_tombstones_forgotten": (
        "Deleted ledgers that the bookie forgot after their grace period."
    ),
    "storage_checkpoints": (
        "Checkpoints: syncs of the files whose records were written without a sync. Above 0 only "
        "if `write_mode` is not `direct`."
    ),
    "storage_compactions": "Compactions that found files to compact.",
    "storage_compaction_bytes_copied": "Bytes of the entries that compaction copied.",
    "storage_compaction_bytes_freed": (
        "Size of the files that compaction freed, less the size of the files that it wrote."
    ),
    "storage_compaction_sources_withdrawn": (
        "Number of times that compaction could not read a file. The file is then kept. **Above 0: "
        "the disk lost data.**"
    ),
    "directory_ledgers": "`ledgers` of each directory; the label `directory` has its path.",
    "directory_entry_log_files": "`entry_log_files` of each directory.",
    "directory_disk_used_part": "`disk_used_part` of the device of each directory.",
    "directory_disk_free_bytes": "`disk_free_bytes` of the device of each directory.",
    "directory_disk_total_bytes": "`disk_total_bytes` of the device of each directory.",
    "directory_writable": "1 for each directory that accepts new entries, otherwise 0.",
    "directory_has_failed": (
        "1 for each directory that has failed. **Above 0: the bookie is read-only until its next "
        "start.**"
    ),
    "storage_scrubs": "Scrubs that reached their last file.",
    "storage_scrub_files": "Files that scrubs read.",
    "storage_scrub_files_skipped": (
        "Number of times that a scrub could not read a file in several attempts. **Above 0: the "
        "disk lost data.**"
    ),
    "storage_scrub_bytes": "Bytes that scrubs read from the device.",
    "storage_scrub_damaged_records": (
        "Damaged records that scrubs found; each scrub counts a record again until its file is "
        "freed. **Above 0: the disk lost data.**"
    ),
    "storage_scrub_damaged_entries": (
        "Damaged entries that scrubs found and that reads still need: not deleted, and without a "
        "newer copy. Reads of these entries fail until copies from other bookies replace them."
    ),
    "storage_scrub_damaged_indexes": (
        "Damaged indexes that scrubs found. The bookie rebuilds them from the records."
    ),
    "storage_scrub_wrong_pointers": (
        "Index entries that pointed to another record. The bookie rebuilds such an index. **Above "
        "0: please report this defect.**"
    ),
    "storage_scrub_counts_corrected": (
        "Files whose number of live bytes was wrong, and was corrected. **Above 0: please report "
        "this defect.**"
    ),
    "sync_times": (
        "Times of the syncs that adds wait for: number and sum since the start, and quantiles of "
        "the last one to two minutes. 0 if `write_mode` is `unjournaled`."
    ),
}
"""The meaning of each metric, by its key. The metrics of lanes follow below."""

LANES: Final = {
    "adds": "entries that peers send",
    "writes": "entries that wait for the disk",
    "reads": "answers to reads",
    "control": "recovery and fencing",
}
OF_A_LANE: Final = {
    "bytes": "Bytes held for peers in the lane {lane}: {holds}.",
    "bytes_max": "The limit of the bytes in the lane {lane}, without the reserves of connections.",
    "waiting": "Requests that wait for room in the lane {lane}.",
    "waits": "Number of times that a request waited for room in the lane {lane}.",
    "refused": "Number of requests that were refused because the lane {lane} was full.",
}


@dataclass(frozen=True, slots=True)
class Description:
    """The description of a metric in the exported text and in the documentation."""

    key: str  # the name in this program
    name: str  # without the suffixes of samples, such as `_total` and `_count`
    type: str
    unit: str
    meaning: str  # Markdown
    is_bookkeepers: bool  # whether BookKeeper has a metric `name`
    related: str  # the most similar metric of BookKeeper, or ""

    def family(self, value: float, labels: tuple[str, ...] = ()) -> Metric:
        """Return the metric with one sample, or without samples if it has labels."""
        text = self.meaning.replace("**", "").replace("`", "")
        if not self.is_bookkeepers:
            made = CounterMetricFamily if self.type == COUNTER else GaugeMetricFamily
            return made(self.name, text, labels=labels) if labels else made(self.name, text, value)
        types = {COUNTER: "unknown", GAUGE: "gauge", SUMMARY: "summary"}
        metric = Metric(self.name, text, types[self.type])
        suffix = "_count" if self.type == SUMMARY else ""
        metric.add_sample(f"{self.name}{suffix}", {}, value)
        return metric


def meanings() -> dict[str, str]:
    """Return the meaning of each metric, by its key."""
    lanes = {
        f"in_flight_{lane}_{kind}": text.format(lane=f"`{lane}`", holds=holds)
        for lane, holds in LANES.items()
        for kind, text in OF_A_LANE.items()
    }
    return MEANINGS | lanes


def describe(key: str, kind: str) -> Description:
    """Return the description of a metric; `kind` is its type if BookKeeper has no such metric."""
    name, kind = BOOKKEEPER.get(key, (PREFIX + key, kind))
    is_bookkeepers = key in BOOKKEEPER
    return Description(
        key, name, kind, unit_of(key), _MEANINGS[key], is_bookkeepers, RELATED.get(key, "")
    )


def unit_of(key: str) -> str:
    """Return the unit of a metric from the words of its key, or "" if it counts things."""
    words = key.split("_")
    if words[-1] == "seconds":
        return "s"
    if words[-1] == "ms" or key == "sync_times":
        return "ms"
    return "bytes" if "bytes" in words else ""


_MEANINGS: Final = meanings()
