"""Bookies that gRPC cannot reach: requests are answered, and each looks up the address again."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from ledgerlog_spark.errors import BookieUnavailableError
from ledgerlog_spark.model import BookieInfo, Code
from ledgerlog_spark.transport.grpc.transport import GrpcTransport
from ledgerlog_spark.transport.port import ReadEntry

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
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        return BookieInfo(bookie_id, "127.0.0.1", 1, port)


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
