"""Watches of a log's end. They are notified of every append, despite faults and users' errors."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.sim.log.hosts.base import CallbackError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledgerlog_spark.log.leader.leader import Leader
    from ledgerlog_spark.log.log import Log
    from tests.sim.leader.hosts.world import LeaderHosts
    from tests.sim.log.hosts.process import Process

NEWS_SECONDS = 0.3
"""Without faults, watches of the log's end are notified within this time after an append."""
FAILURE_PROBABILITY = 0.2
"""Probability that the callback of a user raises an error."""


class News:
    """One watch of a log's end, with the time of its last notification.

    Attributes:
        log_id: The id of the log.
    """

    def __init__(self, process: Process, log: Log) -> None:
        self.log_id = log.log_id
        self._process = process
        self._world: LeaderHosts = process.world
        self._notified_ms = 0
        self._is_over = False
        self._cancel = log.watch_end(self._on_change)

    def _on_change(self) -> None:
        world = self._world
        self._notified_ms = world.now_ms()
        if self._is_over and world.failure is None:
            world.failure = world.violation("a watch tells after it was cancelled")
        if world.extra.random() < FAILURE_PROBABILITY:
            raise CallbackError

    def end(self) -> None:
        """Cancel the watch, more than once."""
        self._cancel()
        self._is_over = True
        self._cancel()

    async def end_with_client(self) -> None:
        """Close the client without a cancel of the watch. The watch makes no more requests."""
        self._is_over = True
        self._process.ledgers.close()
        await asyncio.sleep(NEWS_SECONDS)
        self._requests_before = self._process.tree.requests

    def check_silent(self) -> None:
        """Check that the watch made no request after its client was closed."""
        requests = self._process.tree.requests - self._requests_before
        self._world.require(requests == 0, f"a watch of a closed client asked {requests} times")

    def check_notified(self, since_ms: int) -> None:
        """Check that the watch was notified after `since_ms`."""
        self._world.require(self._notified_ms >= since_ms, "a watch of the end hears of no append")


async def notify_of_an_append(leader: Leader, watches: Sequence[News], world: LeaderHosts) -> None:
    """Check that each watch is notified of an append without another change of the log."""
    began_ms = world.now_ms()
    future = world.content.append(leader, world.new_values("news", 1), world.random)
    leader.send_now()
    await future
    await asyncio.sleep(NEWS_SECONDS)
    for news in watches:
        news.check_notified(began_ms)
