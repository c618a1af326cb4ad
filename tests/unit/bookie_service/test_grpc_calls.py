"""The bounds of calls leave every kind of handler as it is."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from bookie_server.service.budget import Budget
from bookie_server.service.fair_slots import FairSlots
from bookie_server.service.grpc_calls import CallBounds
from bookie_server.service.grpc_stream import taken_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class Served:
    """A server of health alone, whose handlers write to their context, and a client of it."""

    def __init__(self) -> None:
        self.slots = FairSlots(4)
        self.health = health.aio.HealthServicer()  # type: ignore[attr-defined]
        self.server = grpc.aio.server(interceptors=(CallBounds(self.slots),))
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
    """And who gave them back, which may be a log with other peers' answers, notices nothing."""
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
