"""The promises of the `LedgerNotes` port, in memory and on a real ZooKeeper."""

from __future__ import annotations

import asyncio
import json

import pytest

from ledgerlog_spark.errors import MetadataFormatError
from ledgerlog_spark.metadata.stores import MetadataStores
from ledgerlog_spark.wire.repair_notes import (
    FailedAttempts,
    Hole,
    HoleKind,
    Holes,
    Move,
    MoveReason,
    Moves,
    Unreadable,
    UnreadableRange,
)
from tests.fixtures.metadata_worlds import Signal, World

LEDGER = 7
HOLE = Hole("b1:3181", 0, HoleKind.MISSING, ((4, 5),))
OTHER = Hole("b2:3181", 100, HoleKind.DAMAGED)

Two = tuple[MetadataStores, MetadataStores]


async def noted(stores: MetadataStores, after: int = -1) -> list[int]:
    return [ledger_id async for ledger_id in stores.holes.walk(after)]


async def test_notes_of_all_kinds_read_back_whole(two: Two) -> None:
    first, second = two
    unreadable = Unreadable((UnreadableRange(3, 4, True, (("b1", "no_entry"),)),), "w1", 17)
    attempts = FailedAttempts(3, "no_spare", "no bookie is left", "w1", 17, 5_000)
    moves = Moves.of([Move("b1", 0, MoveReason.PLACEMENT)])
    await first.holes.add(LEDGER, Holes.of([HOLE]))
    await first.moves.add(LEDGER, moves)
    await first.unreadable.add(LEDGER, unreadable)
    await first.attempts.add(LEDGER, attempts)
    for store, note in (
        (second.holes, Holes((HOLE,))),
        (second.moves, moves),
        (second.unreadable, unreadable),
        (second.attempts, attempts),
    ):
        found = await store.load(LEDGER)
        assert found is not None
        assert found.value == note
        assert await store.load(8) is None


async def test_an_addition_merges_and_always_raises_the_version(two: Two) -> None:
    first, second = two
    versions = [await first.holes.add(LEDGER, Holes.of([HOLE]))]
    versions.append(await second.holes.add(LEDGER, Holes.of([OTHER])))
    versions.append(await first.holes.add(LEDGER, Holes.of([HOLE])))
    found = await second.holes.load(LEDGER)
    assert found is not None
    assert found.value == Holes((HOLE, OTHER))
    assert [each.number for each in versions] == [0, 1, 2]
    assert found.version == versions[-1]


async def test_the_newest_attempt_replaces_the_older_one(two: Two) -> None:
    first, _ = two
    await first.attempts.add(LEDGER, FailedAttempts(1, "no_spare"))
    await first.attempts.add(LEDGER, FailedAttempts(2, "grace"))
    found = await first.attempts.load(LEDGER)
    assert found is not None
    assert found.value == FailedAttempts(2, "grace")


async def test_additions_at_the_same_time_are_all_there(two: Two) -> None:
    holes = [Hole(f"b{index}") for index in range(10)]
    await asyncio.gather(
        *(
            each.holes.add(LEDGER, Holes.of([hole]))
            for each, hole in zip(two * 5, holes, strict=True)
        )
    )
    found = await two[0].holes.load(LEDGER)
    assert found is not None
    assert found.value == Holes.of(holes)


async def test_a_note_is_replaced_and_deleted_only_at_its_version(two: Two) -> None:
    first, second = two
    old = await first.holes.add(LEDGER, Holes.of([HOLE]))
    new = await second.holes.replace(LEDGER, Holes.of([OTHER]), old)
    assert new is not None
    assert await first.holes.replace(LEDGER, Holes.of([HOLE]), old) is None
    assert not await first.holes.delete(LEDGER, old)
    assert await first.holes.delete(LEDGER, new)
    assert not await first.holes.delete(LEDGER, new)
    assert await first.holes.replace(LEDGER, Holes.of([HOLE]), new) is None
    assert await noted(second) == []


async def test_a_new_session_deletes_nothing_with_an_old_lock(world: World, two: Two) -> None:
    first, second = two
    version = await first.holes.add(LEDGER, Holes.of([HOLE]))
    lock = await first.replication_locks.acquire(LEDGER, "w1")
    assert lock is not None
    await world.expire(first.tree)
    assert not await first.holes.delete(LEDGER, version, lock)
    lock = await second.replication_locks.acquire(LEDGER, "w2")
    assert lock is not None
    assert await second.holes.delete(LEDGER, version, lock)


async def test_lost_answers_are_settled(world: World, two: Two) -> None:
    first, second = two
    await first.holes.add(8, Holes.of([HOLE]))  # creates the directories
    for lose in (world.lose_next_reply, world.lose_next_request):
        lose(first.tree)
        await first.holes.add(LEDGER, Holes.of([HOLE]))
        found = await second.holes.load(LEDGER)
        assert found is not None
        lose(first.tree)
        version = await first.holes.replace(LEDGER, Holes.of([OTHER]), found.version)
        assert version is not None
        lose(first.tree)
        assert await first.holes.delete(LEDGER, version)
        assert await second.holes.load(LEDGER) is None


async def test_a_walk_ascends_and_continues_after_a_ledger(two: Two) -> None:
    first, second = two
    ids = [0, 9, 10, 1_023, 1_024, 70_000, (1 << 63) - 1]
    for ledger_id in reversed(ids):
        await first.holes.add(ledger_id, Holes.of([HOLE]))
    await second.tree.sync()
    assert await noted(second) == ids
    for index, after in enumerate(ids):
        assert await noted(second, after) == ids[index + 1 :]


async def test_the_directories_of_deleted_notes_are_deleted(two: Two) -> None:
    first, _ = two
    await first.holes.add(9, Holes.of([HOLE]))
    version = await first.holes.add(LEDGER, Holes.of([HOLE]))
    assert await first.holes.delete(LEDGER, version)
    assert await noted(first) == [9]
    found = await first.holes.load(9)
    assert found is not None
    assert await first.holes.delete(9, found.version)
    assert await first.tree.children(f"{first.root}-repair/holes") == []


DAMAGED = [
    b"",
    b"\xff",
    b"[]",
    b"{}",
    b"[" * 100_000,
    b'{"format":1,"type":"Moves","moves":[]}',
    b'{"format":2,"type":"Holes","holes":[]}',
    b'{"format":1,"type":"Holes","holes":[],"later":1}',
    b'{"format":1,"type":"Holes","holes":{}}',
    b'{"format":1,"type":"Holes","holes":[%s]}' % b",".join([b"{}"] * 1_001),
    json.dumps({"format": 1, "type": "Holes", "holes": [], "pad": "x" * 300_000}).encode(),
]


@pytest.mark.parametrize("data", DAMAGED, ids=range(len(DAMAGED)))
async def test_a_damaged_note_is_a_clear_error_and_does_not_end_a_walk(
    two: Two, data: bytes
) -> None:
    first, _ = two
    await first.holes.add(8, Holes.of([HOLE]))
    directory = f"{first.root}-repair/holes"
    path = f"{directory}/{0:014x}/{LEDGER}"
    await first.tree.create(path, data, make_parents=True)
    for stray in (f"{directory}/stray", f"{directory}/{0:014x}/07"):
        await first.tree.create(stray, b"")
    assert await noted(first) == [LEDGER, 8]
    for call in (first.holes.load(LEDGER), first.holes.add(LEDGER, Holes.of([HOLE]))):
        with pytest.raises(MetadataFormatError, match="cannot be read, and was not changed"):
            await call
    assert (await first.tree.get(path)).value == data


async def test_the_first_note_is_noticed(two: Two) -> None:
    first, second = two
    noticed = Signal()
    cancel = second.holes.watch(noticed)
    await second.tree.sync()  # the store has the watch, or the session announces the change
    await first.holes.add(LEDGER, Holes.of([HOLE]))
    await noticed.called()
    cancel()


async def test_apaches_tools_do_not_see_the_notes(two: Two) -> None:
    first, _ = two
    before = await first.tree.children(first.root)
    await first.holes.add(LEDGER, Holes.of([HOLE]))
    assert await first.tree.children(first.root) == before
