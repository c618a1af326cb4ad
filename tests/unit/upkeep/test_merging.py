"""Merging and restoring rows, on a cluster in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from ledgerlog_spark.arrow.stream_codec import decode_entries
from ledgerlog_spark.errors import DataLossError, LedgerNotFoundError
from ledgerlog_spark.log.log import Log
from ledgerlog_spark.protocol.log.commit.result import CommitResult
from ledgerlog_spark.protocol.log.seal import since_offset
from ledgerlog_spark.protocol.log.state.records import (
    Item,
    LogSnapshot,
    Operation,
    StagedRange,
    WriteMode,
)
from ledgerlog_spark.protocol.log.state.statistics import decode_statistics
from ledgerlog_spark.upkeep.merge_plan import MergePolicy
from ledgerlog_spark.upkeep.merging import LogMerger, Merged
from ledgerlog_spark.upkeep.rows import restore, write_range
from tests.unit.upkeep.upkeep_world import SCHEMA, RowsWorld, append, numbers

ALL = MergePolicy()


async def many(world: RowsWorld, commits: int = 6) -> tuple[Log, LogMerger]:
    client, logs = world.opened()
    log = await logs.create("flights")
    for _ in range(commits):
        await append(log, 7, 3)
    return log, LogMerger(log, client, ALL)


async def test_many_ranges_become_one_with_larger_entries_and_an_index(world: RowsWorld) -> None:
    log, merger = await many(world)
    before = (await log.snapshot()).items
    versions = {v.version: await numbers(log, v.version) for v in await log.history()}
    done = await merger.merge()
    assert done == Merged("flights", 12, 1, rows=60, size_bytes=done.size_bytes, ledgers=1)
    snapshot = await log.snapshot()
    (item,) = snapshot.items
    assert (item.first_offset, item.rows, item.first_entry_id) == (0, 60, 1)
    assert (item.last_entry_id, item.index_entry_id) == (2, 2)
    assert item.size_bytes < sum(i.size_bytes for i in before)
    record = await world.opened()[0].ledger_metadata(item.ledger_id)
    assert since_offset(record.custom) == 0, "a seal looks for its range from there on"
    column = next(c for c in decode_statistics(item.statistics) if c.column == 0)
    assert (column.minimum, column.maximum) == (0, 59)
    assert {v: await numbers(log, v) for v in versions} == versions
    payloads = [e.payload async for b in log.read_range(item.ledger_id, 2, 2) for e in b]
    (decoded,) = decode_entries(snapshot.schemas[item.schema_id], payloads)
    assert decoded.index is not None
    assert [entry.rows for entry in decoded.index] == [60]
    assert (await merger.merge()).ledgers == 0


async def test_ranges_that_others_commit_during_a_merge_are_not_counted(world: RowsWorld) -> None:
    log, _ = await many(world)
    copied: list[tuple[int, int]] = []
    commits: list[asyncio.Future[CommitResult]] = []

    def on_progress(done: int, total: int) -> None:
        copied.append((done, total))
        commits.append(asyncio.ensure_future(append(log, 7, 3)))

    client, _ = world.opened()
    merged = await LogMerger(log, client, ALL, on_progress=on_progress).merge()
    await asyncio.gather(*commits)
    assert (merged.ranges_before, merged.ranges_after, merged.ledgers) == (12, 1, 1)
    assert len(copied) == 12
    assert len((await log.snapshot()).items) > 1


async def test_reader_that_planned_before_the_merge_reads_the_old_ledgers_until_the_grace_is_over(
    world: RowsWorld,
) -> None:
    log, merger = await many(world)
    old = (await log.snapshot()).items[0]
    await merger.merge()
    sweeper = world.logs().sweeper()
    await sweeper.sweep(log.log_id)
    read = [b async for b in log.read_range(old.ledger_id, 1, old.last_entry_id)]
    assert sum(map(len, read)) == 2
    world.skip(25 * 3_600_000)
    assert (await sweeper.sweep(log.log_id)).ledgers_deleted == 12
    with pytest.raises(LedgerNotFoundError):
        await world.client().ledger_metadata(old.ledger_id)
    check = await log.check(every_entry=True)
    assert not check.findings
    assert (check.staged, check.marked, check.orphans) == ((), (), ())
    assert await numbers(log) == list(range(60))


async def test_rows_that_come_while_a_merge_copies_are_behind_it(world: RowsWorld) -> None:
    log, merger = await many(world)
    switch = log.switch

    async def busy(*how: Any) -> Any:
        await append(log, 5)
        return await switch(*how)

    log.switch = busy  # type: ignore[assignment]
    assert (await merger.merge()).ledgers == 1
    assert await numbers(log) == list(range(65))
    assert len((await log.snapshot()).items) == 2


async def test_merge_of_what_was_truncated_meanwhile_comes_to_nothing(world: RowsWorld) -> None:
    log, merger = await many(world)
    switch = log.switch

    async def late(*how: Any) -> Any:
        await log.truncate(30)
        return await switch(*how)

    log.switch = late  # type: ignore[assignment]
    done = await merger.merge()
    assert (done.ledgers, done.lost) == (0, 1)
    assert await numbers(log) == list(range(30, 60))
    producers = await world.logs().store.producers.names(log.log_id)
    assert len(producers) == 6
    await world.logs().sweeper().sweep(log.log_id)
    assert (await log.check()).orphans == ()


@pytest.mark.parametrize("is_listed", [False, True])
async def test_ledger_that_goes_before_its_merge_begins_is_lost_only_if_it_is_listed_still(
    world: RowsWorld, is_listed: bool
) -> None:
    log, merger = await many(world)
    (first, *_) = (await log.snapshot()).items
    merge_run = merger._merge_run

    async def late(snapshot: LogSnapshot, run: Sequence[Item]) -> StagedRange | None:
        if not is_listed:
            await log.truncate(30)
        await world.client().delete_ledger(first.ledger_id)
        return await merge_run(snapshot, run)

    merger._merge_run = late
    if is_listed:
        with pytest.raises(DataLossError, match=f"ledger {first.ledger_id}"):
            await merger.merge()
    else:
        done = await merger.merge()
        assert (done.ledgers, done.lost) == (0, 1)


async def test_range_that_cannot_be_read_is_left_as_it_is(world: RowsWorld) -> None:
    log, merger = await many(world)
    listed = (await log.snapshot()).items
    for storage in world.storages.values():
        storage.ledgers.pop(listed[3].ledger_id, None)
    with pytest.raises(DataLossError):
        await merger.merge()
    assert (await log.snapshot()).items == listed
    await append(log, 2, schema=SCHEMA.append(pa.field("more", pa.float64())))
    await append(log, 2, schema=SCHEMA.append(pa.field("more", pa.float64())))
    with pytest.raises(DataLossError):
        await merger.merge()
    assert [item.rows for item in (await log.snapshot()).items[len(listed) :]] == [4]


async def test_ranges_of_open_ledgers_are_merged_only_when_they_may_be_sealed(
    world: RowsWorld,
) -> None:
    log, merger = await many(world)
    client, _ = world.opened()
    metadata = await client.ledger_metadata((await log.snapshot()).items[11].ledger_id)
    assert metadata.is_closed
    message = (await log.state()).schema
    assert message is not None
    job = await log.begin(schema=message)
    ledger = await log.commits.open_ledger(job)
    from ledgerlog_spark.log.committing.range_writer import RangeWriter
    from tests.unit.upkeep.upkeep_world import only, rows

    async def keep(_: RangeWriter) -> None:
        pass

    ranges: list[StagedRange] = []
    for first in (60, 61):
        writer = RangeWriter(ledger, keep)
        ranges.append(await write_range(writer, message, only(rows(first, 1))))
    await log.commit(job, ranges)
    assert (await merger.merge()).ranges_after == 3
    sealing = LogMerger(log, client, ALL, seals=True)
    assert (await sealing.merge()).ranges_after == 1
    assert await numbers(log) == list(range(62))


async def test_ranges_of_two_schemas_stay_apart_and_the_password_is_kept(world: RowsWorld) -> None:
    client, logs = world.opened()
    log = await logs.create("flights")
    wider = SCHEMA.append(pa.field("more", pa.float64()))
    for _ in range(2):
        await append(log, 4, 4, password=b"secret")
    for _ in range(2):
        await append(log, 4, schema=wider, password=b"secret")
    progress: list[tuple[int, int]] = []
    merger = LogMerger(log, client, ALL, on_progress=lambda *at: progress.append(at))
    assert (await merger.merge()).ranges_after == 2
    first, second = (await log.snapshot()).items
    for item in (first, second):
        assert (await client.ledger_metadata(item.ledger_id)).password == b"secret"
    assert (first.schema_id, second.schema_id) == (0, 1)
    assert progress[-1] == (6, 6)


async def test_restoring_a_version_that_ends_within_a_merged_range_copies_its_rows(
    world: RowsWorld,
) -> None:
    log, merger = await many(world)
    wanted = await numbers(log, 3)
    await merger.merge()
    await append(log, 5, mode=WriteMode.OVERWRITE, first=1_000)
    client, _ = world.opened()
    done = await restore(log, client, 3)
    assert done.version == 8
    assert await numbers(log) == wanted == list(range(30))
    assert (await log.history())[-1].operation is Operation.RESTORE
    assert await numbers(log, 7) == list(range(1_000, 1_005))
    await restore(log, client, 7)
    assert await numbers(log) == list(range(1_000, 1_005))
