"""What processes do to a log, with the calls that users make."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.errors import (
    ConfigurationError,
    LedgerLogError,
    LocalProtocolError,
    LogNotFoundError,
    MetadataUnavailableError,
)
from ledgerlog_spark.log.sweep_memory import SweepMemory
from ledgerlog_spark.protocol.log_epoch import JobKind
from ledgerlog_spark.protocol.log_records import WriteMode
from ledgerlog_spark.upkeep.upkeep import Upkeep
from tests.sim.log.checks import ENTRY_ROWS, Attempt, place_of
from tests.sim.log.hosts.blame import Call
from tests.sim.log.hosts.process import METADATA

if TYPE_CHECKING:
    from ledgerlog_spark.log.job import Job
    from ledgerlog_spark.log.log import Log
    from ledgerlog_spark.protocol.log_records import StagedRange
    from tests.sim.log.hosts.process import Process

OLD_SCHEMA, WIDE_SCHEMA = b"one column", b"two columns"


async def _sleep(process: Process, first_ms: int, last_ms: int) -> None:
    await asyncio.sleep(process.world.random.randint(first_ms, last_ms) / 1e3)


async def _opened(process: Process) -> Log | None:
    """The log of the name, made when there is none; None when that failed."""
    world = process.world
    call = Call(world, process, world.newest_id)
    try:
        return await process.logs.open_or_create("log", properties=world.properties)
    except LedgerLogError as error:
        # Between the look and the creation somebody may have deleted it again.
        if not isinstance(error, LogNotFoundError):
            call.judge(error)
        return None


async def staged(
    process: Process, log: Log, job: Job, names: list[int] | None = None
) -> StagedRange:
    """A range in a new ledger that is registered, with new entries or copies of others."""
    world = process.world
    owner, place = (job.app, job.batch_id, job.run), (log.log_id, job.app, job.run)
    going_on = process.open.get(place, 0)
    if names is None and going_on and world.random.random() < 0.6:
        ledger, schema = world.ledgers[going_on], world.schemas[going_on]
        if ledger.sealed_at is None and schema == job.schema:
            await log.join(job)
            await _sleep(process, 1, 20)
            if ledger.sealed_at is None:
                world.counts["ledgers gone on with"] += 1
                return world.written(going_on, owner, world.random.randint(1, 6))
    (ledger_id,) = world.new_ledger_ids(1)
    world.schemas[ledger_id] = job.schema or None
    metadata = METADATA.__class__(
        quorum=METADATA.quorum, fragments=METADATA.fragments, token=ledger_id + 1_000
    )
    await log._register(job, ledger_id, metadata)
    await _sleep(process, 1, 20)
    if job.kind is JobKind.STREAM:
        process.open[place] = ledger_id
    return world.written(ledger_id, owner, world.random.randint(1, 6), names or ())


async def job(
    process: Process, app: str | None, batch_id: int, run: str, mode: WriteMode, after_ms: int
) -> None:
    """Begin, write, commit; commit again when the outcome was unknown."""
    await asyncio.sleep(after_ms / 1e3)
    world, random = process.world, process.world.random
    log = await _opened(process)
    if log is None:
        return
    kind = JobKind.STREAM if app == "stream" else JobKind.BATCH
    call = Call(world, process, log.log_id, app, run, batch_id)
    try:
        state = await log.state()
        schema = OLD_SCHEMA
        if state.schema == WIDE_SCHEMA or random.random() < 0.3:
            schema = WIDE_SCHEMA
        begun = await log.begin(
            schema=schema,
            mode=mode,
            app=app,
            batch_id=batch_id,
            run=run,
            kind=kind,
            overwrite_if_changed=random.random() < 0.5,
            planned=state,
        )
        if begun.is_replay:
            world.counts["replays"] += 1
            return
        call.app = begun.app
        ranges = [await staged(process, log, begun) for _ in range(random.randint(1, 3))]
        if random.random() < 0.25:
            await staged(process, log, begun)  # of a task attempt too many
    except LedgerLogError as error:
        call.judge(error)
        return
    if random.random() < 0.1:
        await _sleep(process, 100, 4_000)
    await _commit(process, log, begun, ranges, call)


async def _commit(
    process: Process, log: Log, begun: Job, ranges: list[StagedRange], call: Call
) -> None:
    world, random = process.world, process.world.random
    view = world.views[log.log_id]
    attempt = Attempt(begun.app, begun.batch_id, begun.run, tuple(map(place_of, ranges)))
    view.checks.attempts.append(attempt)
    known = process.known if random.random() < 0.7 else None
    for _ in range(3):
        try:
            result = await log.commit(begun, ranges, known=known, is_last=random.random() < 0.8)
        except LedgerLogError as error:
            if process.has_crashed:
                return
            call.judge(error)
            if not error.definite:
                attempt.said_unknown = True
                await _sleep(process, 1, 300)
                continue
            is_silent = isinstance(error, MetadataUnavailableError)
            if not (is_silent and attempt.said_unknown):
                attempt.said_failed = True
                view.checks.failed(attempt)
            return
        attempt.said_committed = True
        view.checks.reported(attempt, result)
        world.counts["commits"] += 1
        return


async def keep_up(process: Process) -> None:
    """Passes of upkeep, as the service makes them."""
    upkeep = Upkeep(process.client, policy=None, memory=SweepMemory())
    while process.world.is_busy:
        await _sleep(process, 50, 500)
        call = Call(process.world, process, process.world.newest_id)
        try:
            kept = await upkeep.run()
        except LedgerLogError as error:
            call.judge(error)
            continue
        for done in kept or ():
            for error in done.errors:
                Call(process.world, process, done.log).judge_in_a_pass(error, call)


async def sweep(process: Process) -> None:
    """Passes without a memory, beside those of upkeep."""
    for _ in range(process.world.random.randint(1, 4)):
        await _sleep(process, 100, 2_500)
        call = Call(process.world, process, process.world.newest_id)
        try:
            _, errors = await process.logs.sweeper().sweep_all()
        except LedgerLogError as error:
            errors = [error]
        for error in errors:
            call.judge_in_a_pass(error, call)


async def sweep_all(process: Process) -> None:
    """One pass over everything."""
    await process.logs.sweeper().sweep_all()


async def merge(process: Process) -> None:
    """Copies neighbouring ranges of one schema into one and switches."""
    world, random = process.world, process.world.random
    for _ in range(random.randint(1, 3)):
        await _sleep(process, 100, 2_000)
        log = process.logs.open_by_id("log", world.newest_id)
        call = Call(world, process, log.log_id)
        try:
            snapshot = await log.snapshot()
            if len(snapshot.items) < 2:
                continue
            first = random.randrange(len(snapshot.items) - 1)
            run = list(snapshot.items[first : first + 4])
            run = [item for item in run if item.schema_id == run[0].schema_id]
            follows = [i.first_offset for i in run[1:]] == [i.end_offset for i in run[:-1]]
            if len(run) < 2 or not follows:
                continue
            view = world.views[log.log_id]
            names = [name for item in run for name in view.checks.names(item)]
            begun = await log.begin(schema=snapshot.schemas[run[0].schema_id])
            call.app, call.run = begun.app, begun.run
            try:
                copy = await staged(process, log, begun, names)
                await log.switch(begun, run, copy)
                world.counts["merges"] += 1
            finally:
                await log.release(begun)
        except LedgerLogError as error:
            call.judge(error)


async def restore(process: Process) -> None:
    """An older version becomes the newest, perhaps with copies of parts of ranges."""
    world, random = process.world, process.world.random
    await _sleep(process, 500, 3_000)
    log = process.logs.open_by_id("log", world.newest_id)
    call = Call(world, process, log.log_id)

    async def copied(begun: Job, part: Any) -> StagedRange:
        view = world.views[log.log_id]
        first, end = (offset // ENTRY_ROWS for offset in part.offsets)
        names = view.checks.truth[first:end]
        made = await staged(process, log, begun, names)
        world.schemas[made.ledger_id] = world.schemas[part.item.ledger_id]
        return made

    try:
        history = await log.history()
        version = random.choice(history).version
        await log.restore(version, copy=copied, overwrite_if_changed=random.random() < 0.5)
    except LedgerLogError as error:
        call.judge(error)


async def truncate(process: Process) -> None:
    world, random = process.world, process.world.random
    await _sleep(process, 500, 3_500)
    log = process.logs.open_by_id("log", world.newest_id)
    view = world.views[log.log_id]
    places = (view.head.end_offset - view.head.start_offset) // ENTRY_ROWS
    offset = view.head.start_offset + random.randint(0, max(0, places // 2)) * ENTRY_ROWS
    view.truncated_to = max(view.truncated_to, offset)
    call = Call(world, process, log.log_id)
    try:
        await log.truncate(offset)
    except ConfigurationError as error:
        raise world.violation(f"offset {offset} was there") from error
    except LedgerLogError as error:
        call.judge(error)
    else:
        world.require(view.head.start_offset >= offset, f"it is not truncated to {offset}")


async def set_property(process: Process) -> None:
    world = process.world
    await _sleep(process, 100, 3_000)
    log = process.logs.open_by_id("log", world.newest_id)
    call = Call(world, process, log.log_id)
    try:
        done = await log.set_properties({"rollMs": "60000"})
        world.require(done.get("rollMs") == "60000", f"properties are {done}")
    except LedgerLogError as error:
        call.judge(error)


async def read(process: Process) -> None:
    """Plans, reads slowly, and ends just before the grace of what it reads may be over."""
    world, random = process.world, process.world.random
    for _ in range(random.randint(1, 4)):
        await _sleep(process, 50, 1_500)
        log = process.logs.open_by_id("log", world.newest_id)
        view = world.views[log.log_id]
        call = Call(world, process, log.log_id)
        began_ms = world.now_ms()
        try:
            wanted = None
            if random.random() < 0.4:
                wanted = random.randint(view.head.oldest_version, view.head.version)
            snapshot = await log.snapshot(wanted)
        except LedgerLogError as error:
            call.judge(error)
            continue
        rows = sum(item.rows for item in snapshot.items)
        world.require(rows >= snapshot.interval.rows, f"{rows} of {snapshot.interval.rows} rows")
        left_ms = view.properties.deleted_retention_ms - 1 - (world.now_ms() - began_ms)
        if left_ms > 0 and view.deleted_at_ms is None:
            await asyncio.sleep(random.randint(0, left_ms) / 1e3)
            for item in snapshot.items:
                view.checks.read(item, snapshot.interval)


async def delete(process: Process) -> None:
    """Deletes the log; jobs that come later make another one of the name."""
    world = process.world
    await _sleep(process, 1_000, 4_000)
    call = Call(world, process, world.newest_id)
    try:
        await process.logs.delete("log")
        world.counts["logs deleted"] += 1
    except LedgerLogError as error:
        if not isinstance(error, LocalProtocolError):
            call.judge(error)
