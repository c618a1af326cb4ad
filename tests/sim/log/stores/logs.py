"""Names, heads, pages, and the removal of deleted logs."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

from ledgerlog_spark.errors import (
    LogExistsError,
    LogNotFoundError,
    MetadataUnavailableError,
)
from ledgerlog_spark.protocol.log.commit.plan import created
from ledgerlog_spark.protocol.log.messages import WriteHead
from ledgerlog_spark.protocol.log.state.records import LogContent, LogKind
from tests.sim.log.stores.world import StoreCall

if TYPE_CHECKING:
    from ledgerlog_spark.model import Versioned
    from ledgerlog_spark.protocol.log.state.records import LogHead
    from tests.sim.log.stores.world import StoreProcess

NAMES = ("a", "b", "c")


async def keep_logs(process: StoreProcess) -> None:
    """Create, find, delete and remove logs of a few names."""
    random = process.world.random
    for _ in range(random.randint(6, 12)):
        await process.sleep(100)
        with StoreCall(process) as call:
            what = random.choice((_create, _create, _find, _find, _delete))
            await what(process, call)


async def remove_logs(process: StoreProcess) -> None:
    """Remove deleted logs, as a sweeper does."""
    random = process.world.random
    for _ in range(random.randint(6, 12)):
        await process.sleep(60)
        with StoreCall(process):
            await _remove(process)


async def make_others(process: StoreProcess) -> None:
    """Create logs of names that no other process uses."""
    for _ in range(8):
        name = f"name-{next(process.world.numbers)}"
        with StoreCall(process) as call:
            with contextlib.suppress(LogNotFoundError):
                await process.logs.find(name)
            await _create(process, call, name)


async def _create(process: StoreProcess, call: StoreCall, name: str = "") -> None:
    world = process.world
    is_wanted = not name
    name = name or world.random.choice(NAMES)
    head, pages = new_log(process, name)
    if is_wanted:
        world.logs.append(head.log_id)
    try:
        await process.logs.create_log(head, pages)
    except (LogExistsError, MetadataUnavailableError) as error:
        # An earlier, late request may still create the log once the name is free.
        since = process.tree.tried if isinstance(error, LogExistsError) else world.moment
        is_there = None not in world.seen(world.paths.head(head.log_id), since)
        world.require(not is_there, f"the log was made, and its maker was told {error!r}")
        raise
    found = world.seen(world.paths.name(name), call.since)
    world.require(head.log_id.encode() in found, "a log was made that has no name")


def new_log(process: StoreProcess, name: str) -> tuple[LogHead, tuple[bytes, ...]]:
    world = process.world
    return created(
        log_id=world.new_token(),
        name=name,
        kind=LogKind.TRANSACTIONAL,
        content=LogContent.ROWS,
        now_ms=world.now_ms(),
        token=world.new_token(),
        schema=b"columns",
    )


async def _find(process: StoreProcess, call: StoreCall) -> None:
    world, name = process.world, process.world.random.choice(NAMES)
    path = world.paths.name(name)
    try:
        log_id = await process.logs.find(name)
    except LogNotFoundError as error:
        is_right = None in world.seen(path, call.since)
        world.require(is_right, f"log {name} was there all the time: {error!r}")
    else:
        was_there = log_id.encode() in world.seen(path, 0)
        world.require(was_there, f"log {name} never had the id {log_id}")


async def head_of(process: StoreProcess, log_id: str) -> Versioned[LogHead] | None:
    """Return the head of a log; None if the log is deleted, as far as the process knows."""
    found = await process.logs.read_head(log_id)
    return None if found is None or found.value.deleted_ms else found


async def _delete(process: StoreProcess, call: StoreCall) -> None:
    del call
    world = process.world
    if not world.logs:
        return
    found = await process.logs.read_head(world.some_log())
    if found is not None:
        head = replace(found.value, deleted_ms=world.now_ms(), token=world.new_token())
        await process.logs.delete_log(head, found.version)


async def _remove(process: StoreProcess) -> None:
    """Remove logs as the sweeper does: registrations, ledgers, then the nodes of the log."""
    world, logs = process.world, process.logs
    deleted = [log_id for log_id in world.logs if world.is_deleted(log_id)]
    if not deleted:
        return
    log_id = world.random.choice(deleted)
    await _drop_some(process, log_id)
    if await logs.remove_log(log_id):
        is_gone = world.held(world.paths.head(log_id)) is None
        world.require(is_gone, "a log was removed, and its head is there")
        world.counts["logs removed"] += 1


async def _drop_some(process: StoreProcess, log_id: str) -> None:
    """Drop all listed ledgers, and some of the others: the removal must find the rest.

    A deleted log gets no new items, so each pass drops the same listed ledgers.
    """
    world, logs = process.world, process.logs
    for app in await logs.producers.names(log_id):
        while (found := await logs.producers.read(log_id, app)) is not None:
            ended = await logs.producers.registered(log_id, app)
            staged = [i for i in ended if i not in world.listed]
            listed = [i for i in ended if i in world.listed]
            await logs.producers.write(log_id, app, found.value, found.version, staged, listed)
            if not ended or world.random.random() < 0.2:
                break
    for mark in await logs.producers.marked(log_id):
        await process.ledgers.delete(mark.ledger_id)
        await logs.producers.forget_mark(log_id, mark.ledger_id)
    for ledger_id in sorted(world.listed):
        if world.ledgers[ledger_id] == log_id:
            await process.ledgers.delete(ledger_id)


async def change_heads(process: StoreProcess) -> None:
    """Write pages and heads that name the pages, as a commit does."""
    world, random = process.world, process.world.random
    for _ in range(random.randint(3, 6)):
        await process.sleep(100)
        with StoreCall(process):
            log_id = world.some_log()
            found = await head_of(process, log_id)
            if found is None:
                continue
            head = replace(found.value, token=world.new_token())
            version = await process.logs.write_pages(log_id, head.token, [b"page"] * 2)
            world.pages[head.token] = version.number
            await process.sleep()
            write = WriteHead(head.token, head, found.version, pages_version=version)
            await process.logs.write_head(log_id, write)
            world.counts["heads changed"] += 1


async def sweep_pages(process: StoreProcess) -> None:
    """Touch pages that no head names, and delete them."""
    world, random = process.world, process.world.random
    for _ in range(random.randint(6, 12)):
        await process.sleep(60)
        with StoreCall(process):
            log_id = world.some_log()
            found = await head_of(process, log_id)
            tokens = list(await process.logs.page_nodes(log_id))
            if found is None or not tokens:
                continue
            written = [token for token in world.pages if token in tokens]
            if written and written[-1] != found.value.token:
                await process.logs.touch_pages(log_id, written[-1])
