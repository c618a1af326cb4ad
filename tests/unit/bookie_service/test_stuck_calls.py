"""Calls are ended after their connections, even if closing these fails."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import TYPE_CHECKING

from bookie_server.service.grpc.stuck_calls import Stuck, StuckCalls

if TYPE_CHECKING:
    from collections.abc import Collection


class World:
    def __init__(self) -> None:
        self.calls = StuckCalls()
        self.calls.close_connections = self.close
        self.go_on = threading.Event()
        self.begun = asyncio.Event()
        self.closed: list[set[str]] = []
        self.ended: list[str] = []
        self.error: Exception | None = None
        self._loop = asyncio.get_running_loop()

    def close(self, peers: Collection[str]) -> None:
        self._loop.call_soon_threadsafe(self.begun.set)
        assert self.go_on.wait(20)
        self.closed.append(set(peers))
        if self.error is not None:
            raise self.error

    def end(self, *peers: str) -> None:
        self.calls.end([Stuck(peer, partial(self.ended.append, peer)) for peer in peers])

    async def until_ended(self, count: int) -> None:
        async with asyncio.timeout(20):
            while len(self.ended) < count:  # noqa: ASYNC110 -- nothing tells
                await asyncio.sleep(0)


async def test_calls_that_come_while_connections_are_closed_are_ended_after_them() -> None:
    world = World()
    world.end("a", "b")
    async with asyncio.timeout(20):
        await world.begun.wait()
    world.end("c")
    assert [world.calls.is_closing(peer) for peer in "abcd"] == [True, True, True, False]
    assert not world.ended
    world.go_on.set()
    await world.until_ended(3)
    assert (world.closed, world.ended) == ([{"a", "b"}, {"c"}], ["a", "b", "c"])
    assert not any(map(world.calls.is_closing, "abc"))
    world.end("a")
    await world.until_ended(4)


async def test_calls_are_ended_also_where_their_connections_cannot_be_closed() -> None:
    """For example, the process has no free descriptor to list the connections."""
    world = World()
    world.go_on.set()
    world.error = OSError(24, "too many open files")
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, failure: failures.append(failure))
    for count in (1, 2):
        world.end("a")
        await world.until_ended(count)
    assert not failures
