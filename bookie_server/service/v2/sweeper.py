"""Closes connections whose peers make no progress.

Every second, the sweeper checks all connections. A connection is closed if its peer must take
answers or complete a frame, but makes no progress for `stall_timeout_ms`. A frame that arrives
steadily may take up to ten times `stall_timeout_ms`. A connection is also closed if it sends no
request for `first_request_timeout_ms` after it was opened.

If a lane is full, the sweeper checks more often, and a peer has a quarter of a second to make
progress. Connections without progress are closed until a quarter of the lane is free and no share
waits. The connection that holds the most bytes of the lane is closed first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from functools import partial
from typing import Final

from bookie_server.config import BookieSettings
from bookie_server.service.limits.budget import Budget, Share
from bookie_server.service.limits.lanes import Lanes
from bookie_server.service.logging import get_logger
from bookie_server.service.metrics.counters import ServiceCounters
from bookie_server.service.v2.connection import PeerConnection

PERIOD_SECONDS: Final = 1.0
PERIOD_SECONDS_FULL: Final = 0.1
RELIEF_PERIOD_SECONDS: Final = 0.05
GRACE_SECONDS: Final = 0.25  # time in which a peer must make progress if others wait
WAIT_SECONDS_MAX: Final = 5.0
"""Time in seconds. In a full lane, a connection is closed if it holds more than its reserve and has
waited in line for at least this time."""

FREE_PARTS: Final = 4

_logger = get_logger("v2")


class ConnectionSweeper:
    """Checks the connections of one server, and closes connections without progress."""

    def __init__(
        self,
        connections: Collection[PeerConnection],
        lanes: Lanes,
        settings: BookieSettings,
        counters: ServiceCounters,
        clock: Callable[[], float],
    ) -> None:
        self._connections = connections
        self._lanes = lanes
        self._stall_seconds = settings.stall_timeout_ms / 1_000
        self._first_seconds = settings.first_request_timeout_ms / 1_000
        self._counters = counters
        self._clock = clock
        # Other functions that make room in a full lane. Their arguments are the lane, and the time
        # in seconds in which the holders of its bytes must make progress.
        self.others: list[Callable[[Budget, float], None]] = []
        self._relieved_at: dict[str, float] = {}
        self._pressed = asyncio.Event()
        for lane in lanes.held:
            lane.on_pressure = self._pressed.set

    async def run(self) -> None:
        """Sweep until the task is cancelled."""
        period = min(PERIOD_SECONDS, self._stall_seconds / 4)
        while True:
            try:
                async with asyncio.timeout(period):
                    await self._pressed.wait()
            except TimeoutError:
                pass
            else:
                await asyncio.sleep(min(period, PERIOD_SECONDS_FULL))
            self._pressed.clear()
            self.sweep()
            if any(lane.waiting_count for lane in self._lanes.held):
                self._pressed.set()

    def sweep(self) -> None:
        """Check all connections, close overdue connections, and make room in full lanes.

        An error in one check is reported, and the other checks continue, because without a sweeper
        any peer could stop the bookie.
        """
        now = self._clock()
        looks = [partial(self._sweep, connection, now) for connection in self._connections]
        looks += [partial(self._relieve_full, lane) for lane in self._lanes.held]
        for look in looks:
            try:
                look()
            except Exception as error:  # noqa: BLE001 -- the other checks continue
                asyncio.get_running_loop().call_exception_handler(
                    {"message": "a sweep of connections failed", "exception": error}
                )

    def _relieve_full(self, lane: Budget) -> None:
        if lane.waiting_count:
            self.relieve(lane)

    def _sweep(self, connection: PeerConnection, now: float) -> None:
        self._look(connection, now)
        connection.shed()
        reason = connection.watch.overdue(now, self._stall_seconds)
        if reason is None and self._is_silent(connection, now):
            reason = "has sent no request"
        if reason is not None:
            self._close(connection, reason)

    def relieve(self, lane: Budget) -> None:
        """Close connections without progress until a quarter of the lane is free."""
        now = self._clock()
        if now - self._relieved_at.get(lane.name, now - 1) < RELIEF_PERIOD_SECONDS:
            return
        self._relieved_at[lane.name] = now
        for relieve in self.others:
            relieve(lane, GRACE_SECONDS)
        number = self._lanes.held.index(lane)
        holders = [
            connection
            for connection in self._connections
            if _shared_bytes(connection.shares.held[number])
        ]
        for connection in holders:
            # The peer may have made progress after the last check.
            self._look(connection, now)
        holders = [connection for connection in holders if self._is_in_the_way(connection, now)]
        holders.sort(key=lambda connection: -connection.shares.held[number].held_bytes)
        for connection in holders:
            if not lane.waiting_count and FREE_PARTS * lane.free_bytes >= lane.size_bytes_max:
                return
            self._counters.connections_swept += 1
            self._close(connection, f"holds bytes of the lane {lane.name}, but makes no progress")

    def _is_in_the_way(self, connection: PeerConnection, now: float) -> bool:
        waits_since = connection.waits_since
        if waits_since is not None:
            # The connection waits for bytes that other connections hold, and these connections may
            # wait for bytes that it holds.
            return now - waits_since >= WAIT_SECONDS_MAX and connection.memory.is_beyond_reserve
        return connection.watch.is_stalled(now, GRACE_SECONDS)

    def _is_silent(self, connection: PeerConnection, now: float) -> bool:
        return (
            not connection.is_proven
            and connection.is_idle
            and connection.watch.frame_began_at is None
            and connection.waits_since is None
            and now - connection.watch.opened_at >= self._first_seconds
        )

    def _look(self, connection: PeerConnection, now: float) -> None:
        connection.watch.look(
            now,
            received_bytes=connection.received_bytes,
            frames_received=connection.frames_received,
            is_incomplete=connection.is_incomplete,
            taken_bytes=connection.taken_bytes,
        )

    def _close(self, connection: PeerConnection, reason: str) -> None:
        _logger.warning("connection_closed", peer=connection.peer, reason=reason)
        self._counters.connections_closed_by_us += 1
        connection.close(is_abrupt=True)


def _shared_bytes(share: Share) -> int:
    return max(0, share.held_bytes - share.reserve_bytes)
