"""One bookie over gRPC: its channel, and the calls, streams and watches on this channel."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import grpc

from ledgerlog_spark.model import Code
from ledgerlog_spark.transport import control_pb2 as pb
from ledgerlog_spark.transport import port
from ledgerlog_spark.transport.grpc.append_parts import in_parts
from ledgerlog_spark.transport.grpc.channel import ChannelTask, close, connect, outcome_of
from ledgerlog_spark.transport.pending import Pending
from ledgerlog_spark.waits import forever
from ledgerlog_spark.wire.opcodes import code_of

CALLS_MAX = 4_096
"""Maximum number of concurrent calls to one bookie. Further calls are answered with BUSY."""

LIST_ENTRIES = "ListEntries"
"""Name of the call that a bookie refuses if the answer would be too large."""

UNSENT_MAX = 4_096
"""Maximum number of unsent requests of a stream. Further requests are answered with BUSY."""


BEGIN_SECONDS_MAX = 3.0
"""Time limit in seconds for a bookie to confirm a watch. After this time, the watch ends with an
error code."""


class GrpcRequest(Pending):
    """One request to a bookie.

    After a time-out of the request, `forget` removes it from its stream or cancels its call.
    """

    __slots__ = ("_on_reply", "forget", "message")

    def __init__(self, on_reply: Callable[[Code, Any], None]) -> None:
        super().__init__()
        self._on_reply = on_reply
        self.message: Any = None
        self.forget: Callable[[], object] | None = None

    def fail(self, code: Code) -> None:
        """Call `on_reply` with a code and no result."""
        self.finish(code, None)

    def finish(self, code: Code, result: Any) -> None:
        """Call `on_reply`, unless this request was already answered."""
        if self.is_open:
            self.is_open = False
            self.message = None
            self._on_reply(code, result)


def time_out(expired: list[Pending]) -> None:
    """Answer each expired request with TIMEOUT. Later answers to these requests are dropped."""
    for pending in expired:
        assert isinstance(pending, GrpcRequest)
        if pending.forget is not None:
            pending.forget()
        pending.fail(Code.TIMEOUT)


class GrpcBookie:
    """The channel and the streams of one bookie.

    A channel or stream is opened when it is first needed.
    """

    def __init__(self, bookie_id: str, resolve: port.ResolveBookie) -> None:
        self._bookie_id = bookie_id
        self._resolve = resolve
        self._channel: ChannelTask | None = None
        self._streams: dict[tuple[str, bool], _Stream] = {}
        self._calls: dict[asyncio.Task[None], GrpcRequest] = {}
        self._watches: set[LacWatch] = set()
        self._closing: set[asyncio.Task[None]] = set()

    def send(self, stream: tuple[str, bool], request: GrpcRequest) -> None:
        """Send a request over the stream with this name. A broken stream is replaced first."""
        found = self._streams.get(stream)
        if found is None or found.is_broken:
            found = self._streams[stream] = _Stream(self, stream[0])
        found.send(request)

    def call(
        self,
        method: str,
        message: Any,
        request: GrpcRequest,
        result_of: Callable[[Any], Any],
    ) -> None:
        """Make one unary call, which a time-out cancels.

        If `CALLS_MAX` calls are already open, the request is answered with BUSY.
        """
        if len(self._calls) >= CALLS_MAX:
            asyncio.get_running_loop().call_soon(request.fail, Code.BUSY)
            return
        task = asyncio.create_task(self._call(method, message, request, result_of))
        self._calls[task] = request
        request.forget = task.cancel
        task.add_done_callback(lambda done: self._calls.pop(done, None))

    def watch_lac(
        self, request: pb.WatchLacRequest, on_rise: port.OnLacRise, on_end: port.OnWatchEnd
    ) -> port.CancelWatch:
        """Watch a LAC with a server stream, until the stream breaks or the watch is cancelled."""
        watch = LacWatch(self, request, on_rise, on_end)
        self._watches.add(watch)
        watch.task.add_done_callback(lambda _: self._watches.discard(watch))
        return watch.cancel

    @property
    def is_idle(self) -> bool:
        """Whether no caller waits for an answer from this bookie, and no watch is open."""
        return not (
            self._calls
            or self._watches
            or self._closing
            or any(stream.is_wanted for stream in self._streams.values())
        )

    def channel(self) -> ChannelTask:
        """Return the task that opens the current channel, or that has opened it."""
        if self._channel is None:
            self._channel = asyncio.create_task(connect(self._bookie_id, self._resolve))
        return self._channel

    def retire(self, channel: ChannelTask) -> None:
        """Close the channel.

        The next call looks up the address again, because the address may have changed.
        """
        if self._channel is not channel:
            return
        self._channel = None
        task = asyncio.create_task(close(channel))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """End all calls, streams and watches. Open requests are answered with UNAVAILABLE."""
        calls = dict(self._calls)
        for task, request in calls.items():
            task.cancel()
            request.fail(Code.UNAVAILABLE)
        for watch in tuple(self._watches):
            watch.end(Code.UNAVAILABLE)
        for stream in self._streams.values():
            await stream.close()
        if self._channel is not None:
            self.retire(self._channel)
        await asyncio.gather(*calls, *self._closing, return_exceptions=True)

    async def _call(
        self, method: str, message: Any, request: GrpcRequest, result_of: Callable[[Any], Any]
    ) -> None:
        reply: Any = None

        async def use(stub: Any) -> Code:
            nonlocal reply
            try:
                reply = await getattr(stub, method)(message)
            except grpc.aio.AioRpcError as error:
                is_too_large = error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
                if method == LIST_ENTRIES and is_too_large:
                    return Code.BAD_REQUEST
                raise
            return code_of(reply.code)

        code = await outcome_of(self.channel(), self.retire, use)
        request.finish(code, result_of(reply) if code is Code.OK else None)


class LacWatch:
    """One watch of a ledger's LAC, with a server stream. After the watch ends, no callback runs."""

    def __init__(
        self,
        bookie: GrpcBookie,
        request: pb.WatchLacRequest,
        on_rise: port.OnLacRise,
        on_end: port.OnWatchEnd,
    ) -> None:
        self._bookie = bookie
        self._request = request
        self._on_rise = on_rise
        self._on_end = on_end
        self._is_over = False
        self.task = asyncio.create_task(self._run(), name="watch of a LAC")

    def cancel(self) -> None:
        """End the watch without a call of `on_end`. Idempotent."""
        self._is_over = True
        self.task.cancel()

    def end(self, code: Code) -> None:
        """End the watch and report `code`, unless the watch has ended or was cancelled."""
        if not self._is_over:
            self._is_over = True
            self.task.cancel()
            self._on_end(code)

    async def _run(self) -> None:
        code = await outcome_of(self._bookie.channel(), self._bookie.retire, self._watch)
        if not self._is_over:
            self._is_over = True
            self._on_end(code)

    async def _watch(self, stub: Any) -> Code:
        last = self._request.previous
        call = stub.WatchLac(self._request)
        try:
            async with asyncio.timeout(BEGIN_SECONDS_MAX):
                await call.initial_metadata()
            async for reply in call:
                code = code_of(reply.code)
                if code is not Code.OK:
                    return code
                if reply.last_add_confirmed > last and not self._is_over:
                    first, last = last + 1, reply.last_add_confirmed
                    self._on_rise(port.LacRise(last, first, reply.entries))
        finally:
            call.cancel()
        return Code.UNAVAILABLE  # the bookie ended the stream, because it stops


class _Stream:
    """One stream of numbered requests. When the stream breaks, all pending requests fail."""

    def __init__(self, bookie: GrpcBookie, method: str) -> None:
        self._bookie = bookie
        self._method = method
        self._numbers = itertools.count(1)
        self._open: dict[int, GrpcRequest] = {}
        self._unsent: deque[tuple[int, GrpcRequest]] = deque()
        self._has_unsent = asyncio.Event()
        self._task = asyncio.create_task(self._run(), name=f"grpc {method}")
        self.is_broken = False

    def send(self, request: GrpcRequest) -> None:
        """Number and queue a request. If the queue is full, the request is answered with BUSY."""
        if len(self._unsent) >= UNSENT_MAX:
            # While the bookie accepts no bytes, requests stay in the queue after they time out.
            # Timed-out requests need no answer, so they are removed here.
            self._unsent = deque(each for each in self._unsent if each[1].is_open)
        if len(self._unsent) >= UNSENT_MAX:
            asyncio.get_running_loop().call_soon(request.fail, Code.BUSY)
            return
        number = next(self._numbers)
        request.message.request_id = number
        request.forget = lambda: self._open.pop(number, None)
        self._open[number] = request
        self._unsent.append((number, request))
        self._has_unsent.set()

    @property
    def is_wanted(self) -> bool:
        """Whether a caller waits for an answer on this stream."""
        return bool(self._open)

    async def close(self) -> None:
        """End the stream."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await forever(self._task, "a task that is cancelled ends")
        self._break(Code.UNAVAILABLE)

    async def _run(self) -> None:
        channel = self._bookie.channel()
        code = await outcome_of(channel, self._bookie.retire, self._exchange)
        if code is Code.OK:  # the bookie ended the stream
            self._bookie.retire(channel)
            code = Code.UNAVAILABLE
        self._break(code)

    async def _exchange(self, stub: Any) -> Code:
        call = getattr(stub, self._method)()
        writer = asyncio.create_task(self._write(call))
        try:
            async for reply in call:
                self._answer(reply)
        finally:
            writer.cancel()
            call.cancel()
            await asyncio.gather(writer, return_exceptions=True)
        return Code.OK

    async def _write(self, call: Any) -> None:
        while True:
            await forever(self._has_unsent.wait(), "a request arrives, or the stream ends")
            self._has_unsent.clear()
            while self._unsent:
                _, request = self._unsent.popleft()
                if request.is_open:
                    for message in self._messages(request.message):
                        # All parts are sent, even after a time-out of the request, because the
                        # bookie waits for them.
                        await call.write(message)

    def _messages(self, message: Any) -> Iterable[Any]:
        return in_parts(message) if self._method == "Append" else (message,)

    def _answer(self, reply: Any) -> None:
        request = self._open.pop(reply.request_id, None)
        if request is None:
            return
        code = code_of(reply.code)
        entry = reply.entry if code is Code.OK and self._method == "Read" else None
        request.finish(code, entry)

    def _break(self, code: Code) -> None:
        self.is_broken = True
        requests, self._open = self._open, {}
        self._unsent.clear()
        for request in requests.values():
            request.fail(code)
