from __future__ import annotations

import asyncio
import os
import socket

import pytest

from ledgerlog_spark.errors import BookieUnavailableError
from ledgerlog_spark.model import BookieInfo, Code
from ledgerlog_spark.transport import grpc_channel, grpc_watch
from ledgerlog_spark.transport.grpc_transport import GrpcTransport
from ledgerlog_spark.transport.port import WatchLac


async def here(bookie_id: str) -> BookieInfo:
    return BookieInfo(bookie_id, "127.0.0.1", 3181, 4181)


async def test_process_forked_from_one_that_used_grpc_fails_at_once_instead_of_waiting_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    channel = await grpc_channel.connect("bookie-0", here)
    await channel.close()
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(BookieUnavailableError, match="spawn"):
        await grpc_channel.connect("bookie-0", here)


async def test_watch_of_a_bookie_that_takes_connections_and_says_nothing_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(grpc_watch, "BEGIN_SECONDS_MAX", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as hung:

        async def resolve(bookie_id: str) -> BookieInfo:
            return BookieInfo(bookie_id, "127.0.0.1", 1, hung.getsockname()[1])

        transport = GrpcTransport(resolve)
        ended: asyncio.Future[Code] = asyncio.get_running_loop().create_future()
        transport.watch_lac("bookie-0", WatchLac(7), lambda _: None, ended.set_result)
        async with asyncio.timeout(20):
            assert await ended is Code.UNAVAILABLE
        await transport.aclose()
