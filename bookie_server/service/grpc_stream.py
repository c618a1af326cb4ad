"""Replies of one gRPC stream: bounded requests going in, replies coming out as they are ready."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from bookie_server.service.in_flight import ReadReserve

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from bookie_server.service.in_flight import InFlight

STREAM_REQUESTS_MAX: Final = 1_024

Request = TypeVar("Request")
Reply = TypeVar("Reply")


class ReplyStream(Generic[Request, Reply]):
    """One open stream.

    Invariant: the bytes taken from `in_flight` for a request are given back when its reply was
    written or dropped, once.

    Args:
        in_flight: Of the process.
        accept: Called with this stream and each request; calls `open` once, later `answer` once.
    """

    def __init__(
        self,
        in_flight: InFlight,
        accept: Callable[[ReplyStream[Request, Reply], Request], None],
    ) -> None:
        self.read_reserve = ReadReserve()
        self._in_flight = in_flight
        self._accept = accept
        self._replies: deque[tuple[Reply, int]] = deque()
        self._open_count = 0
        self._is_dropped = False
        self._has_ended = False
        self._changed = asyncio.Event()
        self._room = asyncio.Event()

    def open(self, size_bytes: int) -> None:
        """Count a request in."""
        self._open_count += 1
        self._in_flight.take(size_bytes)

    def answer(self, reply: Reply, size_bytes: int) -> None:
        """Send the reply of a request that was counted in with `size_bytes`."""
        self._open_count -= 1
        if self._is_dropped:
            self._in_flight.give_back(size_bytes)
            return
        self._replies.append((reply, size_bytes))
        self._changed.set()
        self._room.set()

    def end(self) -> None:
        """Accept no further request; what was accepted is still answered."""
        self._has_ended = True
        self._changed.set()

    async def serve(self, requests: AsyncIterator[Request]) -> AsyncIterator[Reply]:
        """Replies until the client half-closed or `end`, and all accepted are answered."""
        pump = asyncio.create_task(self._pump(requests), name="grpc stream")
        try:
            while True:
                self._changed.clear()
                while self._replies:
                    reply, size_bytes = self._replies.popleft()
                    try:
                        yield reply
                    finally:
                        self._in_flight.give_back(size_bytes)
                if self._has_ended and not self._open_count and not self._replies:
                    return
                await self._changed.wait()
        finally:
            self._is_dropped = True
            self._in_flight.forget(self._room.set)
            while self._replies:
                self._in_flight.give_back(self._replies.popleft()[1])
            pump.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await pump

    async def _pump(self, requests: AsyncIterator[Request]) -> None:
        try:
            async for request in requests:
                await self._wait_for_room()
                if self._has_ended:
                    return
                self._accept(self, request)
        finally:
            self.end()

    async def _wait_for_room(self) -> None:
        while not self._has_ended:
            self._room.clear()
            if not self._in_flight.has_room:
                self._in_flight.wait(self._room.set)
            elif self._open_count + len(self._replies) < STREAM_REQUESTS_MAX:
                return
            await self._room.wait()
