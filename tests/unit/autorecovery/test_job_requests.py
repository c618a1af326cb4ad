"""The requests of replication jobs to stores and bookies (AUTORECOVERY.md#X2)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from ledgerlog_spark.autorecovery.accepted import AcceptedEntries
from ledgerlog_spark.autorecovery.replicate.bookie_requests import BookieRequests, CopyCounters
from ledgerlog_spark.autorecovery.replicate.quiet import QuietLedgers
from ledgerlog_spark.autorecovery.replicate.store_requests import FencePace, StoreRequests
from ledgerlog_spark.client.bookies import BookieChoice
from ledgerlog_spark.errors import (
    LedgerNotFoundError,
    MetadataUnavailableError,
    NeedsOperatorError,
    NotEnoughBookiesError,
)
from ledgerlog_spark.metadata.replication.ports import BookieIdentity
from ledgerlog_spark.model import (
    NO_ENTRY,
    BookieInfo,
    Code,
    DigestType,
    Fragment,
    LedgerMetadata,
    Quorum,
)
from ledgerlog_spark.protocol.autorecovery.replicate import messages as m
from ledgerlog_spark.protocol.autorecovery.replicate.pace import CopyPace
from ledgerlog_spark.protocol.ledger import messages as p
from ledgerlog_spark.protocol.ledger.identities import IdentitiesRead, ReadIdentities
from ledgerlog_spark.testing.cluster import memory_metadata
from ledgerlog_spark.transport.port import AddRun, ReadBatch, ReadEntry
from ledgerlog_spark.wire.entry import EntryCodec
from ledgerlog_spark.wire.repair_notes import Hole, Holes, Move, MoveReason, Moves
from tests.fixtures.metadata_worlds import memory_tree

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.virtual_time

LEDGER = 7
PASSWORD = b"secret"
METADATA = LedgerMetadata(
    Quorum(3, 3, 2),
    (Fragment(0, ("b0", "b1", "b2")),),
    password=PASSWORD,
    has_password=True,
    digest_type=DigestType.CRC32C,
)
OK, UNAVAILABLE = p.MetadataOutcome.OK, p.MetadataOutcome.UNAVAILABLE


class Job:
    """The requests of one job on stores in memory."""

    def __init__(self, queue: m.TaskQueue = m.TaskQueue.MARK) -> None:
        self.stores = memory_metadata()
        self.queue = queue
        self.recovered: list[tuple[int, bytes, int]] = []
        self.error: Exception | None = None
        self.lacs = {"b0": 3, "b1": 5, "b2": NO_ENTRY}
        self.quiet, self.fences = QuietLedgers(), FencePace()
        self.at_once = self.most = 0

    async def prepare(self) -> None:
        await self.stores.initialize()
        for name in ("b0", "b1", "b3"):
            await self.stores.registration.register(BookieInfo(name, f"h-{name}", 3181))
            await self.stores.registration.write_cookie(name, b"cookie", None)
        await self.stores.ledgers.create(LEDGER, METADATA)
        await self.stores.marks.mark(LEDGER, ["b2"])
        await self.stores.holes.add(LEDGER, Holes((Hole("b0"),)))
        await self.stores.moves.add(LEDGER, Moves((Move("b0", reason=MoveReason.DRAIN),)))

    def requests(self) -> StoreRequests:
        stores = self.stores
        return StoreRequests(
            stores,
            self.queue,
            LEDGER,
            "w",
            bookies=BookieChoice(stores.registration, stores.topologies, None, Random(0)),
            floor_of=self.floor_of,
            recover=self.recover,
            read_lac=self.read_lac,
            quiet=self.quiet,
            fences=self.fences,
        )

    async def floor_of(self, _ledger_id: int) -> int:
        if self.error is not None:
            raise self.error
        return 4

    async def recover(self, ledger_id: int, password: bytes, floor: int) -> LedgerMetadata:
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        await asyncio.sleep(1)
        self.at_once -= 1
        if self.error is not None:
            raise self.error
        self.recovered.append((ledger_id, password, floor))
        return METADATA

    async def read_lac(self, bookie_id: str, _ledger_id: int) -> int:
        return self.lacs[bookie_id]


async def performed(requests: StoreRequests | BookieRequests, effect: Any) -> Any:
    performs: Any = requests.performs
    return await performs[type(effect)](effect)


@pytest.fixture
async def job() -> AsyncIterator[Job]:
    made = Job()
    await made.prepare()
    yield made
    await made.stores.close()


@pytest.mark.parametrize("queue", list(m.TaskQueue))
async def test_no_request_is_sent_in_another_session(job: Job, queue: m.TaskQueue) -> None:
    """AUTORECOVERY.md#X2."""
    job.queue = queue
    requests = job.requests()
    task = (await performed(requests, m.LoadTask(1))).task
    assert (await performed(requests, m.TakeLock(2))).is_mine
    record = (await performed(requests, p.LoadMetadata(3, sync_first=True))).versioned
    (identity,) = (await performed(requests, ReadIdentities(4, ("b3",)))).identities
    job.stores.tree.expire_session()  # type: ignore[attr-defined]
    unreadable = (m.UnreadableEntries(0, 0, True, ()),)
    effects = [
        m.LoadTask(1),
        m.TakeLock(2),
        p.LoadMetadata(3, sync_first=True),
        m.ListRegistered(4),
        p.CasMetadata(6, METADATA.in_recovery(), record.version, (identity,)),
        m.DeleteTask(task.version, record.version, 7),
        m.ReportUnreadable(unreadable, 8),
        m.ReadFloor(9),
    ]
    assert [(await performed(requests, one)).outcome for one in effects] == [UNAVAILABLE] * 8
    assert await performed(requests, ReadIdentities(5, ("b3",))) == IdentitiesRead(5, None)
    failed = await performed(requests, m.RecoverForCopies(4, 10))
    assert failed.failure is p.Failure.RECOVERY
    await performed(requests, m.ReleaseLock(11))
    # Nothing has changed.
    assert job.recovered == []
    assert (await job.stores.ledgers.load(LEDGER)).value == METADATA
    assert await job.stores.unreadable.load(LEDGER) is None
    assert (await performed(job.requests(), m.LoadTask(1))).task == task


async def test_a_lock_of_another_session_is_not_released(job: Job) -> None:
    """In the new session, another job of the same worker has the lock."""
    before = job.requests()
    assert (await performed(before, m.TakeLock(1))).is_mine
    job.stores.tree.expire_session()  # type: ignore[attr-defined]
    assert (await performed(job.requests(), m.TakeLock(2))).is_mine
    await before.release()
    assert await job.stores.replication_locks.holder(LEDGER) == "w"


async def test_a_job_decides_by_what_a_sync_shows() -> None:
    job = Job()
    await job.prepare()
    tree = memory_tree(job.stores)
    other = memory_metadata(tree.nodes)
    found = await other.ledgers.load(LEDGER)
    tree.hold_reads()
    await other.ledgers.write(LEDGER, METADATA.in_recovery(), found.version)
    requests = job.requests()
    loaded = await performed(requests, p.LoadMetadata(1, sync_first=True))
    assert loaded.versioned.value.state is METADATA.in_recovery().state
    await other.registration.register(BookieInfo("b4", "h-b4", 3181), read_only=True)
    await other.registration.register(BookieInfo("b5", "h-b5", 3181))
    registered = await performed(requests, m.ListRegistered(2))
    assert set(registered.writable) == {"b0", "b1", "b3", "b5"}
    assert registered.read_only == {"b4"}
    await other.close()
    await job.stores.close()


@pytest.mark.parametrize("queue", list(m.TaskQueue))
async def test_a_task_is_deleted_under_its_lock_and_once(job: Job, queue: m.TaskQueue) -> None:
    job.queue = queue
    requests = job.requests()
    task = (await performed(requests, m.LoadTask(1))).task
    assert (await performed(requests, m.TakeLock(2))).is_mine
    assert not (await performed(job.requests(), m.TakeLock(2))).is_mine
    record = (await performed(requests, p.LoadMetadata(3, sync_first=True))).versioned
    older = replace(record.version, number=record.version.number + 1)
    assert not (await performed(requests, m.DeleteTask(task.version, older, 3))).is_deleted
    deletion = m.DeleteTask(task.version, record.version, 3)
    assert (await performed(requests, deletion)).is_deleted
    await performed(requests, m.ReleaseLock(4))
    assert await job.stores.replication_locks.holder(LEDGER) is None
    found = await performed(job.requests(), m.LoadTask(1))
    assert (found.outcome, found.task) == (p.MetadataOutcome.GONE, None)
    for other in set(m.TaskQueue) - {queue}:
        job.queue = other
        assert (await performed(job.requests(), m.LoadTask(1))).task is not None


async def test_the_record_is_written_only_while_the_target_is_the_same(job: Job) -> None:
    """AUTORECOVERY.md#X7."""
    requests = job.requests()
    record = (await performed(requests, p.LoadMetadata(1, sync_first=True))).versioned
    (identity,) = (await performed(requests, ReadIdentities(2, ("b3",)))).identities
    assert isinstance(identity.token, BookieIdentity)
    cookie = await job.stores.registration.read_cookie("b3")
    assert cookie is not None
    await job.stores.registration.write_cookie("b3", b"another", cookie.version)
    cas = p.CasMetadata(3, METADATA.in_recovery(), record.version, (identity,))
    assert (await performed(requests, cas)).outcome is p.MetadataOutcome.BOOKIE_CHANGED
    (identity,) = (await performed(requests, ReadIdentities(4, ("b3",)))).identities
    cas = p.CasMetadata(5, METADATA.in_recovery(), record.version, (identity,))
    assert (await performed(requests, cas)).outcome is OK
    assert requests.record is not None
    assert requests.record.value == METADATA.in_recovery()
    gone = await performed(requests, ReadIdentities(6, ("b9",)))
    assert gone == IdentitiesRead(6, ())


async def test_a_report_is_replaced_and_deleted(job: Job) -> None:
    requests = job.requests()
    await performed(requests, m.LoadTask(1))
    await performed(requests, m.TakeLock(2))
    entries = (m.UnreadableEntries(3, 5, False, (("b0", Code.TIMEOUT),)),)
    assert (await performed(requests, m.ReportUnreadable(entries, 3))).outcome is OK
    note = await job.stores.unreadable.load(LEDGER)
    assert note is not None
    assert note.value.found_by == "w"
    assert [(one.first_entry_id, one.is_lost, one.answers) for one in note.value.ranges] == [
        (3, False, (("b0", "timeout"),))
    ]
    assert (await performed(requests, m.ReportUnreadable((), 4))).outcome is OK
    assert await job.stores.unreadable.load(LEDGER) is None
    assert (await performed(requests, m.ReportUnreadable((), 5))).outcome is OK


async def test_a_ledger_is_quiet_since_any_bookie_got_its_last_entry(job: Job) -> None:
    """AUTORECOVERY.md#X9: the highest LAC counts, not that of a bookie that lags."""
    requests = job.requests()
    effect = m.MeasureQuiet(("b0", "b1", "b2"), 1)
    assert (await performed(requests, effect)).quiet_ms == 0
    await asyncio.sleep(2)
    assert (await performed(requests, effect)).quiet_ms == 2_000
    job.lacs["b1"] = 6
    assert (await performed(requests, effect)).quiet_ms == 0
    await asyncio.sleep(1)
    job.lacs["b0"] = 6
    assert (await performed(job.requests(), effect)).quiet_ms == 1_000


async def test_a_recovery_gets_the_password_and_the_floor_and_its_errors_are_named(
    job: Job,
) -> None:
    requests = job.requests()
    await performed(requests, p.LoadMetadata(1, sync_first=True))
    assert (await performed(requests, m.ReadFloor(2))).floor == 4
    assert (await performed(requests, m.RecoverForCopies(4, 3))).failure is None
    assert job.recovered == [(LEDGER, PASSWORD, 4)]
    failures = []
    for error in (
        LedgerNotFoundError("gone"),
        NeedsOperatorError("limbo"),
        NotEnoughBookiesError("few"),
        MetadataUnavailableError("away"),
    ):
        job.error = error
        failures.append((await performed(requests, m.RecoverForCopies(4, 3))).failure)
    assert failures == [
        None,
        p.Failure.NEEDS_OPERATOR,
        p.Failure.NOT_ENOUGH_BOOKIES,
        p.Failure.RECOVERY,
    ]
    assert (await performed(requests, m.ReadFloor(4))).outcome is UNAVAILABLE
    job.error = LedgerNotFoundError("no log lists it")
    floor = await performed(requests, m.ReadFloor(5))
    assert (floor.outcome, floor.floor) == (OK, NO_ENTRY)


async def test_jobs_recover_one_ledger_at_a_time(job: Job) -> None:
    several = [job.requests() for _ in range(3)]
    for requests in several:
        await performed(requests, p.LoadMetadata(1, sync_first=True))
    await asyncio.gather(*(performed(one, m.RecoverForCopies(-1, 2)) for one in several))
    assert (len(job.recovered), job.most) == (3, 1)


# Bookies.


def stored(count: int) -> list[bytes]:
    codec = EntryCodec(DigestType.CRC32C, PASSWORD)
    encoded = codec.encode_run(
        ledger_id=LEDGER,
        first_entry_id=0,
        last_add_confirmed=-1,
        length=0,
        payloads=[b"%d" % number * 10 for number in range(count)],
    )
    return [b"".join(one) for one in encoded]


class Bookie:
    """A transport whose answers are set, on the usual service or on the control service."""

    def __init__(self, name: str, log: list[tuple[str, Any]]) -> None:
        self.name, self.log = name, log
        self.batch: tuple[Any, ...] = (Code.OK, stored(3))
        self.single: tuple[Any, ...] = (Code.OK, stored(1)[0])
        self.added: tuple[Any, ...] = (Code.OK,)
        self.connections = 1

    def read(self, _name: str, request: ReadEntry, _timeout_ms: int, on_reply: Any) -> None:
        self.log.append((self.name, request))
        on_reply(*self.single)

    def read_batch(self, _name: str, request: ReadBatch, _timeout_ms: int, on_reply: Any) -> None:
        self.log.append((self.name, request))
        on_reply(*self.batch)

    def add(self, _name: str, run: AddRun, _timeout_ms: int, on_reply: Any) -> None:
        self.log.append((self.name, run))
        on_reply(*self.added)

    def recovery_connections(self, _name: str) -> int:
        return self.connections


class Bookies:
    """The requests of a job to one bookie."""

    def __init__(self, bytes_per_second_max: int = 0) -> None:
        self.log: list[tuple[str, Any]] = []
        self.usual, self.control = Bookie("usual", self.log), Bookie("control", self.log)
        self.counters = CopyCounters()
        self.pace = CopyPace(bytes_per_second_max)
        unused: Any = None
        transport: Any = self.usual
        accepted: AcceptedEntries = unused
        requests = BookieRequests(
            transport, self.control, unused, self.pace, self.counters, 1_000, accepted
        )
        self.performs = requests.performs(LEDGER, lambda: METADATA)

    async def __call__(self, effect: Any) -> Any:
        return await self.performs[type(effect)](effect)


async def test_a_force_is_a_recovery_read_through_the_control_service() -> None:
    """AUTORECOVERY.md#X6: no other read waits until earlier adds are durable."""
    bookies = Bookies()
    assert (await bookies(m.ForceEntries("b3", 5, 1))).code is Code.OK
    assert bookies.log == [("control", ReadEntry(LEDGER, 5, is_recovery=True))]
    bookies.control.single = (Code.NO_ENTRY, None)
    assert (await bookies(m.ForceEntries("b3", 5, 1))).code is Code.NO_ENTRY


async def test_copies_end_before_the_first_one_with_a_wrong_digest() -> None:
    """AUTORECOVERY.md#X10."""
    bookies = Bookies()
    entries = stored(3)
    read = m.ReadCopies("b0", 0, 3, 1)
    assert [one.stored for one in (await bookies(read)).copies] == entries
    for bad in range(3):
        harmed = [*entries]
        harmed[bad] = harmed[bad][:-1] + b"?"
        bookies.usual.batch = (Code.OK, harmed)
        reply = await bookies(read)
        assert len(reply.copies) == bad
        assert reply.code is (Code.OK if bad else Code.DIGEST_MISMATCH)
    assert bookies.counters.copies_refused == 1
    bookies.usual.batch = (Code.OK, entries[1:])
    assert (await bookies(read)).code is Code.DIGEST_MISMATCH, "another entry in this place"
    bookies.usual.batch = (Code.OK, stored(5))
    assert len((await bookies(m.ReadCopies("b0", 0, 2, 1))).copies) == 2


@pytest.mark.parametrize("code", [Code.BAD_REQUEST, Code.BAD_VERSION])
async def test_a_bookie_without_batches_is_read_entry_by_entry(code: Code) -> None:
    bookies = Bookies()
    bookies.usual.batch = (code, [])
    reply = await bookies(m.ReadCopies("b0", 0, 3, 1))
    assert (reply.code, len(reply.copies)) == (Code.OK, 1)
    bookies.usual.single = (Code.NO_ENTRY, None)
    assert (await bookies(m.ReadCopies("b0", 0, 3, 1))).code is Code.NO_ENTRY


async def test_an_add_is_one_of_recovery_and_has_the_number_of_its_connection() -> None:
    bookies = Bookies()
    copies = (await bookies(m.ReadCopies("b0", 0, 3, 1))).copies
    first = await bookies(m.AddCopies("b3", copies, 2))
    bookies.usual.connections = 2
    second = await bookies(m.AddCopies("b3", (copies[0], copies[2]), 3))
    assert (first.code, first.connection, second.connection) == (Code.OK, 1, 2)
    (_, run), (_, gapped) = bookies.log[-2:]
    assert run.is_recovery
    assert (list(run.entry_ids), list(gapped.entry_ids)) == ([0, 1, 2], [0, 2])
    assert [b"".join(one) for one in run.entries] == stored(3)
    assert bookies.counters.entries_copied == 5
    bookies.usual.added = (Code.READ_ONLY,)
    assert (await bookies(m.AddCopies("b3", copies, 4))).code is Code.READ_ONLY
    assert bookies.counters.entries_copied == 5


async def test_copies_are_read_at_the_rate_of_the_worker() -> None:
    """AUTORECOVERY.md#X11."""
    size_bytes = sum(map(len, stored(3)))
    bookies = Bookies(bytes_per_second_max=size_bytes)
    began = asyncio.get_running_loop().time()
    for _ in range(10):
        await bookies(m.ReadCopies("b0", 0, 3, 1))
    assert asyncio.get_running_loop().time() - began > 9
