"""Who waits, who passes and who is told BUSY when storage does not keep up."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from bookie_server.config import BookieSettings
from bookie_server.service.in_flight import InFlight
from bookie_server.service.metrics import ServiceCounters
from bookie_server.service.v2_server import V2Server, listen
from ledgerlog_spark.model import Code
from ledgerlog_spark.wire.answers import decode_answer
from ledgerlog_spark.wire.requests import encode_read
from tests.contract.transport_bookies import HeldStorage, MemoryStorage
from tests.fixtures.bookie_process import KEY, add_frame

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

MEBIBYTE = 1 << 20
IN_FLIGHT_BYTES_MAX = 8 * MEBIBYTE
RECOVERY = 6


class SlowBookie:
    """A server whose storage answers when it is told to."""

    def __init__(self, directory: Path) -> None:
        self.settings = BookieSettings(
            directories=(directory,),
            port=0,
            bookie_id="b",
            in_flight_bytes_max=IN_FLIGHT_BYTES_MAX,
            in_flight_bytes_per_connection_max=6 * MEBIBYTE,
        )
        self.storage = HeldStorage(MemoryStorage())
        self.in_flight = InFlight(IN_FLIGHT_BYTES_MAX)
        self.counters = ServiceCounters()
        self.server = V2Server(self.settings, self.storage, self.in_flight, self.counters)
        self.port = 0
        self.writers: list[asyncio.StreamWriter] = []

    async def start(self) -> None:
        listener = listen("127.0.0.1", 0)
        self.port = listener.getsockname()[1]
        await self.server.start(listener)

    async def stop(self) -> None:
        self.storage.release()
        for writer in self.writers:
            writer.close()
        await self.server.stop(drain_timeout_ms=1_000)

    async def connect(self) -> Client:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.writers.append(writer)
        return Client(reader, writer)

    async def until(self, condition: Any) -> None:
        async with asyncio.timeout(20):
            while not condition():  # noqa: ASYNC110 -- nothing tells
                await asyncio.sleep(0)


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, frame: bytes) -> None:
        self.writer.write(frame)

    async def answer(self) -> Any:
        async with asyncio.timeout(20):
            size = int.from_bytes(await self.reader.readexactly(4), "big")
            return decode_answer(await self.reader.readexactly(size))


@pytest.fixture
async def bookie(tmp_path: Path) -> AsyncIterator[SlowBookie]:
    slow = SlowBookie(tmp_path)
    await slow.start()
    yield slow
    await slow.stop()


async def _fill(bookie: SlowBookie, connections: int = 3) -> list[Client]:
    """Connections that sent 12 MiB of adds each; returns when the bookie takes no more."""
    clients = [await bookie.connect() for _ in range(connections)]
    for number, client in enumerate(clients):
        for entry_id in range(12):
            client.send(add_frame(100 + number, entry_id, bytes(MEBIBYTE)))
    await bookie.until(lambda: bookie.counters.pauses >= connections)
    return clients


async def test_adds_beyond_the_bound_wait_and_are_all_answered_in_the_end(
    bookie: SlowBookie,
) -> None:
    clients = await _fill(bookie)
    assert bookie.in_flight.size_bytes <= IN_FLIGHT_BYTES_MAX + 2 * MEBIBYTE
    assert bookie.counters.add_requests < 12
    bookie.storage.release()
    for client in clients:
        codes = {(await client.answer()).code for _ in range(12)}
        assert codes == {Code.OK}
    await bookie.until(lambda: bookie.in_flight.size_bytes == 0)
    assert not bookie.in_flight._waiting


async def test_one_connection_is_bounded_by_its_own_limit(bookie: SlowBookie) -> None:
    await _fill(bookie, connections=1)
    assert bookie.in_flight.size_bytes <= 7 * MEBIBYTE
    assert bookie.in_flight.has_room


async def test_fencing_passes_adds_that_wait(bookie: SlowBookie) -> None:
    await _fill(bookie)
    bookie.storage.is_holding = False
    fencing = await bookie.connect()
    fencing.send(encode_read(500, -1, fence_key=KEY))
    assert (await fencing.answer()).code.is_absent
    ordinary = await bookie.connect()
    ordinary.send(add_frame(501, 0, b"waits"))
    await bookie.until(lambda: bool(bookie.in_flight._waiting))
    bookie.storage.release()
    assert (await ordinary.answer()).code is Code.OK


async def test_recovery_beyond_the_hard_bound_is_told_busy_and_changes_nothing(
    bookie: SlowBookie,
) -> None:
    await _fill(bookie)
    recovery = await bookie.connect()
    for entry_id in range(4):
        recovery.send(add_frame(600, entry_id, bytes(MEBIBYTE), flags=RECOVERY))
    answer = await recovery.answer()
    assert answer.code is Code.BUSY
    refused = answer.entry_id
    bookie.storage.release()
    for _ in range(3):
        await recovery.answer()
    recovery.send(encode_read(600, refused))
    assert (await recovery.answer()).code in {Code.NO_ENTRY, Code.NO_LEDGER}


async def test_peer_that_leaves_gives_its_bytes_back(bookie: SlowBookie) -> None:
    clients = await _fill(bookie)
    for client in clients:
        client.writer.transport.abort()
    bookie.storage.release()
    await bookie.until(lambda: bookie.server.connections_count == 0)
    await bookie.until(lambda: bookie.in_flight.size_bytes == 0)
    assert not bookie.in_flight._waiting


async def test_stop_answers_what_was_accepted_and_takes_nothing_new(bookie: SlowBookie) -> None:
    client = await bookie.connect()
    client.send(add_frame(1, 0, b"accepted"))
    await bookie.until(lambda: bookie.counters.add_requests == 1)
    stopping = asyncio.create_task(bookie.server.stop(drain_timeout_ms=20_000))
    await bookie.until(lambda: bookie.server.is_stopping)
    client.send(add_frame(1, 1, b"too late"))
    bookie.storage.release()
    assert (await client.answer()).entry_id == 0
    assert await stopping
    assert await client.reader.read() == b""
    assert bookie.counters.add_requests == 1


async def test_stop_does_not_wait_for_ever(bookie: SlowBookie) -> None:
    client = await bookie.connect()
    client.send(add_frame(1, 0, b"never answered"))
    await bookie.until(lambda: bookie.counters.add_requests == 1)
    assert not await bookie.server.stop(drain_timeout_ms=30)
