"""Memory for bookies whose control service accepts nothing, or is no longer used."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from functools import partial

import pytest

from ledgerlog_spark.model import BookieInfo, Code
from ledgerlog_spark.transport.grpc import bookie as grpc_bookie
from ledgerlog_spark.transport.grpc import transport as grpc_transport
from ledgerlog_spark.transport.grpc.transport import GrpcTransport
from ledgerlog_spark.transport.port import ReadBatch, ReadEntry

TIMEOUT_MS = 60_000


class Answers:
    """The codes of answered requests, in the order of the answers."""

    def __init__(self) -> None:
        self.codes: list[Code] = []
        self._came = asyncio.Event()

    def take(self, code: Code, _result: object) -> None:
        self.codes.append(code)
        self._came.set()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(20):
            while len(self.codes) < count:
                self._came.clear()
                await self._came.wait()


@pytest.fixture
def hung() -> Iterator[socket.socket]:
    """Accept connections, and never send anything."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


@pytest.fixture
async def transport(hung: socket.socket) -> AsyncIterator[GrpcTransport]:
    async def resolve(bookie_id: str) -> BookieInfo:
        return BookieInfo(bookie_id, "127.0.0.1", 1, hung.getsockname()[1])

    made = GrpcTransport(resolve)
    yield made
    await made.aclose()


async def test_requests_that_a_bookie_does_not_take_are_bounded_and_do_not_pile_up_dead(
    transport: GrpcTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_bookie, "UNSENT_MAX", 10)
    answers = Answers()
    for entry_id in range(12):
        transport.read("b", ReadEntry(7, entry_id), 1_000, answers.take)
    await asyncio.sleep(0)
    assert answers.codes == [Code.BUSY] * 2
    await answers.until(12)
    assert answers.codes[2:] == [Code.TIMEOUT] * 10
    for entry_id in range(50):
        transport.read("b", ReadEntry(7, entry_id), TIMEOUT_MS, answers.take)
    (stream,) = transport._bookies["b"]._streams.values()
    assert len(stream._unsent) == len(stream._open) == 10


async def test_calls_that_a_bookie_does_not_answer_are_bounded(
    transport: GrpcTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_bookie, "CALLS_MAX", 5)
    answers = Answers()
    for _ in range(7):
        transport.read_batch("b", ReadBatch(7, 0, 10, 1_000), TIMEOUT_MS, answers.take)
    assert len(transport._bookies["b"]._calls) == 5
    await asyncio.sleep(0)
    assert answers.codes == [Code.BUSY] * 2


async def test_all_requests_together_are_bounded(transport: GrpcTransport) -> None:
    transport._deadlines._requests_max = 3
    answers = Answers()
    for number in range(5):
        transport.read(f"b{number}", ReadEntry(7, 0), TIMEOUT_MS, answers.take)
    await asyncio.sleep(0)
    assert answers.codes == [Code.BUSY] * 2


async def test_channels_to_bookies_that_nobody_asks_any_more_are_closed(
    transport: GrpcTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_transport, "BOOKIES_MAX", 3)
    answers = Answers()
    transport.read("b", ReadEntry(7, 0), TIMEOUT_MS, answers.take)
    for number in range(20):
        code: asyncio.Future[Code] = asyncio.get_running_loop().create_future()
        transport.read_lac(
            f"b{number}", 7, 1, partial(lambda to, found, _: to.set_result(found), code)
        )
        assert await code is Code.TIMEOUT
        await asyncio.gather(*transport._bookies[f"b{number}"]._calls, return_exceptions=True)
        assert len(transport._bookies) <= 4
    assert "b" in transport._bookies, "a request waits there"
    assert not answers.codes
