"""Ranges of jobs: entry by entry as tasks write them, or all at once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ledgerlog_spark.errors import LedgerClosedError, LedgerFencedError
from ledgerlog_spark.log.committing.job import Job
from ledgerlog_spark.protocol.log.commit.epoch import JobKind
from ledgerlog_spark.protocol.log.seal import APP_KEY, LOG_ID_KEY, SINCE_KEY
from ledgerlog_spark.protocol.log.state.records import WriteMode
from tests.sim.log.checks import ENTRY_ROWS, INDEX, place_of
from tests.sim.log.hosts.ledgers import metadata_of
from tests.sim.log.hosts.process import sleep
from tests.sim.log.hosts.writers import payload_of, require_range
from tests.sim.log.world import Ledger

if TYPE_CHECKING:
    from ledgerlog_spark.log.committing.range_writer import RangeWriter
    from ledgerlog_spark.log.log import Log
    from ledgerlog_spark.protocol.log.state.records import StagedRange
    from tests.sim.log.hosts.process import Process

BACK = "q1/back"
"""The run that always continues with its ledger."""

MOVES_MAX = 5
"""Number of fenced ledgers after which the task of a range gives up, as in Spark."""


async def of_task(process: Process, log: Log, job: Job) -> list[StagedRange]:
    """Write the ranges of one task: one range, or several if its ledger is fenced."""
    if job.run != BACK and process.world.random.random() < 0.6:
        return await _written(process, log, job)
    return [await staged(process, log, job)]


async def _written(process: Process, log: Log, job: Job) -> list[StagedRange]:
    """Write entry by entry, in a ledger that the process keeps for a stream or in a new one."""
    world, random = process.world, process.world.random
    names = world.new_names(random.randint(1, 6))
    left, found, ledger_id = names, [], -1
    for _ in range(MOVES_MAX):
        writer = await _opened(process, log, job)
        ledger_id = writer.ledger_id
        try:
            ranges = await _one_range(process, writer, left, job.batch_id)
            again: list[int] = []
        except (LedgerFencedError, LedgerClosedError):
            cut, payloads = await writer.cut()
            ranges = [] if cut is None else [cut]
            again = [int.from_bytes(payload, "big") for payload in payloads]
            again += left[writer.rows // ENTRY_ROWS :]
            world.counts["ranges cut"] += 1
        done = left[: len(left) - len(again)]
        world.require([*done, *again] == left, f"of {left} {again} are to be written again")
        for each in ranges:
            require_range(world, each, done)
            world.owners[place_of(each)] = (job.app, job.batch_id, job.run)
        world.require(bool(ranges) == bool(done), f"{done} are in no range")
        found += ranges
        left = again
        if not left:
            world.counts["ranges written"] += 1
            return found
    raise LedgerFencedError("it is fenced again and again", ledger_id=ledger_id)


async def _opened(process: Process, log: Log, job: Job) -> RangeWriter:
    if job.kind is not JobKind.STREAM:
        return await log.open_range(job)
    await process.streams.join(log.commits, job)
    writer = await process.streams.open_range(log.commits, job)
    world = process.world
    handle = world.writers[writer.ledger_id]
    ttl_ms = world.views[log.log_id].properties.staging_ttl_ms
    world.require(
        handle.age_ms < ttl_ms / 2, f"ledger {handle.id} is continued after {handle.age_ms} ms"
    )
    if handle.ranges and job.mode is WriteMode.OVERWRITE:
        listed = sum(size for batch_id, size in handle.ranges if batch_id >= job.batch_id - 1)
        whole = sum(size for _, size in handle.ranges)
        is_used = 2 * listed >= whole
        world.require(is_used, f"{listed} of {whole} bytes of ledger {handle.id} are listed")
    world.counts["ledgers of streams continued"] += bool(handle.ranges)
    return writer


async def _one_range(
    process: Process, writer: RangeWriter, names: list[int], batch_id: int
) -> list[StagedRange]:
    world, random = process.world, process.world.random
    for name in names:
        await writer.append(payload_of(name), ENTRY_ROWS)
        if random.random() < 0.2:
            await asyncio.sleep(random.randint(1, 60) / 1e3)
        if random.random() < 0.03:
            world.spawn_seal(process, writer.ledger_id)
    index = payload_of(INDEX) if random.random() < 0.5 else None
    handle = world.writers[writer.ledger_id]
    done = await writer.finish(index)
    world.require(done is not None, f"{names} are in no range")
    assert done is not None
    handle.ranges.append((batch_id, done.size_bytes))
    return [done]


async def staged(
    process: Process,
    log: Log,
    job: Job,
    names: list[int] | None = None,
    of: Ledger | None = None,
) -> StagedRange:
    """Stage a range in a new, registered ledger, with new entries or copies of other entries.

    Another process may close the ledger between its registration and its first row. After that, a
    client cannot append to it, so the range goes to another ledger, as in `_written`.
    """
    world = process.world
    owner, place = (job.app, job.batch_id, job.run), (log.log_id, job.app, job.run)
    going_on = process.open.get(place, 0)
    if names is None and going_on and (job.run == BACK or world.random.random() < 0.6):
        ledger = world.ledgers[going_on]
        is_alike = (ledger.schema, ledger.password) == (job.schema, job.password)
        if ledger.sealed_at is None and is_alike:
            joined = await log.commits.join(job)
            if world.random.random() < 0.2:
                await log.commits.seal_before(job.app, joined.epoch)
            await sleep(process, 1, 20)
            if ledger.sealed_at is None:
                world.counts["ledgers continued"] += 1
                return world.written(going_on, owner, world.random.randint(1, 6))
    ledger_id = -1
    for _ in range(MOVES_MAX):
        ledger_id = await _registered(process, log, job, of)
        await sleep(process, 1, 20)
        if world.ledgers[ledger_id].sealed_at is None:
            if job.kind is JobKind.STREAM:
                process.open[place] = ledger_id
            return world.written(ledger_id, owner, world.random.randint(1, 6), names or ())
        world.counts["ledgers closed before their first row"] += 1
    raise LedgerFencedError("it is fenced again and again", ledger_id=ledger_id)


async def _registered(process: Process, log: Log, job: Job, of: Ledger | None) -> int:
    """Register a new ledger, with the schema and the password of the job or of `of`."""
    world = process.world
    (ledger_id,) = await log.commits.new_ledger_ids(1)
    made = of or Ledger(schema=job.schema, password=job.password)
    world.made[ledger_id] = Ledger(schema=made.schema, password=made.password)
    custom = {
        LOG_ID_KEY: log.log_id.encode(),
        APP_KEY: job.app.encode(),
        SINCE_KEY: str(job.since_offset).encode(),
    }
    await log.commits._register(
        job, ledger_id, metadata_of(ledger_id, password=made.password, custom=custom)
    )
    return ledger_id
