"""Ids, metadata of ledgers, the queue, leases and the clock of the store."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

from ledgerlog_spark.errors import (
    LedgerExistsError,
    MetadataUnavailableError,
    MetadataUnknownError,
)
from ledgerlog_spark.metadata.logs.nodes import CommitQueue
from ledgerlog_spark.wire.ledger_metadata.record import decode_ledger_metadata
from tests.sim.log.hosts.base import Hosts
from tests.sim.log.hosts.ledgers import metadata_of
from tests.sim.log.stores.world import StoreCall

if TYPE_CHECKING:
    from tests.sim.log.stores.world import StoreProcess, StoreWorld

QUEUE = "/queue"
CONTESTED = range(1_000_000, 1_000_002)
"""Ids of ledgers that several processes try to create."""

CLOCK_ERROR_MS_MAX = 31
"""Maximum error of a time that is computed for ten minutes without an answer of the store."""


class Counted:
    """The changes that processes made to the metadata of contested ledgers.

    Attributes:
        added: Successful changes, and changes with an unknown outcome.
        refused: Tokens of changes with a definite failure.
    """

    def __init__(self) -> None:
        self.added = {ledger_id: [0, 0] for ledger_id in CONTESTED}
        self.refused: set[int] = set()

    def check(self, world: StoreWorld) -> None:
        """Check that no change was lost, and that no refused change took effect."""
        for ledger_id, (known, unknown) in self.added.items():
            records = [
                decode_ledger_metadata(each)
                for each in world.seen(world.record(ledger_id), 0)
                if each is not None
            ]
            tokens = {record.token for record in records}
            is_right = not tokens & self.refused and len(tokens) <= 1
            world.require(is_right, f"ledger {ledger_id} was made as {tokens} of {self.refused}")
            count = int(records[-1].custom["count"]) if records else 0
            is_whole = known <= count <= known + unknown
            world.require(is_whole, f"{known} changes of ledger {ledger_id}, and {count} are there")


async def number(process: StoreProcess, counted: Counted) -> None:
    """Draw ids, and create and change metadata of contested ledgers."""
    world, random = process.world, process.world.random
    given: set[int] = set()
    for _ in range(random.randint(8, 14)):
        await process.sleep(40)
        with StoreCall(process) as call:
            draw = random.random()
            if draw < 0.2:
                call.lost_min = 3
                ids = await process.ledgers.new_ids(random.randint(1, 3))
                world.require(not given & set(ids), f"{ids} were given before")
                given |= set(ids)
            elif draw < 0.75:
                await _create(process, call, counted)
            else:
                await _count(process, counted)


async def _create(process: StoreProcess, call: StoreCall, counted: Counted) -> None:
    world, token = process.world, next(process.world.numbers)
    ledger_id = world.random.choice((*CONTESTED, 2_000_000 + token))
    counted.added.setdefault(ledger_id, [0, 0])
    metadata = replace(metadata_of(ledger_id, custom={"count": b"0"}), token=token)
    try:
        await process.ledgers.create(ledger_id, metadata)
    except (LedgerExistsError, MetadataUnavailableError):
        counted.refused.add(token)
        raise
    records = world.seen(world.record(ledger_id), call.since)
    tokens = {decode_ledger_metadata(each).token for each in records if each is not None}
    world.require(token in tokens, f"ledger {ledger_id} was made as {token}, and is of {tokens}")


async def _count(process: StoreProcess, counted: Counted) -> None:
    ledger_id = process.world.random.choice(CONTESTED)
    found = await process.ledgers.load(ledger_id)
    await process.sleep()
    count = int(found.value.custom["count"]) + 1
    changed = replace(found.value, custom={"count": str(count).encode()})
    try:
        await process.ledgers.write(ledger_id, changed, found.version)
    except MetadataUnknownError:
        counted.added[ledger_id][1] += 1
        raise
    counted.added[ledger_id][0] += 1


async def queue_up(process: StoreProcess) -> None:
    """Join the queue, wait for the members before, and leave."""
    world, random = process.world, process.world.random
    queue = CommitQueue(process.tree, QUEUE)
    for _ in range(random.randint(3, 6)):
        await process.sleep(40)
        with contextlib.suppress(TimeoutError), StoreCall(process) as call:
            token = f"{random.getrandbits(64):016x}"
            try:
                name = await queue.join(token)
            except MetadataUnknownError:
                _waits_for_nobody(process, token)
                raise
            members = list(await queue.members())
            came = [world.history[f"{QUEUE}/{member}"][0][0] for member in members]
            world.require(came == sorted(came), f"{members} came at {came}")
            before = members[: members.index(name)] if name in members else []
            if before:
                async with asyncio.timeout(0.5):
                    is_gone = await queue.until_gone(before[-1])
                left = world.seen(f"{QUEUE}/{before[-1]}", call.since)[-1] is not None
                world.require(not (is_gone and left), f"{before[-1]} is there")
            await queue.leave(name)
            is_over = None in world.seen(f"{QUEUE}/{name}", process.tree.tried)
            world.require(is_over, f"{name} left, and is there")


def _waits_for_nobody(process: StoreProcess, token: str) -> None:
    """Check that, after a join with an unknown outcome, the member was searched after a sync."""
    world = process.world
    for name in world.nodes.current.names.get(QUEUE, ()):
        came = world.history[f"{QUEUE}/{name}"][0][0]
        is_missed = name.startswith(token) and came <= process.tree.synced
        world.require(not is_missed, f"{name} waits for nobody")


async def lease(process: StoreProcess) -> None:
    """Take the lease, hold it, and release it."""
    world, random = process.world, process.world.random
    leases, path = process.stores.leases, f"{world.root}-leases/upkeep"
    mine = process.name.encode()
    for _ in range(random.randint(4, 8)):
        await process.sleep(30)
        with StoreCall(process) as call:
            is_held = await leases.acquire("upkeep", {"host": process.name})
            holders = world.seen(path, call.since)
            had = any(each is not None and mine in each for each in holders)
            world.require(had or not is_held, f"{process.name} has the lease of {holders}")
            is_free = all(each is None for each in holders)
            world.require(is_held or not is_free, "the lease was free, and nobody got it")
            await process.sleep(80)
            with StoreCall(process) as ends:
                await leases.release("upkeep")
                holders = world.seen(path, ends.since)
                is_over = any(each is None or mine not in each for each in holders)
                world.require(is_over, f"{process.name} gave the lease back, and has it")
                world.counts["leases"] += is_held


async def look_at_clock(process: StoreProcess) -> None:
    """Check that times of the store's clock are never after the server of the last answer."""
    world = process.world
    for _ in range(10):
        await asyncio.sleep(world.random.choice((0.1, 0.1, 5, 500, 20_000)))
        world.ahead_ms = world.random.choice((0, 0, 3_000, -4_000))
        with StoreCall(process):
            if world.random.random() < 0.6:
                await process.tree.set(QUEUE, b"", None)
            found_ms = await process.logs.recent_ms()
            late_ms = Hosts.now_ms(world) + process.tree.noted.ahead_ms - found_ms
            is_right = 0 <= late_ms <= CLOCK_ERROR_MS_MAX
            world.require(is_right, f"the store's clock is taken to show {late_ms} ms less")
