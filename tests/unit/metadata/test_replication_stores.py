"""The stores of auto-recovery while reads are stale, sessions end, and other processes write."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import replace

import pytest

from ledgerlog_spark.errors import MetadataError, MetadataUnknownError, MetadataVersionError
from ledgerlog_spark.metadata import tree as znodes
from ledgerlog_spark.metadata.ordered import in_order
from ledgerlog_spark.metadata.replication.locks import LEFT_MAX, RETURNS_MAX, ReplicationLocks
from ledgerlog_spark.metadata.replication.ports import Check, Walk, WalkPosition
from ledgerlog_spark.metadata.settled_writes import CONFLICTS_MAX, update_node
from ledgerlog_spark.metadata.stores import MetadataStores
from ledgerlog_spark.model import Fragment, LedgerMetadata, Quorum, Version
from ledgerlog_spark.testing.memory.nodes import MemoryNodes
from ledgerlog_spark.testing.memory.tree import Fault, MemoryTree
from ledgerlog_spark.wire.known_bookie import KnownBookie, KnownDirectory
from ledgerlog_spark.wire.repair_notes import Hole, Holes, Vacation, VacationKind, VacationPhase
from ledgerlog_spark.wire.underreplication import lock_path
from tests.fixtures.metadata_worlds import memory_tree

ROOT = "/ledgers"
BOOKIE = "b1:3181"
KNOWN = KnownBookie((KnownDirectory("0123456789abcdef", 1, 1),))
METADATA = LedgerMetadata(Quorum(1, 1, 1), (Fragment(0, ("b0",)),))
MOVED = replace(METADATA, fragments=(Fragment(0, (BOOKIE,)),))


class Disturbed(MemoryTree):
    """A tree that calls `before` immediately before each transaction is executed."""

    before: Callable[[], Awaitable[object]] | None = None

    async def transact(
        self, operations: Sequence[znodes.NodeOperation]
    ) -> list[znodes.Created | Version | None]:
        if self.before is not None:
            await self.before()
        return await super().transact(operations)


async def stores_on(nodes: MemoryNodes, tree: MemoryTree | None = None) -> MetadataStores:
    stores = MetadataStores.on(tree or MemoryTree(nodes), ROOT)
    await stores.initialize()
    return stores


@pytest.fixture
async def two() -> tuple[MetadataStores, MetadataStores]:
    """A writer, and a reader whose reads are stale until a sync."""
    nodes = MemoryNodes()
    writer, reader = await stores_on(nodes), await stores_on(nodes)
    assert isinstance(reader.tree, MemoryTree)
    reader.tree.hold_reads()
    return writer, reader


Two = tuple[MetadataStores, MetadataStores]


async def test_loads_are_not_stale(two: Two) -> None:
    writer, reader = two
    vacation = Vacation(VacationKind.DRAIN, VacationPhase.DRAINING)
    await writer.marks.mark(7, ["b1"])
    assert await reader.marks.load(7) is not None
    await writer.holes.add(7, Holes.of([Hole("b1")]))
    assert await reader.holes.load(7) is not None
    await writer.recovery_switch.disable()
    assert not await reader.recovery_switch.is_enabled()
    await writer.recovery_switch.set_lost_bookie_delay(5)
    assert await reader.recovery_switch.lost_bookie_delay() is not None
    await writer.check_times.set_time_ms(Check.REPLICAS, 5)
    assert await reader.check_times.time_ms(Check.REPLICAS) == 5
    await writer.check_times.set_position(Walk.LEDGERS, WalkPosition(5))
    assert await reader.check_times.position(Walk.LEDGERS) == WalkPosition(5)
    await writer.vacations.write("b1", vacation, None)
    assert await reader.vacations.load("b1") is not None
    await writer.vacations.write("b2", vacation, None)
    assert set(await reader.vacations.all()) == {"b1", "b2"}
    assert await writer.replication_locks.acquire(7, "w1") is not None
    assert await reader.replication_locks.holder(7) == "w1"
    await writer.registration.write_cookie("b1", b"cookie", None)
    assert await reader.identities.load("b1") is not None
    candidacy = await writer.auditor_election.join("a")
    assert await reader.auditor_election.current() == "a"
    await candidacy.leave()


async def test_a_free_lock_has_no_holder(two: Two) -> None:
    assert await two[0].replication_locks.holder(7) is None


async def test_stale_reads_do_not_delete_a_newer_mark(two: Two) -> None:
    writer, reader = two
    old = await writer.marks.mark(7, ["b1"])
    lock = await reader.replication_locks.acquire(7, "w1")
    assert lock is not None
    await writer.marks.mark(7, ["b1"])
    assert not await reader.marks.delete(7, old, lock)


async def test_a_session_that_ends_before_the_lock_is_taken_takes_it_anew() -> None:
    tree = Disturbed(MemoryNodes())
    stores = await stores_on(tree.nodes, tree)
    locks = ReplicationLocks(tree, ROOT)

    async def expire() -> None:
        tree.before = None
        tree.expire_session()

    tree.before = expire
    lock = await locks.acquire(7, "w1")
    assert lock is not None
    assert lock.session_id == tree.session_id
    assert locks.is_held(lock)
    await stores.marks.mark(7, ["b1"])


async def test_a_session_that_ends_just_before_a_deletion_deletes_nothing() -> None:
    tree = Disturbed(MemoryNodes())
    stores = await stores_on(tree.nodes, tree)
    version = await stores.marks.mark(7, ["b1"])
    lock = await stores.replication_locks.acquire(7, "w1")
    assert lock is not None

    async def expire() -> None:
        tree.before = None
        tree.expire_session()
        assert await stores.replication_locks.acquire(7, "w2") is not None

    tree.before = expire
    assert not await stores.marks.delete(7, version, lock)
    assert await stores.marks.load(7) is not None


async def test_a_lock_whose_answers_are_all_lost_is_unknown() -> None:
    tree = MemoryTree()
    stores = await stores_on(tree.nodes, tree)
    locks = stores.replication_locks
    assert await locks.acquire(8, "w1") is not None
    tree.inject(*[Fault.REQUEST_LOST] * 8)
    with pytest.raises(MetadataUnknownError):
        await locks.acquire(7, "w1")


@pytest.mark.parametrize("failure", [Fault.REPLY_LOST, Fault.NOT_SENT])
async def test_a_lock_that_could_not_be_given_back_is_given_back_later(failure: Fault) -> None:
    nodes = MemoryNodes()
    first, second = await stores_on(nodes), await stores_on(nodes)
    locks = first.replication_locks
    assert await locks.acquire(8, "w1") is not None
    assert await locks.acquire(7, "w1") is not None
    memory_tree(first).inject(*[Fault.REQUEST_LOST] * 3, failure, *[Fault.REQUEST_LOST] * 4)
    with contextlib.suppress(MetadataError):
        await locks.release(7)
    with contextlib.suppress(MetadataError):
        await locks.release_left()  # fails as well
    await locks.release_left()
    assert await second.replication_locks.acquire(7, "w2") is not None
    assert await second.replication_locks.acquire(8, "w2") is None


async def test_a_lock_with_an_unknown_outcome_is_given_back_or_taken_again() -> None:
    nodes = MemoryNodes()
    first, second = await stores_on(nodes), await stores_on(nodes)
    locks = first.replication_locks
    assert await locks.acquire(1, "w1") is not None
    tree = memory_tree(first)
    for ledger_id in (7, 8):
        tree.inject(Fault.DELAYED, *[Fault.REQUEST_LOST] * 7)
        with pytest.raises(MetadataUnknownError):
            await locks.acquire(ledger_id, "w1")
        tree.deliver_delayed()
    assert await second.replication_locks.acquire(7, "w2") is None
    assert await locks.acquire(8, "w1") is not None  # the caller takes it again
    await locks.release_left()
    assert await second.replication_locks.acquire(7, "w2") is not None
    assert await second.replication_locks.acquire(8, "w2") is None


async def test_locks_of_an_earlier_session_are_not_given_back() -> None:
    tree = Disturbed(MemoryNodes())
    stores = await stores_on(tree.nodes, tree)
    locks = stores.replication_locks
    assert await locks.acquire(7, "w1") is not None
    tree.inject(*[Fault.REQUEST_LOST] * 4)
    with pytest.raises(MetadataUnknownError):
        await locks.release(7)
    tree.expire_session()
    assert await locks.acquire(7, "w1") is not None
    await locks.release_left()
    assert await locks.holder(7) == "w1"


async def test_a_limited_number_of_locks_is_left_and_given_back_at_a_time() -> None:
    tree = Disturbed(MemoryNodes())
    stores = await stores_on(tree.nodes, tree)
    locks = stores.replication_locks
    for ledger_id in range(LEFT_MAX + 1):
        assert await locks.acquire(ledger_id, "w1") is not None
        tree.inject(*[Fault.REQUEST_LOST] * 4)
        with pytest.raises(MetadataUnknownError):
            await locks.release(ledger_id)
    held = f"{ROOT}/underreplication/locks"
    await locks.release_left()
    assert len(await tree.children(held)) == LEFT_MAX + 1 - RETURNS_MAX
    for _ in range(LEFT_MAX // RETURNS_MAX + 1):
        await locks.release_left()
    assert await tree.children(held) == [lock_path(LEFT_MAX).rpartition("/")[2]]


async def test_the_cookie_of_a_bookie_that_returns_at_the_last_moment_stays() -> None:
    tree = Disturbed(MemoryNodes())
    stores = await stores_on(tree.nodes, tree)
    bookie = await stores_on(tree.nodes)
    await stores.registration.write_cookie("b1", b"cookie", None)
    leaving = Vacation(VacationKind.DECOMMISSION, VacationPhase.VACATING)
    version = await stores.vacations.write("b1", leaving, None)
    found = await stores.registration.read_cookie("b1")
    assert found is not None

    async def come_back() -> None:
        tree.before = None
        await bookie.vacations.write("b1", replace(leaving, returns=1), version)

    tree.before = come_back
    with pytest.raises(MetadataVersionError):
        await stores.vacations.write_and_delete_cookie(
            "b1", replace(leaving, phase=VacationPhase.VACATED), version, found.version
        )
    assert await bookie.registration.read_cookie("b1") is not None


async def test_conflicts_of_an_update_are_bounded() -> None:
    tree = MemoryTree()
    await tree.create("/node", b"0")
    calls = 0

    def changed(_: bytes | None) -> bytes:
        nonlocal calls
        calls += 1
        tree.nodes.commit([znodes.SetNode("/node", b"other", None)], tree.session_id)
        return b"mine"

    with pytest.raises(MetadataVersionError, match="try again"):
        await update_node(tree, "/node", changed)
    assert calls == CONFLICTS_MAX


async def identified(
    tree: Disturbed,
) -> tuple[MetadataStores, Callable[[], Awaitable[object]]]:
    """A cluster with a ledger and a bookie, and a call that writes the counters of the bookie."""
    stores = await stores_on(tree.nodes, tree)
    other = await stores_on(tree.nodes)
    await stores.ledgers.create(7, METADATA)
    await stores.registration.write_cookie(BOOKIE, b"cookie", None)
    await stores.known_bookies.write(BOOKIE, KNOWN, None)

    async def count() -> None:
        record = await other.known_bookies.read(BOOKIE)
        assert record is not None
        [directory] = record.value.directories
        busy = KnownBookie((replace(directory, changes=directory.changes + 1),))
        await other.known_bookies.write(BOOKIE, busy, record.version)

    return stores, count


async def test_a_target_that_stores_data_is_compared_again() -> None:
    tree = Disturbed(MemoryNodes())
    stores, count = await identified(tree)
    identity = await stores.identities.load(BOOKIE)
    found = await stores.ledgers.load(7)
    assert identity is not None

    async def count_once() -> None:
        tree.before = None
        await count()

    tree.before = count_once
    assert (await stores.ledgers.replace(7, MOVED, found.version, [identity])).value == MOVED


async def test_a_write_of_another_client_after_a_lost_answer_is_no_success() -> None:
    tree = Disturbed(MemoryNodes())
    stores, _ = await identified(tree)
    other = await stores_on(tree.nodes)
    found = await stores.ledgers.load(7)

    async def write_first() -> None:
        tree.before = None
        await other.ledgers.write(7, METADATA.in_recovery(), found.version)
        tree.inject(Fault.REQUEST_LOST)

    tree.before = write_first
    with pytest.raises(MetadataVersionError, match="decide again"):
        await stores.ledgers.replace(7, MOVED, found.version, [])
    assert (await stores.ledgers.load(7)).value == METADATA.in_recovery()


async def test_attempts_to_name_a_busy_target_are_bounded() -> None:
    tree = Disturbed(MemoryNodes())
    stores, count = await identified(tree)
    identity = await stores.identities.load(BOOKIE)
    found = await stores.ledgers.load(7)
    assert identity is not None
    tree.before = count
    with pytest.raises(MetadataVersionError, match="wrote their records during each of 8"):
        await stores.ledgers.replace(7, MOVED, found.version, [identity])
    assert (await stores.ledgers.load(7)).value == METADATA


async def wipe(stores: MetadataStores) -> None:
    """Let the bookie begin again. Its new cookie has version 0, as the old one had."""
    await stores.tree.delete(f"{ROOT}/cookies/{BOOKIE}", None)
    record = await stores.known_bookies.read(BOOKIE)
    assert record is not None
    wiped = KnownBookie((KnownDirectory("fedcba9876543210", 1, 1),))
    await stores.known_bookies.write_with_cookie(BOOKIE, wiped, record.version, b"cookie", None)


async def test_a_target_that_is_wiped_before_the_transaction_is_not_named() -> None:
    """The record of the bookie has changed, and its cookie has the version of the old one."""
    tree = Disturbed(MemoryNodes())
    stores, _ = await identified(tree)
    other = await stores_on(tree.nodes)
    identity = await stores.identities.load(BOOKIE)
    found = await stores.ledgers.load(7)
    assert identity is not None

    async def wipe_once() -> None:
        tree.before = None
        await wipe(other)

    tree.before = wipe_once
    with pytest.raises(MetadataVersionError, match="has changed") as changed:
        await stores.ledgers.replace(7, MOVED, found.version, [identity])
    assert changed.value.bookie_id == BOOKIE


@pytest.mark.parametrize("is_wiped", [True, False], ids=["wiped", "not sent"])
async def test_a_lost_answer_stays_unknown_after_a_failure_of_the_next_attempt(
    *, is_wiped: bool
) -> None:
    tree = Disturbed(MemoryNodes())
    stores, _ = await identified(tree)
    other = await stores_on(tree.nodes)
    identity = await stores.identities.load(BOOKIE)
    found = await stores.ledgers.load(7)
    assert identity is not None

    async def lose_first() -> None:
        tree.inject(Fault.REQUEST_LOST)
        if is_wiped:
            await wipe(other)
        tree.before = fail_next

    async def fail_next() -> None:
        tree.inject(Fault.NOT_SENT)

    tree.before = lose_first
    with pytest.raises(MetadataUnknownError):
        await stores.ledgers.replace(7, MOVED, found.version, [identity])


async def test_requests_in_order_are_bounded_and_cancelled_at_the_end() -> None:
    running = most = cancelled = 0
    gates = [asyncio.Event() for _ in range(20)]

    async def items() -> AsyncGenerator[int, None]:
        for index in range(20):
            yield index

    async def request(index: int) -> int | None:
        nonlocal running, most, cancelled
        running += 1
        most = max(most, running)
        try:
            await gates[index].wait()
        except asyncio.CancelledError:
            cancelled += 1
            raise
        finally:
            running -= 1
        return None if index == 1 else index

    results = in_order(items(), request, 4)
    for gate in gates[:6]:
        gate.set()
    got = [await anext(results) for _ in range(3)]
    assert got == [0, 2, 3]
    assert most <= 4
    await results.aclose()
    assert running == 0
    assert cancelled <= 4
