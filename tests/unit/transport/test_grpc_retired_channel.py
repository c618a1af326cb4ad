"""A failed call closes the channel to its bookie, and the other calls on the channel fail too."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from ledgerlog_spark.model import BookieInfo, Code
from ledgerlog_spark.transport import control_pb2 as pb
from ledgerlog_spark.transport import control_pb2_grpc
from ledgerlog_spark.transport.grpc.transport import GrpcTransport
from ledgerlog_spark.transport.port import ReadBatch, WatchLac, WriteLac

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

TIMEOUT_MS = 60_000
LEDGER, HELD_UP, ENDING = 7, 8, 9
KEY = bytes(20)


FULL, GONE = grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE


class Full(control_pb2_grpc.BookieServicer):
    """A service that accepts all calls except reads of a LAC."""

    def __init__(self) -> None:
        self.refusal = GONE
        self.lookups = 0
        self.watches = asyncio.Event()
        self.writes = asyncio.Event()
        self.reads = asyncio.Event()

    async def ReadLac(self, request: Any, context: Any) -> None:  # noqa: ARG002, N802
        await context.abort(self.refusal, "not this call")

    async def BatchRead(self, request: Any, context: Any) -> None:  # noqa: ARG002, N802
        self.reads.set()
        await asyncio.Event().wait()

    async def WatchLac(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: ARG002, N802
        await context.send_initial_metadata(())
        self.watches.set()
        await asyncio.Event().wait()
        yield

    async def WriteLac(  # noqa: N802
        self,
        requests: AsyncIterator[Any],
        context: Any,  # noqa: ARG002
    ) -> AsyncIterator[Any]:
        async for request in requests:
            self.writes.set()
            if request.ledger_id == ENDING:
                return
            if request.ledger_id != HELD_UP:
                yield pb.WriteLacReply(request_id=request.request_id, code="CODE_OK")


@pytest.fixture
async def full() -> AsyncIterator[tuple[Full, GrpcTransport]]:
    servicer, server = Full(), grpc.aio.server()
    control_pb2_grpc.add_BookieServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()

    async def resolve(bookie_id: str) -> BookieInfo:
        servicer.lookups += 1
        return BookieInfo(bookie_id, "127.0.0.1", 1, port)

    transport = GrpcTransport(resolve)
    yield servicer, transport
    await transport.aclose()
    await server.stop(None)


@pytest.mark.parametrize("refusal", [GONE, FULL])
async def test_who_shares_a_channel_with_a_call_that_fails_goes_on_or_is_answered(
    full: tuple[Full, GrpcTransport], refusal: grpc.StatusCode
) -> None:
    servicer, transport = full
    servicer.refusal = refusal
    told: list[Code] = []
    failed: asyncio.Future[Code] = asyncio.get_running_loop().create_future()
    after: asyncio.Future[Code] = asyncio.get_running_loop().create_future()
    async with asyncio.timeout(20):
        transport.watch_lac("b", WatchLac(LEDGER, -1, 0), lambda _rise: None, told.append)
        transport.write_lac("b", WriteLac(HELD_UP, 1, KEY), TIMEOUT_MS, told.append)
        transport.read_batch(
            "b", ReadBatch(LEDGER, 0, 1, 100), TIMEOUT_MS, lambda code, _: told.append(code)
        )
        for begun in (servicer.watches, servicer.writes, servicer.reads):
            await begun.wait()
        transport.read_lac("b", LEDGER, TIMEOUT_MS, lambda code, _: failed.set_result(code))
        assert await failed is Code.UNAVAILABLE
        transport.write_lac("b", WriteLac(LEDGER, 1, KEY), TIMEOUT_MS, after.set_result)
        code = await after
        if refusal is GONE and code is Code.UNAVAILABLE:
            # It was sent on the stream that was about to break.
            after = asyncio.get_running_loop().create_future()
            transport.write_lac("b", WriteLac(LEDGER, 1, KEY), TIMEOUT_MS, after.set_result)
            code = await after
        assert code is Code.OK
        if refusal is FULL:
            assert told == [], "the bookie works, and so does the channel"
            assert transport._bookies["b"]._closing == set()
        else:
            while len(told) < 3:  # noqa: ASYNC110 -- nothing tells
                await asyncio.sleep(0)
            assert told == [Code.UNAVAILABLE] * 3


async def test_bookie_that_ends_a_stream_is_looked_up_before_the_next_request(
    full: tuple[Full, GrpcTransport],
) -> None:
    """A bookie ends its streams when it stops, and may start again at another address."""
    servicer, transport = full
    for ledger_id, code in ((LEDGER, Code.OK), (ENDING, Code.UNAVAILABLE), (LEDGER, Code.OK)):
        answered: asyncio.Future[Code] = asyncio.get_running_loop().create_future()
        transport.write_lac("b", WriteLac(ledger_id, 1, KEY), TIMEOUT_MS, answered.set_result)
        async with asyncio.timeout(20):
            assert await answered is code
    assert servicer.lookups == 2
