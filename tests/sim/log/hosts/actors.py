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
from ledgerlog_spark.protocol.log_seal import APP_KEY, LOG_ID_KEY, SINCE_KEY
from ledgerlog_spark.upkeep.upkeep import Upkeep
from tests.sim.log import rows
from tests.sim.log.checks import ENTRY_ROWS, Attempt, place_of
from tests.sim.log.hosts.blame import Call
from tests.sim.log.hosts.ledgers import metadata_of
from tests.sim.log.world import Ledger

if TYPE_CHECKING:
    from ledgerlog_spark.log.job import Job
    from ledgerlog_spark.log.log import Log
    from ledgerlog_spark.protocol.log_records import StagedRange
    from tests.sim.log.hosts.process import Process


BACK = "q1/back"
"""The run that always goes on with its ledger."""


async def sleep(process: Process, first_ms: int, last_ms: int) -> None:
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
    process: Process,
    log: Log,
    job: Job,
    names: list[int] | None = None,
    of: Ledger | None = None,
) -> StagedRange:
    """A range in a new ledger that is registered, with new entries or copies of others."""
    world = process.world
    owner, place = (job.app, job.batch_id, job.run), (log.log_id, job.app, job.run)
    going_on = process.open.get(place, 0)
    if names is None and going_on and (job.run == BACK or world.random.random() < 0.6):
        ledger = world.ledgers[going_on]
        is_alike = (ledger.schema, ledger.password) == (job.schema, job.password)
        if ledger.sealed_at is None and is_alike:
            joined = await log.join(job)
            if world.random.random() < 0.2:
                await log.seal_before(job.app, joined.epoch)
            await sleep(process, 1, 20)
            if ledger.sealed_at is None:
                world.counts["ledgers gone on with"] += 1
                return world.written(going_on, owner, world.random.randint(1, 6))
    (ledger_id,) = await log.new_ledger_ids(1)
    made = of or Ledger(schema=job.schema, password=job.password)
    world.made[ledger_id] = Ledger(schema=made.schema, password=made.password)
    custom = {
        LOG_ID_KEY: log.log_id.encode(),
        APP_KEY: job.app.encode(),
        SINCE_KEY: str(job.since_offset).encode(),
    }
    await log._register(
        job, ledger_id, metadata_of(ledger_id, password=made.password, custom=custom)
    )
    await sleep(process, 1, 20)
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
        call.password = rows.password_given(random, world.password)
        begun = await log.begin(
            schema=rows.chosen_schema(random, state, mode, world.usual_schema),
            mode=mode,
            app=app,
            batch_id=batch_id,
            run=run,
            kind=kind,
            overwrite_if_changed=random.random() < 0.5,
            password=call.password,
            planned=state,
        )
        call.check_password(state.head)
        if begun.is_replay:
            world.counts["replays"] += 1
            return
        call.app = begun.app
        fewest = 0 if begun.planned_version == 0 else 1
        ranges = [await staged(process, log, begun) for _ in range(random.randint(fewest, 3))]
        if random.random() < 0.25:
            await staged(process, log, begun)  # of a task attempt too many
    except LedgerLogError as error:
        call.judge(error)
        return
    if random.random() < 0.1:
        await sleep(process, 100, 4_000)
    await _commit(process, log, begun, ranges, call)


async def _commit(
    process: Process, log: Log, begun: Job, ranges: list[StagedRange], call: Call
) -> None:
    world, random = process.world, process.world.random
    view = world.views[log.log_id]
    places = tuple(map(place_of, ranges))
    attempt = Attempt(
        begun.app, begun.batch_id, begun.run, places, begun.mode, begun.schema, begun.password
    )
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
                await sleep(process, 1, 300)
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
        await sleep(process, 50, 500)
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
        await sleep(process, 100, 2_500)
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
    for _ in range(random.randint(2, 5)):
        await sleep(process, 50, 1_000)
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
            of = world.ledgers[run[0].ledger_id]
            call.password = rows.password_given(random, of.password)
            begun = await log.begin(
                schema=snapshot.schemas[run[0].schema_id], password=call.password
            )
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
    await sleep(process, 500, 3_000)
    log = process.logs.open_by_id("log", world.newest_id)
    call = Call(world, process, log.log_id)

    async def copied(begun: Job, part: Any) -> StagedRange:
        view = world.views[log.log_id]
        first, end = (offset // ENTRY_ROWS for offset in part.offsets)
        names = view.checks.truth[first:end]
        return await staged(process, log, begun, names, world.ledgers[part.item.ledger_id])

    try:
        history = await log.history()
        version = random.choice(history).version
        await log.restore(version, copy=copied, overwrite_if_changed=random.random() < 0.5)
    except LedgerLogError as error:
        call.judge(error)


async def truncate(process: Process) -> None:
    world, random = process.world, process.world.random
    await sleep(process, 500, 3_500)
    log = process.logs.open_by_id("log", world.newest_id)
    view = world.views[log.log_id]
    places = (view.head.end_offset - view.head.start_offset) // ENTRY_ROWS
    offset = view.head.start_offset + random.randint(0, max(0, places // 2)) * ENTRY_ROWS
    call = Call(world, process, log.log_id)
    if random.random() < 0.2:
        beyond = view.head.end_offset + 1_000_000
        try:
            await log.truncate(beyond)
        except ConfigurationError:
            return
        except LedgerLogError as error:
            call.judge(error)
            return
        raise world.violation(f"it was truncated to {beyond}, behind its end")
    view.truncated_to = max(view.truncated_to, offset)
    try:
        await log.truncate(offset)
    except ConfigurationError as error:
        raise world.violation(f"offset {offset} was there") from error
    except LedgerLogError as error:
        call.judge(error)
    else:
        world.require(view.head.start_offset >= offset, f"it is not truncated to {offset}")


async def come_back(process: Process) -> None:
    """A stream that goes on with a ledger just when its time of grace is over."""
    world = process.world
    for batch_id in range(8):
        log = await _opened(process)
        if log is None:
            return
        # In one run, with one ledger: as long as that is registered.
        await job(process, "stream", batch_id, BACK, WriteMode.APPEND, 0)
        view = world.views[log.log_id]
        for _ in range(3):
            view.truncated_to = max(view.truncated_to, view.head.end_offset)
            call = Call(world, process, log.log_id)
            try:
                await log.truncate(view.truncated_to)
                break
            except LedgerLogError as error:
                call.judge(error)
        await sleep(process, 1_300, 1_600)


async def sweep_slowly(process: Process) -> None:
    """Passes one after the other, by a process that stands still now and then."""
    process.tree.stall_chance = 0.1
    while process.world.is_busy:
        await sleep(process, 10, 200)
        call = Call(process.world, process, process.world.newest_id)
        try:
            _, errors = await process.logs.sweeper().sweep_all()
        except LedgerLogError as error:
            errors = [error]
        for error in errors:
            call.judge_in_a_pass(error, call)


async def set_property(process: Process) -> None:
    world = process.world
    await sleep(process, 100, 3_000)
    log = process.logs.open_by_id("log", world.newest_id)
    call = Call(world, process, log.log_id)
    try:
        done = await log.set_properties({"rollMs": "60000"})
        world.require(done.get("rollMs") == "60000", f"properties are {done}")
    except LedgerLogError as error:
        call.judge(error)


async def seal(process: Process) -> None:
    """Somebody seals ledgers by hand, each never below what its log lists."""
    world, random = process.world, process.world.random
    for _ in range(random.randint(1, 3)):
        await sleep(process, 100, 3_000)
        if not world.ledgers:
            continue
        ledger_id = random.choice(sorted(world.ledgers))
        log_id = world.log_of[ledger_id]
        call = Call(world, process, log_id)
        call.password = rows.password_given(random, world.ledgers[ledger_id].password)
        call.ledger_id = ledger_id
        try:
            owner = await process.logs.owner(ledger_id)
            world.require(owner in {"log", None}, f"ledger {ledger_id} is of log {owner}")
            await process.logs.seal(ledger_id, password=call.password)
        except LedgerLogError as error:
            call.judge(error)
            continue
        right = world.ledgers[ledger_id].password
        world.require(call.password == right, f"ledger {ledger_id} was sealed by a wrong password")
        world.counts["ledgers sealed by hand"] += 1


async def let_go(process: Process) -> None:
    """Nothing of a transactional log is an orphan, whatever goes on while it is looked for."""
    world = process.world
    await sleep(process, 1_000, 4_000)
    log = process.logs.open_by_id("log", world.newest_id)
    call = Call(world, process, log.log_id)
    try:
        orphans = await log.let_go_orphans()
    except LedgerLogError as error:
        call.judge(error)
        return
    world.require(not orphans, f"ledgers {orphans} were taken for orphans")


async def delete(process: Process) -> None:
    """Deletes the log; jobs that come later make another one of the name."""
    world = process.world
    await sleep(process, 1_000, 4_000)
    call = Call(world, process, world.newest_id)
    try:
        await process.logs.delete("log")
        world.counts["logs deleted"] += 1
    except LedgerLogError as error:
        if not isinstance(error, LocalProtocolError):
            call.judge(error)
