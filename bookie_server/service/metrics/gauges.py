"""The gauges of a bookie, which are read at each scrape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from bookie_server.core.disk_use import DiskLevel
from bookie_server.service.admin.view import BookieView
from bookie_server.service.limits.lanes import Lanes, lane_gauges
from bookie_server.service.repair.progress import RepairProgress, repair_gauges
from bookie_server.service.v2.server import V2Server
from bookie_server.storage.directories.opening import BookieStorage

if TYPE_CHECKING:
    from bookie_server.service.grpc.server import GrpcServer
    from bookie_server.service.grpc.service import BookieServicer


@dataclass(frozen=True, slots=True)
class AutoRecoveryNumbers:
    """The gauges of auto-recovery by name. They are 0 in a bookie without auto-recovery."""

    is_auditor: bool = False
    bookies_lost: int = 0
    jobs: int = 0
    tasks_waiting: int = 0
    ledgers_healed: int = 0
    jobs_failed: int = 0
    members_replaced: int = 0
    entries_copied: int = 0
    bytes_copied: int = 0


def bookie_gauges(
    view: BookieView,
    storage: BookieStorage,
    v2: V2Server,
    grpc: GrpcServer,
    servicer: BookieServicer,
    lanes: Lanes,
    repair: RepairProgress,
    log_lines_dropped: Callable[[], int],
    auto_recovery: Callable[[], AutoRecoveryNumbers],
) -> dict[str, Callable[[], float]]:
    """Return a map from gauge names without prefix to the functions that return the values."""
    directories = storage.directories
    return {
        "connections": lambda: v2.connections_count,
        "ledgers": lambda: storage.ledgers_count,
        "writable": view.status_number,
        "entry_log_files": lambda: storage.files_count,
        "scrub_ended_seconds": lambda: storage.scrubber.position.ended_ms / 1_000,
        "scrub_damaged_waiting": lambda: storage.scrubber.damaged_count,
        "doubt_epoch": lambda: storage.doubt.epoch,
        "in_doubt": lambda: not storage.doubt.is_over,
        "ledgers_in_limbo": lambda: storage.ledgers_in_limbo,
        "disk_used_part": lambda: max(each.disk.space.used_part for each in directories),
        "disk_free_bytes": lambda: view.disk_space.free,
        "disk_total_bytes": lambda: view.disk_space.total,
        "disk_is_high": lambda: any(
            each.disk.level is not DiskLevel.NORMAL for each in directories
        ),
        "calls": lambda: grpc.call_slots.count,
        "calls_refused": lambda: grpc.call_slots.refused,
        "calls_ended": lambda: grpc.call_slots.ended,
        "watches": lambda: servicer.watch_slots.count,
        "watches_refused": lambda: servicer.watch_slots.refused,
        "watches_ended": lambda: servicer.watch_slots.ended,
        "log_lines_dropped": log_lines_dropped,
        **auto_recovery_gauges(auto_recovery),
        **repair_gauges(repair),
        **lane_gauges(lanes),
    }


def auto_recovery_gauges(
    numbers: Callable[[], AutoRecoveryNumbers],
) -> dict[str, Callable[[], float]]:
    """Return a map from the gauges of auto-recovery to the functions that return their values."""

    def gauge(name: str) -> Callable[[], float]:
        return lambda: getattr(numbers(), name)

    return {f"autorecovery_{one.name}": gauge(one.name) for one in fields(AutoRecoveryNumbers)}
