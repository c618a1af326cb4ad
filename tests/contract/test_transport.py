"""The contract of every transport, with the fake storage and with a bookie's storage."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, cast

import pytest

from bookie_server.config import BookieSettings
from bookie_server.core.requests import StoredAdd, StoredBatchRead, StoredRead, StoredSliceRead
from bookie_server.core.settings import StorageSettings
from bookie_server.ports import MetadataAnswer, Standing
from bookie_server.service.collector import Collector
from bookie_server.service.grpc.server import GrpcServer
from bookie_server.service.grpc.service import BookieServicer
from bookie_server.service.limits.lanes import Lanes
from bookie_server.service.membership.ledger_records import StoreLedgerListing, StoreLedgerRecords
from bookie_server.service.metrics.counters import ServiceCounters
from bookie_server.service.releaser import Releaser
from bookie_server.service.v2.server import V2Server, listen
from bookie_server.service.v2.shared import V2Shared
from bookie_server.storage.device.filesystem import OsFileSystem
from bookie_server.storage.device.runtime import OsClock, OsTasks
from bookie_server.storage.files.manifest import initialize_directory
from bookie_server.storage.ledger_storage import LedgerStorage
from bookie_server.storage.shared import Shared
from ledgerlog_spark.errors import BookieUnavailableError, LocalProtocolError
from ledgerlog_spark.model import NO_ENTRY, BookieInfo, Code
from ledgerlog_spark.testing.bookie import MemoryStorage
from ledgerlog_spark.testing.cluster import memory_metadata
from ledgerlog_spark.testing.in_process import InProcessTransport
from ledgerlog_spark.transport.grpc.transport import GrpcTransport
from ledgerlog_spark.transport.port import AddRun, BookieTransport, Buffer
from ledgerlog_spark.transport.v2.transport import V2Transport
from ledgerlog_spark.wire.frames import ENTRY_SIZE_BYTES_MAX
from tests.contract.transport_bookies import HeldStorage, small_server
from tests.contract.transport_calls import BOOKIE, CODEC, KEY, Call, Caller, run_of, stored
from tests.fixtures.stored_entries import encode_entry

OTHER_KEY = b"o" * 20
RUNS = {"ledgerlog.ops": "ADD_RUN/1,TELL_LAC/1,READ_SLICES/1"}


@dataclass
class World:
    """A transport to one bookie, and the storage behind it, whose answers can be held."""

    caller: Caller
    held: HeldStorage

    async def transport_closed(self) -> None:
        await self.caller.transport.aclose()


def resolver(port: int, properties: dict[str, str], grpc_port: int | None = None) -> Any:
    async def resolve(bookie_id: str) -> BookieInfo:
        if bookie_id != BOOKIE:
            raise BookieUnavailableError(f"no bookie {bookie_id}", bookie_id=bookie_id)
        return BookieInfo(bookie_id, "127.0.0.1", port, grpc_port, properties)

    return resolve


class BookieOwn:
    """A bookie's own storage, for requests of the transport in memory."""

    def __init__(self, storage: Any) -> None:
        self._storage = storage

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def add(self, request: Any, on_done: Any) -> None:
        self._storage.add(as_kind(StoredAdd, request), on_done)

    def read(self, request: Any, on_done: Any) -> None:
        self._storage.read(as_kind(StoredRead, request), on_done)

    def read_batch(self, request: Any, on_done: Any) -> None:
        self._storage.read_batch(as_kind(StoredBatchRead, request), on_done)

    def read_slices(self, request: Any, on_done: Any) -> None:
        self._storage.read_slices(as_kind(StoredSliceRead, request), on_done)


def as_kind(kind: Any, request: Any) -> Any:
    names = {each.name for each in fields(request)} & {each.name for each in fields(kind)}
    return kind(**{each: getattr(request, each) for each in names})


@asynccontextmanager
async def in_process(storage: Any, tmp_path: Path) -> AsyncIterator[InProcessTransport]:
    yield InProcessTransport({BOOKIE: BookieOwn(storage)})


@asynccontextmanager
async def v2_of_ours(storage: Any, tmp_path: Path) -> AsyncIterator[V2Transport]:
    settings = BookieSettings(directories=(tmp_path,), port=0, bookie_id=BOOKIE)
    server = V2Server(settings, V2Shared(settings, storage, Lanes.of(settings), ServiceCounters()))
    listener = listen("127.0.0.1", 0)
    port = listener.getsockname()[1]
    await server.start(listener)
    try:
        async with control_service(storage, tmp_path) as grpc_port:
            yield V2Transport(resolver(port, RUNS, grpc_port))
    finally:
        await server.stop(drain_timeout_ms=100)


@asynccontextmanager
async def v2_without_runs(storage: Any, tmp_path: Path) -> AsyncIterator[V2Transport]:
    async with (
        small_server(storage, takes_runs=False) as server,
        control_service(storage, tmp_path) as grpc_port,
    ):
        yield V2Transport(resolver(server.port, {}, grpc_port))


@asynccontextmanager
async def grpc_of_ours(storage: Any, tmp_path: Path) -> AsyncIterator[GrpcTransport]:
    async with control_service(storage, tmp_path) as port:
        yield GrpcTransport(resolver(1, {}, grpc_port=port))


@asynccontextmanager
async def control_service(storage: Any, tmp_path: Path) -> AsyncIterator[int]:
    settings = BookieSettings(directories=(tmp_path,), port=0, bookie_id=BOOKIE)
    lanes = Lanes.of(settings)
    stores, tasks = memory_metadata(), OsTasks()
    collector = Collector(
        storage=storage,
        listing=StoreLedgerListing(stores.ledgers, stores.registration, BOOKIE),
        releaser=Releaser(
            storage,
            StoreLedgerRecords(stores.ledgers, stores.replication_locks, BOOKIE),
            tasks,
            BOOKIE,
        ),
        tasks=tasks,
        interval_ms=settings.gc_interval_ms,
    )
    servicer = BookieServicer(
        BOOKIE, storage, collector, cast("Any", None), lanes, ServiceCounters(), lambda: 0, 100
    )
    server = GrpcServer(settings, servicer)
    port = await server.start()
    try:
        yield port
    finally:
        await server.stop(drain_timeout_ms=100)


Opened = Callable[[Any, Path], AbstractAsyncContextManager[BookieTransport]]

TRANSPORTS: dict[str, Opened] = {
    "in_process": in_process,
    "grpc": grpc_of_ours,
    "v2": v2_of_ours,
    "v2_without_runs": v2_without_runs,
}


@asynccontextmanager
async def memory_storage(tmp_path: Path) -> AsyncIterator[MemoryStorage]:
    yield MemoryStorage()


class EveryLedgerIsOpen:
    async def check(self, ledger_id: int) -> MetadataAnswer:  # noqa: ARG002
        return MetadataAnswer(Standing.OPEN_WITH_ME)


@asynccontextmanager
async def bookie_storage(tmp_path: Path) -> AsyncIterator[Any]:
    """The storage of a real bookie, on real files."""
    tasks = OsTasks()
    files = OsFileSystem(tmp_path / "entries")
    await files.lock()
    await initialize_directory(files)
    storage = await LedgerStorage.open(
        Shared(
            files=files,
            clock=OsClock(),
            tasks=tasks,
            settings=StorageSettings(16 << 20, 64 << 20, free_bytes_min=0, open_files_max=64),
            metadata=EveryLedgerIsOpen(),
        )
    )
    try:
        yield storage
    finally:
        await storage.close()
        await tasks.aclose()


STORAGES: dict[str, Callable[[Path], AbstractAsyncContextManager[Any]]] = {
    "memory": memory_storage,
    "bookie": bookie_storage,
}


@pytest.fixture(params=STORAGES)
def storage_name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=TRANSPORTS)
async def world(
    request: pytest.FixtureRequest, storage_name: str, tmp_path: Path
) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        storage = await stack.enter_async_context(STORAGES[storage_name](tmp_path))
        held = HeldStorage(storage)
        held.is_holding = False
        transport = await stack.enter_async_context(TRANSPORTS[request.param](held, tmp_path))
        yield World(Caller(transport), held)
        held.release()
        await transport.aclose()


@pytest.fixture
def caller(world: World) -> Caller:
    return world.caller


@pytest.mark.parametrize(
    "entry_ids", [range(3), range(1), range(7, 100, 3), (0, 1, 5, 6, 20), (1 << 40,)]
)
async def test_entries_of_a_run_are_read_back_as_they_were_added(
    caller: Caller, entry_ids: Sequence[int]
) -> None:
    assert await caller.add(run_of(7, entry_ids)) is Code.OK
    for entry_id in entry_ids:
        assert await caller.read(7, entry_id) == (Code.OK, stored(7, entry_id))


async def test_last_entry_is_read_without_its_id(caller: Caller) -> None:
    await caller.add(run_of(7, range(5)))
    assert await caller.read(7, -1) == (Code.OK, stored(7, 4))


async def test_missing_entry_and_missing_ledger_are_told_apart(caller: Caller) -> None:
    await caller.add(run_of(7, range(1)))
    assert await caller.read(7, 1) == (Code.NO_ENTRY, None)
    assert await caller.read(8, 0) == (Code.NO_LEDGER, None)


async def test_fencing_read_refuses_later_adds_and_lets_recovery_add(caller: Caller) -> None:
    await caller.add(run_of(7, range(2)))
    assert await caller.read(7, -1, fence_key=KEY) == (Code.OK, stored(7, 1))
    assert await caller.add(run_of(7, range(2, 4))) is Code.FENCED
    assert await caller.add(run_of(7, range(2, 4), is_recovery=True)) is Code.OK
    assert await caller.read(7, 3, fence_key=KEY, is_recovery=True) == (Code.OK, stored(7, 3))


async def test_fence_of_a_ledger_that_the_bookie_never_saw_sticks(caller: Caller) -> None:
    code, entry = await caller.read(9, -1, fence_key=KEY, is_recovery=True)
    assert code.is_absent
    assert entry is None
    assert await caller.add(run_of(9, range(1))) is Code.FENCED


async def test_wrong_master_key_neither_adds_nor_fences(caller: Caller) -> None:
    await caller.add(run_of(7, range(1)))
    assert await caller.add(run_of(7, range(1, 2), key=OTHER_KEY)) is Code.UNAUTHORIZED
    assert await caller.read(7, -1, fence_key=OTHER_KEY) == (Code.UNAUTHORIZED, None)
    assert await caller.add(run_of(7, range(1, 2))) is Code.OK


async def test_batch_ends_at_its_count_its_size_or_the_first_gap(caller: Caller) -> None:
    await caller.add(run_of(7, (0, 1, 2, 3, 5), b"x" * 1000))
    entries = [stored(7, entry_id, b"x" * 1000) for entry_id in range(4)]
    assert await caller.read_batch(7, 0, 2, 1 << 20) == (Code.OK, tuple(entries[:2]))
    assert await caller.read_batch(7, 0, 100, 1 << 20) == (Code.OK, tuple(entries))
    assert await caller.read_batch(7, 1, 100, 1) == (Code.OK, (entries[1],))
    code, some = await caller.read_batch(7, 0, 100, 2500)
    assert code is Code.OK
    assert tuple(some) == tuple(entries[:2])


async def test_batch_that_begins_at_a_gap_has_no_entries(caller: Caller) -> None:
    await caller.add(run_of(7, (0, 2)))
    code, entries = await caller.read_batch(7, 1, 10, 1 << 20)
    assert code in (Code.OK, Code.NO_ENTRY)
    assert list(entries) == []


TAKE_SLICES = ("in_process", "v2")


async def test_slices_of_some_entries_are_read_or_the_request_is_refused(
    caller: Caller, request: pytest.FixtureRequest
) -> None:
    payload = bytes(range(250)) * 400
    for entry_id in (0, 1, 3):
        assert await caller.add(run_of(7, (entry_id,), payload)) is Code.OK
    whole = [stored(7, entry_id, payload) for entry_id in (0, 1, 3)]
    ranges = [(0, 40), (50, 7), (70_000, 10), (99_000, 1_036)]
    code, found = await caller.read_slices(7, [(entry_id, ranges) for entry_id in (0, 1, 3)])
    if request.node.callspec.params["world"] not in TAKE_SLICES:
        assert (code, found) == (Code.BAD_REQUEST, ())
        return
    assert code is Code.OK
    assert found == tuple(b"".join(one[at : at + size] for at, size in ranges) for one in whole)
    # The answer ends at the first missing entry, and at its size.
    assert await caller.read_slices(7, [(1, [(0, 4)]), (2, [(0, 4)]), (3, [(0, 4)])]) == (
        Code.OK,
        (whole[1][:4],),
    )
    wanted = [(0, [(0, 100)]), (1, [(0, 100)])]
    assert await caller.read_slices(7, wanted, 36 + 2 * 104 - 1) == (Code.OK, (whole[0][:100],))
    assert await caller.read_slices(7, wanted, 1) == (Code.OK, (whole[0][:100],))
    assert await caller.read_slices(7, [(2, [(0, 4)])]) == (Code.NO_ENTRY, ())
    assert await caller.read_slices(8, [(0, [(0, 4)])]) == (Code.NO_LEDGER, ())
    # Bytes after the end of an entry are left out.
    end = len(whole[0])
    beyond = [(0, [(end - 3, 10), (end + 20, 5)])]
    assert await caller.read_slices(7, beyond) == (Code.OK, (whole[0][-3:],))


async def test_many_requests_at_once_are_each_answered_with_their_own_entry(
    caller: Caller,
) -> None:
    adds = [caller.start_add(run_of(7, range(n, n + 5), b"%d" % n)) for n in range(0, 500, 5)]
    assert {await add.result() for add in adds} == {(Code.OK,)}
    reads = [(n, caller.start_read(7, n)) for n in range(500)]
    batches = [(n, caller.start_read_batch(7, n, 3, 1 << 20)) for n in range(0, 490, 7)]
    for n, read in reads:
        assert await read.result() == (Code.OK, stored(7, n, b"%d" % (n // 5 * 5)))
    for n, batch in batches:
        expected = tuple(stored(7, m, b"%d" % (m // 5 * 5)) for m in range(n, n + 3))
        assert await batch.result() == (Code.OK, expected)


async def test_same_request_many_times_at_once_is_answered_each_time(caller: Caller) -> None:
    await caller.add(run_of(7, range(1)))
    reads = [caller.start_read(7, -1) for _ in range(20)]
    adds = [caller.start_add(run_of(7, range(1, 3))) for _ in range(20)]
    for read in reads:
        code, entry = await read.result()
        assert code is Code.OK
        assert CODEC.decode(entry, 7, -1).payload == b"payload"
    assert {await add.result() for add in adds} == {(Code.OK,)}


@pytest.mark.parametrize("size_bytes", [0, 1, 65_536, 1 << 20, ENTRY_SIZE_BYTES_MAX - 36])
async def test_entry_of_any_size_that_fits_a_frame_reads_back(
    caller: Caller, size_bytes: int
) -> None:
    payload = bytes(range(256)) * (size_bytes // 256) + bytes(size_bytes % 256)
    assert await caller.add(run_of(7, range(1), payload)) is Code.OK
    code, entry = await caller.read(7, 0)
    assert code is Code.OK
    assert CODEC.decode(entry, 7, 0).payload == payload
    code, entries = await caller.read_batch(7, 0, 1, 1 << 20)
    assert (code, len(entries)) == (Code.OK, 1)


async def test_payloads_of_every_kind_of_buffer_are_sent(caller: Caller) -> None:
    payload = b"0123456789" * 2000
    head, _ = encode_entry(
        CODEC, ledger_id=7, entry_id=0, last_add_confirmed=-1, length=len(payload), payload=payload
    )
    buffers: tuple[Buffer, ...] = (bytearray(payload), memoryview(payload))
    for ledger_id, buffer in enumerate(buffers, 7):
        head, _ = encode_entry(
            CODEC,
            ledger_id=ledger_id,
            entry_id=0,
            last_add_confirmed=-1,
            length=20000,
            payload=buffer,
        )
        entries = [[head, buffer[:7], buffer[7:]]]
        assert await caller.add(AddRun(ledger_id, range(1), entries, KEY)) is Code.OK
        assert await caller.read(ledger_id, 0) == (Code.OK, head + payload)


@pytest.mark.parametrize(
    "request_",
    [
        run_of(7, range(1), bytes(ENTRY_SIZE_BYTES_MAX)),
        AddRun(7, range(2), run_of(7, range(1)).entries, KEY),
        AddRun(7, range(0), [], KEY),
        AddRun(7, range(1), run_of(7, range(1)).entries, b"short"),
        AddRun(-7, range(1), run_of(7, range(1)).entries, KEY),
        AddRun(7, range(-1, 0), run_of(7, range(1)).entries, KEY),
        AddRun(7, range(4097), [*run_of(7, range(1)).entries] * 4097, KEY),
    ],
    ids=["too large", "ids", "empty", "key", "ledger id", "entry id", "too many"],
)
async def test_run_that_cannot_be_sent_is_refused_and_changes_nothing(
    caller: Caller, request_: AddRun
) -> None:
    with pytest.raises(LocalProtocolError):
        caller.start_add(request_)
    assert await caller.read(7, -1) == (Code.NO_LEDGER, None)


async def test_read_of_a_negative_id_is_refused(caller: Caller) -> None:
    calls: tuple[Callable[[], Call], ...] = (
        lambda: caller.start_read(7, -2),
        lambda: caller.start_read(-1, 0),
        lambda: caller.start_read(7, 0, fence_key=b"short"),
        lambda: caller.start_read_batch(7, -1, 10, 1000),
    )
    for call in calls:
        with pytest.raises(LocalProtocolError):
            call()


async def test_unknown_bookie_is_unavailable(caller: Caller) -> None:
    caller.bookie_id = "bookie-9"
    assert await caller.add(run_of(7, range(1))) is Code.UNAVAILABLE
    assert await caller.read(7, 0) == (Code.UNAVAILABLE, None)
    assert await caller.read_batch(7, 0, 1, 1000) == (Code.UNAVAILABLE, ())


async def test_request_without_an_answer_times_out_and_its_late_answer_is_dropped(
    world: World,
) -> None:
    caller = world.caller
    await caller.add(run_of(7, range(1)))
    world.held.is_holding = True
    caller.timeout_ms = 30
    calls = [
        caller.start_add(run_of(7, range(1, 4))),
        caller.start_read(7, 0),
        caller.start_read_batch(7, 0, 1, 1000),
    ]
    assert [await call.result() for call in calls] == [
        (Code.TIMEOUT,), (Code.TIMEOUT, None), (Code.TIMEOUT, ())
    ]  # fmt: skip
    world.held.release()
    caller.timeout_ms = 20_000
    assert await caller.read(7, 0) == (Code.OK, stored(7, 0))
    assert [len(call.replies) for call in calls] == [1, 1, 1]


async def test_each_request_keeps_its_own_deadline(world: World) -> None:
    caller = world.caller
    await caller.add(run_of(7, range(2)))
    world.held.is_holding = True
    patient = caller.start_read(7, 0)
    caller.timeout_ms = 30
    assert await caller.read_batch(7, 1, 1, 100) == (Code.TIMEOUT, ())
    assert not patient.replies


async def test_closing_answers_what_is_open_and_what_comes_later(world: World) -> None:
    caller = world.caller
    await caller.add(run_of(7, range(1)))
    world.held.is_holding = True
    calls = [caller.start_read(7, 0), caller.start_read(7, 0), caller.start_read_batch(7, 0, 1, 9)]
    await world.transport_closed()
    assert [(await call.result())[0] for call in calls] == [Code.UNAVAILABLE] * 3
    assert await caller.add(run_of(7, range(1))) is Code.UNAVAILABLE
    assert await caller.read(7, 0, fence_key=KEY) == (Code.UNAVAILABLE, None)
    assert await caller.read_lac(7) == (Code.UNAVAILABLE, NO_ENTRY)
    assert await caller.write_lac(7, 1) is Code.UNAVAILABLE
    assert await caller.watch_lac(7).ended() is Code.UNAVAILABLE
    await world.transport_closed()


async def test_explicit_lac_is_known_to_the_bookie_and_never_falls(caller: Caller) -> None:
    await caller.add(run_of(7, range(10)))
    assert await caller.read_lac(7) == (Code.OK, -1)
    assert await caller.write_lac(7, 5) is Code.OK
    assert await caller.write_lac(7, 3) is Code.OK
    assert await caller.read_lac(7) == (Code.OK, 5)
    await caller.add(run_of(7, range(10, 20), last_add_confirmed=9))
    assert await caller.read_lac(7) == (Code.OK, 9)


async def test_lac_of_a_ledger_that_the_bookie_never_saw_is_absent_and_not_zero(
    caller: Caller,
) -> None:
    assert await caller.read_lac(8) == (Code.NO_LEDGER, -1)


async def test_wrong_master_key_writes_no_lac(caller: Caller) -> None:
    await caller.add(run_of(7, range(10)))
    assert await caller.write_lac(7, 5, key=OTHER_KEY) is Code.UNAUTHORIZED
    assert await caller.read_lac(7) == (Code.OK, -1)


async def test_lac_that_no_request_can_have_is_refused(caller: Caller) -> None:
    for call in (
        lambda: caller.start_write_lac(7, -1),
        lambda: caller.start_write_lac(-7, 1),
        lambda: caller.start_write_lac(7, 1, key=b"short"),
        lambda: caller.announce_lac(7, -1),
        lambda: caller.announce_lac(-7, 1),
        lambda: caller.announce_lac(7, 1, key=b"short"),
        lambda: caller.start_read_lac(-1),
        lambda: caller.watch_lac(-1),
    ):
        with pytest.raises(LocalProtocolError):
            call()


async def test_watch_tells_the_lac_there_is_and_each_rise_of_it(caller: Caller) -> None:
    await caller.add(run_of(7, range(10), last_add_confirmed=-1))
    await caller.write_lac(7, 2)
    watch, later = caller.watch_lac(7), caller.watch_lac(7, previous=2)
    await watch.rises_to(2)
    await caller.add(run_of(7, range(10, 20), last_add_confirmed=9))
    await watch.rises_to(9)
    await later.rises_to(9)
    await caller.write_lac(7, 19)
    await watch.rises_to(19)
    await later.rises_to(19)
    assert 2 not in later.rises
    watch.cancel()
    later.cancel()


async def test_watch_of_a_ledger_without_entries_tells_of_its_first_lac(caller: Caller) -> None:
    watch = caller.watch_lac(9)
    await caller.add(run_of(9, range(10)))
    await caller.write_lac(9, 9)
    await watch.rises_to(9)
    watch.cancel()


async def test_watch_brings_the_entries_along_that_its_rises_cover(caller: Caller) -> None:
    watch = caller.watch_lac(7, entries_size_bytes_max=1_000)
    await caller.add(run_of(7, range(3)))
    await caller.write_lac(7, 2)
    await watch.rises_to(2)
    await caller.add(run_of(7, range(3, 5), last_add_confirmed=2))
    await caller.write_lac(7, 3)
    await watch.rises_to(3)
    told = {first + n: one for first, some in watch.told for n, one in enumerate(some)}
    assert told == {number: stored(7, number) for number in range(3)} | {
        3: bytes(run_of(7, range(3, 4), last_add_confirmed=2).entries[0][0]) + b"payload"
    }
    watch.cancel()


async def test_watch_brings_no_entries_beyond_the_size_that_is_wanted(caller: Caller) -> None:
    small = caller.watch_lac(7, entries_size_bytes_max=2_500)
    none = caller.watch_lac(7)
    await caller.add(run_of(7, range(10), b"x" * 1_000))
    await caller.write_lac(7, 9)
    await small.rises_to(9)
    await none.rises_to(9)
    ((first, some),) = small.told
    assert first == 0
    assert some == [stored(7, number, b"x" * 1_000) for number in range(2)]
    assert none.told == [(0, [])]
    await caller.add(run_of(7, range(10, 11), b"y" * 5_000))
    await caller.write_lac(7, 10)
    await small.rises_to(10)
    assert small.told[-1] == (10, [])
    small.cancel()
    none.cancel()


async def test_watch_hears_of_a_lac_that_was_told_or_else_it_was_not_sent(caller: Caller) -> None:
    watch = caller.watch_lac(7, entries_size_bytes_max=1_000)
    await caller.add(run_of(7, range(3)))
    if not caller.announce_lac(7, 2):
        assert await caller.write_lac(7, 2) is Code.OK
    await watch.rises_to(2)
    assert watch.told == [(0, [stored(7, number) for number in range(3)])]
    caller.announce_lac(7, 1)
    assert await caller.read_lac(7) == (Code.OK, 2)
    watch.cancel()


async def test_lac_that_is_told_with_a_wrong_key_or_of_an_unknown_ledger_changes_nothing(
    caller: Caller,
) -> None:
    await caller.add(run_of(7, range(3)))
    caller.announce_lac(7, 1, key=OTHER_KEY)
    caller.announce_lac(8, 1)
    await caller.add(run_of(7, range(3, 4)))
    assert await caller.read_lac(7) == (Code.OK, -1)
    assert await caller.read_lac(8) == (Code.NO_LEDGER, -1)


async def test_watch_that_was_cancelled_says_nothing_more(caller: Caller) -> None:
    await caller.add(run_of(7, range(10)))
    watch, other = caller.watch_lac(7), caller.watch_lac(7)
    await caller.write_lac(7, 3)
    await watch.rises_to(3)
    watch.cancel()
    watch.cancel()
    await caller.write_lac(7, 5)
    await other.rises_to(5)
    assert (watch.rises[-1], watch.ends) == (3, [])
    other.cancel()


async def test_lac_of_an_unknown_bookie_is_unavailable(caller: Caller) -> None:
    caller.bookie_id = "bookie-9"
    assert await caller.write_lac(7, 1) is Code.UNAVAILABLE
    assert await caller.read_lac(7) == (Code.UNAVAILABLE, -1)
    assert await caller.watch_lac(7).ended() is Code.UNAVAILABLE
    assert not caller.announce_lac(7, 1)


async def test_lac_without_an_answer_times_out(world: World) -> None:
    await world.caller.add(run_of(7, range(1)))
    world.held.is_holding = True
    world.caller.timeout_ms = 300
    assert await world.caller.write_lac(7, 0) is Code.TIMEOUT
    assert await world.caller.read_lac(7) == (Code.TIMEOUT, -1)


async def test_closing_ends_watches_once_and_answers_lac_requests(world: World) -> None:
    caller = world.caller
    await caller.add(run_of(7, range(1)))
    await caller.write_lac(7, 0)
    watch = caller.watch_lac(7)
    await watch.rises_to(0)
    world.held.is_holding = True
    reading = caller.start_read_lac(7)
    await world.transport_closed()
    assert await reading.result() == (Code.UNAVAILABLE, -1)
    assert await watch.ended() is Code.UNAVAILABLE
    assert await caller.watch_lac(7).ended() is Code.UNAVAILABLE
    assert await caller.write_lac(7, 0) is Code.UNAVAILABLE
    assert not caller.announce_lac(7, 0)
    await world.transport_closed()
    assert watch.ends == [Code.UNAVAILABLE]
