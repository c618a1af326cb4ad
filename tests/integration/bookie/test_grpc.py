"""The gRPC services of a bookie process: control, health, reflection, and refused calls."""

from __future__ import annotations

import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from grpc.aio import EOF  # type: ignore[attr-defined]  # the stubs of grpc lack it
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from ledgerlog_spark.model import Code
from ledgerlog_spark.transport import control_pb2 as pb
from ledgerlog_spark.transport import control_pb2_grpc
from ledgerlog_spark.wire.answers import AddAnswer
from ledgerlog_spark.wire.requests import encode_read, encode_tell_lac
from tests.fixtures.bookie_process import CODEC, KEY, add_frame, add_run_frame, stored_entry

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.fixtures.bookie_process import BookieProcess, Peer

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]


@asynccontextmanager
async def _channel(bookie: BookieProcess) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{bookie.grpc_port}") as channel:
        yield channel


@pytest.fixture
async def stub(bookie: BookieProcess) -> AsyncIterator[Any]:
    async with _channel(bookie) as channel:
        yield control_pb2_grpc.BookieStub(channel)


def _append(ledger_id: int, entry_ids: list[int], request_id: int = 1, /, **changes: Any) -> Any:
    entries = [stored_entry(ledger_id, entry_id, b"grpc") for entry_id in entry_ids]
    fields: dict[str, Any] = {
        "request_id": request_id,
        "ledger_id": ledger_id,
        "entry_ids": entry_ids,
        "lengths": [len(entry) for entry in entries],
        "body": b"".join(entries),
        "master_key": KEY,
    }
    return pb.AppendRequest(**(fields | changes))


async def _replies(call: Any) -> dict[int, Any]:
    return {reply.request_id: reply async for reply in call}


async def test_health_says_that_the_bookie_serves(bookie: BookieProcess) -> None:
    async with _channel(bookie) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for name in ("", "ledgerlog.v1.Bookie"):
            answer = await health.Check(health_pb2.HealthCheckRequest(service=name))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_reflection_lists_the_service(bookie: BookieProcess) -> None:
    async with _channel(bookie) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        (answer,) = [each async for each in stub.ServerReflectionInfo(iter([request]))]
    names = {service.name for service in answer.list_services_response.service}
    assert {"ledgerlog.v1.Bookie", "grpc.health.v1.Health"} <= names


async def test_entries_appended_by_grpc_are_read_by_both_protocols(
    stub: Any, peer: Peer, ledger_id: int
) -> None:
    replies = await _replies(
        stub.Append(iter([_append(ledger_id, [0, 1, 2], 1), _append(ledger_id, [3], 2)]))
    )
    assert {number: reply.code for number, reply in replies.items()} == {1: 0, 2: 0}
    assert peer.read(encode_read(ledger_id, 3)) == stored_entry(ledger_id, 3, b"grpc")
    reads = [pb.ReadRequest(request_id=n, ledger_id=ledger_id, entry_id=n) for n in range(5)]
    found = await _replies(stub.Read(iter(reads)))
    assert found[2].entry == stored_entry(ledger_id, 2, b"grpc")
    assert found[4].code == pb.CODE_NO_ENTRY
    batch = await stub.BatchRead(
        pb.BatchReadRequest(
            ledger_id=ledger_id, first_entry_id=1, count_max=10, size_bytes_max=1 << 20
        )
    )
    assert [CODEC.decode(entry, ledger_id, -1).payload for entry in batch.entries] == [b"grpc"] * 3


async def test_fencing_by_grpc_stops_adds_by_v2(stub: Any, peer: Peer, ledger_id: int) -> None:
    assert peer.ask(add_frame(ledger_id, 0, b"x")).code is Code.OK
    request = pb.ReadRequest(request_id=1, ledger_id=ledger_id, entry_id=-1, fence_key=KEY)
    assert (await _replies(stub.Read(iter([request]))))[1].code == pb.CODE_OK
    assert peer.ask(add_frame(ledger_id, 1, b"x")).code is Code.FENCED


@pytest.mark.parametrize(
    "changes",
    [
        {"entry_ids": []},
        {"entry_ids": [0, 1]},
        {"entry_ids": [-1]},
        {"entry_ids": [7]},
        {"lengths": [4]},
        {"lengths": []},
        {"body": b""},
        {"body": bytes(40)},
        {"master_key": b"short"},
        {"ledger_id": -5},
    ],
    ids=str,
)
async def test_append_that_does_not_add_up_is_refused_and_the_stream_lives(
    stub: Any, peer: Peer, ledger_id: int, changes: dict[str, Any]
) -> None:
    bad = _append(ledger_id, [0], 1, **changes)
    replies = await _replies(stub.Append(iter([bad, _append(ledger_id, [5], 2)])))
    assert replies[1].code == pb.CODE_BAD_REQUEST
    assert replies[2].code == pb.CODE_OK
    assert peer.ask(encode_read(ledger_id, 0)).code is Code.NO_ENTRY


@pytest.mark.parametrize(
    "request_",
    [
        pb.ReadRequest(request_id=1, ledger_id=-1),
        pb.ReadRequest(request_id=1, ledger_id=1, entry_id=-2),
        pb.ReadRequest(request_id=1, ledger_id=1, fence_key=b"short"),
    ],
    ids=str,
)
async def test_bad_read_is_refused(stub: Any, request_: Any) -> None:
    assert (await _replies(stub.Read(iter([request_]))))[1].code == pb.CODE_BAD_REQUEST


async def test_last_add_confirmed_is_what_adds_carried(
    stub: Any, peer: Peer, ledger_id: int
) -> None:
    assert peer.ask(add_run_frame(ledger_id, range(6), b"x", request_id=1)).code is Code.OK
    reply = await stub.ReadLac(pb.ReadLacRequest(ledger_id=ledger_id))
    assert (reply.code, reply.last_add_confirmed) == (pb.CODE_OK, 4)
    missing = await stub.ReadLac(pb.ReadLacRequest(ledger_id=ledger_id + 500_000))
    assert missing.code == pb.CODE_NO_LEDGER


async def test_explicit_last_add_confirmed_wakes_those_who_watch(
    stub: Any, peer: Peer, ledger_id: int
) -> None:
    assert peer.ask(add_run_frame(ledger_id, range(6), b"x", request_id=1)).code is Code.OK
    watch = stub.WatchLac(pb.WatchLacRequest(ledger_id=ledger_id, previous=-1))
    assert (await watch.read()).last_add_confirmed == 4
    request = pb.WriteLacRequest(
        request_id=7, ledger_id=ledger_id, last_add_confirmed=5, master_key=KEY
    )
    assert (await _replies(stub.WriteLac(iter([request]))))[7].code == pb.CODE_OK
    assert (await watch.read()).last_add_confirmed == 5
    watch.cancel()


async def test_told_last_add_confirmed_wakes_those_who_watch_and_is_not_answered(
    stub: Any, peer: Peer, ledger_id: int
) -> None:
    assert peer.ask(add_run_frame(ledger_id, range(6), b"x", request_id=1)).code is Code.OK
    watch = stub.WatchLac(
        pb.WatchLacRequest(ledger_id=ledger_id, previous=4, entries_size_bytes_max=1_000)
    )
    await watch.initial_metadata()
    peer.send(encode_tell_lac(ledger_id, 5, b"o" * 20))
    peer.send(encode_tell_lac(ledger_id, 5, KEY))
    told = await watch.read()
    assert told.last_add_confirmed == 5
    assert list(told.entries) == [stored_entry(ledger_id, 5, b"x")]
    assert peer.ask(add_frame(ledger_id, 6, b"x")) == AddAnswer(Code.OK, ledger_id, 6)
    watch.cancel()


async def test_explicit_last_add_confirmed_needs_the_key(
    stub: Any, peer: Peer, ledger_id: int
) -> None:
    peer.ask(add_frame(ledger_id, 0, b"x"))
    for key, code in ((b"o" * 20, pb.CODE_UNAUTHORIZED), (b"", pb.CODE_BAD_REQUEST)):
        request = pb.WriteLacRequest(
            request_id=3, ledger_id=ledger_id, last_add_confirmed=0, master_key=key
        )
        assert (await _replies(stub.WriteLac(iter([request]))))[3].code == code


async def test_entries_held_are_listed_as_ranges(stub: Any, peer: Peer, ledger_id: int) -> None:
    peer.ask(add_run_frame(ledger_id, range(5), b"x", request_id=1))
    peer.ask(add_run_frame(ledger_id, range(8, 10), b"x", request_id=2))
    reply = await stub.ListEntries(pb.ListEntriesRequest(ledger_id=ledger_id))
    ranges = [(each.first_entry_id, each.last_entry_id) for each in reply.ranges]
    assert ranges == [(0, 4), (8, 9)]


async def test_info_names_the_bookie_and_its_state(stub: Any, bookie: BookieProcess) -> None:
    info = await stub.GetInfo(pb.GetInfoRequest())
    assert info.bookie_id == f"127.0.0.1:{bookie.port}"
    assert info.is_writable
    assert info.failure == ""
    assert 0 < info.free_bytes <= info.total_bytes
    assert info.ledgers_in_limbo == 0


async def test_message_beyond_the_limit_is_refused_and_others_are_served(
    stub: Any, bookie: BookieProcess, ledger_id: int
) -> None:
    huge = _append(ledger_id, [0], 1, body=bytes(6 << 20))
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await _replies(stub.Append(iter([huge])))
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    async with _channel(bookie) as channel:
        other = control_pb2_grpc.BookieStub(channel)
        replies = await _replies(other.Append(iter([_append(ledger_id, [0])])))
        assert replies[1].code == pb.CODE_OK


async def test_bytes_that_are_no_grpc_harm_nobody(bookie: BookieProcess, stub: Any) -> None:
    for data in (b"GET / HTTP/1.1\r\n\r\n", bytes(100), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff"):
        with socket.create_connection(("127.0.0.1", bookie.grpc_port), timeout=10) as raw:
            raw.sendall(data)
    assert (await stub.GetInfo(pb.GetInfoRequest())).is_writable


async def test_stop_ends_open_watches(make_bookie: Any) -> None:
    bookie = make_bookie().start()
    with bookie.peer() as peer:
        assert peer.ask(add_run_frame(1, range(3), b"x", request_id=1)).code is Code.OK
    async with _channel(bookie) as channel:
        stub = control_pb2_grpc.BookieStub(channel)
        watch = stub.WatchLac(pb.WatchLacRequest(ledger_id=1, previous=-1))
        assert (await watch.read()).last_add_confirmed == 1
        assert bookie.stop() == 0
        assert await watch.read() is EOF


async def test_watches_are_bounded_and_one_connection_does_not_get_all_of_them(
    make_bookie: Callable[..., BookieProcess],
) -> None:
    bookie = make_bookie(watches_max=8).start()
    request = pb.WatchLacRequest(ledger_id=7, previous=-1)
    own = (("grpc.use_local_subchannel_pool", 1),)
    address = f"127.0.0.1:{bookie.grpc_port}"
    async with (
        grpc.aio.insecure_channel(address, options=own) as greedy,
        grpc.aio.insecure_channel(address, options=own) as modest,
    ):
        stub = control_pb2_grpc.BookieStub(greedy)
        watches = []
        for _ in range(8):  # one after the other: the server has them in this order, too
            watches.append(stub.WatchLac(request))
            assert await watches[-1].initial_metadata() is not None
        refused = [reply async for reply in stub.WatchLac(request)]
        assert [reply.code for reply in refused] == [pb.CODE_BUSY]
        other = control_pb2_grpc.BookieStub(modest).WatchLac(request)
        assert await other.initial_metadata() is not None
        assert [reply async for reply in watches[-1]] == [], "the newest of who has most ended"
        info = await control_pb2_grpc.BookieStub(modest).GetInfo(pb.GetInfoRequest())
        assert info.is_writable
        other.cancel()
        for watch in watches:
            watch.cancel()
