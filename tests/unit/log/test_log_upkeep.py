"""Truncation, restoring, merging, checking and deleting, on a whole simulated cluster."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from ledgerlog_spark.errors import (
    ConcurrentCommitError,
    ConfigurationError,
    LedgerNotFoundError,
    LocalProtocolError,
    LogNotFoundError,
    MetadataVersionError,
    VersionNotAvailableError,
)
from ledgerlog_spark.log.committing.job import Job
from ledgerlog_spark.log.committing.range_writer import RangeWriter
from ledgerlog_spark.log.log import Log
from ledgerlog_spark.log.logs import Logs
from ledgerlog_spark.log.maintenance.log_maintenance import STEP_ATTEMPTS_MAX
from ledgerlog_spark.protocol.log.change import expiry as log_expiry
from ledgerlog_spark.protocol.log.commit.restore import CutRange
from ledgerlog_spark.protocol.log.commit.result import CommitStatus
from ledgerlog_spark.protocol.log.messages import WriteHead
from ledgerlog_spark.protocol.log.state.records import Operation, StagedRange, WriteMode
from ledgerlog_spark.testing.memory.tree import Fault, MemoryTree
from tests.unit.log.log_world import DAY_MS, SCHEMA, LogWorld, commit, of, payloads

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


async def copied(log: Log, job: Job, taken: list[bytes]) -> StagedRange:
    """Write these payloads as one range with ten rows for each payload."""
    writer = await log.open_range(job, SCHEMA)
    for payload in taken:
        await writer.append(payload, rows=10)
    staged = await writer.finish(b"index", statistics=b"")
    assert staged is not None
    return staged


async def merge_all(log: Log) -> Job:
    job = await log.begin()
    items = (await log.snapshot()).items
    staged = await copied(log, job, await payloads(log))
    await log.switch(job, items, staged)
    await log.release(job)
    return job


async def test_truncated_rows_are_gone_and_a_reader_that_planned_before_still_finishes(
    world: LogWorld,
) -> None:
    log = await world.logs().create("flights")
    for name in "xyz":
        await commit(log, name)
    planned = (await log.snapshot()).items
    done = await log.truncate(60)
    assert (done.start_offset, len(done.unlisted)) == (60, 2)
    assert await payloads(log) == of("y", "z")
    with pytest.raises(VersionNotAvailableError) as gone:
        await log.snapshot(2)
    assert gone.value.oldest == 4
    sweeper = world.logs().sweeper()
    await sweeper.sweep(log.log_id)
    item = planned[0]
    read = [b async for b in log.read_range(item.ledger_id, 1, item.last_entry_id)]
    assert sum(map(len, read)) == 4
    world.skip(DAY_MS + 1)
    assert (await sweeper.sweep(log.log_id)).ledgers_deleted == 2
    with pytest.raises(LedgerNotFoundError):
        await world.client().ledger_metadata(item.ledger_id)
    assert await payloads(log) == of("y", "z")


async def test_marked_ledger_that_is_listed_again_keeps_its_registration(
    world: LogWorld,
) -> None:
    logs = world.logs()
    log = await logs.create("flights", properties={"stagingTtlMs": str(90 * DAY_MS)})
    first = await log.begin(schema=SCHEMA, app="stream", run="run", batch_id=0)
    ledger = await log.commits.open_ledger(first)

    async def keep(_: RangeWriter) -> None:
        """Write a range, and keep the ledger open for the next batch."""

    for batch_id in range(3):
        job = await log.begin(schema=SCHEMA, app="stream", run="run", batch_id=batch_id)
        writer = RangeWriter(ledger, keep)
        await writer.append(b"%d" % batch_id, rows=10)
        staged = await writer.finish(b"index", statistics=b"")
        assert staged is not None
        await log.commit(job, [staged])
        if batch_id == 0:
            assert (await log.truncate(10)).unlisted == (ledger.ledger_id,)
        world.skip(2 * DAY_MS if batch_id else 0)
        assert (await logs.sweeper().sweep(log.log_id)).ledgers_deleted == 0
    assert await payloads(log) == [b"1", b"2"]
    await log.truncate(30)
    assert (await logs.sweeper().sweep(log.log_id)).ledgers_deleted == 0
    world.skip(2 * DAY_MS)
    assert (await logs.sweeper().sweep(log.log_id)).ledgers_deleted == 1


async def test_retention_acts_by_the_properties_of_the_log_at_that_time(world: LogWorld) -> None:
    log = await world.logs().create("flights")
    await commit(log, "x")
    world.skip(DAY_MS)
    await commit(log, "y")
    assert (await log.retain()).start_offset == 0
    assert await log.set_properties({"retentionms": str(DAY_MS // 2)}) == {
        "retentionMs": str(DAY_MS // 2)
    }
    assert (await log.retain()).start_offset == 60
    assert await payloads(log) == of("y")
    assert (await log.history())[-1].operation is Operation.TRUNCATE
    with pytest.raises(ConfigurationError, match="fixed"):
        await log.set_properties({"kind": "leader"})


@pytest.mark.parametrize("conflicts", [3, 1_000])
async def test_drop_that_others_overtake_pauses_and_gives_up_in_the_end(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch, conflicts: int
) -> None:
    monkeypatch.setattr(log_expiry, "STEP_ITEMS_MAX", 1)
    logs = world.logs()
    log = await logs.create("flights")
    for name in "uvwxyz":
        await commit(log, name)
    store: Any = logs.store
    write_head = store.write_head
    loop = asyncio.get_running_loop()
    written: list[float] = []

    async def overtaken(log_id: str, write: WriteHead) -> Any:
        """Conflict with all writes except the first, and one after `count` others."""
        written.append(loop.time())
        if len(written) % (conflicts + 1) == 1:
            return await write_head(log_id, write)
        raise MetadataVersionError("overtaken", log=log_id)

    monkeypatch.setattr(store, "write_head", overtaken)
    if conflicts < STEP_ATTEMPTS_MAX:
        assert (await log.truncate(120)).is_complete
        assert len(written) == 1 + 3 * (conflicts + 1), "three more ranges, one a step"
    else:
        with pytest.raises(ConcurrentCommitError, match="begins at offset 120") as given_up:
            await log.truncate(120)
        assert (given_up.value.retriable, given_up.value.definite) == (True, False)
        assert len(written) == 1 + STEP_ATTEMPTS_MAX
    assert (await log.snapshot()).interval.start_offset == 120
    assert written[-1] > written[1], "a pause"

    written.clear()
    await log.set_properties({"retentionBytes": "1"})
    written.clear()
    done = await log.retain()
    assert done.start_offset > 120
    assert done.is_complete == (conflicts < STEP_ATTEMPTS_MAX)
    monkeypatch.setattr(store, "write_head", write_head)
    await logs.sweeper().sweep(log.log_id)
    head = (await store.read_head(log.log_id)).value
    assert head.oldest_offset == head.start_offset == done.start_offset


async def test_restored_version_is_read_from_the_same_ledgers_also_after_everything_else_is_swept(
    world: LogWorld,
) -> None:
    log = await world.logs().create("flights")
    await commit(log, "x")
    first = [item.ledger_id for item in (await log.snapshot()).items]
    await commit(log, "y", mode=WriteMode.OVERWRITE)
    done = await log.restore(1)
    assert (done.status, done.version) == (CommitStatus.COMMITTED, 3)
    assert await payloads(log) == of("x")
    assert [item.ledger_id for item in (await log.snapshot()).items] == first
    world.skip(40 * DAY_MS)
    sweeper = world.logs().sweeper()
    await sweeper.sweep(log.log_id)
    world.skip(2 * DAY_MS)
    await sweeper.sweep(log.log_id)
    assert await payloads(log) == of("x")
    assert [v.version for v in await log.history()] == [3]


async def test_restore_leaves_no_producer_behind_whether_it_succeeds_or_not(
    world: LogWorld,
) -> None:
    logs = world.logs()
    log = await logs.create("flights")
    await commit(log, "x", app="etl")
    await log.restore(0)
    with pytest.raises(VersionNotAvailableError):
        await log.restore(9)
    assert await logs.store.producers.names(log.log_id) == ["etl"]


async def test_merge_reads_the_same_in_every_version_and_leaves_one_ledger_after_the_grace(
    world: LogWorld,
) -> None:
    logs = world.logs()
    log = await logs.create("flights")
    for name in "xyz":
        await commit(log, name)
    before = {v.version: await payloads(log, v.version) for v in await log.history()}
    planned = (await log.snapshot()).items
    await merge_all(log)
    assert len((await log.snapshot()).items) == 1
    assert (await log.snapshot()).interval.version == 3
    item = planned[0]
    old = [b async for b in log.read_range(item.ledger_id, 1, item.last_entry_id)]
    assert sum(map(len, old)) == 4
    assert await payloads(log, 3) == before[3]
    world.skip(DAY_MS + 1)
    assert (await logs.sweeper().sweep(log.log_id)).ledgers_deleted == 6
    check = await log.check()
    assert [c.ranges for c in check.ledgers] == [1]
    assert (check.orphans, check.staged, check.marked) == ((), (), ())
    assert await payloads(log) == before[3]


async def test_merge_that_comes_too_late_changes_nothing_and_its_ledger_is_swept(
    world: LogWorld,
) -> None:
    logs = world.logs()
    log = await logs.create("flights")
    for name in "xy":
        await commit(log, name)
    job = await log.begin()
    items = (await log.snapshot()).items
    staged = await copied(log, job, await payloads(log))
    await log.truncate(60)
    with pytest.raises(ConcurrentCommitError):
        await log.switch(job, items, staged)
    await log.release(job)
    assert await payloads(log) == of("y")
    await logs.sweeper().sweep(log.log_id)
    with pytest.raises(LedgerNotFoundError):
        await world.client().ledger_metadata(staged.ledger_id)


@pytest.mark.parametrize("fault", [Fault.REQUEST_LOST, Fault.REPLY_LOST])
async def test_change_of_a_head_whose_reply_is_lost_happens_once(
    world: LogWorld, fault: Fault
) -> None:
    client, stores = world.client_and_stores()
    tree = stores.tree
    assert isinstance(tree, MemoryTree)
    log = await Logs(store=stores.logs, ledgers=client).create("flights")
    for name in "xyz":
        await commit(log, name)
    job = await log.begin()
    staged = await copied(log, job, await payloads(log))
    items = (await log.snapshot()).items
    tree.inject(fault)
    await log.switch(job, items, staged)
    assert [item.rows for item in (await log.snapshot()).items] == [180]
    tree.inject(fault)
    assert (await log.truncate(60)).start_offset == 60
    tree.inject(fault)
    assert await log.set_properties({"rollMs": "60000"}) == {"rollMs": "60000"}
    assert [v.version for v in await log.history()] == [4]
    assert len(await payloads(log)) == len(of("x", "y", "z"))


async def test_part_of_a_merged_range_is_copied_when_its_version_is_restored(
    world: LogWorld,
) -> None:
    log = await world.logs().create("flights")
    for name in "xyz":
        await commit(log, name)
    await merge_all(log)
    with pytest.raises(LocalProtocolError, match="logs restore"):
        await log.restore(2)
    everything = await payloads(log)

    async def copy(job: Job, part: CutRange) -> StagedRange:
        first, end = (offset // 10 for offset in part.offsets)
        return await copied(log, job, everything[first:end])

    assert (await log.restore(2, copy=copy)).version == 4
    assert await payloads(log) == of("x", "y")
    assert await payloads(log, 3) != of("x", "y")


async def test_version_at_a_time_is_the_newest_of_then(world: LogWorld) -> None:
    log = await world.logs().create("flights")
    times = [(await log.history())[0].commit_time_ms]
    for name in "xy":
        world.skip(1_000)
        await commit(log, name)
        times.append((await log.history())[-1].commit_time_ms)
    assert [(await log.version_at(t)).version for t in times] == [0, 1, 2]
    assert [(await log.version_at(t - 1)).version for t in times[1:]] == [0, 1]
    assert (await log.version_at(times[-1] + DAY_MS)).version == 2
    with pytest.raises(VersionNotAvailableError, match="2023-11-14") as early:
        await log.version_at(times[0] - 1)
    assert (early.value.oldest, early.value.oldest_time_ms) == (0, times[0])


async def test_check_names_what_is_missing_and_what_nobody_knows_of(world: LogWorld) -> None:
    logs = world.logs()
    log = await logs.create("flights")
    await commit(log, "x")
    job = await log.begin(schema=SCHEMA)
    staged = await copied(log, job, [b"x"])
    first, second = (item.ledger_id for item in (await log.snapshot()).items)
    progress: list[tuple[int, int]] = []
    sound = await log.check(
        every_entry=True, on_progress=lambda done, total: progress.append((done, total))
    )
    assert not sound.findings
    assert not sound.is_damaged
    assert [(c.ledger_id, c.entries, c.copies) for c in sound.ledgers] == [
        (first, 4, 3), (second, 4, 3),
    ]  # fmt: skip
    assert (sound.staged, sound.orphans) == ((staged.ledger_id,), ())
    assert progress == [(0, 2), (1, 2), (2, 2)]
    await world.client().delete_ledger(first)
    metadata = await world.client().ledger_metadata(second)
    orphan = await world.client().create_ledger(custom_metadata=metadata.custom)
    world.skip(120_000)
    for bookie in metadata.fragments[0].ensemble[:2]:
        del world.storages[bookie].ledgers[second]
    broken = await log.check()
    assert broken.is_damaged
    assert [(c.ledger_id, c.state, c.copies) for c in broken.findings] == [
        (first, "missing", 0), (second, "closed", 1),
    ]  # fmt: skip
    assert "does not have it" in broken.findings[1].finding
    assert broken.orphans == (orphan.id,)


class _During:
    """The client of a check. Something else happens during its first read of a ledger."""

    def __init__(self, client: Any, happens: Callable[[], Awaitable[Any]]) -> None:
        self._client = client
        self._happens: Callable[[], Awaitable[Any]] | None = happens

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def entry_copies(self, *about: Any) -> Any:
        happens, self._happens = self._happens, None
        if happens is not None:
            await happens()
        return await self._client.entry_copies(*about)


async def test_check_does_not_take_what_is_truncated_meanwhile_for_damage(world: LogWorld) -> None:
    logs = world.logs()
    log = await logs.create("flights")
    for name in "xyz":
        await commit(log, name)
    last = (await log.snapshot()).items[-1].ledger_id

    async def truncated() -> None:
        await log.truncate(120)
        world.skip(2 * DAY_MS)
        assert (await logs.sweeper().sweep(log.log_id)).ledgers_deleted == 4

    client = _During(world.client(), truncated)
    found = await Logs(store=logs.store, ledgers=client).open_by_id("flights", log.log_id).check()
    assert (found.findings, found.is_damaged) == ((), False)
    assert last in [ledger.ledger_id for ledger in found.ledgers]


async def test_check_still_finds_damage_in_a_ledger_whose_ranges_change_meanwhile(
    world: LogWorld,
) -> None:
    logs = world.logs()
    log = await logs.create("flights")
    job = await log.begin(schema=SCHEMA)
    ledger = await log.commits.open_ledger(job)
    for number in (1, 2):
        await ledger.send(b"row %d" % number)
    damaged = ledger.ledger_id
    await log.commit(job, [StagedRange(damaged, n, n, -1, rows=1, size_bytes=5) for n in (1, 2)])
    await ledger.close()
    metadata = await world.client().ledger_metadata(damaged)
    for bookie in metadata.fragments[0].ensemble[:2]:
        del world.storages[bookie].ledgers[damaged]
    client = _During(world.client(), lambda: log.truncate(1))
    found = await Logs(store=logs.store, ledgers=client).open_by_id("flights", log.log_id).check()
    assert [(c.ledger_id, c.copies) for c in found.findings] == [(damaged, 1)]


async def test_orphan_is_marked_when_it_is_old_and_swept_after_the_grace(world: LogWorld) -> None:
    logs = world.logs()
    log = await logs.create("flights")
    await commit(log, "x")
    before = (await log.snapshot()).items
    metadata = await world.client().ledger_metadata(before[0].ledger_id)
    orphan = await world.client().create_ledger(custom_metadata=metadata.custom)
    other = await world.client().create_ledger()
    world.skip(6 * DAY_MS)
    assert (await log.check()).orphans == (orphan.id,)
    assert await log.delete_orphans() == ()
    world.skip(2 * DAY_MS)
    assert await log.delete_orphans() == (orphan.id,)
    assert (await log.check()).marked == (orphan.id,)
    assert (await logs.sweeper().sweep(log.log_id)).ledgers_deleted == 0
    world.skip(2 * DAY_MS)
    assert (await logs.sweeper().sweep(log.log_id)).ledgers_deleted == 1
    assert (await log.snapshot()).items == before
    assert not (await world.client().ledger_metadata(other.id)).is_closed
    assert await log.delete_orphans() == ()


async def test_deleted_log_is_deleted_once(world: LogWorld) -> None:
    log = await world.logs().create("flights")
    await log.delete()
    with pytest.raises(LogNotFoundError):
        await log.delete()
