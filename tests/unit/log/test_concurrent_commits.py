"""Many commits to one log at the same time: all end, each after a bounded number of requests.

Each job has its own session, like jobs on different machines. Requests take virtual time, so
commits really conflict.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from ledgerlog_spark.log import retries
from ledgerlog_spark.log.logs import Logs
from ledgerlog_spark.metadata.stores import MetadataStores
from ledgerlog_spark.model import Fragment, LedgerMetadata, Quorum
from ledgerlog_spark.protocol.ledger.messages import MetadataOutcome as Outcome
from ledgerlog_spark.protocol.log.commit.result import CommitStatus
from ledgerlog_spark.protocol.log.state.records import StagedRange
from ledgerlog_spark.testing.memory.nodes import MemoryNodes
from ledgerlog_spark.testing.memory.tree import Fault
from tests.fixtures.counted_tree import CountedTree

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ledgerlog_spark.log.committing.job import Job
    from ledgerlog_spark.log.log import Log
    from ledgerlog_spark.protocol.log.commit.result import CommitResult

METADATA = LedgerMetadata(
    quorum=Quorum(3, 3, 2), fragments=(Fragment(0, ("a:1", "b:1", "c:1")),), token=77
)
LONE = Counter(sync=1, get=2, children=1, transact=1)
"""The requests of a commit without conflicts."""

OVERTAKEN_ONCE = LONE + Counter(get=1, transact=1)

REQUESTS_MAX = 14
TRANSACTIONS_MAX = 3.1
QUEUE = "/ledgers-logs/ids/{}/queue"


class NoLedgers:
    """The part of a client that commits need."""

    def check_open(self) -> None:
        return


class CommitWorld:
    """Jobs that are ready to be committed, each on its own session."""

    is_virtual = True

    def __init__(self, seed: int) -> None:
        self.nodes = MemoryNodes()
        self.requests: Counter[str] = Counter()
        self.random = Random(seed)
        self.trees: list[CountedTree] = []
        self._ledger_id = 0

    def session(self) -> MetadataStores:
        tree = CountedTree(self.nodes, self.requests, read_seconds=0.001, write_seconds=0.004)
        self.trees.append(tree)
        return MetadataStores.on(tree, "/ledgers")

    def logs(self, stores: MetadataStores) -> Logs:
        return Logs(store=stores.logs, ledgers=NoLedgers(), random=self.random)  # type: ignore[arg-type]

    async def start(self) -> Log:
        stores = self.session()
        await stores.initialize()
        return await self.logs(stores).create("flights")

    async def job(self) -> Callable[[], Awaitable[CommitResult]]:
        """A batch of one range, and the function that commits it."""
        stores = self.session()
        log = await self.logs(stores).open("flights")
        job: Job = await log.begin()
        producer = await stores.logs.producers.read(log.log_id, job.app)
        assert producer is not None
        self._ledger_id += 1
        await stores.logs.producers.register_ledger(
            log.log_id, job.app, 1, producer.version, self._ledger_id, METADATA
        )
        staged = StagedRange(self._ledger_id, 1, 9, 9, rows=10, size_bytes=1_000, statistics=b"")
        return lambda: log.commit(job, [staged])

    async def jobs(self, count: int) -> list[Callable[[], Awaitable[CommitResult]]]:
        jobs = [await self.job() for _ in range(count)]
        self.requests.clear()
        return jobs

    async def commit(self, count: int) -> None:
        """Run `count` commits at the same time. Each one succeeds and makes a version."""
        jobs = await self.jobs(count)
        results = await asyncio.gather(*(job() for job in jobs))
        assert {result.status for result in results} == {CommitStatus.COMMITTED}
        versions = sorted(result.version or 0 for result in results)
        assert versions == list(range(versions[0], versions[0] + count))


@pytest.fixture
def seed() -> int:
    return 1


@pytest.fixture
def world(seed: int) -> CommitWorld:
    return CommitWorld(seed)


@pytest.fixture
async def log(world: CommitWorld) -> Log:
    return await world.start()


async def waiting(cluster: CommitWorld, log: Log) -> list[str]:
    return await cluster.trees[0].children(QUEUE.format(log.log_id))


@pytest.mark.usefixtures("log")
async def test_a_lone_commit_asks_for_nothing_that_only_a_crowd_needs(world: CommitWorld) -> None:
    await world.commit(1)
    assert world.requests == LONE


@pytest.mark.usefixtures("log")
async def test_of_two_commits_the_overtaken_one_reads_the_head_alone(world: CommitWorld) -> None:
    await world.commit(2)
    assert world.requests == LONE + OVERTAKEN_ONCE


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("count", [4, 16, 64])
async def test_requests_of_a_commit_do_not_grow_with_the_number_of_others(
    world: CommitWorld, log: Log, count: int, seed: int
) -> None:
    await world.commit(count)
    assert world.requests["transact"] <= TRANSACTIONS_MAX * count, world.requests
    assert world.requests.total() <= REQUESTS_MAX * count, world.requests
    assert await waiting(world, log) == []


async def test_a_commit_whose_process_died_in_the_queue_holds_up_nobody(
    world: CommitWorld, log: Log
) -> None:
    jobs = await world.jobs(16)
    works = [asyncio.ensure_future(job()) for job in jobs]
    await asyncio.sleep(0.05)
    assert len(await waiting(world, log)) > 9
    for number in (3, 7, 8):
        works[number].cancel()
        await world.trees[number + 1].close()
    results = await asyncio.gather(*works, return_exceptions=True)
    failed = [r for r in results if isinstance(r, BaseException)]
    assert len(failed) <= 3
    assert await waiting(world, log) == []


async def test_members_of_the_queue_that_do_nothing_are_taken_out(
    world: CommitWorld, log: Log
) -> None:
    stuck = world.session().logs.queue(log.log_id)
    names = [await stuck.join(f"{number:016x}") for number in range(3)]
    began = asyncio.get_running_loop().time()
    await world.commit(16)
    assert asyncio.get_running_loop().time() - began < 4 * retries.TURN_MS / 1e3
    assert not set(names) & set(await stuck.members())


class StuckQueue:
    """A queue whose first member returns whenever it is removed."""

    def __init__(self) -> None:
        self.left: list[str] = []
        self.mine = ""

    async def join(self, token: str) -> str:
        self.mine = token
        return token

    async def members(self) -> list[str]:
        return ["first", self.mine]

    async def until_gone(self, _: str) -> bool:
        await asyncio.sleep(3_600)
        return True

    async def leave(self, name: str) -> None:
        self.left.append(name)


async def test_the_wait_for_a_turn_has_an_end_and_the_writer_then_competes(
    world: CommitWorld, log: Log
) -> None:
    queue = StuckQueue()
    store: Any = type("Store", (), {"queue": lambda *_: queue})()
    places = retries.Retries(store, log.log_id, Random(1))
    clock = asyncio.get_running_loop().time
    await places.after(Outcome.CONFLICT, is_of_head=False)
    assert queue.left == []
    began = clock()
    await places.after(Outcome.CONFLICT, is_of_head=True)
    assert clock() - began == pytest.approx(retries.WAIT_MS_MAX / 1e3)
    assert set(queue.left) == {"first"}
    began = clock()
    for _ in range(retries.TURN_CONFLICTS_MAX):
        await places.after(Outcome.CONFLICT, is_of_head=True)
    assert clock() == began
    for _ in range(40):
        await places.after(Outcome.CONFLICT, is_of_head=True)
    assert 0 < clock() - began <= 40 * retries.PAUSE_MS_MAX / 1e3
    await places.end()
    assert queue.left[-1] == queue.mine


async def test_leaving_the_queue_keeps_nobody_waiting_in_an_outage(
    world: CommitWorld, log: Log
) -> None:
    queue = StuckQueue()

    async def away(name: str) -> None:
        await asyncio.sleep(3_600)

    queue.leave = away
    store: Any = type("Store", (), {"queue": lambda *_: queue})()
    places = retries.Retries(store, log.log_id, Random(1))
    places._name = await queue.join("token")
    async with asyncio.timeout(retries.LEAVE_MS_MAX / 1e3 + 0.1):
        await places.end()


async def test_a_store_that_refuses_the_queue_leaves_the_writers_to_compete(
    world: CommitWorld, log: Log
) -> None:
    jobs = await world.jobs(8)
    for tree in world.trees[1:]:
        # The first write of each commit is its first attempt. The next writes are mostly joins.
        tree.inject(Fault.NOT_SENT, Fault.NOT_SENT, Fault.NOT_SENT)
    results = await asyncio.gather(*(job() for job in jobs), return_exceptions=True)
    assert all(not isinstance(r, BaseException) or "reached" in str(r) for r in results)
    assert await waiting(world, log) == []
