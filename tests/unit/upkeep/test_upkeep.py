"""Passes of upkeep: the lease, the work, and the work for the next pass."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from ledgerlog_spark.client.blocking.client import BlockingClient
from ledgerlog_spark.errors import ConfigurationError, DataLossError, MetadataUnavailableError
from ledgerlog_spark.protocol.log.state.records import LogContent, LogKind
from ledgerlog_spark.upkeep import upkeep as upkeep_module
from ledgerlog_spark.upkeep.merge_plan import MergePolicy
from ledgerlog_spark.upkeep.service import UpkeepService
from ledgerlog_spark.upkeep.upkeep import (
    COMMITS_BETWEEN,
    Kept,
    Upkeep,
    holder,
    leased,
    upkeep_after_commit,
)
from tests.unit.upkeep.upkeep_world import RowsWorld, append, numbers, tree_of

ALL = MergePolicy()
HOUR_MS = 3_600_000


async def test_pass_drops_what_retention_lets_go_then_merges_then_sweeps(world: RowsWorld) -> None:
    client, logs = world.opened()
    log = await logs.create("flights", properties={"retentionMs": str(HOUR_MS)})
    await append(log, 10, 10)
    world.skip(2 * HOUR_MS)
    for _ in range(3):
        await append(log, 10)
    told: list[Kept] = []
    upkeep = Upkeep(client, policy=ALL, on_log=told.append)
    (kept,) = await upkeep.run() or []
    assert told == [kept]
    assert kept.did_something
    assert kept.truncated is not None
    assert (kept.truncated.start_offset, len(kept.truncated.unlisted)) == (20, 2)
    assert kept.merged is not None
    assert (kept.merged.ranges_before, kept.merged.ranges_after) == (3, 1)
    assert await numbers(log) == list(range(20, 50))
    world.skip(25 * HOUR_MS)
    await append(log, 1)
    (kept,) = await upkeep.run(["flights"]) or []
    assert kept.swept is not None
    assert kept.swept.ledgers_deleted == 5
    assert await numbers(log) == [50]


async def test_a_pass_ends_when_its_session_is_replaced(world: RowsWorld) -> None:
    """Another process may have the lease then."""
    client, logs = world.opened()
    second, _ = world.opened()
    for name in ("a", "b", "c"):
        await logs.create(name)
    passed: list[str] = []

    def on_log(kept: Kept) -> None:
        passed.append(kept.log)
        if len(passed) == 2:
            tree_of(client).expire_session()

    with pytest.raises(MetadataUnavailableError, match="ended with its session"):
        await Upkeep(client, policy=ALL, on_log=on_log).run()
    assert len(passed) == 2
    async with leased(second) as is_held:
        assert is_held
    assert len(await Upkeep(client, policy=ALL).run() or []) == 3


async def test_only_one_process_at_a_time_does_it_and_says_who(world: RowsWorld) -> None:
    first, logs = world.opened()
    second, _ = world.opened()
    log = await logs.create("flights")
    await append(log, 1, 1)
    async with leased(first) as is_held:
        assert is_held
        assert set(await holder(second) or {}) == {"host", "pid"}
        assert await Upkeep(second, policy=ALL).run() is None
        assert len((await log.snapshot()).items) == 2
    assert await holder(second) is None
    assert await Upkeep(second, policy=ALL).run() is not None
    assert len((await log.snapshot()).items) == 1


async def test_log_that_cannot_be_merged_does_not_keep_the_others_waiting(world: RowsWorld) -> None:
    client, logs = world.opened()
    broken, sound = await logs.create("a"), await logs.create("b")
    for log in (broken, sound):
        await append(log, 1, 1)
    lost = (await broken.snapshot()).items[0].ledger_id
    for storage in world.storages.values():
        storage.ledgers.pop(lost, None)
    kept = {done.log: done for done in await Upkeep(client, policy=ALL).run() or []}
    assert [type(error) for error in kept["a"].errors] == [DataLossError]
    assert kept["a"].swept is not None
    assert kept["b"].merged is not None
    assert kept["b"].merged.ledgers == 1


async def test_deleted_and_leader_logs_are_passed_over_quietly(world: RowsWorld) -> None:
    client, logs = world.opened()
    await logs.create("orders", kind=LogKind.LEADER, content=LogContent.RECORDS)
    gone = await logs.create("gone")
    await append(gone, 1, 1)
    await gone.delete()
    kept = await Upkeep(client, policy=ALL).run() or []
    assert [done.errors for done in kept] == [(), ()]
    world.skip(25 * HOUR_MS)
    kept = await Upkeep(client, policy=ALL).run() or []
    removed = next(done for done in kept if done.log == gone.log_id)
    assert removed.swept is not None
    assert (removed.swept.ledgers_deleted, removed.swept.is_removed) == (2, True)


async def test_background_upkeep_goes_on_until_it_is_told_to_stop(world: RowsWorld) -> None:
    client, logs = world.opened()
    log = await logs.create("flights")
    await append(log, *[1] * 64)
    done = asyncio.Event()
    service = UpkeepService(None, lambda _: done.set())
    task = asyncio.ensure_future(service.keep_up(client, 0.01))
    await done.wait()
    task.cancel()
    await asyncio.wait([task])
    assert len((await log.snapshot()).items) == 1


async def test_background_upkeep_ends_at_once_in_the_middle_of_a_pass(world: RowsWorld) -> None:
    client, logs = world.opened()
    log = await logs.create("flights")
    await append(log, *[1] * 64)
    world.transport.held.update(world.names)
    before = len(world.transport.asked)
    service = UpkeepService(None, lambda _: None)
    task = asyncio.ensure_future(service.keep_up(client, 0.001))
    while len(world.transport.asked) == before:  # noqa: ASYNC110 (nobody tells)
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    for name in world.names:
        world.transport.release(name)
    assert len((await log.snapshot()).items) == 64
    other, _ = world.opened()
    assert await holder(other) is None


async def test_client_without_leases_is_refused(world: RowsWorld) -> None:
    client, _ = world.opened()
    client.services.leases = None
    with pytest.raises(ConfigurationError, match="leases"):
        await Upkeep(client).run()


class WaitingClient(BlockingClient):
    """Counts the coroutines that it gets, and runs them only when allowed."""

    def __init__(self, begin: threading.Event) -> None:
        self.begin = begin
        self.asked = 0

    def run(self, work: Any) -> Any:
        assert callable(work)
        self.begin.wait()
        self.asked += 1
        return []


def join_pass() -> None:
    for thread in threading.enumerate():
        if thread.name == upkeep_module.THREAD_NAME:
            thread.join()


def test_stream_thinks_of_upkeep_by_the_version_and_never_twice_at_once() -> None:
    join_pass()  # a pass of an earlier test may still run
    begin = threading.Event()
    client = WaitingClient(begin)
    assert not upkeep_after_commit(client, "flights", None)
    assert not upkeep_after_commit(client, "flights", 0)
    assert not upkeep_after_commit(client, "flights", COMMITS_BETWEEN - 1)
    assert upkeep_after_commit(client, "flights", COMMITS_BETWEEN)
    assert not upkeep_after_commit(client, "flights", 2 * COMMITS_BETWEEN)
    begin.set()
    join_pass()
    assert upkeep_after_commit(client, "flights", 3 * COMMITS_BETWEEN)
    join_pass()
    assert client.asked == 2
