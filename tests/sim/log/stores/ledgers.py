"""Ledgers of logs: their registrations, the ends of registrations, and their listing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ledgerlog_spark.errors import (
    LedgerExistsError,
    LedgerLogError,
    LedgerNotFoundError,
    LogNotFoundError,
    MetadataUnavailableError,
    MetadataUnknownError,
    MetadataVersionError,
)
from ledgerlog_spark.protocol.log.messages import WriteHead
from ledgerlog_spark.protocol.log.state.records import ProducerRecord
from tests.sim.log.hosts.ledgers import metadata_of
from tests.sim.log.stores.logs import head_of
from tests.sim.log.stores.world import StoreCall

if TYPE_CHECKING:
    from tests.sim.log.stores.world import StoreProcess

NOT_MADE = (
    LedgerExistsError,
    LogNotFoundError,
    MetadataUnavailableError,
    MetadataVersionError,
)
"""Definite failures: after them, the ledger does not exist."""


async def produce(process: StoreProcess) -> None:
    """Register ledgers of any producer, and end registrations."""
    world, random = process.world, process.world.random
    for _ in range(random.randint(10, 16)):
        await process.sleep(50)
        log_id = world.some_log()
        apps = world.apps.setdefault(log_id, [])
        what = random.choice((_register, _register, _register, _before, _forget))
        with StoreCall(process) as call:
            if not apps:
                apps.append(f"app-{next(world.numbers)}")
                record = ProducerRecord(epoch=1, runs=("run",))
                await process.logs.producers.write(log_id, apps[-1], record, None)
            else:
                await what(process, call, log_id, random.choice(apps))


async def end_registrations(process: StoreProcess) -> None:
    """End registrations of any producer, soon after they were made."""
    world, random = process.world, process.world.random
    for _ in range(random.randint(15, 25)):
        await process.sleep(15)
        log_id = world.some_log()
        with StoreCall(process) as call:
            if apps := world.apps.get(log_id):
                await _end(process, call, log_id, random.choice(apps))


async def _register(process: StoreProcess, call: StoreCall, log_id: str, app: str) -> None:
    world = process.world
    found = await process.logs.producers.read(log_id, app)
    if found is None:
        return
    ledger_id = next(world.numbers)
    epoch = found.value.epoch
    try:
        await process.logs.producers.register_ledger(
            log_id, app, epoch, found.version, ledger_id, metadata_of(ledger_id)
        )
    except NOT_MADE as error:
        _refused(process, ledger_id, world.paths.registration(log_id, app, ledger_id), error)
        raise
    _stood(process, world.paths.registration(log_id, app, ledger_id), ledger_id)
    is_known = any(each is not None for each in world.seen(world.record(ledger_id), call.since))
    world.require(is_known, f"ledger {ledger_id} has no record")


def _stood(process: StoreProcess, proof: str, ledger_id: int) -> None:
    """Check that `proof`, the node that makes a ledger valid, existed or came during the call."""
    world = process.world
    stood = any(each is not None for each in world.seen(proof, process.tree.tried))
    world.require(stood, f"ledger {ledger_id} was made, and is already given up")
    world.counts["ledgers made"] += 1


def _refused(process: StoreProcess, ledger_id: int, proof: str, error: LedgerLogError) -> None:
    world = process.world
    # A deletion removes the metadata first, and then the proof.
    is_there = None not in (world.held(proof), world.held(world.record(ledger_id)))
    world.require(not is_there, f"ledger {ledger_id} is there, and its maker was told {error!r}")
    if all(each is None for each in world.seen(proof, 0)):  # otherwise it was ended meanwhile
        world.refused.add(ledger_id)


async def _end(process: StoreProcess, call: StoreCall, log_id: str, app: str) -> None:
    """End registrations, as the sweeper does, or as a run that takes over."""
    del call
    world, random = process.world, process.world.random
    found = await process.logs.producers.read(log_id, app)
    if found is None:
        return
    ended = [
        i for i in await process.logs.producers.registered(log_id, app) if random.random() < 0.5
    ]
    staged = [i for i in ended if i not in world.listed]
    is_deleted = world.is_deleted(log_id)  # the removal of the log handles listed ledgers
    listed = [i for i in ended if i in world.listed and not is_deleted]
    record = replace(found.value, epoch=found.value.epoch + random.randint(0, 1))
    await process.logs.producers.write(log_id, app, record, found.version, staged, listed)


async def _before(process: StoreProcess, call: StoreCall, log_id: str, app: str) -> None:
    del call
    world = process.world
    epoch = world.random.randint(1, 4)
    for ledger_id in await process.logs.producers.registered_before(log_id, app, epoch):
        path = world.paths.registration(log_id, app, ledger_id)
        of = next(int(data) for data in world.seen(path, 0) if data is not None)
        world.require(of < epoch, f"ledger {ledger_id} of epoch {of} is not older than {epoch}")


async def _forget(process: StoreProcess, call: StoreCall, log_id: str, app: str) -> None:
    del call
    found = await process.logs.producers.read(log_id, app)
    if found is not None and process.world.random.random() < 0.3:
        process.world.apps[log_id] = [each for each in process.world.apps[log_id] if each != app]
        await process.logs.producers.delete(log_id, app, found.version)


async def lead(process: StoreProcess) -> None:
    """Create ledgers as leaders do, list them, claim them, and release them."""
    world, random = process.world, process.world.random
    for _ in range(random.randint(12, 20)):
        await process.sleep(50)
        log_id = world.some_log()
        with StoreCall(process) as call:
            what = random.choice((_make, _make, _list, _list, _list, _claim, _unlist, _drop))
            await what(process, call, log_id)


async def _make(process: StoreProcess, call: StoreCall, log_id: str) -> None:
    world, ledger_id = process.world, next(process.world.numbers)
    del call
    mark = world.paths.mark(log_id, ledger_id)
    try:
        await process.logs.producers.make_ledger(log_id, ledger_id, metadata_of(ledger_id))
    except NOT_MADE as error:
        _refused(process, ledger_id, mark, error)
        raise
    _stood(process, mark, ledger_id)


def _made(process: StoreProcess, log_id: str) -> list[int]:
    """Return the ledgers of the log that leaders created."""
    world = process.world
    return [
        i
        for i, of in world.ledgers.items()
        if of == log_id and b"made" in world.seen(world.paths.mark(log_id, i), 0)
    ]


async def _list(process: StoreProcess, call: StoreCall, log_id: str) -> None:
    """List a ledger. Repeat the same change while its outcome is unknown."""
    world = process.world
    found = await head_of(process, log_id)
    if found is None:
        return
    number = found.version.number
    made = [i for i in _made(process, log_id) if world.listed_in.get(i, number + 1) > number]
    if not made:
        return
    ledger_id = world.random.choice(made[-4:])
    head = replace(found.value, token=world.new_token())
    write = WriteHead(head.token, head, found.version, listed=(ledger_id,))
    is_synced = False
    for _ in range(3):
        try:
            await process.logs.write_head(log_id, write)
        except MetadataUnknownError as error:
            call.failed(error)
            continue
        except LedgerNotFoundError as error:
            marks = world.seen(world.paths.mark(log_id, ledger_id), call.since)
            is_over = any(mark != b"made" for mark in marks)
            world.require(is_over, f"ledger {ledger_id} could be listed: {error!r}")
            is_listed = ledger_id in world.listed
            world.require(not is_listed, f"ledger {ledger_id} is listed: {error!r}")
            return
        except MetadataVersionError as error:
            node = world.nodes.current.nodes.get(world.paths.head(log_id))
            is_moved = node is None or node.version.number != number
            marks = world.seen(world.paths.mark(log_id, ledger_id), call.since)
            if is_moved or not all(mark is None for mark in marks):
                return
            world.require(not is_synced, f"it never ends: {error!r}")
            await process.logs.sync()  # a server may still show a deleted mark
            is_synced = True
            continue
        world.counts["ledgers listed"] += 1
        return


async def _claim(process: StoreProcess, call: StoreCall, log_id: str) -> None:
    del call
    made = _made(process, log_id)
    if made:
        await process.logs.producers.claim_made(log_id, process.world.random.choice(made[-4:]))


async def _unlist(process: StoreProcess, call: StoreCall, log_id: str) -> None:
    del call
    world = process.world
    found = await head_of(process, log_id)
    listed = [i for i in _made(process, log_id) if i in world.listed]
    if found is not None and listed:
        head = replace(found.value, token=world.new_token())
        write = WriteHead(head.token, head, found.version, unlisted=tuple(listed[:1]))
        await process.logs.write_head(log_id, write)


async def _drop(process: StoreProcess, call: StoreCall, log_id: str) -> None:
    del call
    for mark in await process.logs.producers.marked(log_id):
        if not mark.is_made:
            await process.ledgers.delete(mark.ledger_id)
            await process.logs.producers.forget_mark(log_id, mark.ledger_id)
