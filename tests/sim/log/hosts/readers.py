"""Reads of a log by processes, with the calls that users and streams make."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ledgerlog_spark.errors import LedgerLogError
from tests.sim.log import rows
from tests.sim.log.checks import ENTRY_ROWS, INDEX
from tests.sim.log.hosts.blame import Call
from tests.sim.log.hosts.process import sleep

if TYPE_CHECKING:
    from ledgerlog_spark.log.log import Log
    from ledgerlog_spark.protocol.log.read.view import LogView
    from ledgerlog_spark.protocol.log.state.records import Item
    from tests.sim.log.hosts.process import Process
    from tests.sim.log.hosts.view import LogView as Seen


async def read(process: Process) -> None:
    """Plan a read, read slowly, and end just before the grace period of the ranges may end."""
    world, random = process.world, process.world.random
    for _ in range(random.randint(1, 4)):
        await sleep(process, 50, 1_500)
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
        found = sum(item.rows for item in snapshot.items)
        world.require(found >= snapshot.interval.rows, f"{found} of {snapshot.interval.rows} rows")
        if snapshot.items:
            await _read_range(process, log, random.choice(snapshot.items), began_ms)
        left_ms = view.properties.deleted_retention_ms - 1 - (world.now_ms() - began_ms)
        if left_ms > 0 and view.deleted_at_ms is None:
            await asyncio.sleep(random.randint(0, left_ms) / 1e3)
            for item in snapshot.items:
                view.checks.read(item, snapshot.interval)


async def _read_range(process: Process, log: Log, item: Item, began_ms: int) -> None:
    """Read all entries of a listed range, which succeeds only with the right password."""
    world, view = process.world, process.world.views[log.log_id]
    ledger = world.ledgers[item.ledger_id]
    call = Call(world, process, log.log_id, ledger_id=item.ledger_id)
    call.password = rows.password_given(world.random, ledger.password)
    names: list[int] = []
    batches = log.read_range(
        item.ledger_id, item.first_entry_id, item.last_entry_id, password=call.password
    )
    try:
        async for batch in batches:
            names += [entry.payload for entry in batch if entry.payload != INDEX]
    except LedgerLogError as error:
        age_ms = world.now_ms() - began_ms
        if age_ms < view.properties.deleted_retention_ms:
            call.judge(error)
        world.require(not names or call.is_password_right, "a wrong password read some rows")
        return
    world.require(call.is_password_right, f"ledger {item.ledger_id} was read by a wrong password")
    first, end = item.first_offset // ENTRY_ROWS, item.end_offset // ENTRY_ROWS
    world.require(names == view.checks.truth[first:end], f"{item} has other rows")
    world.counts["ranges read whole"] += 1


async def follow(process: Process) -> None:
    """Follow the log as a stream: read views from its position, without the rows before it."""
    world, random = process.world, process.world.random
    await sleep(process, 50, 1_500)
    log = process.logs.open_by_id("log", world.newest_id)
    seen = world.views[log.log_id]

    def on_change() -> None:
        world.counts["streams notified of a change"] += 1

    cancel = log.watch_end(on_change)
    position, version, schemas = 0, None, set[int]()
    for _ in range(random.randint(3, 8)):
        await sleep(process, 20, 900)
        call = Call(world, process, log.log_id)
        try:
            view = await log.view(
                position,
                known_version=version,
                known_schemas=tuple(schemas),
                is_fresh=random.random() < 0.6,
            )
        except LedgerLogError as error:
            call.judge(error)
            continue
        newest = view.versions[-1].version if view.versions else version
        if (
            view.end_offset < position
            or newest is None
            or (version is not None and newest < version)
        ):
            continue  # the view is of an earlier time
        _check_view(seen, view, position, version)
        wanted = {item.schema_id for item in view.items if item.schema_id >= 0}
        world.require(wanted <= schemas | set(view.schemas), "rows without a schema")
        schemas |= set(view.schemas)
        position, version = view.end_offset, newest
        world.counts["views followed"] += 1
    cancel()


def _check_view(seen: Seen, view: LogView, position: int, version: int | None) -> None:
    """Check that a view has all retained rows from `position` and all versions after `version`."""
    offset = max(position, view.oldest_offset)
    for item in view.items:
        first, end = item.first_offset // ENTRY_ROWS, item.end_offset // ENTRY_ROWS
        is_true = seen.checks.names(item) == seen.checks.truth[first:end]
        seen.require(is_true, f"a stream sees other rows in {item}")
        seen.require(item.first_offset <= offset, f"a stream misses rows before {item}")
        offset = max(offset, item.end_offset)
    seen.require(offset >= view.end_offset, f"a stream at {position} sees rows up to {offset}")
    numbers = [each.version for each in view.versions]
    first_version = numbers[0] if numbers else 0
    seen.require(
        numbers == list(range(first_version, first_version + len(numbers))), "versions are missing"
    )
    if version is not None and numbers:
        oldest = seen.head.oldest_version
        seen.require(first_version <= max(version + 1, oldest), "versions are skipped")


async def travel(process: Process) -> None:
    """Check that the version at a time is the newest one committed before this time."""
    world, random = process.world, process.world.random
    for _ in range(random.randint(1, 3)):
        await sleep(process, 100, 2_500)
        log = process.logs.open_by_id("log", world.newest_id)
        call = Call(world, process, log.log_id)
        at_ms = random.randint(world.now_ms() - 1_500, world.now_ms() + 100)
        call.at_ms = at_ms
        try:
            history = await log.history()
            found = await log.version_at(at_ms)
            names = await process.logs.names()
            now_ms = await process.logs.now_ms()
        except LedgerLogError as error:
            call.judge(error)
            continue
        world.require(found.commit_time_ms <= at_ms, f"version {found.version} is of a later time")
        newest = max((v.version for v in history if v.commit_time_ms <= at_ms), default=0)
        world.require(found.version >= newest, f"version {found.version} is older than {newest}")
        world.require(len(names) <= 1, f"there are logs {names}")
        world.require(now_ms <= world.now_ms(), "the store's clock is ahead")
        world.counts["times travelled"] += 1
