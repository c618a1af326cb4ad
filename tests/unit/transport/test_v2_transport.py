"""Errors that only a transport over connections can make, with a server that can misbehave."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import pytest

from ledgerlog_spark.errors import BookieUnavailableError, WireFormatError
from ledgerlog_spark.model import BookieInfo, Code
from ledgerlog_spark.testing.bookie import MemoryStorage
from ledgerlog_spark.transport.pending import worst
from ledgerlog_spark.transport.port import ReadEntry
from ledgerlog_spark.transport.v2 import link as v2_link
from ledgerlog_spark.transport.v2 import transport as v2_transport
from ledgerlog_spark.transport.v2.connection import UNSENT_BYTES_MAX
from ledgerlog_spark.transport.v2.transport import V2Lane, V2Transport
from ledgerlog_spark.wire import answers
from ledgerlog_spark.wire.requests import (
    AddRequest,
    AddRunRequest,
    BatchReadRequest,
    ReadRequest,
    RefusedRequest,
    Request,
)
from tests.contract.transport_bookies import (
    HeldStorage,
    SmallConnection,
    SmallServer,
    refuse_lacs,
    refuse_runs,
    small_server,
)
from tests.contract.transport_calls import BOOKIE, KEY, Call, Caller, run_of, stored
from tests.fixtures.kinds import all_of, of
from tests.fixtures.ports import free_port

RUNS = {"ledgerlog.ops": "ADD_RUN/1,TELL_LAC/1"}
EXPIRING_MS = 10_000
"""Timeout of the requests for which a test calls `expire`. No other request has this timeout."""


class Registry:
    """A resolver whose answer a test may change."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.properties: dict[str, str] = dict(RUNS)
        self.error: Exception | None = None
        self.lookups = 0

    async def resolve(self, bookie_id: str) -> BookieInfo:
        self.lookups += 1
        if self.error is not None:
            raise self.error
        return BookieInfo(bookie_id, "127.0.0.1", self.port, None, self.properties)


@pytest.fixture
def storage() -> HeldStorage:
    held = HeldStorage(MemoryStorage())
    held.is_holding = False
    return held


@pytest.fixture
async def server(storage: HeldStorage) -> AsyncIterator[SmallServer]:
    async with small_server(storage, takes_runs=True) as server:
        yield server


@pytest.fixture
def registry(server: SmallServer) -> Registry:
    return Registry(server.port)


@pytest.fixture
async def caller(registry: Registry) -> AsyncIterator[Caller]:
    transport = V2Transport(registry.resolve, reconnect_delay_ms_max=50)
    yield Caller(transport)
    await transport.aclose()


def v2(caller: Caller) -> V2Transport:
    assert isinstance(caller.transport, V2Transport)
    return caller.transport


def expire(caller: Caller, lane: V2Lane) -> None:
    """Let all requests of a lane with the timeout `EXPIRING_MS` time out now."""
    deadlines = v2(caller)._links[BOOKIE, lane]._deadlines
    for pending in deadlines._queues[EXPIRING_MS]:
        pending.submitted_at -= EXPIRING_MS / 1e3
    assert deadlines._timer is not None
    deadlines._timer.cancel()
    deadlines._fire()


def sent(server: SmallServer) -> list[Request]:
    return [request for _, request in server.requests]


def kinds(server: SmallServer) -> list[str]:
    return [type(request).__name__ for _, request in server.requests]


def entries_read(server: SmallServer) -> list[int]:
    return [request.entry_id for request in of(ReadRequest, sent(server))]


def once(script: Callable[[SmallConnection, Any], None], kind: type) -> Any:
    """A script that takes the first request of a kind and leaves all others alone."""
    taken: list[Request] = []

    def run(connection: SmallConnection, request: Request) -> bool:
        if taken or not isinstance(request, kind):
            return False
        taken.append(request)
        script(connection, request)
        return True

    return run


def ignore(connection: SmallConnection, request: Request) -> None:
    """Take a request and never answer it."""


async def test_run_goes_as_one_request_to_a_bookie_that_takes_runs(
    caller: Caller, server: SmallServer
) -> None:
    await caller.add(run_of(7, range(5)))
    assert kinds(server) == ["AddRunRequest"]


async def test_run_goes_entry_by_entry_to_a_bookie_that_does_not(
    caller: Caller, server: SmallServer, registry: Registry
) -> None:
    registry.properties = {}
    assert await caller.add(run_of(7, (3, 5, 8))) is Code.OK
    assert [request.entry_id for request in all_of(AddRequest, sent(server))] == [3, 5, 8]


async def test_requests_of_one_turn_arrive_in_their_order(
    caller: Caller, server: SmallServer, storage: HeldStorage
) -> None:
    await caller.add(run_of(7, range(1)))
    storage.is_holding = True
    calls = [caller.start_add(run_of(7, range(entry_id, entry_id + 1))) for entry_id in range(1, 9)]
    await server.until(lambda: len(server.requests) == 9)
    runs = all_of(AddRunRequest, sent(server))
    assert [request.entry_ids[0] for request in runs] == list(range(9))
    storage.release()
    for call in calls:
        assert await call.result() == (Code.OK,)


async def test_adds_and_reads_and_recovery_have_a_connection_each(
    caller: Caller, server: SmallServer
) -> None:
    await caller.add(run_of(7, range(2)))
    await caller.read(7, -1)
    await caller.read_batch(7, 0, 2, 1 << 20)
    await caller.read(7, -1, fence_key=KEY)
    await caller.read(7, 1, is_recovery=True)
    await caller.add(run_of(7, range(2, 3), is_recovery=True))
    adds, reads, control = server.connections
    used = [connection for connection, _ in server.requests]
    assert used == [adds, reads, reads, control, control, control]
    flags = [one.flags for one in sent(server) if not isinstance(one, RefusedRequest)]
    assert flags == [0, 0, 0, 1, 4, 6]


async def test_requests_with_the_same_key_wait_for_each_other(
    caller: Caller, server: SmallServer, storage: HeldStorage
) -> None:
    await caller.add(run_of(7, range(2)))
    storage.is_holding = True
    first, second, other = (caller.start_read(7, entry_id) for entry_id in (0, 0, 1))
    await server.until(lambda: kinds(server).count("ReadRequest") == 2)
    assert [request.entry_id for request in of(ReadRequest, sent(server))] == [0, 1]
    storage.release()
    for call in (first, second, other):
        assert (await call.result())[0] is Code.OK
    assert kinds(server).count("ReadRequest") == 3
    assert len(server.connections) == 2


async def test_late_answer_never_passes_for_the_answer_to_a_later_request(
    caller: Caller, server: SmallServer, storage: HeldStorage
) -> None:
    """The late answer is NO_ENTRY. As the answer to the second read, it would lose an entry."""
    await caller.add(run_of(7, (0,)))
    storage.is_holding = True
    caller.timeout_ms = EXPIRING_MS
    late = caller.start_read(7, 1)
    await server.until(lambda: len(storage.held) == 1)
    expire(caller, V2Lane.READS)
    assert await late.result() == (Code.TIMEOUT, None)
    caller.timeout_ms = 20_000
    storage.is_holding = False
    await caller.add(run_of(7, (1,)))
    storage.held[0]()
    assert await caller.read(7, 1) == (Code.OK, stored(7, 1))


async def test_a_slow_read_that_is_asked_again_fails_no_other_request(
    caller: Caller, server: SmallServer, storage: HeldStorage
) -> None:
    await caller.add(run_of(7, range(3)))
    server.script = once(ignore, ReadRequest)
    caller.timeout_ms = EXPIRING_MS
    slow = caller.start_read(7, 1)
    await server.until(lambda: len(server.requests) == 2)
    expire(caller, V2Lane.READS)
    assert await slow.result() == (Code.TIMEOUT, None)
    caller.timeout_ms = 20_000
    storage.is_holding = True
    others = [
        caller.start_add(run_of(7, range(3, 4))),
        caller.start_read(7, 2),
        caller.start_read_batch(7, 0, 1, 1000),
    ]
    await server.until(lambda: len(server.requests) == 5)
    again = caller.start_read(7, 1)
    await server.until(lambda: len(server.requests) == 6)
    adds, reads, new_reads = server.connections
    assert not adds.is_lost
    assert not reads.is_lost
    storage.release()
    assert [(await call.result())[0] for call in [*others, again]] == [Code.OK] * 4
    await server.until(lambda: reads.is_lost)  # nobody waits for an answer on it
    assert await caller.read(7, 1) == (Code.OK, stored(7, 1))
    assert server.requests[-1][0] is new_reads


async def test_reads_that_stay_slow_hold_two_connections_at_most(
    caller: Caller, server: SmallServer
) -> None:
    await caller.add(run_of(7, range(1)))
    server.script = lambda _, request: isinstance(request, ReadRequest)
    others: list[Call] = []

    def reads_of_0_are(count: int) -> bool:
        return entries_read(server).count(0) == count

    for count in range(1, 6):
        caller.timeout_ms = EXPIRING_MS
        slow = caller.start_read(7, 0)
        await server.until(partial(reads_of_0_are, count))
        expire(caller, V2Lane.READS)
        assert await slow.result() == (Code.TIMEOUT, None)
        caller.timeout_ms = 20_000
        others.append(caller.start_read(7, len(others) + 1))
    open_ = [connection for connection in server.connections[1:] if not connection.is_lost]
    await server.until(lambda: sum(not one.is_lost for one in server.connections[1:]) == 2)
    assert len(open_) >= 2
    assert [call.replies for call in others[:3]] == [[(Code.UNAVAILABLE, None)]] * 3
    server.connections[-1].abort()
    assert (await others[4].result())[0] is Code.UNAVAILABLE


async def test_connection_that_is_retired_is_closed_when_its_last_request_times_out(
    caller: Caller, server: SmallServer
) -> None:
    await caller.add(run_of(7, range(1)))
    server.script = lambda _, request: isinstance(request, ReadRequest)
    caller.timeout_ms = EXPIRING_MS
    slow = caller.start_read(7, 0)
    await server.until(lambda: entries_read(server) == [0])
    expire(caller, V2Lane.READS)
    assert await slow.result() == (Code.TIMEOUT, None)
    other = caller.start_read(7, 1)
    caller.timeout_ms = 20_000
    caller.start_read(7, 0)
    await server.until(lambda: sorted(entries_read(server)) == [0, 0, 1])
    assert not server.connections[1].is_lost
    expire(caller, V2Lane.READS)
    assert await other.result() == (Code.TIMEOUT, None)
    await server.until(lambda: server.connections[1].is_lost)
    assert not server.connections[2].is_lost


@pytest.mark.parametrize(("late_count", "connections"), [(2, 2), (3, 3)])
async def test_connection_with_too_many_late_requests_is_retired(
    caller: Caller,
    server: SmallServer,
    monkeypatch: pytest.MonkeyPatch,
    late_count: int,
    connections: int,
) -> None:
    monkeypatch.setattr(v2_link, "LATE_REQUESTS_MAX", 2)
    await caller.add(run_of(7, range(9)))
    server.script = lambda _, request: isinstance(request, ReadRequest)
    caller.timeout_ms = EXPIRING_MS
    slow = [caller.start_read(7, entry_id) for entry_id in range(late_count)]
    await server.until(lambda: len(entries_read(server)) == late_count)
    expire(caller, V2Lane.READS)
    assert [await call.result() for call in slow] == [(Code.TIMEOUT, None)] * late_count
    server.script = None
    caller.timeout_ms = 20_000
    assert (await caller.read(7, 8))[0] is Code.OK
    assert len(server.connections) == connections


async def test_request_that_times_out_before_there_is_a_connection_is_not_sent(
    server: SmallServer, registry: Registry
) -> None:
    resolved = asyncio.Event()

    async def resolve(bookie_id: str) -> BookieInfo:
        await resolved.wait()
        return await registry.resolve(bookie_id)

    transport = V2Transport(resolve)
    caller = Caller(transport)
    caller.timeout_ms = EXPIRING_MS
    slow = [caller.start_add(run_of(7, range(3))), caller.start_add(run_of(7, range(3, 6)))]
    expire(caller, V2Lane.ADDS)
    assert [await call.result() for call in slow] == [(Code.TIMEOUT,)] * 2
    caller.timeout_ms = 20_000
    waiting = caller.start_add(run_of(7, range(6, 7)))
    resolved.set()
    assert await waiting.result() == (Code.OK,)
    assert [request.entry_ids for request in all_of(AddRunRequest, sent(server))] == [range(6, 7)]
    await transport.aclose()


async def test_request_behind_one_that_times_out_goes_over_a_new_connection(
    caller: Caller, server: SmallServer
) -> None:
    await caller.add(run_of(7, range(3)))
    server.script = once(ignore, ReadRequest)
    caller.timeout_ms = EXPIRING_MS
    first = caller.start_read(7, 1)
    caller.timeout_ms = 20_000
    second = caller.start_read(7, 1)
    await server.until(lambda: entries_read(server) == [1])
    expire(caller, V2Lane.READS)
    assert await first.result() == (Code.TIMEOUT, None)
    assert await second.result() == (Code.OK, stored(7, 1))
    assert len(server.connections) == 3


async def test_request_behind_one_that_times_out_is_not_failed_by_who_asks_for_the_same_again(
    caller: Caller, server: SmallServer
) -> None:
    await caller.add(run_of(7, range(3)))
    server.script = once(ignore, ReadRequest)
    again: list[Any] = []
    timed_out = asyncio.get_running_loop().create_future()

    def on_first(code: Code, entry: bytes | None) -> None:
        again.append(caller.start_read(7, 1))
        timed_out.set_result(code)

    caller.transport.read(BOOKIE, ReadEntry(7, 1), EXPIRING_MS, on_first)
    second = caller.start_read(7, 1)
    await server.until(lambda: entries_read(server) == [1])
    expire(caller, V2Lane.READS)
    assert await timed_out is Code.TIMEOUT
    assert await second.result() == (Code.OK, stored(7, 1))
    assert await again[0].result() == (Code.OK, stored(7, 1))


async def test_run_that_timed_out_can_be_sent_again_on_the_same_connection(
    caller: Caller, server: SmallServer, storage: HeldStorage
) -> None:
    storage.is_holding = True
    caller.timeout_ms = EXPIRING_MS
    slow = caller.start_add(run_of(7, range(3)))
    await server.until(lambda: len(server.requests) == 1)
    expire(caller, V2Lane.ADDS)
    assert await slow.result() == (Code.TIMEOUT,)
    caller.timeout_ms = 20_000
    again = caller.start_add(run_of(7, range(3)))
    await server.until(lambda: len(server.requests) == 2)
    storage.release()
    assert await again.result() == (Code.OK,)
    assert len(server.connections) == 1


async def test_entries_of_a_run_that_timed_out_are_sent_again_on_a_new_connection(
    caller: Caller, server: SmallServer, registry: Registry, storage: HeldStorage
) -> None:
    registry.properties = {}
    server.script = once(ignore, AddRequest)
    caller.timeout_ms = EXPIRING_MS
    slow = caller.start_add(run_of(7, range(3)))
    await server.until(lambda: len(server.requests) == 3)
    expire(caller, V2Lane.ADDS)
    assert await slow.result() == (Code.TIMEOUT,)
    caller.timeout_ms = 20_000
    assert await caller.add(run_of(7, range(3))) is Code.OK
    assert len(server.connections) == 2


async def test_run_that_is_not_understood_goes_entry_by_entry_from_then_on(
    caller: Caller, server: SmallServer
) -> None:
    server.script = refuse_runs
    assert await caller.add(run_of(7, range(3))) is Code.OK
    assert await caller.add(run_of(7, range(3, 5))) is Code.OK
    assert kinds(server) == ["AddRunRequest", *["AddRequest"] * 5]
    assert len(server.connections) == 1


async def test_runs_are_sent_again_to_a_bookie_that_was_upgraded(
    caller: Caller, server: SmallServer, registry: Registry
) -> None:
    """Its registration named ADD_RUN wrongly, then omitted it, and now names it rightly."""

    async def closed() -> None:
        server.connections[-1].abort()
        adds = v2(caller)._links[BOOKIE, V2Lane.ADDS]
        while adds._connection is not None:  # noqa: ASYNC110 - the link reports nothing
            await asyncio.sleep(0)

    server.script = refuse_runs
    assert await caller.add(run_of(7, range(3))) is Code.OK
    registry.properties = {}
    await closed()
    assert await caller.add(run_of(7, range(3, 5))) is Code.OK
    server.script = None
    registry.properties = dict(RUNS)
    await closed()
    assert await caller.add(run_of(7, range(5, 7))) is Code.OK
    assert kinds(server) == ["AddRunRequest", *["AddRequest"] * 5, "AddRunRequest"]


async def test_runs_in_flight_when_runs_turn_out_not_to_be_understood_are_all_stored(
    caller: Caller, server: SmallServer
) -> None:
    server.script = refuse_runs
    calls = [caller.start_add(run_of(7, range(n, n + 4))) for n in range(0, 40, 4)]
    assert {await call.result() for call in calls} == {(Code.OK,)}
    assert (await caller.read_batch(7, 0, 100, 1 << 20))[1] == tuple(
        stored(7, entry_id) for entry_id in range(40)
    )


async def test_run_that_is_refused_after_its_deadline_fails_nobody_else(
    caller: Caller, server: SmallServer, storage: HeldStorage
) -> None:
    """The answer names no request, and the client has forgotten the run that timed out."""
    await caller.add(run_of(7, range(1)))
    server.script = once(ignore, AddRunRequest)
    caller.timeout_ms = EXPIRING_MS
    slow = caller.start_add(run_of(7, range(1, 3)))
    await server.until(lambda: len(server.requests) == 2)
    expire(caller, V2Lane.ADDS)
    assert await slow.result() == (Code.TIMEOUT,)
    caller.timeout_ms = 20_000
    storage.is_holding = True
    waiting = caller.start_add(run_of(7, range(3, 6)))
    await server.until(lambda: len(server.requests) == 3)
    refuse_runs(server.connections[0], server.requests[1][1])
    storage.release()
    assert await waiting.result() == (Code.OK,)
    assert len(server.connections) == 1


@pytest.mark.parametrize("lost", [0, 1, 2])
async def test_run_goes_again_whichever_of_its_entries_was_not_answered(
    caller: Caller, server: SmallServer, registry: Registry, lost: int
) -> None:
    registry.properties = {}
    await caller.add(run_of(7, range(10, 11)))
    unanswered: list[Request] = []

    def script(_: SmallConnection, request: Request) -> bool:
        if unanswered or not isinstance(request, AddRequest) or request.entry_id != lost:
            return False
        unanswered.append(request)
        return True

    server.script = script
    caller.timeout_ms = EXPIRING_MS
    slow = caller.start_add(run_of(7, range(3)))
    caller.timeout_ms = 20_000
    assert await caller.add(run_of(7, range(11, 12))) is Code.OK  # the other answers came before
    expire(caller, V2Lane.ADDS)
    assert await slow.result() == (Code.TIMEOUT,)
    assert await caller.add(run_of(7, range(3))) is Code.OK


async def test_requests_for_one_entry_are_all_answered_however_many_come_at_once(
    caller: Caller, server: SmallServer, storage: HeldStorage
) -> None:
    await caller.add(run_of(7, range(1)))
    storage.is_holding = True
    calls = [caller.start_read(7, 0) for _ in range(5)]
    await server.until(lambda: len(server.requests) == 2)
    storage.release()
    assert [await call.result() for call in calls] == [(Code.OK, stored(7, 0))] * 5


async def test_reset_over_a_run_by_a_bookie_that_no_longer_takes_runs_is_no_failure(
    caller: Caller, server: SmallServer, registry: Registry
) -> None:
    await caller.add(run_of(7, range(1)))
    server.takes_runs = False
    registry.properties = {}
    assert await caller.add(run_of(7, range(1, 4))) is Code.OK
    assert kinds(server)[1:] == ["AddRunRequest", *["AddRequest"] * 3]


async def test_reset_over_a_run_by_a_bookie_that_still_takes_runs_is_unavailable(
    caller: Caller, server: SmallServer
) -> None:
    await caller.add(run_of(7, range(1)))
    server.script = once(lambda connection, _: connection.abort(), AddRunRequest)
    assert await caller.add(run_of(7, range(1, 4))) is Code.UNAVAILABLE
    assert kinds(server)[1:] == ["AddRunRequest"]
    assert await caller.add(run_of(7, range(1, 4))) is Code.OK


async def test_reset_over_a_run_by_a_bookie_that_is_gone_since_is_unavailable(
    caller: Caller, server: SmallServer, registry: Registry
) -> None:
    """No other request needs a connection. The run must still be answered before its deadline."""
    await caller.add(run_of(7, range(1)))

    def stop(connection: SmallConnection, _: Request) -> None:
        registry.error = BookieUnavailableError("gone", bookie_id=BOOKIE)
        connection.abort()

    server.script = once(stop, AddRunRequest)
    assert await caller.add(run_of(7, range(1, 4))) is Code.UNAVAILABLE


async def test_lac_is_told_behind_the_adds_of_the_same_turn_where_there_is_a_connection(
    caller: Caller, server: SmallServer, storage: HeldStorage
) -> None:
    assert not caller.announce_lac(7, 0)
    await caller.add(run_of(7, range(1)))
    adding = caller.start_add(run_of(7, range(1, 3)))
    assert caller.announce_lac(7, 2)
    await adding.result()
    await server.until(lambda: len(server.requests) == 3)
    assert kinds(server) == ["AddRunRequest", "AddRunRequest", "TellLacRequest"]
    assert storage.storage.ledgers[7].lac == 2


async def test_lac_is_not_told_to_a_bookie_that_does_not_take_it(
    caller: Caller, server: SmallServer, registry: Registry
) -> None:
    registry.properties = {"ledgerlog.ops": "ADD_RUN/1"}
    await caller.add(run_of(7, range(1)))
    assert not caller.announce_lac(7, 0)
    assert kinds(server) == ["AddRunRequest"]


async def test_lac_is_not_told_while_the_bookie_takes_nothing(
    caller: Caller, server: SmallServer
) -> None:
    await caller.add(run_of(7, range(1)))
    server.connections[0].transport.pause_reading()
    adding = [caller.start_add(run_of(7, range(n, n + 1), bytes(4 << 20))) for n in range(1, 9)]
    for _ in range(10):
        await asyncio.sleep(0)
    assert not caller.announce_lac(7, 0)
    server.connections[0].transport.resume_reading()
    assert {await call.result() for call in adding} == {(Code.OK,)}
    assert caller.announce_lac(7, 8)


async def test_bookie_that_takes_nothing_is_sent_no_more_than_a_bound(
    caller: Caller, server: SmallServer
) -> None:
    await caller.add(run_of(7, range(1)))
    server.connections[0].transport.pause_reading()
    mib = bytes(4 << 20)
    calls = []
    for entry_id in range(1, 30):
        calls.append(caller.start_add(run_of(7, range(entry_id, entry_id + 1), mib)))
        await asyncio.sleep(0)
    refused = [call for call in calls if call.replies]
    assert {call.replies[0] for call in refused} == {(Code.BUSY,)}
    (adds,) = (link._connection for link in v2(caller)._links.values())
    assert adds is not None
    assert UNSENT_BYTES_MAX <= adds._unsent_bytes < UNSENT_BYTES_MAX + len(mib) + 1_000
    server.connections[0].transport.resume_reading()
    others = [call for call in calls if call not in refused]
    assert len(others) > 10
    assert {await call.result() for call in others} == {(Code.OK,)}
    assert await caller.add(run_of(7, range(40, 41))) is Code.OK


async def test_requests_beyond_the_bound_are_answered_busy_while_connecting_too(
    caller: Caller, server: SmallServer, storage: HeldStorage
) -> None:
    calls = [caller.start_read(7, 0)]
    (link,) = v2(caller)._links.values()
    link._deadlines._requests_max = 3
    calls += [caller.start_read(7, entry_id) for entry_id in range(1, 5)]
    assert len(link._waiting) == 3, "none is sent before there is a connection"
    assert [(await call.result())[0] for call in calls[3:]] == [Code.BUSY] * 2
    assert [(await call.result())[0] for call in calls[:3]] == [Code.NO_LEDGER] * 3
    assert (await caller.read(7, 9))[0] is Code.NO_LEDGER


async def test_links_to_bookies_that_nobody_asks_any_more_are_closed(
    caller: Caller, server: SmallServer, storage: HeldStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(v2_transport, "LINKS_MAX", 4)
    storage.is_holding = True
    held = caller.start_read(7, 0)
    await server.until(lambda: len(storage.held) == 1)
    storage.is_holding = False
    for number in range(1, 40):
        other = Caller(caller.transport, f"bookie-{number}")
        assert (await other.read(7, 0))[0] is Code.NO_LEDGER
        assert len(v2(caller)._links) <= 5
    assert (BOOKIE, V2Lane.READS) in v2(caller)._links, "a request waits there"
    storage.release()
    assert (await held.result())[0] is Code.NO_LEDGER
    await server.until(lambda: sum(not one.is_lost for one in server.connections) <= 5)


async def test_bookie_that_refuses_a_lac_is_told_no_more_and_keeps_its_connection(
    caller: Caller, server: SmallServer
) -> None:
    server.script = refuse_lacs
    await caller.add(run_of(7, range(1)))
    assert caller.announce_lac(7, 0)
    assert await caller.add(run_of(7, range(1, 2))) is Code.OK
    assert not caller.announce_lac(7, 1)
    assert len(server.connections) == 1


async def test_worst_answer_of_the_entries_is_the_answer_to_the_run(
    caller: Caller, server: SmallServer, registry: Registry
) -> None:
    registry.properties = {}

    def script(connection: SmallConnection, request: Request) -> bool:
        assert isinstance(request, AddRequest)
        code = {1: Code.BUSY, 2: Code.FENCED, 3: Code.READ_ONLY}.get(request.entry_id, Code.OK)
        connection.send(answers.encode_add_answer(code, request.ledger_id, request.entry_id))
        return True

    server.script = script
    assert await caller.add(run_of(7, range(5))) is Code.FENCED
    assert await caller.add(run_of(7, (0, 1, 3))) is Code.BUSY
    assert await caller.add(run_of(7, (0, 4))) is Code.OK


def test_unknown_outweighs_a_refusal_by_the_bookie_but_not_one_by_the_ledger() -> None:
    assert worst(Code.TIMEOUT, Code.READ_ONLY) is Code.TIMEOUT
    assert worst(Code.UNAUTHORIZED, Code.TIMEOUT) is Code.UNAUTHORIZED
    assert {worst(Code.OK, code) for code in Code} == set(Code)


async def test_bookie_that_is_down_fails_all_that_wait_and_is_found_when_it_is_back(
    storage: HeldStorage,
) -> None:
    port = free_port()
    registry = Registry(port)
    transport = V2Transport(registry.resolve, reconnect_delay_ms_max=20)
    caller = Caller(transport)
    calls = [caller.start_add(run_of(7, range(n, n + 1))) for n in range(20)]
    assert {await call.result() for call in calls} == {(Code.UNAVAILABLE,)}
    assert registry.lookups == 1
    server = SmallServer(storage, takes_runs=True)
    await server.start(port)
    while await caller.add(run_of(7, range(1))) is Code.UNAVAILABLE:
        pass
    assert await caller.read(7, 0) == (Code.OK, stored(7, 0))
    await transport.aclose()
    await server.stop()


async def test_requests_while_the_next_attempt_is_not_due_fail_without_one(
    registry: Registry,
) -> None:
    registry.port = free_port()
    transport = V2Transport(registry.resolve, reconnect_delay_ms_max=60_000)
    caller = Caller(transport)
    lookups = []
    for _ in range(200):
        assert await caller.read(7, 0) == (Code.UNAVAILABLE, None)
        lookups.append(registry.lookups)
    assert registry.lookups < 100
    await transport.aclose()


async def test_bookie_that_closes_each_connection_unanswered_is_connected_after_pauses(
    server: SmallServer, registry: Registry
) -> None:
    def script(connection: SmallConnection, _: Request) -> bool:
        connection.abort()
        return True

    server.script = script
    transport = V2Transport(registry.resolve, reconnect_delay_ms_max=60_000)
    caller = Caller(transport)
    for _ in range(200):
        assert await caller.read(7, 0) == (Code.UNAVAILABLE, None)
    assert registry.lookups < 100
    await transport.aclose()


async def test_closing_does_not_wait_until_a_bookie_takes_what_was_not_sent(
    caller: Caller, server: SmallServer
) -> None:
    await caller.add(run_of(7, range(1)))
    server.connections[0].transport.pause_reading()
    calls = [caller.start_add(run_of(7, range(n, n + 1), bytes(4 << 20))) for n in range(1, 9)]
    connection = v2(caller)._links[BOOKIE, V2Lane.ADDS]._connection
    assert connection is not None
    await asyncio.sleep(0)  # the requests are given to the socket
    await caller.transport.aclose()
    assert connection.is_lost
    assert {await call.result() for call in calls} == {(Code.UNAVAILABLE,)}


@pytest.mark.parametrize(
    "error",
    [
        BookieUnavailableError("gone", bookie_id=BOOKIE),
        WireFormatError("an entry of the registration that is not text"),
        OSError("no route"),
        TimeoutError(),
        UnicodeError("no host name"),
        OverflowError("no port"),
    ],
)
async def test_bookie_that_cannot_be_looked_up_is_unavailable(
    caller: Caller, registry: Registry, error: Exception
) -> None:
    registry.error = error
    assert await caller.add(run_of(7, range(1))) is Code.UNAVAILABLE
    assert await caller.read(7, 0) == (Code.UNAVAILABLE, None)


async def test_look_up_that_never_ends_times_out_with_the_request(registry: Registry) -> None:
    never = asyncio.Event()

    async def resolve(bookie_id: str) -> BookieInfo:
        await never.wait()
        return await registry.resolve(bookie_id)

    transport = V2Transport(resolve)
    caller = Caller(transport)
    caller.timeout_ms = 30
    assert await caller.add(run_of(7, range(1))) is Code.TIMEOUT
    caller.timeout_ms = 20_000
    waiting = caller.start_read(7, 0)
    await transport.aclose()
    assert await waiting.result() == (Code.UNAVAILABLE, None)


async def test_lost_connection_leaves_every_request_on_it_unknown(
    caller: Caller, server: SmallServer, storage: HeldStorage
) -> None:
    await caller.add(run_of(7, range(1)))
    await caller.read(7, 0)
    storage.is_holding = True
    calls = [
        caller.start_add(run_of(7, range(1, 3))),
        caller.start_read(7, 0),
        caller.start_read(7, 0),
        caller.start_read_batch(7, 0, 1, 1000),
    ]
    await server.until(lambda: len(server.requests) == 5)
    for connection in server.connections:
        connection.abort()
    assert [(await call.result())[0] for call in calls] == [Code.UNAVAILABLE] * 4
    storage.is_holding = False
    assert await caller.read(7, 0) == (Code.OK, stored(7, 0))


@pytest.mark.parametrize(
    "garbage",
    [
        (3).to_bytes(4, "big") + b"abc",
        (1 << 30).to_bytes(4, "big"),
        answers.encode_add_answer(Code.OK, 1, 1),
        answers.encode_add_run_answer(Code.OK, 7, 0, 999),
        b"".join(answers.encode_batch_read_answer(Code.OK, 7, 0, 999, [])),
        b"\0\0\0\x04\x02\x03\0\0",
        b"\0\0\0\x18\x02\x09" + bytes(22),
    ],
    ids=["short", "long", "add", "run", "batch", "auth", "opcode"],
)
async def test_answer_that_makes_no_sense_closes_the_connection(
    caller: Caller, server: SmallServer, garbage: bytes
) -> None:
    complaints: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    await caller.add(run_of(7, range(1)))
    server.script = once(lambda connection, _: connection.send(garbage), ReadRequest)
    assert await caller.read(7, 0) == (Code.UNAVAILABLE, None)
    assert await caller.read(7, 0) == (Code.OK, stored(7, 0))
    assert len(complaints) == 1


@pytest.mark.parametrize("kind", [AddRunRequest, BatchReadRequest])
async def test_request_whose_number_answers_another_kind_is_unavailable_at_once(
    caller: Caller, server: SmallServer, kind: type
) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    await caller.add(run_of(7, range(1)))

    def script(connection: SmallConnection, request: Any) -> None:
        if kind is AddRunRequest:
            ids = 7, 1, request.request_id
            connection.send(*answers.encode_batch_read_answer(Code.OK, *ids, []))
        else:
            connection.send(answers.encode_add_run_answer(Code.OK, 7, 0, request.request_id))

    server.script = once(script, kind)
    if kind is AddRunRequest:
        assert await caller.add(run_of(7, range(1, 2))) is Code.UNAVAILABLE
    else:
        assert await caller.read_batch(7, 0, 1, 1000) == (Code.UNAVAILABLE, ())


async def test_closing_answers_requests_for_which_a_connection_is_just_about_to_be_made(
    caller: Caller, registry: Registry
) -> None:
    v2(caller)._link(BOOKIE, V2Lane.READS)
    closing = asyncio.ensure_future(caller.transport.aclose())
    await asyncio.sleep(0)
    waiting = caller.start_read(7, 0)
    await closing
    assert registry.lookups == 0  # the task that connects was cancelled before it began
    assert await waiting.result() == (Code.UNAVAILABLE, None)


async def test_answers_may_arrive_byte_by_byte(caller: Caller, server: SmallServer) -> None:
    await caller.add(run_of(7, range(2)))

    def script(connection: SmallConnection, request: Request) -> None:
        assert isinstance(request, ReadRequest)
        data = stored(7, 0)
        frame = answers.encode_read_answer_head(Code.OK, 7, 0, len(data)) + data
        connection.transport.get_extra_info("socket").setsockopt(
            socket.IPPROTO_TCP, socket.TCP_NODELAY, 1
        )
        for byte in frame:
            connection.send(bytes([byte]))

    server.script = once(script, ReadRequest)
    assert await caller.read(7, 0) == (Code.OK, stored(7, 0))


async def test_bookie_that_stops_reading_is_waited_for(caller: Caller, server: SmallServer) -> None:
    await caller.add(run_of(7, range(1)))
    paused = asyncio.Event()
    connection = v2(caller)._links[BOOKIE, V2Lane.ADDS]._connection
    assert connection is not None
    pause_writing = connection.pause_writing

    def pause() -> None:
        pause_writing()
        paused.set()

    connection.pause_writing = pause
    server.connections[0].transport.pause_reading()
    calls = [caller.start_add(run_of(7, range(n, n + 1), bytes(1 << 20))) for n in range(1, 24)]
    await asyncio.wait_for(paused.wait(), 20)
    later = caller.start_add(run_of(7, range(24, 25)))
    assert not later.replies
    server.connections[0].transport.resume_reading()
    assert {await call.result() for call in [*calls, later]} == {(Code.OK,)}


async def test_callback_that_asks_again_at_once_is_served(caller: Caller) -> None:
    """Callbacks run while answers are decoded, so their new requests must not disturb this."""
    await caller.add(run_of(7, range(50)))
    found: list[int] = []
    done = asyncio.get_running_loop().create_future()

    def on_entry(code: Code, entry: bytes | None) -> None:
        assert code is Code.OK
        found.append(len(found))
        if len(found) == 50:
            done.set_result(None)
        else:
            send(len(found))

    def send(entry_id: int) -> None:
        caller.transport.read(BOOKIE, ReadEntry(7, entry_id), 20_000, on_entry)

    send(0)
    await asyncio.wait_for(done, 20)


async def test_callback_that_retires_the_connection_leaves_what_else_had_arrived(
    caller: Caller, server: SmallServer
) -> None:
    complaints: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    await caller.add(run_of(7, range(3)))
    asked: list[int] = []

    def script(connection: SmallConnection, request: Request) -> bool:
        if len(server.connections) > 2 or not isinstance(request, ReadRequest):
            return False
        asked.append(request.entry_id)
        if asked == [0, 1, 2]:
            connection.send(
                answers.encode_read_answer_head(Code.NO_ENTRY, 7, 1, 0),
                answers.encode_read_answer_head(Code.NO_ENTRY, 7, 2, 0),
            )
        return True

    server.script = script
    caller.timeout_ms = EXPIRING_MS
    slow = caller.start_read(7, 0)
    await server.until(lambda: asked == [0])
    expire(caller, V2Lane.READS)
    assert await slow.result() == (Code.TIMEOUT, None)
    caller.timeout_ms = 20_000
    again: list[Any] = []
    first = asyncio.get_running_loop().create_future()

    def on_first(code: Code, entry: bytes | None) -> None:
        again.append(caller.start_read(7, 0))
        first.set_result(code)

    caller.transport.read(BOOKIE, ReadEntry(7, 1), 20_000, on_first)
    second = caller.start_read(7, 2)
    assert await first is Code.NO_ENTRY
    assert await second.result() == (Code.NO_ENTRY, None)
    assert await again[0].result() == (Code.OK, stored(7, 0))
    assert complaints == []
