"""The limits of calls do not change the behaviour of any kind of handler."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING, Any, cast

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from bookie_server.config import BookieSettings
from bookie_server.service.grpc import calls as grpc_calls
from bookie_server.service.grpc import server as grpc_server
from bookie_server.service.grpc.calls import CallBounds, FairSlots
from bookie_server.service.grpc.server import GrpcServer
from bookie_server.service.grpc.stream import ReplyStream, taken_of
from bookie_server.service.grpc.stuck_calls import StuckCalls
from bookie_server.service.limits.budget import Budget
from ledgerlog_spark.transport import control_pb2_grpc
from tests.fixtures.raw_http2 import RawHttp2

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection
    from pathlib import Path

    from bookie_server.service.grpc.stream import Taken
    from bookie_server.service.grpc.stuck_calls import Stuck

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


def no_connections(calls: Collection[Stuck]) -> None:
    """End only the calls, and no connections."""
    for call in calls:
        call.end()


class Served:
    """A server with the health service, whose handlers write to their context, and a client."""

    def __init__(self) -> None:
        self.slots = FairSlots(4)
        self.health = health.aio.HealthServicer()  # type: ignore[attr-defined]
        self.server = grpc.aio.server(
            interceptors=(CallBounds(self.slots, FairSlots(4), no_connections),)
        )
        health_pb2_grpc.add_HealthServicer_to_server(self.health, self.server)
        self.port = self.server.add_insecure_port("127.0.0.1:0")


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    served = Served()
    await served.server.start()
    yield served
    await served.server.stop(None)


async def test_who_watches_the_health_hears_of_its_changes(served: Served) -> None:
    async with (
        asyncio.timeout(20),
        grpc.aio.insecure_channel(f"127.0.0.1:{served.port}") as channel,
    ):
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == SERVING
        assert served.slots.count == 1
        await served.health.set("", NOT_SERVING)
        assert (await watch.read()).status == NOT_SERVING
        watch.cancel()
        while served.slots.count:  # noqa: ASYNC110 -- nothing tells
            await asyncio.sleep(0)


@pytest.mark.parametrize("turns", range(4))
@pytest.mark.parametrize("is_cancelled_first", [True, False])
async def test_a_call_that_is_cancelled_as_its_bytes_come_free_gives_them_back(
    turns: int, is_cancelled_first: bool
) -> None:
    """The code that gave them back, such as an answer to another peer, notices nothing."""
    lane = Budget("adds", 1_000)
    holder, share = lane.share("a"), lane.share("b")
    holder.force(1_000)
    waiting = asyncio.create_task(taken_of(share, 400))
    await asyncio.sleep(0)
    assert share.is_waiting
    if is_cancelled_first:
        waiting.cancel()
        for _ in range(turns):
            await asyncio.sleep(0)
        holder.give_back(1_000)
    else:
        holder.give_back(1_000)
        for _ in range(turns):
            await asyncio.sleep(0)
        waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    if not waiting.cancelled():
        share.give_back(400)
    assert (lane.held_bytes, lane.waiting_count) == (0, 0)


async def test_bytes_of_a_request_come_back_with_its_answer_when_its_stream_is_gone() -> None:
    lane = Budget("adds", 1_000)
    share = lane.share("a")
    accepted: list[Taken] = []
    stream: ReplyStream[str, str] = ReplyStream(
        lambda _request: (share, 100), lambda _stream, _request, taken: accepted.append(taken)
    )

    async def requests() -> AsyncIterator[str]:
        yield "first"
        yield "second"
        await asyncio.Event().wait()

    async def take_all() -> None:
        async for _ in stream.serve(requests()):
            pass

    call = asyncio.create_task(take_all())
    async with asyncio.timeout(20):
        while len(accepted) < 2:  # noqa: ASYNC110 -- nothing tells
            await asyncio.sleep(0)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    assert lane.held_bytes == 200, "storage is at work for them"
    for taken in accepted:
        stream.answer("late", taken)
    assert lane.held_bytes == 0


class NoCalls(control_pb2_grpc.BookieServicer):
    """Answers nothing."""

    def __init__(self) -> None:
        self.stuck_calls = StuckCalls()

    def serve_on(self, port: int) -> None:
        """Do nothing."""

    def end_streams(self) -> None:
        """Do nothing, because there are no streams."""


async def test_connections_that_ask_for_nothing_are_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One does not begin HTTP/2, and one has no call. 256 such connections would exclude others."""
    monkeypatch.setattr(grpc_server, "HANDSHAKE_MS_MAX", 200)
    monkeypatch.setattr(grpc_server, "CONNECTION_IDLE_MS_MAX", 200)
    settings = BookieSettings(directories=(tmp_path,), port=0, bookie_id="b")
    server = GrpcServer(settings, cast("Any", NoCalls()))
    port = await server.start()
    try:
        silent = socket.create_connection(("127.0.0.1", port), timeout=20)
        with silent, RawHttp2(port) as idle:
            for each in (silent, idle.socket):
                with contextlib.suppress(ConnectionError):  # a reset closes it too
                    while await asyncio.to_thread(each.recv, 4_096):
                        pass
    finally:
        await server.stop(drain_timeout_ms=100)


@pytest.mark.parametrize(
    ("is_late", "code"), [(True, grpc.StatusCode.DEADLINE_EXCEEDED), (False, None)]
)
async def test_a_deadline_of_the_connection_is_not_that_of_the_request(
    is_late: bool, code: grpc.StatusCode | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    aborted: list[grpc.StatusCode] = []

    class Context:
        def peer(self) -> str:
            return "ipv4:127.0.0.1:1"

        async def abort(self, code: grpc.StatusCode, _: str) -> None:
            aborted.append(code)
            raise grpc.aio.AbortError

    async def requests() -> AsyncIterator[object]:
        if is_late:
            await asyncio.Event().wait()
            yield None
        raise TimeoutError("a socket's")

    monkeypatch.setattr(grpc_calls, "REQUEST_SECONDS_MAX", 0.0 if is_late else 60.0)
    place = grpc_calls._Call(Context(), no_connections).place(FairSlots(4))
    with pytest.raises(grpc.aio.AbortError if is_late else TimeoutError):
        await place.request(requests())
    assert aborted == [grpc.StatusCode.DEADLINE_EXCEEDED] * is_late
