"""Serves one gRPC stream: limits its open requests, and sends each reply when it is ready.

A large body of an append arrives in parts (`more_size_bytes` of control.proto).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, Generic, TypeVar

from bookie_server.service.limits.budget import Budget, Share
from bookie_server.service.limits.lanes import ReadReserve
from ledgerlog_spark.model import FRAME_SIZE_BYTES_MAX, RUN_ENTRIES_MAX
from ledgerlog_spark.transport import control_pb2 as pb
from ledgerlog_spark.transport.grpc.append_parts import PART_SIZE_BYTES_MIN

STREAM_REQUESTS_MAX: Final = 1_024
PART_SECONDS_MAX: Final = 10.0  # maximum time until the next part of a request
LARGE_BYTES: Final = 65_536
"""Size in bytes. Other tasks run between two replies of at least this size, because the encoding of
large replies takes milliseconds."""

Taken = tuple["Share", int]
Request = TypeVar("Request")
Reply = TypeVar("Reply")


class BadStreamError(Exception):
    """Raised if a request of a stream is malformed or does not arrive in time.

    The call then ends.
    """

    def __init__(self, message: str, *, is_late: bool = False) -> None:
        super().__init__(message)
        self.is_late = is_late  # whether a request did not arrive in time


class ReplyStream(Generic[Request, Reply]):
    """One open stream.

    Invariant: the bytes taken from a lane for a request are given back once, when its reply is
    written or dropped.

    `demand` returns the share of a request and the number of bytes to take. `accept` gets each
    request and its taken bytes, and passes these bytes to `answer` exactly once. `complete` waits
    for the other parts of a request, which are the next messages of the stream.
    """

    def __init__(
        self,
        demand: Callable[[Request], tuple[Share, int]],
        accept: Callable[[ReplyStream[Request, Reply], Request, Taken], None],
        complete: Callable[[Request, AsyncIterator[Request]], Awaitable[None]] | None = None,
    ) -> None:
        self.read_reserve = ReadReserve()
        self._demand = demand
        self._accept = accept
        self._complete = complete
        self._replies: deque[tuple[Reply, Taken]] = deque()
        self._open_count = 0
        self._task: asyncio.Task[Any] | None = None
        self._writes_since: float | None = None
        self._writing: Taken | None = None
        self._parts_since: float | None = None
        self._incomplete: Taken | None = None
        self._is_dropped = False
        self._has_ended = False
        self._changed = asyncio.Event()
        self._room = asyncio.Event()

    def answer(self, reply: Reply, taken: Taken) -> None:
        """Send the reply to a request. `taken` names the bytes that were taken for the request."""
        self._open_count -= 1
        if self._is_dropped:
            give_back(taken)
            return
        self._replies.append((reply, taken))
        self._changed.set()
        self._room.set()

    def end(self) -> None:
        """Accept no further request; accepted requests are still answered."""
        self._has_ended = True
        self._changed.set()
        self._room.set()

    def holds(self, lane: Budget) -> bool:
        """Return whether a waiting reply or an incomplete request holds bytes of a lane."""
        return any(share.budget is lane for _, (share, _) in self._replies) or any(
            taken is not None and taken[0].budget is lane
            for taken in (self._writing, self._incomplete)
        )

    def offer(self) -> None:
        """Record the time at which the library gets the reply that `serve` yielded last."""
        self._writes_since = asyncio.get_running_loop().time()

    def is_stuck(self, seconds: float) -> bool:
        """Return whether the client of the stream has not taken a reply for `seconds`."""
        return _is_before(self._writes_since, seconds)

    def is_unfinished(self, seconds: float) -> bool:
        """Return whether the client has not sent the next part of a request for `seconds`."""
        return _is_before(self._parts_since, seconds)

    def cancel(self) -> None:
        """End the call immediately; unsent replies are dropped."""
        if self._task is not None:
            self._task.cancel()

    async def serve(self, requests: AsyncIterator[Request]) -> AsyncIterator[Reply]:
        """Yield replies until the requests have ended and every request has its reply."""
        self._task = asyncio.current_task()
        pump = asyncio.create_task(self._pump(requests), name="grpc stream")
        try:
            while True:
                self._changed.clear()
                while self._replies:
                    reply, taken = self._replies.popleft()
                    self._writing = taken
                    try:
                        yield reply
                    finally:
                        self._writes_since = self._writing = None
                        give_back(taken)
                if self._has_ended and not self._open_count and not self._replies:
                    return
                await self._changed.wait()
        finally:
            self._is_dropped = True
            while self._replies:
                give_back(self._replies.popleft()[1])
            pump.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await pump

    async def _pump(self, requests: AsyncIterator[Request]) -> None:
        try:
            requests = aiter(requests)
            while True:
                # Wait for a place before the next request is received, because a request without a
                # place is not counted.
                await self._wait_for_place()
                request = None if self._has_ended else await anext(requests, None)
                if request is None or self._has_ended:
                    return
                taken = self._demand(request)
                await taken_of(*taken)
                if self._complete is not None:
                    await self._with_rest(self._complete(request, self._parts(requests)), taken)
                self._open_count += 1
                self._accept(self, request, taken)
                del request  # free its memory, because the next request may arrive much later
        finally:
            self.end()

    async def _with_rest(self, rest: Awaitable[None], taken: Taken) -> None:
        """Wait for further parts of a request. If they do not arrive, give the taken bytes back."""
        self._incomplete = taken
        try:
            await rest
        except BaseException:
            give_back(taken)
            raise
        finally:
            self._incomplete = self._parts_since = None

    async def _parts(self, requests: AsyncIterator[Request]) -> AsyncIterator[Request]:
        while True:
            self._parts_since = asyncio.get_running_loop().time()
            limit = asyncio.timeout(PART_SECONDS_MAX)
            try:
                async with limit:
                    part = await anext(requests, None)
            except TimeoutError:
                if not limit.expired():  # the connection has timed out
                    raise
                raise BadStreamError(
                    f"the next part of a request did not arrive within {PART_SECONDS_MAX:.0f} s",
                    is_late=True,
                ) from None
            if part is None:
                raise BadStreamError("the stream ended in the middle of a request")
            yield part

    async def _wait_for_place(self) -> None:
        while not self._has_ended:
            self._room.clear()
            if self._open_count + len(self._replies) < STREAM_REQUESTS_MAX:
                return
            await self._room.wait()


def _is_before(since: float | None, seconds: float) -> bool:
    return since is not None and asyncio.get_running_loop().time() - since >= seconds


async def taken_of(share: Share, size_bytes: int) -> None:
    """Take bytes of a share.

    Wait in line if too few bytes are free. If the wait is cancelled, take nothing.
    """
    if share.take(size_bytes):
        return
    granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def grant() -> None:
        if granted.done():
            # The waiter was cancelled before it could use the grant.
            share.give_back(size_bytes)
        else:
            granted.set_result(None)

    share.wait(size_bytes, grant)
    try:
        await granted
    except asyncio.CancelledError:
        if share.is_waiting:
            share.stop_waiting()
        elif granted.done() and not granted.cancelled():
            share.give_back(size_bytes)
        raise


def give_back(taken: Taken) -> None:
    """Give back the bytes taken for a request."""
    share, size_bytes = taken
    share.give_back(size_bytes)


class Turns:
    """Makes large replies wait for each other, so that other tasks run between two of them."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def wait(self, size_bytes: int) -> None:
        """Wait until a reply of this size may be sent; a small reply does not wait."""
        if size_bytes >= LARGE_BYTES:
            async with self._lock:
                await asyncio.sleep(0)

    async def wait_with(self, taken: Taken) -> None:
        """Call `wait`. If the client's call ends during the wait, give the taken bytes back."""
        try:
            await self.wait(taken[1])
        except BaseException:
            give_back(taken)
            raise


def size_bytes_of(request: pb.AppendRequest) -> int:
    """Return the size of the body of an append, including parts that have not arrived."""
    if max(len(request.entry_ids), len(request.lengths)) > RUN_ENTRIES_MAX:
        # The bytes of the lists are not counted, and in memory the lists are many times larger
        # than in the message. So their length is limited here.
        raise BadStreamError(
            f"a run has {len(request.entry_ids)} ids and {len(request.lengths)} lengths, but at "
            f"most {RUN_ENTRIES_MAX} of each are allowed: send several runs"
        )
    size_bytes = len(request.body) + request.more_size_bytes
    if size_bytes > FRAME_SIZE_BYTES_MAX:
        raise BadStreamError(
            f"a run has {size_bytes} bytes, but at most {FRAME_SIZE_BYTES_MAX} are allowed: send "
            "several runs"
        )
    return size_bytes


async def complete(request: pb.AppendRequest, parts: AsyncIterator[pb.AppendRequest]) -> None:
    """Complete the body of a request with the parts that follow it."""
    missing = request.more_size_bytes
    if not missing:
        return
    body = [request.body]
    while missing:
        part = await anext(parts)
        size_bytes = len(part.body)
        if (
            part.request_id != request.request_id
            or size_bytes > missing
            or size_bytes < min(missing, PART_SIZE_BYTES_MIN)
        ):
            raise BadStreamError(
                f"got a part of request {part.request_id} with {size_bytes} bytes; expected the "
                f"next part of request {request.request_id}, which lacks {missing} bytes; a part "
                f"has at least {PART_SIZE_BYTES_MIN} bytes, except the last"
            )
        body.append(part.body)
        missing -= size_bytes
    request.body = b"".join(body)
    request.more_size_bytes = 0
