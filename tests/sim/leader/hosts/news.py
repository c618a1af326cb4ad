"""Watches of a log's end: they hear of every append, through faults, and whatever a user does."""

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
"""From an append's acknowledgement until a watch of the log's end was told, with no faults."""
FAILURE_PROBABILITY = 0.2
"""That what a user does with news raises an error."""


class News:
    """One watch of a log's end, and when it was told last.

    Attributes:
        log_id: Of the log.
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
        """It is cancelled, more than once."""
        self._cancel()
        self._is_over = True
        self._cancel()

    async def end_with_client(self) -> None:
        """Nobody cancels it, but its client is closed: that asks the store nothing more."""
        self._is_over = True
        self._process.ledgers.close()
        await asyncio.sleep(NEWS_SECONDS)
        self._requests_before = self._process.tree.requests

    def check_silent(self) -> None:
        """Since its client was closed nothing was asked."""
        requests = self._process.tree.requests - self._requests_before
        self._world.require(requests == 0, f"a watch of a closed client asked {requests} times")

    def check_notified(self, since_ms: int) -> None:
        """It was told of something that happened since then."""
        self._world.require(self._notified_ms >= since_ms, "a watch of the end hears of no append")


async def notify_of_an_append(leader: Leader, watches: Sequence[News], world: LeaderHosts) -> None:
    """Each watch is told of an append that nothing else changes the log with."""
    began_ms = world.now_ms()
    future = world.content.append(leader, world.new_values("news", 1), world.random)
    leader.send_now()
    await future
    await asyncio.sleep(NEWS_SECONDS)
    for news in watches:
        news.check_notified(began_ms)
