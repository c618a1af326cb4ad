"""Batch reads and lists of the control service when there is no room for their replies."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING, Any, cast

import grpc
import psutil
import pytest

from bookie_server.config import BookieSettings
from bookie_server.core.requests import inspect_add
from bookie_server.errors import TooManyRangesError
from bookie_server.service.grpc.replies import LISTINGS_MAX, RANGE_COST_BYTES, range_size_bytes
from bookie_server.service.grpc.server import GrpcServer
from bookie_server.service.grpc.service import BookieServicer
from bookie_server.service.limits.lanes import Lanes
from bookie_server.service.metrics.counters import ServiceCounters
from bookie_server.storage import slices
from bookie_server.storage.spans import Spans
from ledgerlog_spark.model import Code
from ledgerlog_spark.testing.bookie import MemoryLedger, MemoryStorage
from ledgerlog_spark.transport import control_pb2 as pb
from ledgerlog_spark.wire.opcodes import number_of
from tests.fixtures.bookie_process import KEY
from tests.fixtures.raw_http2 import RawHttp2

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from bookie_server.core.requests import StoredAdd

MEBIBYTE = 1 << 20
LEDGER = 7
WATCHED = 8
OK, BUSY = number_of(Code.OK), number_of(Code.BUSY)


class Storage(MemoryStorage):
    """Entries in memory. Lists wait until the test lets them continue."""

    def __init__(self) -> None:
        super().__init__()
        ledger = self.ledgers[LEDGER] = MemoryLedger(KEY)
        ledger.entries = dict.fromkeys(range(5), bytes(MEBIBYTE))
        watched = self.ledgers[WATCHED] = MemoryLedger(KEY)
        watched.entries = dict.fromkeys(range(5), bytes(100_000))
        watched.lac = 4
        self.go_on = asyncio.Event()
        self.listing = 0
        self.ranges = 1_000

    def add(self, request: StoredAdd, on_done: Callable[[Code], None]) -> None:
        if inspect_add(request) is None:
            on_done(Code.BAD_REQUEST)
        else:
            super().add(request, on_done)

    async def entries_held(self, ledger_id: int, count_max: int) -> Spans:
        self.listing += 1
        await self.go_on.wait()
        self.listing -= 1
        if self.ranges > count_max:
            raise TooManyRangesError("too many", path=".", ledger_id=ledger_id, count_max=count_max)
        return Spans((number, number) for number in range(0, 2 * self.ranges, 2))


def is_closed(connection: socket.socket) -> bool:
    """Whether the connection is closed, after all bytes that were sent before."""
    with contextlib.suppress(ConnectionError):
        while connection.recv(1 << 16):
            pass
    return True


class Call:
    """The part of a call's context that a handler uses."""

    def __init__(self) -> None:
        self.ended: list[Callable[[object], object]] = []
        self.refused: list[tuple[grpc.StatusCode, str]] = []

    def peer(self) -> str:
        return "ipv4:127.0.0.1:4711"

    def add_done_callback(self, callback: Callable[[object], object]) -> None:
        self.ended.append(callback)

    async def abort(self, status: grpc.StatusCode, details: str) -> None:
        self.refused.append((status, details))
        raise grpc.aio.AbortError

    async def send_initial_metadata(self, _metadata: object) -> None:
        await asyncio.sleep(0)

    def end(self) -> None:
        """Record that the reply was sent."""
        for callback in self.ended:
            callback(self)


class World:
    def __init__(self, directory: Path) -> None:
        self.settings = BookieSettings(directories=(directory,), port=0, bookie_id="b")
        self.storage = Storage()
        self.lanes = Lanes.of(self.settings)
        self.counters = ServiceCounters()
        collector: Any = None
        self.servicer = BookieServicer(
            "b",
            self.storage,  # type: ignore[arg-type]
            collector,
            cast("Any", None),
            self.lanes,
            self.counters,
            lambda: 0,
            100,
        )
        self.others = self.lanes.reads.share("others")

    def batch(self, call: Call, size_bytes_max: int = 3 * MEBIBYTE) -> asyncio.Task[Any]:
        request = pb.BatchReadRequest(
            ledger_id=LEDGER, first_entry_id=0, count_max=5, size_bytes_max=size_bytes_max
        )
        return asyncio.create_task(self.servicer.BatchRead(request, call))

    def list(self, call: Call) -> asyncio.Task[Any]:
        request = pb.ListEntriesRequest(ledger_id=LEDGER)
        return asyncio.create_task(self.servicer.ListEntries(request, call))

    def watch(self, entries_size_bytes_max: int) -> AsyncIterator[Any]:
        request = pb.WatchLacRequest(
            ledger_id=WATCHED, previous=-1, entries_size_bytes_max=entries_size_bytes_max
        )
        return self.servicer.WatchLac(request, Call())

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():  # noqa: ASYNC110 -- nothing tells
                await asyncio.sleep(0)


@pytest.fixture
async def world(tmp_path: Path) -> World:
    await asyncio.sleep(0)
    return World(tmp_path)


async def test_a_batch_waits_in_line_for_its_room_and_holds_it_until_it_is_sent(
    world: World,
) -> None:
    world.others.force(world.lanes.reads.size_bytes_max)
    call = Call()
    reply = world.batch(call)
    await world.until(lambda: world.lanes.reads.waiting_count == 1)
    world.others.give_back(world.others.held_bytes)
    answer = await reply
    assert (answer.code, len(answer.entries)) == (OK, 1), "it asked for little to wait for little"
    assert MEBIBYTE <= world.lanes.reads.held_bytes < MEBIBYTE + 10_000
    call.end()
    assert world.lanes.reads.held_bytes == 0
    assert world.counters.answers[Code.BUSY] == 0


async def test_a_batch_that_is_given_up_in_line_leaves_nothing_behind(world: World) -> None:
    world.others.force(world.lanes.reads.size_bytes_max)
    reply = world.batch(Call())
    await world.until(lambda: world.lanes.reads.waiting_count == 1)
    reply.cancel()
    await asyncio.gather(reply, return_exceptions=True)
    assert world.lanes.reads.waiting_count == 0
    assert world.lanes.reads.held_bytes == world.others.held_bytes


@pytest.mark.parametrize("is_answered", [False, True])
async def test_a_batch_that_is_given_up_counts_until_storage_is_done_with_it(
    world: World, monkeypatch: pytest.MonkeyPatch, is_answered: bool
) -> None:
    """Otherwise a client that cancels its requests could run any number of reads at a time."""
    asked: list[tuple[Any, Callable[[Code, list[bytes]], None]]] = []
    monkeypatch.setattr(world.storage, "read_batch", lambda *each: asked.append(each))
    lane = world.lanes.reads
    replies = [world.batch(Call()) for _ in range(200)]
    for _ in range(1_000):
        await asyncio.sleep(0)
    if is_answered:
        for _, answer in asked:
            answer(Code.NO_ENTRY, [])
    held_bytes = lane.held_bytes
    for reply in replies:
        reply.cancel()
    await asyncio.gather(*replies, return_exceptions=True)
    assert lane.waiting_count == 0
    if not is_answered:
        assert lane.held_bytes == held_bytes > lane.size_bytes_max // 2
        for _, answer in asked:
            answer(Code.OK, [bytes(100)])
    assert lane.held_bytes == 0


async def test_a_first_entry_larger_than_the_room_for_it_waits_for_more(world: World) -> None:
    lane = world.lanes.reads
    world.others.force(lane.size_bytes_max - MEBIBYTE)
    reply = world.batch(Call(), size_bytes_max=10_000)
    await world.until(lambda: lane.waiting_count == 1)
    assert lane.waiting[0].wanted_bytes > MEBIBYTE
    world.others.give_back(world.others.held_bytes)
    answer = await reply
    assert (answer.code, len(answer.entries)) == (OK, 1)


async def test_a_short_batch_does_where_the_lane_is_nearly_full(world: World) -> None:
    lane = world.lanes.reads
    world.others.force(lane.size_bytes_max // 2 - 3 * MEBIBYTE // 2)
    answer = await world.batch(Call(), size_bytes_max=4 * MEBIBYTE)
    assert (answer.code, len(answer.entries)) == (OK, 1)
    assert lane.waiting_count == 0


async def test_lists_of_entries_are_few_at_a_time_and_count(world: World) -> None:
    calls = [Call() for _ in range(10)]
    lists = [world.list(call) for call in calls]
    await world.until(lambda: world.storage.listing == LISTINGS_MAX)
    for _ in range(1_000):
        await asyncio.sleep(0)
    assert world.storage.listing == LISTINGS_MAX
    world.others.force(world.lanes.reads.size_bytes_max)
    world.storage.go_on.set()
    await world.until(lambda: world.lanes.reads.waiting_count == LISTINGS_MAX)
    assert world.storage.listing == 0, "the others are not put together yet"
    world.others.give_back(world.others.held_bytes)
    assert {(await each).code for each in lists} == {OK}
    assert world.lanes.reads.held_bytes == 10 * 1_000 * RANGE_COST_BYTES
    for call in calls:
        call.end()
    assert world.lanes.reads.held_bytes == 0


async def test_a_list_is_built_in_slices_and_ends_with_its_call(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "UNITS_PER_TURN", 10)
    world.storage.go_on.set()
    reply, turns = world.list(Call()), 0
    while not reply.done():
        await asyncio.sleep(0)
        turns += 1
    assert len((await reply).ranges) == 1_000
    assert turns >= 1_000 // 10
    held_bytes = world.lanes.reads.held_bytes
    reply = world.list(Call())
    await world.until(lambda: world.lanes.reads.held_bytes == 2 * held_bytes)
    reply.cancel()
    await asyncio.gather(reply, return_exceptions=True)
    assert world.lanes.reads.held_bytes == held_bytes


async def test_large_replies_are_made_one_in_a_turn_of_the_loop(world: World) -> None:
    """Each takes milliseconds, and a client may request many at the same time."""
    replies = [world.batch(Call()) for _ in range(4)]
    replies += [asyncio.create_task(_first_of_watch(world)) for _ in range(4)]
    done = 0
    while done < len(replies):
        await asyncio.sleep(0)
        now = sum(reply.done() for reply in replies)
        assert now - done <= 2, "one of each: a watch's entries are read before its turn"
        done = now
    assert {(await reply).code for reply in replies} == {OK}


async def _first_of_watch(world: World) -> Any:
    watch = world.watch(MEBIBYTE)
    try:
        return await anext(watch)
    finally:
        await watch.aclose()  # type: ignore[attr-defined]


async def test_a_batch_that_is_ended_before_its_turn_gives_its_bytes_back(world: World) -> None:
    replies = [world.batch(Call()) for _ in range(4)]
    await asyncio.sleep(0)
    assert world.lanes.reads.held_bytes > 4 * MEBIBYTE
    for reply in replies:
        reply.cancel()
    await asyncio.gather(*replies, return_exceptions=True)
    assert world.lanes.reads.held_bytes == 0
    assert (await world.batch(Call())).code == OK


async def test_a_list_is_refused_before_it_is_built_when_it_does_not_fit(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.storage.go_on.set()
    share = world.lanes.reads.share("ipv4:127.0.0.1")
    last_id = 2 * world.storage.ranges - 2
    fits_bytes = world.storage.ranges * range_size_bytes(last_id)
    listings = world.servicer._listings
    monkeypatch.setattr(listings, "_size_bytes_max", fits_bytes)
    reply = await world.list(Call())
    assert reply.ByteSize() <= fits_bytes
    monkeypatch.setattr(listings, "_size_bytes_max", fits_bytes - 1)
    held_bytes = world.lanes.reads.held_bytes

    async def refusal() -> str:
        call = Call()
        with pytest.raises(grpc.aio.AbortError):
            await world.list(call)
        ((status, details),) = call.refused
        assert status is grpc.StatusCode.RESOURCE_EXHAUSTED
        return details

    assert f"{fits_bytes - 1} bytes" in await refusal()
    world.storage.ranges = share.size_bytes_max // RANGE_COST_BYTES + 1
    assert await refusal() == "too many", "its memory would be more than the lane has"
    assert world.lanes.reads.held_bytes == held_bytes


def test_a_range_takes_no_more_of_a_message_than_is_expected() -> None:
    for last_id in (0, 1, 127, 128, 1 << 21, (1 << 21) - 1, (1 << 63) - 1):
        reply = pb.ListEntriesReply()
        reply.ranges.add(first_entry_id=last_id, last_entry_id=last_id)
        assert reply.ByteSize() <= range_size_bytes(last_id)
        assert reply.ByteSize() == range_size_bytes(last_id) or last_id == 0


async def test_a_full_lane_ends_only_the_watches_that_hold_bytes_of_it(world: World) -> None:
    told: list[int] = []

    async def take_one_and_stall(replies: AsyncIterator[Any]) -> None:
        async for reply in replies:
            told.append(len(reply.entries))
            await asyncio.Event().wait()

    holds, holds_nothing = (
        asyncio.create_task(take_one_and_stall(world.watch(size))) for size in (MEBIBYTE, 0)
    )
    await world.until(lambda: len(told) == 2)
    world.servicer.relieve(world.lanes.reads, stuck_seconds=0)
    await asyncio.gather(holds, return_exceptions=True)
    assert sorted(told) == [0, 5]
    assert world.lanes.reads.held_bytes == 0
    assert world.counters.connections_swept == 1
    assert holds.cancelled()
    assert not holds_nothing.cancelling(), "to end it makes no room"
    holds_nothing.cancel()
    await asyncio.gather(holds_nothing, return_exceptions=True)


@pytest.fixture
async def server(world: World) -> AsyncIterator[GrpcServer]:
    server = GrpcServer(world.settings, world.servicer)
    yield server
    await server.stop(drain_timeout_ms=100)


@pytest.fixture
async def served(server: GrpcServer) -> int:
    return await server.start()


async def test_replies_that_are_not_taken_make_room_for_others(world: World, served: int) -> None:
    lane = world.lanes.reads
    request = pb.BatchReadRequest(
        ledger_id=LEDGER, first_entry_id=0, count_max=5, size_bytes_max=3 * MEBIBYTE
    ).SerializeToString()
    watch = pb.WatchLacRequest(
        ledger_id=WATCHED, previous=-1, entries_size_bytes_max=1 << 20
    ).SerializeToString()
    with RawHttp2(served) as stuck:
        stuck.call("BatchRead", request)
        stuck.call("WatchLac", watch)
        await world.until(lambda: lane.held_bytes >= 2 * MEBIBYTE + 500_000)
        world.servicer.relieve(lane, stuck_seconds=60)
        assert lane.held_bytes >= 2 * MEBIBYTE, "it is not stuck yet"
        await asyncio.sleep(0)
        world.servicer.relieve(world.lanes.adds, stuck_seconds=0)
        assert lane.held_bytes >= 2 * MEBIBYTE, "that lane has nothing of it"
        world.servicer.relieve(lane, stuck_seconds=0)
        world.servicer.relieve(lane, stuck_seconds=0)
        assert lane.held_bytes >= 2 * MEBIBYTE, "the library keeps it until there is no connection"
        await world.until(lambda: lane.held_bytes == 0)
        assert world.counters.connections_swept == 1
        assert await asyncio.to_thread(is_closed, stuck.socket)
        assert (await world.batch(Call())).code == OK


async def test_nothing_is_left_of_replies_that_are_not_taken(world: World, served: int) -> None:
    request = pb.BatchReadRequest(
        ledger_id=LEDGER, first_entry_id=0, count_max=5, size_bytes_max=3 * MEBIBYTE
    ).SerializeToString()
    read = pb.ReadRequest(request_id=1, ledger_id=LEDGER, entry_id=0).SerializeToString()
    lane, process = world.lanes.reads, psutil.Process()
    before_bytes = process.memory_info().rss
    for number in range(40):
        with RawHttp2(served) as stuck:
            stuck.call(*(("Read", read) if number % 4 == 0 else ("BatchRead", request)))
            await world.until(lambda: lane.held_bytes > MEBIBYTE)
            await world.until(lambda: _is_relieved(world))
            assert await asyncio.to_thread(is_closed, stuck.socket)
    # Each took 1 to 3 MB. Threads of gRPC free them.
    await world.until(lambda: process.memory_info().rss - before_bytes < 40 * MEBIBYTE)


def _is_relieved(world: World) -> bool:
    world.servicer.relieve(world.lanes.reads, stuck_seconds=0)
    return world.lanes.reads.held_bytes == 0


BATCH = pb.BatchReadRequest(
    ledger_id=LEDGER, first_entry_id=0, count_max=5, size_bytes_max=3 * MEBIBYTE
).SerializeToString()
READ = pb.ReadRequest(request_id=1, ledger_id=LEDGER, entry_id=0).SerializeToString()
WATCH = pb.WatchLacRequest(
    ledger_id=WATCHED, previous=-1, entries_size_bytes_max=MEBIBYTE
).SerializeToString()
LIST = pb.ListEntriesRequest(ledger_id=LEDGER).SerializeToString()
READ_LAC = pb.ReadLacRequest(ledger_id=WATCHED).SerializeToString()


@pytest.mark.parametrize(
    ("method", "request_"),
    [("BatchRead", BATCH), ("Read", READ), ("WatchLac", WATCH), ("ReadLac", READ_LAC)],
)
async def test_a_call_keeps_its_place_until_its_reply_is_taken_and_is_ended_with_its_connection(
    world: World, server: GrpcServer, served: int, method: str, request_: bytes
) -> None:
    """Otherwise replies in the library without a place or bytes would have no limit."""
    server.call_slots.count_max = 2
    lane = world.lanes.reads
    with RawHttp2(served) as greedy, RawHttp2(served) as other:
        for _ in range(2):
            greedy.call(method, request_)
        await world.until(lambda: world.counters.answers[Code.OK] == 2)
        for _ in range(1_000):
            await asyncio.sleep(0)
        assert server.call_slots.count == 2
        held_bytes = lane.held_bytes
        assert held_bytes > MEBIBYTE // 2 or method == "ReadLac"
        other.call("ReadLac", READ_LAC)
        await world.until(lambda: server.call_slots.ended == 1)
        assert lane.held_bytes == held_bytes
        assert await asyncio.to_thread(is_closed, greedy.socket)
        await world.until(lambda: lane.held_bytes == 0)
    await world.until(lambda: server.call_slots.count == 0)


@pytest.mark.parametrize(
    ("method", "request_"), [("ListEntries", LIST), ("Read", READ), ("WatchLac", WATCH)]
)
async def test_a_reply_that_waits_for_its_turn_is_not_one_that_its_client_does_not_take(
    world: World, served: int, method: str, request_: bytes
) -> None:
    world.storage.go_on.set()
    lane, turns = world.lanes.reads, world.servicer._turns._lock
    with RawHttp2(served) as peer:
        async with turns:
            peer.call(method, request_)
            await world.until(lambda: bool(turns._waiters))
            assert lane.held_bytes > 60_000
            world.servicer.relieve(lane, stuck_seconds=0)
            assert world.counters.connections_swept == 0
        await world.until(lambda: _is_relieved(world))
        assert world.counters.connections_swept > 0


async def test_a_large_reply_that_is_given_up_before_its_turn_gives_its_bytes_back(
    world: World,
) -> None:
    world.storage.go_on.set()
    turns = world.servicer._turns._lock
    async with turns:
        replies = [world.list(Call()), asyncio.create_task(_first_of_watch(world))]
        await world.until(lambda: len(turns._waiters or ()) == len(replies))
        for reply in replies:
            reply.cancel()
        await asyncio.gather(*replies, return_exceptions=True)
    assert world.lanes.reads.held_bytes == 0


async def test_a_half_request_behind_a_reply_that_is_not_taken_ends_with_its_connection(
    world: World, served: int
) -> None:
    lane = world.lanes.adds
    whole = pb.AppendRequest(request_id=1).SerializeToString()
    half = pb.AppendRequest(request_id=2, more_size_bytes=MEBIBYTE).SerializeToString()
    with RawHttp2(served) as peer:
        peer.begin_with("Append", whole, half)
        await world.until(lambda: lane.held_bytes > MEBIBYTE)
        world.servicer.relieve(lane, stuck_seconds=0)
        assert await asyncio.to_thread(is_closed, peer.socket)
        await world.until(lambda: lane.held_bytes == 0)
    assert world.counters.connections_swept == 1
