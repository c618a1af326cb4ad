"""One watch of a ledger's last add confirmed: a server stream of one bookie."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc

from ledgerlog_spark.model import Code
from ledgerlog_spark.transport.grpc.channel import (
    UNREACHABLE,
    ChannelTask,
    code_of_status,
    has_broken,
    stub_of,
    was_cancelled,
)
from ledgerlog_spark.transport.port import LacRise
from ledgerlog_spark.wire.opcodes import code_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledgerlog_spark.transport import control_pb2 as pb
    from ledgerlog_spark.transport.port import OnLacRise, OnWatchEnd


BEGIN_SECONDS_MAX = 3.0
"""Time for a bookie to confirm a watch; one that hangs is not waited for any longer."""


class LacWatch:
    """Passes rises on until the stream ends or it is cancelled; then it is silent."""

    def __init__(
        self,
        channel: Callable[[], ChannelTask],
        retire: Callable[[ChannelTask], None],
        on_rise: OnLacRise,
        on_end: OnWatchEnd,
    ) -> None:
        self._channel = channel
        self._retire = retire
        self._on_rise = on_rise
        self._on_end = on_end
        self._is_over = False
        self._task: asyncio.Task[None] | None = None

    def start(self, request: pb.WatchLacRequest, forget: Callable[[LacWatch], object]) -> None:
        """Begin; `forget` is called when nothing of it runs any more."""
        self._task = asyncio.create_task(
            self._run(request, request.previous), name="watch of a LAC"
        )
        self._task.add_done_callback(lambda _: forget(self))

    def cancel(self) -> None:
        """End silently; cancelling again is fine."""
        self._is_over = True
        if self._task is not None:
            self._task.cancel()

    def end(self, code: Code) -> None:
        """End, and report the reason, unless it was reported or is not wanted any more."""
        if not self._is_over:
            self.cancel()
            self._on_end(code)

    async def _run(self, request: pb.WatchLacRequest, last: int) -> None:
        channel = self._channel()
        code = Code.UNAVAILABLE  # also when the bookie ends the stream: it stops
        try:
            call = (await stub_of(channel)).WatchLac(request)
            try:
                async with asyncio.timeout(BEGIN_SECONDS_MAX):
                    await call.initial_metadata()
                async for reply in call:
                    code = code_of(reply.code)
                    if code is not Code.OK:
                        break
                    code = Code.UNAVAILABLE
                    if reply.last_add_confirmed > last and not self._is_over:
                        first, last = last + 1, reply.last_add_confirmed
                        self._on_rise(LacRise(last, first, reply.entries))
            finally:
                call.cancel()
        except grpc.aio.AioRpcError as error:
            if has_broken(error.code()):
                self._retire(channel)
            code = code_of_status(error.code())
        except (*UNREACHABLE, TimeoutError):
            self._retire(channel)
        except asyncio.CancelledError:
            if was_cancelled():
                raise
            code = Code.UNAVAILABLE
        if not self._is_over:
            self._is_over = True
            self._on_end(code)
