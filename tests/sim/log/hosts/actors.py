"""What processes do to a log, with the calls that users make."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.errors import (
    ConfigurationError,
    LedgerLogError,
    LocalProtocolError,
    LogExistsError,
    LogNotFoundError,
)
from ledgerlog_spark.log.host import CHANGE_TIMEOUT_MS
from ledgerlog_spark.log.maintenance.sweep_memory import SweepMemory
from ledgerlog_spark.protocol.log.commit.epoch import JobKind
from ledgerlog_spark.protocol.log.state.records import WriteMode
from ledgerlog_spark.upkeep.merge_plan import MergePolicy, plan_merges
from ledgerlog_spark.upkeep.upkeep import Upkeep
from tests.sim.log import rows
from tests.sim.log.checks import ENTRY_ROWS, OF_THIS_CALL_ALONE, Attempt, place_of
from tests.sim.log.hosts.blame import Call
from tests.sim.log.hosts.process import sleep
from tests.sim.log.hosts.ranges import BACK, of_task, staged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledgerlog_spark.log.committing.job import Job
    from ledgerlog_spark.log.log import Log
    from ledgerlog_spark.protocol.log.state.records import Item, StagedRange
    from tests.sim.log.hosts.process import Process


COMMIT_SECONDS_MAX = 40
"""Maximum time of a commit with lost answers, behind a queue in which one member does nothing."""


async def _opened(process: Process) -> tuple[Log, bool] | None:
    """Return the log, and whether this call created it, or None after a failure."""
    world = process.world
    call = Call(world, process, world.newest_id)
    try:
        try:
            return await process.logs.open("log"), False
        except LogNotFoundError:
            pass
        try:
            return await process.logs.create("log", properties=world.properties), True
        except LogExistsError:
            return await process.logs.open("log"), False
    except LedgerLogError as error:
        # Another process may have deleted the log between the look-up and the creation.
        if not isinstance(error, LogNotFoundError):
            call.judge(error)
        return None


async def job(
    process: Process, app: str | None, batch_id: int, run: str, mode: WriteMode, after_ms: int
) -> None:
    """Begin, write and commit a job; commit again if the outcome was unknown."""
    await asyncio.sleep(after_ms / 1e3)
    world, random = process.world, process.world.random
    opened = await _opened(process)
    if opened is None:
        return
    log, is_new = opened
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
            expected_version=state.head.version if world.extra.random() < 0.1 else None,
            is_log_new=is_new,
        )
        call.check_password(state.head)
        if begun.is_replay:
            world.counts["replays"] += 1
            return
        call.app = begun.app
        fewest = 0 if begun.planned_version == 0 else 1
        ranges: list[StagedRange] = []
        for _ in range(random.randint(fewest, 3)):
            ranges += await of_task(process, log, begun)
        if random.random() < 0.25:
            await of_task(process, log, begun)  # an additional task attempt
    except LedgerLogError as error:
        call.judge(error)
        return
    if random.random() < 0.1:
        await sleep(process, 100, 4_000)
    if not is_new or world.extra.random() < 0.5:
        await _commit(process, log, begun, ranges, call)
    if is_new:  # Spark also does this after a commit
        await abort(process, log, begun)


async def abort(process: Process, log: Log, begun: Job) -> None:
    """Abort a job that created its log. The log is deleted if it is not used (LOGS.md#K19)."""
    call = Call(process.world, process, log.log_id)
    try:
        await log.abort(begun)
    except LedgerLogError as error:
        call.judge(error)


async def fail_first(process: Process) -> None:
    """Let first writes fail, one after the other, while other processes open their logs."""
    world = process.world
    await sleep(process, 10, 1_500)
    await _deleted(process)
    for number in range(world.extra.randint(1, 4)):
        opened = await _opened(process)
        if opened is None or not opened[1]:
            continue
        log = opened[0]
        call = Call(world, process, log.log_id)
        try:
            begun = await log.begin(schema=world.usual_schema, is_log_new=True)
            call.app, call.run = begun.app, begun.run
            for _ in range(number % 3):
                await of_task(process, log, begun)
        except LedgerLogError as error:
            call.judge(error)
            continue
        if world.extra.random() < 0.7:
            await sleep(process, 1, 60)
            await abort(process, log, begun)
            world.counts["first writes failed"] += 1


async def _commit(
    process: Process, log: Log, begun: Job, ranges: list[StagedRange], call: Call
) -> None:
    world, random = process.world, process.world.random
    view = world.views[log.log_id]
    places = tuple(map(place_of, ranges))
    attempt = Attempt(
        begun.app,
        begun.batch_id,
        begun.run,
        places,
        begun.mode,
        begun.schema,
        begun.password,
        begun.planned_version,
        begun.overwrite_if_changed,
        begun.expected_version,
    )
    view.checks.attempts.append(attempt)
    known = process.known if random.random() < 0.7 else None
    began = world.loop.time()
    for _ in range(3):
        try:
            result = await log.commit(
                begun,
                ranges,
                known=known,
                is_last=random.random() < 0.8,
                timeout_ms=_timeout_ms(call),
            )
        except LedgerLogError as error:
            if process.has_crashed:
                return
            call.judge(error)
            if not error.definite:
                attempt.reported_unknown = True
                await sleep(process, 1, 300)
                continue
            is_silent = isinstance(error, OF_THIS_CALL_ALONE)
            if not (is_silent and attempt.reported_unknown):
                attempt.reported_failed = True
                view.checks.failed(attempt)
            return
        waited = world.loop.time() - began
        world.require(waited < COMMIT_SECONDS_MAX, f"a commit took {waited:.0f} s")
        attempt.reported_committed = True
        view.checks.reported(attempt, result)
        world.counts["commits"] += 1
        return


def _timeout_ms(call: Call) -> int:
    """Return the time limit of one commit. Some limits end during a request."""
    extra = call.process.world.extra
    call.is_limited = extra.random() < 0.08
    return extra.randint(1, 120) if call.is_limited else CHANGE_TIMEOUT_MS


async def keep_up(process: Process) -> None:
    """Make passes of upkeep, as the service does."""
    upkeep = process.upkeep = Upkeep(process.client, policy=None, memory=SweepMemory())
    while process.world.is_busy:
        await sleep(process, 50, 500)
        call = Call(process.world, process, process.world.newest_id)
        try:
            kept = await upkeep.run()
        except LedgerLogError as error:
            call.judge(error)
            continue
        for done in kept or ():
            for each in done.errors:
                Call(process.world, process, done.log).judge_in_a_pass(each, call)


async def keep_up_alone(process: Process) -> None:
    """Make passes in a process that remembers due work, until all due work must be done."""
    for number in range(25):
        await asyncio.sleep(0.7)
        if number == 2:
            process.world.check_older_sealed()
        for done in await process.upkeep.run() or ():
            process.world.require(not done.errors, f"upkeep without a fault: {done.errors}")


async def stand_in_queue(process: Process) -> None:
    """Wait in a log's queue like a writer, but do nothing at the head of the queue."""
    await sleep(process, 50, 200)
    with contextlib.suppress(LedgerLogError):
        queue = process.store.queue(process.world.newest_id)
        name = await queue.join(f"{process.world.random.getrandbits(64):016x}")
        await asyncio.sleep(50)
        await queue.leave(name)


async def sweep(process: Process) -> None:
    """Make passes without remembered state, at the same time as upkeep."""
    for _ in range(process.world.random.randint(1, 4)):
        await sleep(process, 100, 2_500)
        call = Call(process.world, process, process.world.newest_id)
        try:
            _, errors = await process.logs.sweeper().sweep_all()
        except LedgerLogError as error:
            errors = [error]
        for each in errors:
            call.judge_in_a_pass(each, call)


async def sweep_all(process: Process) -> None:
    """Make one pass over all logs."""
    await process.logs.sweeper().sweep_all()


async def merge(process: Process) -> None:
    """Copy neighbouring ranges of one schema into one range, and replace them by it."""
    world, random = process.world, process.world.random
    for _ in range(random.randint(2, 5)):
        await sleep(process, 50, 1_000)
        log = process.logs.open_by_id("log", world.newest_id)
        call = Call(world, process, log.log_id)
        try:
            snapshot = await log.snapshot()
            if len(snapshot.items) < 2:
                continue
            run = _run_of(process, snapshot.items)
            if len(run) < 2:
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


def _run_of(process: Process, items: Sequence[Item]) -> list[Item]:
    """Return neighbouring ranges of one schema: those that upkeep would merge, or any."""
    world, random = process.world, process.world.random
    first = random.randrange(len(items) - 1)
    run = [item for item in items[first : first + 4] if item.schema_id == items[first].schema_id]
    if random.random() < 0.5:
        some = {i: world.ledgers[i] for i in {item.ledger_id for item in items}}
        closed = {i: each.password for i, each in some.items() if each.sealed_at is not None}
        plans = plan_merges(items, closed, MergePolicy(target_bytes=2_000))
        run = list(random.choice(plans)) if plans else []
        world.counts["merges planned"] += bool(run)
        for item in run:
            ledger = some[item.ledger_id]
            world.require(ledger.sealed_at is not None, f"open ledger {item.ledger_id} is merged")
            is_alike = ledger.password == some[run[0].ledger_id].password
            world.require(is_alike, "ranges of two passwords are merged")
        size_bytes = sum(item.size_bytes for item in run)
        world.require(size_bytes <= 2_000, f"a merged range of {size_bytes} bytes")
        world.require(len({item.schema_id for item in run}) <= 1, "two schemas are merged")
    follows = [i.first_offset for i in run[1:]] == [i.end_offset for i in run[:-1]]
    return run if follows else []


async def restore(process: Process) -> None:
    """Restore an older version, perhaps with copies of parts of ranges."""
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
    """Let a stream continue with a ledger when the grace period of the ledger has just ended."""
    world = process.world
    for batch_id in range(8):
        opened = await _opened(process)
        if opened is None:
            return
        log, _ = opened
        # One run with one ledger, as long as the ledger is registered.
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
    """Make passes one after the other, in a process that sometimes stalls."""
    process.tree.stall_probability = 0.1
    while process.world.is_busy:
        await sleep(process, 10, 200)
        call = Call(process.world, process, process.world.newest_id)
        try:
            _, errors = await process.logs.sweeper().sweep_all()
        except LedgerLogError as error:
            errors = [error]
        for each in errors:
            call.judge_in_a_pass(each, call)


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
    """Seal ledgers as an operator does, but never below the listed entries."""
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


async def delete_orphans(process: Process) -> None:
    """Check that a transactional log has no orphan, even during other changes."""
    world = process.world
    await sleep(process, 1_000, 4_000)
    log = process.logs.open_by_id("log", world.newest_id)
    call = Call(world, process, log.log_id)
    try:
        orphans = await log.delete_orphans()
    except LedgerLogError as error:
        call.judge(error)
        return
    world.require(not orphans, f"ledgers {orphans} were taken for orphans")


async def delete(process: Process) -> None:
    """Delete the log. Later jobs create another log of the same name."""
    await sleep(process, 1_000, 4_000)
    await _deleted(process)


async def _deleted(process: Process) -> None:
    world = process.world
    call = Call(world, process, world.newest_id)
    try:
        log = await process.logs.open("log")
        call = Call(world, process, log.log_id)
        world.deleting.add(log.log_id)
        await log.delete()
        world.counts["logs deleted"] += 1
    except LedgerLogError as error:
        if not isinstance(error, LocalProtocolError):
            call.judge(error)
