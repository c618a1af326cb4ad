from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator

import grpc
import pytest

from ledgerlog_spark.errors import BookieUnavailableError
from ledgerlog_spark.model import BookieInfo, Code
from ledgerlog_spark.transport import control_pb2 as pb
from ledgerlog_spark.transport import control_pb2_grpc
from ledgerlog_spark.transport.grpc import bookie as grpc_bookie
from ledgerlog_spark.transport.grpc import channel as grpc_channel
from ledgerlog_spark.transport.grpc.transport import GrpcTransport
from ledgerlog_spark.transport.port import LacRise, WatchLac


async def here(bookie_id: str) -> BookieInfo:
    return BookieInfo(bookie_id, "127.0.0.1", 3181, 4181)


async def test_process_forked_from_one_that_used_grpc_fails_at_once_instead_of_waiting_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    channel = await grpc_channel.connect("bookie-0", here)
    await channel.close(grace=None)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(BookieUnavailableError, match="spawn"):
        await grpc_channel.connect("bookie-0", here)


async def test_watch_of_a_bookie_that_takes_connections_and_says_nothing_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(grpc_bookie, "BEGIN_SECONDS_MAX", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as hung:

        async def resolve(bookie_id: str) -> BookieInfo:
            return BookieInfo(bookie_id, "127.0.0.1", 1, hung.getsockname()[1])

        transport = GrpcTransport(resolve)
        ended: asyncio.Future[Code] = asyncio.get_running_loop().create_future()
        transport.watch_lac("bookie-0", WatchLac(7), lambda _: None, ended.set_result)
        async with asyncio.timeout(20):
            assert await ended is Code.UNAVAILABLE
        await transport.aclose()


class Repeating(control_pb2_grpc.BookieServicer):
    """A service that repeats some LACs, and also sends smaller ones."""

    async def WatchLac(  # noqa: N802 - as generated
        self, request: pb.WatchLacRequest, _context: object
    ) -> AsyncIterator[pb.LacReply]:
        for told in (request.previous, 5, 5, 4, 6, 6):
            yield pb.LacReply(code="CODE_OK", last_add_confirmed=told)


async def test_watch_tells_of_rises_alone() -> None:
    server = grpc.aio.server()
    control_pb2_grpc.add_BookieServicer_to_server(Repeating(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()

    async def resolve(bookie_id: str) -> BookieInfo:
        return BookieInfo(bookie_id, "127.0.0.1", 1, port)

    transport = GrpcTransport(resolve)
    rises: list[LacRise] = []
    ended: asyncio.Future[Code] = asyncio.get_running_loop().create_future()
    transport.watch_lac("bookie-0", WatchLac(7, previous=3), rises.append, ended.set_result)
    async with asyncio.timeout(20):
        assert await ended is Code.UNAVAILABLE
    assert [rise.last_add_confirmed for rise in rises] == [5, 6]
    await transport.aclose()
    await server.stop(None)
