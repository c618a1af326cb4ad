"""Appends whose bodies arrive in parts, and the refusal of larger messages."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import grpc
import pytest

from bookie_server.config import BookieSettings
from bookie_server.service.grpc import stream as grpc_stream
from bookie_server.service.grpc.server import GrpcServer
from bookie_server.service.grpc.service import BookieServicer
from bookie_server.service.grpc.stream import BadStreamError, complete, size_bytes_of
from bookie_server.service.limits.lanes import Lanes
from bookie_server.service.metrics.counters import ServiceCounters
from ledgerlog_spark.model import FRAME_SIZE_BYTES_MAX, RUN_ENTRIES_MAX
from ledgerlog_spark.testing.bookie import MemoryStorage
from ledgerlog_spark.transport import control_pb2 as pb
from ledgerlog_spark.transport import control_pb2_grpc
from ledgerlog_spark.transport.grpc.append_parts import (
    PART_SIZE_BYTES_MIN,
    REQUEST_SIZE_BYTES_MAX,
    in_parts,
)
from tests.fixtures.bookie_process import KEY, stored_entry
from tests.fixtures.raw_http2 import RawHttp2

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable
    from pathlib import Path

LEDGER = 7
MEBIBYTE = 1 << 20


def request_of(entry_ids: Iterable[int], payload: bytes, request_id: int = 3) -> pb.AppendRequest:
    entries = [stored_entry(LEDGER, entry_id, payload) for entry_id in entry_ids]
    return pb.AppendRequest(
        request_id=request_id,
        ledger_id=LEDGER,
        entry_ids=entry_ids,
        lengths=[len(entry) for entry in entries],
        body=b"".join(entries),
        master_key=KEY,
    )


async def one_by_one(parts: Iterable[pb.AppendRequest]) -> AsyncIterator[pb.AppendRequest]:
    for part in parts:
        yield part


@pytest.mark.parametrize(
    ("count", "size_bytes"),
    [
        (1, 10),
        (1, REQUEST_SIZE_BYTES_MAX - 100),
        (1, REQUEST_SIZE_BYTES_MAX),
        (1, FRAME_SIZE_BYTES_MAX - 100_000),
        (RUN_ENTRIES_MAX, 1_000),
    ],
)
async def test_parts_are_small_and_make_the_same_request(count: int, size_bytes: int) -> None:
    request = request_of(range(count), bytes(size_bytes))
    request.entry_ids[:] = range((1 << 63) - count, 1 << 63)  # the longest possible ids
    sent = [pb.AppendRequest.FromString(each.SerializeToString()) for each in in_parts(request)]
    assert max(each.ByteSize() for each in sent) <= REQUEST_SIZE_BYTES_MAX
    assert size_bytes_of(sent[0]) == len(request.body)
    await complete(sent[0], one_by_one(sent[1:]))
    assert sent[0] == request


@pytest.mark.parametrize(
    "part",
    [
        pb.AppendRequest(request_id=4, body=bytes(20_000)),
        pb.AppendRequest(request_id=3, body=bytes(20_001)),
        pb.AppendRequest(request_id=3, body=bytes(PART_SIZE_BYTES_MIN - 1)),
        pb.AppendRequest(request_id=3),
    ],
    ids=["of another request", "too long", "in drops", "empty"],
)
async def test_what_is_no_part_ends_the_stream(part: pb.AppendRequest) -> None:
    request = pb.AppendRequest(request_id=3, body=b"x", more_size_bytes=20_000)
    with pytest.raises(BadStreamError, match="which lacks 20000 bytes"):
        await complete(request, one_by_one([part]))


@pytest.mark.parametrize(
    "request_",
    [
        pb.AppendRequest(body=b"x", more_size_bytes=FRAME_SIZE_BYTES_MAX),
        pb.AppendRequest(entry_ids=[1] * (RUN_ENTRIES_MAX + 1)),
        pb.AppendRequest(lengths=[1] * (RUN_ENTRIES_MAX + 1)),
    ],
    ids=["bytes", "ids", "lengths"],
)
def test_nobody_waits_with_a_request_that_is_larger_than_any(request_: pb.AppendRequest) -> None:
    with pytest.raises(BadStreamError):
        size_bytes_of(request_)


class World:
    """A bookie's control service, and a client of it."""

    def __init__(self, settings: BookieSettings) -> None:
        self.lanes = Lanes.of(settings)
        self.counters = ServiceCounters()
        self.servicer = BookieServicer(
            "b",
            cast("Any", MemoryStorage()),
            cast("Any", None),
            cast("Any", None),
            self.lanes,
            self.counters,
            lambda: 0,
            10,
        )
        self.server = GrpcServer(settings, self.servicer)
        self.port = 0
        self.stub: Any = None

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not is_so():  # noqa: ASYNC110 -- nothing tells
                await asyncio.sleep(0)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(BookieSettings(directories=(tmp_path,), port=0, bookie_id="b"))
    made.port = await made.server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{made.port}") as channel:
        made.stub = control_pb2_grpc.BookieStub(channel)
        yield made
    await made.server.stop(drain_timeout_ms=100)


async def end_of(call: Any) -> grpc.StatusCode:
    async with asyncio.timeout(20):
        return cast("grpc.StatusCode", await call.code())


async def test_a_message_that_says_it_is_large_is_refused_before_it_comes(world: World) -> None:
    """The library must do this. Otherwise a message could take all memory."""
    with RawHttp2(world.port) as peer:
        peer.begin("Append", REQUEST_SIZE_BYTES_MAX + 1)
        said = b""
        while b"larger than max" not in said:
            more = await asyncio.to_thread(peer.socket.recv, 4_096)
            assert more, "closed"
            said += more


async def test_a_half_request_counts_as_a_whole_one_and_makes_room_for_others(
    world: World,
) -> None:
    lane = world.lanes.adds
    call = world.stub.Append()
    parts = in_parts(request_of([0], bytes(MEBIBYTE)))
    for _ in range(2):
        await call.write(next(parts))
        await world.until(lambda: lane.held_bytes > MEBIBYTE)
        assert lane.held_bytes < MEBIBYTE + 10_000
    world.servicer.relieve(lane, stuck_seconds=60)
    world.servicer.relieve(world.lanes.reads, stuck_seconds=0)
    assert world.counters.connections_swept == 0
    world.servicer.relieve(lane, stuck_seconds=0)
    assert world.counters.connections_swept == 1
    assert await end_of(call) is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert lane.held_bytes == 0


async def test_parts_that_do_not_come_end_the_call(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = next(iter(in_parts(request_of([0], bytes(MEBIBYTE)))))
    call = world.stub.Append()
    await call.write(head)
    await call.done_writing()
    assert await end_of(call) is grpc.StatusCode.INVALID_ARGUMENT
    monkeypatch.setattr(grpc_stream, "PART_SECONDS_MAX", 0.0)
    call = world.stub.Append()
    await call.write(head)
    assert await end_of(call) is grpc.StatusCode.DEADLINE_EXCEEDED
    assert world.lanes.adds.held_bytes == 0


async def test_streams_take_a_place_of_those_that_receive_and_watches_do_not(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiving = world.server.receiving_slots
    monkeypatch.setattr(receiving, "count_max", 2)
    watches = [
        world.stub.WatchLac(pb.WatchLacRequest(ledger_id=LEDGER, previous=-1)) for _ in range(3)
    ]
    for watch in watches:
        await watch.initial_metadata()
    assert receiving.count == 0
    streams = [world.stub.Append() for _ in range(2)]
    await world.until(lambda: receiving.count == 2)
    assert await end_of(world.stub.Append()) is grpc.StatusCode.RESOURCE_EXHAUSTED
    for call in (*streams, *watches):
        call.cancel()
    await world.until(lambda: receiving.count == 0)
