"""Bookies that gRPC cannot reach: requests are answered, and each looks up the address again."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from ledgerlog_spark.errors import BookieUnavailableError
from ledgerlog_spark.model import BookieInfo, Code
from ledgerlog_spark.transport import control_pb2 as pb
from ledgerlog_spark.transport import control_pb2_grpc
from ledgerlog_spark.transport.grpc.transport import GrpcTransport
from ledgerlog_spark.transport.port import ReadEntry
from tests.fixtures.ports import free_port

DEADLINE_MS = 20_000


class Registry:
    """Names an address where nobody listens, or no address."""

    def __init__(self, *, is_known: bool) -> None:
        self.lookups = 0
        self._is_known = is_known

    async def resolve(self, bookie_id: str) -> BookieInfo:
        self.lookups += 1
        if not self._is_known:
            raise BookieUnavailableError("not registered", bookie_id=bookie_id)
        return BookieInfo(bookie_id, "127.0.0.1", 1, free_port())


async def read(transport: GrpcTransport) -> Code:
    done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    transport.read("b", ReadEntry(1, 0), DEADLINE_MS, lambda code, _: done.set_result(code))
    return await done


async def read_lac(transport: GrpcTransport) -> Code:
    done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    transport.read_lac("b", 1, DEADLINE_MS, lambda code, _: done.set_result(code))
    return await done


async def test_requests_after_a_stream_broke_are_sent_over_another() -> None:
    registry = Registry(is_known=False)
    transport = GrpcTransport(registry.resolve)
    for requests in (1, 2, 3):
        assert await read(transport) is Code.UNAVAILABLE
        assert registry.lookups == requests, "the bookie may be registered meanwhile"
    await transport.aclose()


async def test_a_bookie_that_does_not_answer_is_looked_up_before_the_next_call() -> None:
    registry = Registry(is_known=True)
    transport = GrpcTransport(registry.resolve)
    for calls in (1, 2, 3):
        assert await read_lac(transport) is Code.UNAVAILABLE
        assert registry.lookups == calls
    await transport.aclose()


class Lists(control_pb2_grpc.BookieServicer):
    """A control service whose list of entries is set."""

    def __init__(self, *, is_too_large: bool = False, code: Any = pb.CODE_OK) -> None:
        self._is_too_large = is_too_large
        self._code = code

    async def ListEntries(self, request: Any, context: Any) -> Any:  # noqa: N802
        if self._is_too_large:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many ranges")
        ranges = [pb.EntryRange(first_entry_id=0, last_entry_id=request.ledger_id)]
        return pb.ListEntriesReply(code=self._code, ranges=ranges)


@pytest.mark.parametrize(
    ("service", "answer"),
    [
        (Lists(), (Code.OK, ((0, 7),))),
        (Lists(is_too_large=True), (Code.BAD_REQUEST, ())),
        (Lists(code=pb.CODE_IO_ERROR), (Code.IO_ERROR, ())),
        (control_pb2_grpc.BookieServicer(), (Code.BAD_REQUEST, ())),
    ],
    ids=["listed", "too large", "unknown", "no such call"],
)
async def test_a_list_of_entries_has_ranges_or_the_reason_why_there_is_none(
    service: Any, answer: tuple[Code, tuple[tuple[int, int], ...]]
) -> None:
    server = grpc.aio.server()
    control_pb2_grpc.add_BookieServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()

    async def resolve(bookie_id: str) -> BookieInfo:
        return BookieInfo(bookie_id, "127.0.0.1", 1, port)

    transport = GrpcTransport(resolve)
    done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    transport.list_entries("b", 7, 10_000, lambda *reply: done.set_result(reply))
    assert await done == answer
    await transport.aclose()
    await server.stop(None)
