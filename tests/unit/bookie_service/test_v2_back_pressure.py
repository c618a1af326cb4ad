"""The requests that wait, continue or get BUSY if the storage is too slow."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from bookie_server.config import CONNECTION_RESERVE_BYTES, BookieSettings
from bookie_server.core.record_codec import CHUNK_SIZE
from bookie_server.core.requests import StoredSliceRead
from bookie_server.service.limits.lanes import REQUEST_OVERHEAD_BYTES, Lanes
from bookie_server.service.metrics.counters import ServiceCounters
from bookie_server.service.v2 import connection as v2_connection
from bookie_server.service.v2 import shared as v2_shared
from bookie_server.service.v2.server import V2Server, listen
from ledgerlog_spark.model import SLICE_RANGES_MAX, Code
from ledgerlog_spark.testing.bookie import MemoryStorage
from ledgerlog_spark.wire.answers import decode_answer
from ledgerlog_spark.wire.requests import (
    encode_auth,
    encode_batch_read,
    encode_read,
    encode_tell_lac,
)
from ledgerlog_spark.wire.slice_requests import encode_read_slices
from tests.contract.transport_bookies import HeldStorage
from tests.fixtures.bookie_process import KEY, add_frame
from tests.fixtures.slice_frames import FIELDS_SIZE_BYTES, MALFORMED, WHOLE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

MEBIBYTE = 1 << 20
CONNECTIONS_MAX = 32
SHARED_BYTES = 32 * MEBIBYTE
RECOVERY = 6
HIGH_PRIORITY = 4


class SlowBookie:
    """A server whose storage answers on command."""

    def __init__(self, directory: Path) -> None:
        self.settings = BookieSettings(
            directories=(directory,),
            port=0,
            bookie_id="b",
            connections_max=CONNECTIONS_MAX,
            frame_size_bytes_max=MEBIBYTE + 4_096,
            in_flight_bytes_max=CONNECTIONS_MAX * CONNECTION_RESERVE_BYTES + SHARED_BYTES,
        )
        self.storage = HeldStorage(MemoryStorage())
        self.lanes = Lanes.of(self.settings)
        self.counters = ServiceCounters()
        shared = v2_shared.V2Shared(self.settings, self.storage, self.lanes, self.counters)
        self.server = V2Server(self.settings, shared)
        self.port = 0
        self.writers: list[asyncio.StreamWriter] = []

    @property
    def waiting_count(self) -> int:
        """Number of connections that wait for memory or for the disk."""
        return sum(lane.waiting_count for lane in self.lanes.all)

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
    """Open connections that each send 20 MiB of adds, and wait until the bookie takes no more."""
    clients = [await bookie.connect() for _ in range(connections)]
    for number, client in enumerate(clients):
        for entry_id in range(20):
            client.send(add_frame(100 + number, entry_id, bytes(MEBIBYTE - 64)))
    await bookie.until(lambda: bookie.waiting_count == connections)
    return clients


async def test_adds_beyond_the_bound_wait_and_are_all_answered_in_the_end(
    bookie: SlowBookie,
) -> None:
    clients = await _fill(bookie)
    assert bookie.lanes.adds.shared_bytes <= SHARED_BYTES // 2
    assert bookie.counters.add_requests < 20
    bookie.storage.release()
    for client in clients:
        codes = {(await client.answer()).code for _ in range(20)}
        assert codes == {Code.OK}
    await bookie.until(lambda: not any(lane.shared_bytes for lane in bookie.lanes.all))
    assert not bookie.waiting_count


async def test_one_connection_leaves_most_of_the_lane_to_others(bookie: SlowBookie) -> None:
    await _fill(bookie, connections=1)
    assert bookie.lanes.adds.free_bytes >= SHARED_BYTES // 4
    assert bookie.lanes.writes.shared_bytes <= bookie.lanes.writes.size_bytes_max


async def test_a_small_add_is_accepted_while_the_lane_is_full(bookie: SlowBookie) -> None:
    await _fill(bookie)
    other = await bookie.connect()
    bookie.lanes.adds.share("others").force(bookie.lanes.adds.free_bytes)
    bookie.lanes.writes.share("others").force(bookie.lanes.writes.free_bytes)
    other.send(add_frame(501, 0, bytes(60_000)))
    await bookie.until(lambda: bookie.waiting_count == 4)
    assert bookie.lanes.writes.waiting[0].wanted_bytes < 70_000, "who wants little is first"
    accepted = bookie.counters.add_requests
    bookie.storage.held.pop(0)()
    await bookie.until(lambda: bookie.counters.add_requests > accepted)
    bookie.storage.release()
    assert (await other.answer()).code is Code.OK


async def test_fencing_and_recovery_pass_adds_that_wait(bookie: SlowBookie) -> None:
    await _fill(bookie)
    bookie.lanes.adds.share("others").force(bookie.lanes.adds.free_bytes)
    bookie.storage.is_holding = False
    recovery = await bookie.connect()
    recovery.send(encode_read(500, -1, fence_key=KEY))
    assert (await recovery.answer()).code.is_absent
    for entry_id in range(3):
        recovery.send(add_frame(500, entry_id, bytes(MEBIBYTE - 64), flags=RECOVERY))
        assert (await recovery.answer()).code is Code.OK
    recovery.send(encode_read(500, 2, flags=HIGH_PRIORITY))
    assert (await recovery.answer()).code is Code.OK


async def test_a_request_does_not_wait_for_the_memory_that_it_lies_in(bookie: SlowBookie) -> None:
    bookie.storage.release()
    client = await bookie.connect()
    client.send(add_frame(1, 0, bytes(200_000)))
    assert (await client.answer()).code is Code.OK
    (connection,) = bookie.server._connections
    share = connection.shares.adds
    assert share.held_bytes > share.reserve_bytes
    bookie.lanes.adds.share("others").force(bookie.lanes.adds.free_bytes)
    assert not share.allowance_bytes
    client.send(encode_tell_lac(1, 0, KEY) + add_frame(1, 1, b"behind it"))
    assert (await client.answer()).entry_id == 1
    assert not bookie.waiting_count


REQUESTS = {
    "add": add_frame(1, 0, b"x"),
    "read": encode_read(1, 0),
    "batch read": encode_batch_read(1, 0, request_id=1, count_max=1, size_bytes_max=100),
    "TELL_LAC": encode_tell_lac(1, 0, KEY),
    "AUTH": encode_auth(b"\x0a\x00"),
}


@pytest.mark.parametrize("name", REQUESTS)
async def test_who_sent_any_request_is_not_closed_as_silent(bookie: SlowBookie, name: str) -> None:
    """A TELL_LAC gets no answer, but is a request too."""
    bookie.storage.release()
    client, silent = await bookie.connect(), await bookie.connect()
    client.send(REQUESTS[name])
    await bookie.until(lambda: bookie.server.connections_count == 2)
    connections = bookie.server._connections
    await bookie.until(lambda: any(each.frames_received and each.is_idle for each in connections))
    late = asyncio.get_running_loop().time() + bookie.settings.first_request_timeout_ms
    bookie.server.sweeper._clock = lambda: late
    bookie.server.sweeper.sweep()
    assert await silent.reader.read() == b""
    (left,) = connections
    assert left.frames_received == 1
    assert left.is_proven
    assert left.host in bookie.server._shared.known_hosts


async def test_a_frame_that_is_no_request_proves_nothing(bookie: SlowBookie) -> None:
    client = await bookie.connect()
    client.send(encode_auth(b"no message"))
    assert await client.reader.read() == b""
    assert "127.0.0.1" not in bookie.server._shared.known_hosts


async def test_reads_pass_adds_that_wait(bookie: SlowBookie) -> None:
    bookie.storage.is_holding = False
    peer = await bookie.connect()
    peer.send(add_frame(500, 0, bytes(20_000)))
    assert (await peer.answer()).code is Code.OK
    bookie.storage.is_holding = True
    await _fill(bookie)
    bookie.storage.is_holding = False
    peer.send(encode_read(500, 0))
    assert (await peer.answer()).code is Code.OK


async def test_adds_pass_answers_that_nobody_takes_and_batches_are_cut_short(
    bookie: SlowBookie,
) -> None:
    bookie.storage.release()
    bookie.lanes.reads.share("others").force(bookie.lanes.reads.free_bytes)
    peer = await bookie.connect()
    for entry_id in range(3):
        peer.send(add_frame(500, entry_id, bytes(20_000)))
        assert (await peer.answer()).code is Code.OK
        peer.send(encode_read(500, entry_id))
        assert (await peer.answer()).code is Code.OK
    batch = encode_batch_read(500, 0, request_id=1, count_max=3, size_bytes_max=MEBIBYTE)
    peer.send(batch)
    answer = await peer.answer()
    assert (answer.code, len(answer.entries)) == (Code.OK, 1), "a short answer, and not a wait"


async def test_a_frame_larger_than_any_request_for_slices_is_refused_and_holds_up_nobody(
    bookie: SlowBookie,
) -> None:
    bookie.storage.release()
    peer = await bookie.connect()
    peer.send(add_frame(500, 0, bytes(20_000)))
    assert (await peer.answer()).code is Code.OK
    largest = [(0, [(2 * at, 1) for at in range(SLICE_RANGES_MAX)])]
    frame = encode_read_slices(500, largest, request_id=1, size_bytes_max=MEBIBYTE)
    peer.send(frame)
    assert (await peer.answer()).code is Code.OK
    body = frame[4:] + bytes(MEBIBYTE - len(frame))
    peer.send(len(body).to_bytes(4, "big") + body)
    assert (await peer.answer()).code is Code.BAD_REQUEST
    other = await bookie.connect()
    other.send(encode_read(500, 0))
    assert (await other.answer()).code is Code.OK


async def test_a_request_for_slices_holds_its_own_memory_beside_that_of_its_answer(
    bookie: SlowBookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request copies slices from chunks, and has lists of numbers after decoding."""
    memory: Any = bookie.storage.storage
    inner, seen = memory.read_slices, []

    def noted(request: StoredSliceRead, on_done: Any) -> None:
        seen.append((request.size_bytes_max, bookie.lanes.reads.held_bytes))
        inner(request, on_done)

    monkeypatch.setattr(memory, "read_slices", noted)
    bookie.storage.is_holding = False
    peer = await bookie.connect()
    for entry_id, size in enumerate((20_000, 20_000, 20_000, 500_000)):
        peer.send(add_frame(500, entry_id, bytes(size)))
        assert (await peer.answer()).code is Code.OK
    peer.send(encode_read(500, 3))  # a peer that has taken much may hold the same amount again
    assert (await peer.answer()).code is Code.OK
    wanted = [(entry_id, [(64 * at, 20) for at in range(300)]) for entry_id in range(3)]
    frame = encode_read_slices(500, wanted, request_id=1, size_bytes_max=100_000)
    own = 16 * (len(frame) - 4) + CHUNK_SIZE
    peer.send(frame)
    assert len((await peer.answer()).slices) == 3
    assert seen.pop() == (100_000, 100_000 + REQUEST_OVERHEAD_BYTES + own)
    # The room that the request itself needs is never used for entries.
    others = bookie.lanes.reads.share("others")
    others.force(bookie.lanes.reads.free_bytes - 2 * own - 50_000)
    peer.send(frame)
    answer = await peer.answer()
    assert (answer.code, len(answer.slices)) == (Code.OK, 3)
    size_bytes_max, held_bytes = seen.pop()
    assert size_bytes_max == held_bytes - others.held_bytes - own - REQUEST_OVERHEAD_BYTES
    assert size_bytes_max < 100_000
    others.give_back(others.held_bytes)
    assert bookie.lanes.reads.held_bytes == 0


async def test_whole_entries_and_slices_are_counted_apart(bookie: SlowBookie) -> None:
    bookie.storage.release()
    peer = await bookie.connect()
    for entry_id in range(3):
        peer.send(add_frame(500, entry_id, bytes(1_000)))
        assert (await peer.answer()).code is Code.OK
    size = len(bookie.storage.storage.ledgers[500].entries[0])

    def counted() -> tuple[int, ...]:
        found = bookie.counters
        whole = found.read_requests, found.read_entries, found.read_bytes
        return (*whole, found.slice_requests, found.slice_entries, found.slice_bytes)

    peer.send(encode_read(500, 0))
    assert (await peer.answer()).code is Code.OK
    assert counted() == (1, 1, size, 0, 0, 0)
    peer.send(encode_batch_read(500, 0, request_id=1, count_max=3, size_bytes_max=0))
    assert len((await peer.answer()).entries) == 3
    assert counted() == (2, 4, 4 * size, 0, 0, 0)
    wanted = [(entry_id, [(0, 40), (50, 7)]) for entry_id in range(2)]
    peer.send(encode_read_slices(500, wanted, request_id=2, size_bytes_max=0))
    assert len((await peer.answer()).slices) == 2
    assert counted() == (3, 4, 4 * size, 1, 2, 94)
    peer.send(encode_read_slices(501, wanted, request_id=3, size_bytes_max=0))
    assert (await peer.answer()).code is Code.NO_LEDGER
    assert counted() == (4, 4, 4 * size, 2, 2, 94)


@pytest.mark.parametrize("kind", MALFORMED)
async def test_a_malformed_request_for_slices_is_refused_and_its_connection_stays(
    bookie: SlowBookie, kind: str
) -> None:
    bookie.storage.release()
    peer = await bookie.connect()
    body = MALFORMED[kind]
    peer.send(len(body).to_bytes(4, "big") + body)
    answer = await peer.answer()
    assert (answer.code, answer.ledger_id, answer.request_id) == (Code.BAD_REQUEST, 500, 6)
    assert bookie.counters.bad_frames == 1
    peer.send(add_frame(500, 0, b"x"))
    assert (await peer.answer()).code is Code.OK


async def test_a_request_for_slices_without_its_fields_ends_its_connection(
    bookie: SlowBookie,
) -> None:
    """This is the same for frames of all other operations."""
    for size in (FIELDS_SIZE_BYTES - 1, 30, 4):
        peer = await bookie.connect()
        peer.send(size.to_bytes(4, "big") + WHOLE[:size])
        assert await peer.reader.read() == b""


async def test_an_answer_that_cannot_be_held_is_told_busy(bookie: SlowBookie) -> None:
    bookie.storage.release()
    peer = await bookie.connect()
    peer.send(add_frame(500, 0, bytes(MEBIBYTE - 64)))
    assert (await peer.answer()).code is Code.OK
    others = bookie.lanes.reads.share("others")
    others.force(bookie.lanes.reads.free_bytes)
    peer.send(encode_read(500, 0))
    assert (await peer.answer()).code is Code.BUSY
    assert bookie.lanes.reads.refusals == 1
    batch = encode_batch_read(500, 0, request_id=7, count_max=1, size_bytes_max=MEBIBYTE)
    peer.send(batch)
    answer = await peer.answer()
    assert (answer.code, answer.request_id) == (Code.BUSY, 7)
    others.give_back(others.held_bytes)
    peer.send(encode_read(500, 0))
    assert (await peer.answer()).code is Code.OK


async def test_a_batch_that_was_refused_for_its_size_waits_in_line_when_it_is_retried(
    bookie: SlowBookie,
) -> None:
    """Otherwise it would be refused as long as others keep the lane half full."""
    bookie.storage.release()
    peer = await bookie.connect()
    for entry_id in range(2):
        peer.send(add_frame(500, entry_id, bytes(MEBIBYTE - 64)))
        assert (await peer.answer()).code is Code.OK
    reads = bookie.lanes.reads
    others = reads.share("others")
    others.force(reads.free_bytes * 3 // 4)
    batch = encode_batch_read(500, 0, request_id=7, count_max=2, size_bytes_max=1_000)
    peer.send(batch)
    assert (await peer.answer()).code is Code.BUSY
    peer.send(batch)
    await bookie.until(lambda: bookie.waiting_count == 1)
    later = reads.share("others")
    assert not later.take(2 * MEBIBYTE), "what comes free is for who waits"
    others.give_back(others.held_bytes)
    answer = await peer.answer()
    assert (answer.code, len(answer.entries)) == (Code.OK, 1), "no more than was asked for"
    await bookie.until(lambda: reads.held_bytes == 0)


async def test_a_read_that_was_refused_for_its_size_waits_in_line_when_it_is_retried(
    bookie: SlowBookie,
) -> None:
    """The bytes that an answer took, or needed, are reserved for the next answer."""
    bookie.storage.release()
    peer = await bookie.connect()
    peer.send(add_frame(500, 0, bytes(MEBIBYTE - 64)))
    assert (await peer.answer()).code is Code.OK
    reads = bookie.lanes.reads
    others = reads.share("others")
    others.force(reads.free_bytes)
    peer.send(encode_read(500, 0))
    assert (await peer.answer()).code is Code.BUSY
    peer.send(encode_read(500, 0))
    await bookie.until(lambda: bookie.waiting_count == 1)
    assert reads.refusals == 1
    others.give_back(others.held_bytes)
    assert (await peer.answer()).code is Code.OK
    await bookie.until(lambda: reads.held_bytes == 0)


async def test_peer_that_leaves_gives_its_bytes_back(bookie: SlowBookie) -> None:
    clients = await _fill(bookie)
    for client in clients:
        client.writer.transport.abort()
    bookie.storage.release()
    await bookie.until(lambda: bookie.server.connections_count == 0)
    await bookie.until(lambda: bookie.lanes.held_bytes == 0)
    assert not bookie.waiting_count


async def test_what_storage_has_to_write_counts_although_its_connection_is_gone(
    bookie: SlowBookie,
) -> None:
    await _fill(bookie)
    for connection in list(bookie.server._connections):
        connection.close(is_abrupt=True)
    assert bookie.lanes.adds.shared_bytes > MEBIBYTE
    assert not bookie.waiting_count
    bookie.storage.release()
    await bookie.until(lambda: bookie.lanes.held_bytes == 0)


async def test_memory_counts_for_as_long_as_an_add_in_it_is_open(bookie: SlowBookie) -> None:
    client = await bookie.connect()
    client.send(add_frame(1, 0, b"not written yet"))
    await bookie.until(lambda: bookie.counters.add_requests == 1)
    (connection,) = bookie.server._connections
    held_bytes = bookie.lanes.adds.held_bytes
    assert held_bytes == len(connection.memory.frames.buffer)
    bookie.server.sweeper.sweep()
    assert bookie.lanes.adds.held_bytes == held_bytes
    bookie.storage.release()
    assert (await client.answer()).code is Code.OK
    await bookie.until(lambda: connection.is_idle)
    bookie.server.sweeper.sweep()
    assert bookie.lanes.held_bytes == 0


async def test_a_connection_whose_requests_wait_is_not_idle(bookie: SlowBookie) -> None:
    bookie.storage.release()
    writes = bookie.lanes.writes.share("others")
    writes.force(bookie.lanes.writes.free_bytes)
    client = await bookie.connect()
    client.send(add_frame(1, 0, b"in line"))
    await bookie.until(lambda: bookie.waiting_count == 1)
    (connection,) = bookie.server._connections
    assert not connection.is_idle, "its place would be given to a newcomer"
    writes.give_back(writes.held_bytes)
    assert (await client.answer()).code is Code.OK
    await bookie.until(lambda: connection.is_idle)


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


async def test_stop_takes_what_a_peer_that_waits_still_sends_and_drops_it(
    bookie: SlowBookie,
) -> None:
    """If a socket is closed with unread bytes, answers in flight are lost."""
    (client,) = await _fill(bookie, connections=1)
    accepted = bookie.counters.add_requests
    (connection,) = bookie.server._connections
    sent_bytes = 20 * len(add_frame(100, 0, bytes(MEBIBYTE - 64)))
    assert connection.received_bytes < sent_bytes
    stopping = asyncio.create_task(bookie.server.stop(drain_timeout_ms=20_000))
    await bookie.until(lambda: connection.received_bytes == sent_bytes)
    bookie.storage.release()
    assert [(await client.answer()).code for _ in range(accepted)] == [Code.OK] * accepted
    assert await stopping
    assert await client.reader.read() == b""
    assert bookie.counters.add_requests == accepted < 20


async def test_stop_does_not_wait_for_ever(bookie: SlowBookie) -> None:
    client = await bookie.connect()
    client.send(add_frame(1, 0, b"never answered"))
    await bookie.until(lambda: bookie.counters.add_requests == 1)
    assert not await bookie.server.stop(drain_timeout_ms=30)


async def test_version_3_is_refused_in_its_own_terms_and_the_connection_stays(
    bookie: SlowBookie, capfd: pytest.CaptureFixture[str]
) -> None:
    bookie.storage.release()
    request = bytes.fromhex("0a070803100118ac02" + "a20604080510009a060a") + bytes(40)
    for _ in range(3):
        peer = await bookie.connect()
        peer.send(len(request).to_bytes(4, "big") + request)
        async with asyncio.timeout(20):
            answer = await peer.reader.readexactly(16)
        assert answer == bytes.fromhex("0000000c0a070803100118ac0210f703")
        peer.send(add_frame(1, 0, b"x"))
        assert (await peer.answer()).code is Code.OK
    said = "".join(capfd.readouterr())
    assert said.count("useV2WireProtocol=true") == 1


async def test_requests_of_one_connection_take_turns_with_those_of_others(
    bookie: SlowBookie,
) -> None:
    """The bookie does not handle all requests of one peer before those of another peer."""
    bookie.storage.release()
    flood, other = await bookie.connect(), await bookie.connect()
    flood.send(encode_read(7, 7) * 8_000)
    other.send(add_frame(1, 0, b"x"))
    assert (await other.answer()).code is Code.OK
    assert bookie.counters.read_requests < 8_000
    for _ in range(8_000):
        assert (await flood.answer()).code is Code.NO_LEDGER


async def test_slow_requests_of_one_connection_take_many_turns_of_the_loop(
    bookie: SlowBookie, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few bytes may cost much time: a batch of many small records."""
    bookie.storage.release()
    now_seconds, turn = 0.0, 0
    turns: list[int] = []

    def read_batch(request: Any, on_done: Any) -> None:
        nonlocal now_seconds
        now_seconds += 2 * v2_shared.TURNS_SECONDS
        turns.append(turn)
        bookie.storage.storage.read_batch(request, on_done)

    async def count_turns() -> None:
        nonlocal turn
        while True:
            await asyncio.sleep(0)
            turn += 1

    monkeypatch.setattr(bookie.storage, "read_batch", read_batch, raising=False)
    monkeypatch.setattr(v2_connection, "monotonic", lambda: now_seconds)
    monkeypatch.setattr(v2_shared, "time", SimpleNamespace(monotonic=lambda: now_seconds))
    counting = asyncio.create_task(count_turns())
    client = await bookie.connect()
    client.send(encode_batch_read(7, 7, request_id=1, count_max=1_024, size_bytes_max=100) * 40)
    for _ in range(40):
        assert (await client.answer()).code is Code.NO_LEDGER
    counting.cancel()
    assert len(turns) == 40
    assert len(set(turns)) == 40, "each took the time of a whole turn"
