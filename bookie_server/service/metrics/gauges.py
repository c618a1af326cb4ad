"""The gauges of a bookie's metrics, by name, with the sources of their values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bookie_server.service.limits.lanes import lane_gauges

if TYPE_CHECKING:
    from collections.abc import Callable

    from bookie_server.service.grpc.server import GrpcServer
    from bookie_server.service.grpc.service import BookieServicer
    from bookie_server.service.limits.lanes import Lanes
    from bookie_server.service.v2.server import V2Server
    from bookie_server.storage.ledger_storage import LedgerStorage


def bookie_gauges(
    storage: LedgerStorage,
    v2: V2Server,
    grpc: GrpcServer,
    servicer: BookieServicer,
    lanes: Lanes,
    log_lines_dropped: Callable[[], int],
) -> dict[str, Callable[[], float]]:
    """Return the function for each gauge's value, by the gauge's name without prefix."""
    return {
        "connections": lambda: v2.connections_count,
        "ledgers": lambda: storage.ledgers_count,
        "writable": lambda: storage.is_writable,
        "calls": lambda: grpc.call_slots.count,
        "calls_refused": lambda: grpc.call_slots.refused,
        "calls_ended": lambda: grpc.call_slots.ended,
        "watches": lambda: servicer.watch_slots.count,
        "watches_refused": lambda: servicer.watch_slots.refused,
        "watches_ended": lambda: servicer.watch_slots.ended,
        "log_lines_dropped": log_lines_dropped,
        **lane_gauges(lanes),
    }
