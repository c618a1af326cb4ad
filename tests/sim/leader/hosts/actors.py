"""What processes do to a leader log, with the calls that users make."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.errors import (
    ConfigurationError,
    LeaderTimeoutError,
    LedgerLogError,
    LocalProtocolError,
    LogKindError,
    LogNotFoundError,
    PositionNotAvailableError,
    SchemaMismatchError,
)
from ledgerlog_spark.log.maintenance.sweep_memory import SweepMemory
from ledgerlog_spark.log.records import Positions
from ledgerlog_spark.model import Position
from ledgerlog_spark.protocol.log.state.records import LogKind
from ledgerlog_spark.upkeep.upkeep import Upkeep
from tests.fixtures.kinds import now
from tests.sim.leader.hosts.blame import LeaderCall
from tests.sim.leader.hosts.ledgers import FINISHED
from tests.sim.leader.hosts.news import News
from tests.sim.log.hosts.process import sleep

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from ledgerlog_spark.log.leader.leader import Leader
    from ledgerlog_spark.log.log import Log
    from tests.sim.leader.hosts.world import LeaderHosts
    from tests.sim.log.hosts.process import Process


async def opened(process: Process) -> Log | None:
    """Return the log, which is created if it does not exist, or None if this failed."""
    world: LeaderHosts = process.world
    call = LeaderCall(world, process, world.newest_id)
    content = world.content
    try:
        return await process.logs.open_or_create(
            "log",
            schema=content.schema,
            properties=world.properties,
            kind=LogKind.LEADER,
            content=content.content,
        )
    except LedgerLogError as error:
        if not isinstance(error, LogNotFoundError):
            call.judge(error)
        return None


async def led(process: Process, log: Log) -> Leader | None:
    """Return a leader of the log, or None if this failed."""
    world: LeaderHosts = process.world
    call = LeaderCall(world, process, log.log_id)
    with world.opening(process, log.log_id):
        leading = asyncio.ensure_future(log.lead(world.settings))
        is_cancelled = world.random.random() < world.cancel_probability
        try:
            if is_cancelled:
                await asyncio.wait([leading], timeout=world.random.randint(1, 250) / 1e3)
                leading.cancel()
            leader = await leading
        except LedgerLogError as error:
            call.judge(error)
            return None
        except asyncio.CancelledError:
            if process.has_crashed or not is_cancelled:
                raise
            world.counts["openings cancelled"] += 1
            return None
        finally:
            leading.cancel()
        process.leaders.append(leader)
        world.opened(process, log.log_id, leader)
    return leader


async def lead(process: Process, bursts: int, after_ms: int) -> None:
    """Open a leader, append, roll, and end in one of several ways."""
    await asyncio.sleep(after_ms / 1e3)
    log = await opened(process)
    leader = await led(process, log) if log is not None else None
    if leader is None:
        return
    world: LeaderHosts = process.world
    random = world.random
    for _ in range(bursts):
        if not now(leader.is_leading):
            break
        for _ in range(random.choice((0, 1, 1, 3))):
            append(process, leader, random.choice((1, 2, 3, 7)))
        if random.random() < 0.7:
            leader.send_now()
        if random.random() < 0.06:
            await roll(process, leader)
        if random.random() < 0.1:
            await leader.flush()
            pending = leader.records_pending if now(leader.is_leading) else 0
            world.require(not pending, f"{pending} records are pending after a flush")
        if random.random() < 0.3:
            await leader.drain()
        if random.random() < 0.02:
            await truncate_by_leader(process, leader)
        await sleep(process, 1, 60)
    if random.random() < 0.5:
        append(process, leader, 2)  # the close includes these appends
    await close(process, leader)
    append(process, leader, 1)  # too late, so it is refused with a definite error


def append(process: Process, leader: Leader, count: int) -> None:
    """Append new values. A separate actor waits for the results."""
    world: LeaderHosts = process.world
    values = world.new_values(process.name, count)
    future = world.content.append(leader, values, world.random)
    work = _appended(process, leader, values, future, world.now_ms())
    process.spawn(f"the append of {values[0]}", work)


async def _appended(
    process: Process,
    leader: Leader,
    values: list[str],
    future: Awaitable[Any],
    started_ms: int,
) -> None:
    world: LeaderHosts = process.world
    truth = world.truth_of(leader.log_id)
    try:
        positions = await future
    except LedgerLogError as error:
        if process.has_crashed:
            return
        world.judge_end(process, leader, error)
        for value in values:
            truth.refused(value, error)
        return
    found = [positions] if isinstance(positions, Position) else list(positions)
    if isinstance(positions, Positions):
        truth.joined(positions)
    world.require(len(found) == len(values), f"{positions} for {values}")
    for place, value in zip(found, values, strict=True):
        truth.acknowledged(place, value, started_ms)
    world.counts["records acknowledged"] += len(values)


async def roll(process: Process, leader: Leader) -> None:
    world: LeaderHosts = process.world
    is_empty = world.random.random() < 0.5
    if is_empty:  # the rest of the call has its own time limit
        await leader.flush()
    began_ms = world.now_ms()
    try:
        await leader.roll()
        world.counts["rolls"] += 1
    except LeaderTimeoutError as error:
        LeaderCall(world, process, leader.log_id, since_ms=began_ms, since_faults=0).judge(error)
        world.require(leader.is_leading or leader._error is not None, f"{error!r} ends a leader")
    except LedgerLogError as error:
        world.judge_end(process, leader, error)
    took_ms, may_take_ms = world.now_ms() - began_ms, world.settings.close_timeout_ms
    world.require(not is_empty or took_ms <= may_take_ms + 1, f"a roll took {took_ms} ms")


async def truncate_by_leader(process: Process, leader: Leader) -> None:
    """Truncate up to the acknowledged end, within the ledger that is in use."""
    world: LeaderHosts = process.world
    view, end_offset = world.views[leader.log_id], leader.end_offset
    offset = _drawn_offset(world, view.head.start_offset, end_offset)
    call = LeaderCall(world, process, leader.log_id, leader=leader)
    try:
        await leader.truncate(offset)
        world.require(offset <= view.head.end_offset, f"truncated to {offset}, behind the end")
    except ConfigurationError as error:
        world.require(offset > end_offset, f"offset {offset} was there: {error!r}")
        return
    except LedgerLogError as error:
        call.judge(error)
        return
    begins = world.views[leader.log_id].head.start_offset
    world.require(begins >= offset, f"truncated to {offset}, and it begins at {begins}")
    world.counts["truncations by leaders"] += 1


def _drawn_offset(world: LeaderHosts, start_offset: int, end_offset: int) -> int:
    """Return a random offset for a truncation: often the end of the log, sometimes after it."""
    draw = world.random.random()
    if draw < 0.25:
        return end_offset
    if draw < 0.4:
        return end_offset + world.random.randint(1, 4)
    return world.random.randint(start_offset, end_offset)


async def close(process: Process, leader: Leader) -> None:
    world: LeaderHosts = process.world
    truth = world.truth_of(leader.log_id)
    before = [append.offset for append in truth.appends.values()]
    try:
        end_offset = await leader.close()
    except LedgerLogError as error:
        world.judge_end(process, leader, error)
        if not process.has_crashed:
            world.check_ended(process, leader)
        return
    world.check_ended(process, leader)
    listed = world.views[leader.log_id].head.open_ledgers
    left = [o.ledger_id for o in listed if world.writers[o.ledger_id].is_of(process.ledgers)]
    world.require(
        not left or world.is_led_by(process.ledgers, leader.log_id),
        f"{left} are open after a close",
    )
    world.require(
        end_offset > max(before, default=-1), f"closed at {end_offset} below what is there"
    )
    world.counts["leaders closed"] += 1


async def lead_wrongly(process: Process) -> None:
    """Try to lead with the wrong content. Nothing changes, and no leader is deposed."""
    world: LeaderHosts = process.world
    await sleep(process, 200, 3_000)
    log = await opened(process)
    if log is None:
        return
    call = LeaderCall(world, process, log.log_id)
    try:
        with world.opening(process, log.log_id):
            await log.lead(world.settings, schema=world.content.wrong_schema)
    except (LogKindError, SchemaMismatchError) as error:
        world.require(error.definite, f"{error!r} is not definite")
        world.counts["wrong schemas refused"] += 1
    except LedgerLogError as error:
        call.judge(error)
    else:
        raise world.violation("a leader of other columns was let in")


async def truncate(process: Process) -> None:
    world: LeaderHosts = process.world
    for _ in range(world.random.randint(1, 3)):
        await sleep(process, 300, 2_500)
        log = process.logs.open_by_id("log", world.newest_id)
        view = world.views[log.log_id]
        head = view.head
        offset = _drawn_offset(world, head.start_offset, head.end_offset)
        call = LeaderCall(world, process, log.log_id)
        try:
            await log.truncate(offset)
            world.require(offset <= view.head.end_offset, f"truncated to {offset}, behind the end")
        except ConfigurationError as error:
            world.require(offset > head.end_offset, f"offset {offset} was there: {error!r}")
        except LedgerLogError as error:
            call.judge(error)
        else:
            world.require(view.head.start_offset >= offset, f"it is not truncated to {offset}")


async def recover(process: Process) -> None:
    """Recover open ledgers of the newest log, as an auto-recovery or an operator does."""
    world: LeaderHosts = process.world
    for _ in range(world.extra.randint(1, 8)):
        await asyncio.sleep(world.extra.randint(50, 1_200) / 1e3)
        view = world.views[world.newest_id]
        listed = view.head.open_ledgers
        if listed and view.deleted_at_ms is None:
            call = LeaderCall(world, process, view.log_id)
            try:
                await process.ledgers.seal(world.extra.choice(listed).ledger_id)
                world.counts["ledgers recovered"] += 1
            except LedgerLogError as error:
                call.judge(error)


async def delete(process: Process) -> None:
    """Delete the log. Later leaders create another log of the same name."""
    world: LeaderHosts = process.world
    await sleep(process, 1_000, 4_000)
    call = LeaderCall(world, process, world.newest_id)
    try:
        await process.logs.delete("log")
        world.counts["logs deleted"] += 1
    except LedgerLogError as error:
        if not isinstance(error, LocalProtocolError):
            call.judge(error)


async def keep_up(process: Process) -> None:
    """Make passes of upkeep, as the service does, and sometimes look for orphans."""
    world: LeaderHosts = process.world
    upkeep = Upkeep(process.client, policy=None, memory=SweepMemory())
    while world.is_busy:
        await sleep(process, 50, 600)
        call = LeaderCall(world, process, world.newest_id)
        try:
            kept = await upkeep.run()
            for done in kept or ():
                for error in done.errors:
                    call.judge_in_a_pass(error, call)
            if world.random.random() < 0.2:
                log = process.logs.open_by_id("log", world.newest_id)
                world.counts["orphans"] += len(await log.delete_orphans())
        except LedgerLogError as error:
            call.judge_in_a_pass(error, call)


async def tail(process: Process) -> None:
    """Follow one log from its start until the log or the schedule ends."""
    world: LeaderHosts = process.world
    await sleep(process, 1, 1_500)
    log_id = world.newest_id
    following = asyncio.ensure_future(_follow(process, log_id))
    process.spawn(f"the tail of {process.name}", _followed(following))
    await asyncio.wait([following, world.is_over], return_when=asyncio.FIRST_COMPLETED)
    following.cancel()


async def _followed(following: asyncio.Future[None]) -> None:
    with contextlib.suppress(asyncio.CancelledError):
        await following


async def _follow(process: Process, log_id: str) -> None:
    world: LeaderHosts = process.world
    log = process.logs.open_by_id("log", log_id)
    view, truth = world.views[log_id], world.truth_of(log_id)
    position = view.head.start_offset
    while True:
        FINISHED.set(set())
        call = LeaderCall(world, process, log_id)
        try:
            async for batch in world.content.tail(log, position):
                for offset, value in batch:
                    world.require(offset == position, f"a tail at {position} gets {offset}")
                    truth.see(offset, value)
                    position = offset + 1
                world.tails[process.name] = position
                truth.shown = max(truth.shown, position)
                world.counts["batches followed"] += 1
        except PositionNotAvailableError:
            world.require(position < view.head.start_offset, f"{position} was not truncated")
            position = view.head.start_offset
        except LogNotFoundError as error:
            call.judge(error)
            return
        except LedgerLogError as error:
            call.judge(error)
            await sleep(process, 10, 100)


async def watch_end(process: Process) -> None:
    """Watch the end of a log for a while. After the watch is cancelled, it is not notified."""
    world: LeaderHosts = process.world
    await sleep(process, 1, 2_000)
    news = News(process, process.logs.open_by_id("log", world.newest_id))
    await sleep(process, 1, 3_000)
    news.end()


async def watch_to_the_end(process: Process) -> None:
    """Watch one log from a random time on, during all faults."""
    world: LeaderHosts = process.world
    await asyncio.sleep(world.extra.randint(1, 3_000) / 1e3)
    world.watches.append(News(process, process.logs.open_by_id("log", world.newest_id)))


async def read(process: Process) -> None:
    """Read the readable records, without gaps, as other readers saw them; other reads fail."""
    world: LeaderHosts = process.world
    random = world.random
    for _ in range(random.randint(2, 6)):
        await sleep(process, 50, 1_200)
        log = process.logs.open_by_id("log", world.newest_id)
        head = world.views[log.log_id].head
        call = LeaderCall(world, process, log.log_id)
        start = end = None
        if random.random() < 0.5:
            start = random.randint(0, head.end_offset + 3)
            end = random.choice((None, start + random.randint(-1, 20)))
        try:
            records = await whole(world, log, start, end)
            snapshot = await log.snapshot()
        except PositionNotAvailableError as error:
            places = [place for place in (start, end) if place is not None]
            is_so = any(not error.oldest_offset <= place <= error.end_offset for place in places)
            world.require(is_so or world.views[log.log_id].oldest_moved, f"{error!r} for {places}")
        except ConfigurationError:
            world.require(start is not None and end is not None and end < start, f"{start}-{end}")
        except LedgerLogError as error:
            call.judge(error)
        else:
            found = [offset for offset, _ in records]
            is_cut = not found or (found[0] >= (start or 0) and found[-1] < (end or 1 << 60))
            world.require(is_cut, f"{found} of {start} to {end}")
            ends = [item.end_offset for item in snapshot.items][-1:]
            is_end = ends in ([], [snapshot.interval.end_offset])
            world.require(is_end, f"a snapshot to {snapshot.interval.end_offset} ends at {ends}")
            world.counts["logs read"] += 1


async def check(process: Process) -> None:
    """Run a check of the log, which must find no damage, even during other changes."""
    world: LeaderHosts = process.world
    for _ in range(world.random.randint(1, 3)):
        await sleep(process, 300, 2_000)
        log = process.logs.open_by_id("log", world.newest_id)
        call = LeaderCall(world, process, log.log_id)
        try:
            found = await log.check(every_entry=world.random.random() < 0.5)
        except LedgerLogError as error:
            call.judge(error)
            continue
        world.require(not found.findings, f"a check finds {found.findings}")
        world.counts["logs checked"] += 1


async def whole(
    world: LeaderHosts, log: Log, start: int | None = None, end: int | None = None
) -> list[tuple[int, str]]:
    """Read all records of a part of the log, and compare each with the known records."""
    truth = world.truth_of(log.log_id)
    records: list[tuple[int, str]] = []
    async for batch in world.content.read(log, start, end):
        for offset, value in batch:
            is_next = not records or offset == records[-1][0] + 1
            world.require(is_next, f"record {offset} comes after {records[-1:]}")
            truth.see(offset, value)
            records.append((offset, value))
    return records
