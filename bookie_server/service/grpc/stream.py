"""One gRPC stream: bounded requests, and replies sent as they are ready.

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
PART_SECONDS_MAX: Final = 10.0  # time for the next part of a request that has begun
LARGE_BYTES: Final = 65_536
"""A reply of this size gets its own turn of the loop: copying and encoding takes milliseconds."""

Taken = tuple["Share", int]
Request = TypeVar("Request")
Reply = TypeVar("Reply")


class BadStreamError(Exception):
    """The requests of a stream are malformed, or do not arrive in time; its call ends."""

    def __init__(self, message: str, *, is_late: bool = False) -> None:
        super().__init__(message)
        self.is_late = is_late  # a request did not arrive in time


class ReplyStream(Generic[Request, Reply]):
    """One open stream.

    Invariant: the bytes taken from a lane for a request are given back once, when its reply is
    written or dropped.

    `demand` returns a request's share and its bytes. `accept` is called with each request and the
    bytes taken for it, and passes these to `answer` once. `complete` waits for further parts of a
    request, the next messages of the stream.
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
        """Send the reply of a request for which `taken` was taken."""
        self._open_count -= 1
        if self._is_dropped:
            give_back(taken)
            return
        self._replies.append((reply, taken))
        self._changed.set()
        self._room.set()

    def end(self) -> None:
        """Accept no further request; accepted ones are still answered."""
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
        """Pass the reply that `serve` yielded last to the library."""
        self._writes_since = asyncio.get_running_loop().time()

    def is_stuck(self, seconds: float) -> bool:
        """Return whether its client has not taken a reply in this time."""
        return _is_before(self._writes_since, seconds)

    def is_unfinished(self, seconds: float) -> bool:
        """Return whether its client has not sent the next part of a request in this time."""
        return _is_before(self._parts_since, seconds)

    def cancel(self) -> None:
        """End the call immediately; unsent replies are dropped."""
        if self._task is not None:
            self._task.cancel()

    async def serve(self, requests: AsyncIterator[Request]) -> AsyncIterator[Reply]:
        """Yield replies until the client half-closed or `end`, and all accepted are answered."""
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
                # Take the place first, because a request that waits for a place is not counted yet.
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
                del request  # the next request may arrive much later
        finally:
            self.end()

    async def _with_rest(self, rest: Awaitable[None], taken: Taken) -> None:
        """Wait for the rest of a request; the taken bytes are given back if it does not arrive."""
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
                if not limit.expired():  # of the connection
                    raise
                raise BadStreamError(
                    f"the next part of a request did not come within {PART_SECONDS_MAX:.0f} s",
                    is_late=True,
                ) from None
            if part is None:
                raise BadStreamError("the stream ended within a request")
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
    """Take bytes of a share, in line if there are too few; takes nothing when cancelled."""
    if share.take(size_bytes):
        return
    granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def grant() -> None:
        if granted.done():
            # It was cancelled in the same turn as the grant, before the waiter ran.
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
    """Sends large replies one after the other, each in its own turn of the loop."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def wait(self, size_bytes: int) -> None:
        """Wait until a reply of this size may be sent; returns immediately for a small one."""
        if size_bytes >= LARGE_BYTES:
            async with self._lock:
                await asyncio.sleep(0)

    async def wait_with(self, taken: Taken) -> None:
        """Wait as `wait` does; gives the reply's bytes back if the call ends before."""
        try:
            await self.wait(taken[1])
        except BaseException:
            give_back(taken)
            raise


def size_bytes_of(request: pb.AppendRequest) -> int:
    """Return the size of the body of an append, including parts that have not arrived."""
    if max(len(request.entry_ids), len(request.lengths)) > RUN_ENTRIES_MAX:
        # Parsed lists take many times their size on the wire.
        raise BadStreamError(f"a run has {RUN_ENTRIES_MAX} entries at most")
    size_bytes = len(request.body) + request.more_size_bytes
    if size_bytes > FRAME_SIZE_BYTES_MAX:
        raise BadStreamError(
            f"a run has {size_bytes} bytes, more than the maximum of {FRAME_SIZE_BYTES_MAX}"
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
                f"of request {request.request_id}, {missing} bytes were to come, in parts of "
                f"{PART_SIZE_BYTES_MIN} at least; got {size_bytes} of request {part.request_id}"
            )
        body.append(part.body)
        missing -= size_bytes
    request.body = b"".join(body)
    request.more_size_bytes = 0
