"""The promises of the `MarkQueue` port, in memory and on a real ZooKeeper."""

from __future__ import annotations

import asyncio

import pytest

from ledgerlog_spark.errors import LocalProtocolError, MetadataFormatError, MetadataUnknownError
from ledgerlog_spark.metadata import tree as znodes
from ledgerlog_spark.metadata.replication.ports import HeldLock
from ledgerlog_spark.metadata.stores import MetadataStores
from ledgerlog_spark.model import Fragment, LedgerMetadata, Quorum, Version
from ledgerlog_spark.wire.repair_notes import Hole, Holes
from ledgerlog_spark.wire.underreplication import mark_directory, mark_path
from tests.fixtures.metadata_worlds import Signal, World

LEDGER = 7
METADATA = LedgerMetadata(Quorum(1, 1, 1), (Fragment(0, ("b1",)),))
HOLES = Holes((Hole("b1"),))
FAR = 0x0001_0002_0003_0004

Two = tuple[MetadataStores, MetadataStores]


async def marked(stores: MetadataStores) -> list[int]:
    return [ledger_id async for ledger_id in stores.marks.walk()]


async def locked(stores: MetadataStores, ledger_id: int = LEDGER) -> HeldLock:
    lock = await stores.replication_locks.acquire(ledger_id, "b1")
    assert lock is not None
    return lock


async def test_a_mark_is_loaded_by_others(two: Two) -> None:
    first, second = two
    assert await second.marks.load(LEDGER) is None
    version = await first.marks.mark(LEDGER, ["b1:3181"])
    mark = await second.marks.load(LEDGER)
    assert mark is not None
    assert (mark.ledger_id, mark.replicas, mark.version) == (LEDGER, ("b1:3181",), version)


async def test_the_nodes_are_apaches(two: Two) -> None:
    first, _ = two
    root = f"{first.root}/underreplication"
    await first.marks.mark(FAR, ["b1:3181"])
    await first.tree.sync()
    assert (await first.tree.get(f"{root}/LAYOUT")).value == b'type: "BASIC"\nversion: 1\n'
    data = (await first.tree.get(f"{root}/ledgers/0001/0002/0003/0004/urL{FAR}")).value
    assert data.startswith(b'replica: "b1:3181"\n')
    assert await first.tree.children(root) == ["LAYOUT", "ledgers", "locks"]


async def test_a_second_mark_merges_and_always_raises_the_version(two: Two) -> None:
    """Otherwise a worker deletes the mark of a bookie that was lost once more (healing)."""
    first, second = two
    versions = [await first.marks.mark(LEDGER, ["b1"])]
    versions.append(await second.marks.mark(LEDGER, ["b2", "b1"]))
    versions.append(await first.marks.mark(LEDGER, ["b2"]))
    mark = await second.marks.load(LEDGER)
    assert mark is not None
    assert mark.replicas == ("b1", "b2")
    assert mark.version == versions[-1]
    assert [version.number for version in versions] == [0, 1, 2]


async def test_marks_made_at_the_same_time_have_all_bookies(two: Two) -> None:
    first, second = two
    await asyncio.gather(
        *(stores.marks.mark(LEDGER, [f"b{index}"]) for index, stores in enumerate(two * 5))
    )
    mark = await first.marks.load(LEDGER)
    assert mark is not None
    assert sorted(mark.replicas) == [f"b{index}" for index in range(10)]
    assert mark.version.number == 9
    assert await marked(second) == [LEDGER]


@pytest.mark.parametrize("replicas", [[], ["b"] * 1_001])
async def test_a_mark_names_a_bounded_number_of_bookies(two: Two, replicas: list[str]) -> None:
    with pytest.raises(LocalProtocolError, match="1 to 1000 bookies"):
        await two[0].marks.mark(LEDGER, replicas)


async def test_a_lost_answer_of_a_mark_is_settled(world: World, two: Two) -> None:
    first, second = two
    await first.marks.mark(8, ["b1"])  # creates the nodes above
    marks = first.marks
    await marks.mark(9, ["b1"])
    for lose in (world.lose_next_reply, world.lose_next_request):
        lose(first.tree)
        await marks.mark(8, ["b2"])
    mark = await second.marks.load(8)
    assert mark is not None
    assert mark.replicas == ("b1", "b2")
    assert mark.version.number >= 2


async def test_a_mark_is_deleted_only_at_its_version(two: Two) -> None:
    first, second = two
    old = await first.marks.mark(LEDGER, ["b1"])
    lock = await locked(first)
    new = await second.marks.mark(LEDGER, ["b1"])
    assert not await first.marks.delete(LEDGER, old, lock)
    assert await marked(second) == [LEDGER]
    assert await first.marks.delete(LEDGER, new, lock)
    assert not await first.marks.delete(LEDGER, new, lock)
    assert await second.marks.load(LEDGER) is None


async def test_a_mark_is_deleted_only_if_the_record_has_not_changed(two: Two) -> None:
    first, second = two
    before = await first.ledgers.create(LEDGER, METADATA)
    await second.ledgers.write(LEDGER, METADATA.in_recovery(), before.version)
    mark = await first.marks.mark(LEDGER, ["b1"])
    note = await first.holes.add(LEDGER, HOLES)
    lock = await locked(first)
    old = [first.ledgers.unchanged(LEDGER, before.version)]
    assert not await first.marks.delete(LEDGER, mark, lock, old)
    assert not await first.holes.delete(LEDGER, note, lock, old)
    new = [first.ledgers.unchanged(LEDGER, (await second.ledgers.load(LEDGER)).version)]
    assert await first.marks.delete(LEDGER, mark, lock, new)
    assert await first.holes.delete(LEDGER, note, lock, new)


async def test_a_new_mark_never_has_the_version_of_a_deleted_one(two: Two) -> None:
    first, second = two
    old = await first.marks.mark(LEDGER, ["b1"])
    lock = await locked(first)
    assert await first.marks.delete(LEDGER, old, lock)
    await second.marks.mark(LEDGER, ["b1"])
    assert not await first.marks.delete(LEDGER, old, lock)
    assert await marked(second) == [LEDGER]


async def test_a_new_session_deletes_nothing_with_an_old_lock(world: World, two: Two) -> None:
    """A's session ends, B heals, a new mark has version 0 again, and A wakes up."""
    first, second = two
    version = await first.marks.mark(LEDGER, ["b1"])
    lock = await locked(first)
    locks = first.replication_locks
    assert locks.is_held(lock)
    await world.expire(first.tree)
    assert not locks.is_held(lock)
    assert not await first.marks.delete(LEDGER, version, lock)
    other = await locked(second)
    assert not await first.marks.delete(LEDGER, version, lock)
    assert await second.marks.delete(LEDGER, version, other)


async def test_a_deletion_with_a_lost_answer_is_settled(world: World, two: Two) -> None:
    first, second = two
    for lose in (world.lose_next_reply, world.lose_next_request):
        version = await first.marks.mark(LEDGER, ["b1"])
        lock = await locked(first)
        marks = first.marks
        lose(first.tree)
        assert await marks.delete(LEDGER, version, lock)
        assert await second.marks.load(LEDGER) is None
        await first.replication_locks.release(LEDGER)


async def test_a_lock_of_another_ledger_deletes_nothing(two: Two) -> None:
    first, _ = two
    version = await first.marks.mark(LEDGER, ["b1"])
    lock = await locked(first, 8)
    with pytest.raises(LocalProtocolError, match="the lock of ledger 8"):
        await first.marks.delete(LEDGER, version, lock)
    forged = HeldLock(LEDGER, first.tree.session_id)
    assert not await first.marks.delete(LEDGER, version, forged)


async def test_empty_directories_are_deleted_up_to_the_next_mark(two: Two) -> None:
    first, second = two
    await first.marks.mark(LEDGER, ["b1"])
    version = await first.marks.mark(FAR, ["b1"])
    assert await first.marks.delete(FAR, version, await locked(first, FAR))
    ledgers = f"{first.root}/underreplication/ledgers"
    await second.tree.sync()
    assert await second.tree.children(ledgers) == ["0000"]
    mark = await first.marks.load(LEDGER)
    assert mark is not None
    assert await first.marks.delete(LEDGER, mark.version, await locked(first))
    await second.tree.sync()
    assert await second.tree.children(ledgers) == []


async def test_a_cleanup_never_removes_a_mark_of_another_process(two: Two) -> None:
    """Marks and deletions of two processes in one directory, again and again."""
    first, second = two

    async def mark_and_delete(stores: MetadataStores, ledger_id: int) -> None:
        for _ in range(5):
            version = await stores.marks.mark(ledger_id, ["b1"])
            lock = await locked(stores, ledger_id)
            assert await stores.marks.delete(ledger_id, version, lock)
            await stores.replication_locks.release(ledger_id)
        await stores.marks.mark(ledger_id, ["b1"])

    await asyncio.gather(mark_and_delete(first, FAR), mark_and_delete(second, FAR + 1))
    await first.tree.sync()
    assert await marked(first) == [FAR, FAR + 1]


async def test_a_walk_ascends_and_continues_after_a_ledger(two: Two) -> None:
    first, second = two
    ids = [0, 5, 65_535, 65_536, 1 << 32, FAR, (1 << 63) - 1]
    for ledger_id in reversed(ids):
        await first.marks.mark(ledger_id, ["b1"])
    await second.tree.sync()
    assert await marked(second) == ids
    for index, after in enumerate(ids):
        rest = [ledger_id async for ledger_id in second.marks.walk(after)]
        assert rest == ids[index + 1 :]
    between = [ledger_id async for ledger_id in second.marks.walk(70_000)]
    assert between == ids[4:]


async def test_a_walk_omits_what_is_no_mark(two: Two) -> None:
    first, _ = two
    await first.marks.mark(LEDGER, ["b1"])
    ledgers = f"{first.root}/underreplication/ledgers"
    for name in ("stray", "0000/00zz", "0000/0000/0000/0008", "0000/0000/0000/0009/urL0000000001"):
        await first.tree.create(f"{ledgers}/{name}", b"x", make_parents=True)
    assert await marked(first) == [LEDGER]


@pytest.mark.parametrize(
    "data",
    [b"\xff\xfe", b'replica: "b1', b"successor: 1\n", b"replica: 7\n", b"x" * 300_000,
     b'replica: "b"\n' * 2 + b"later { }", b'replica: "' + b"b" * 400 + b'"\n'],
)  # fmt: skip
async def test_a_damaged_mark_is_a_clear_error_and_does_not_end_a_walk(
    two: Two, data: bytes
) -> None:
    first, _ = two
    await first.marks.mark(8, ["b1"])
    await first.tree.create(first.root + mark_path(LEDGER), data, make_parents=True)
    assert await marked(first) == [LEDGER, 8]
    for call in (first.marks.load(LEDGER), first.marks.mark(LEDGER, ["b1"])):
        with pytest.raises(MetadataFormatError, match="cannot be read, and was not changed"):
            await call
    assert (await first.tree.get(first.root + mark_path(LEDGER))).value == data


async def test_another_layout_of_auto_recovery_is_refused(two: Two) -> None:
    first, _ = two
    layout = b'type: "BASIC"\nversion: 2\n'
    path = f"{first.root}/underreplication/LAYOUT"
    await first.tree.create(path, layout, make_parents=True)
    with pytest.raises(MetadataFormatError, match="version 2"):
        await first.marks.mark(LEDGER, ["b1"])


async def test_the_first_mark_of_a_queue_is_noticed(two: Two) -> None:
    first, second = two
    noticed = Signal()
    cancel = second.marks.watch(noticed)
    await second.tree.sync()
    await first.marks.mark(LEDGER, ["b1"])
    await noticed.called()
    cancel()


async def test_marks_of_other_ledgers_are_noticed(two: Two) -> None:
    first, second = two
    await first.marks.mark(LEDGER, ["b1"])
    noticed = Signal()
    cancel = second.marks.watch(noticed)
    await second.tree.sync()
    for ledger_id in (8, 9):
        await first.marks.mark(ledger_id, ["b1"])
        await noticed.called()
    cancel()


async def test_an_unreachable_store_ends_a_mark_with_unknown(world: World, two: Two) -> None:
    first, _ = two
    marks = first.marks
    await marks.mark(LEDGER, ["b1"])
    for _ in range(4):
        world.lose_next_request(first.tree)
    if type(world).__name__ == "MemoryWorld":  # a proxy loses only the next request
        with pytest.raises(MetadataUnknownError):
            await marks.mark(LEDGER, ["b1"])


def test_the_directory_of_a_mark_is_its_ledger_id() -> None:
    assert mark_directory(FAR) == "/underreplication/ledgers/0001/0002/0003/0004"
    assert Version(1, 0) != Version(2, 0)


async def test_a_deletion_leaves_marks_that_have_children(two: Two) -> None:
    first, _ = two
    version = await first.marks.mark(LEDGER, ["b1"])
    path = first.root + mark_path(LEDGER)
    await first.tree.create(f"{path}/child", b"")
    with pytest.raises(znodes.NodeNotEmptyError):
        await first.marks.delete(LEDGER, version, await locked(first))
