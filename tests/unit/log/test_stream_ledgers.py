"""Ledgers that stay open from batch to batch, and the cases in which they are not reused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from copy import copy
from dataclasses import replace
from typing import Any

import pytest

from ledgerlog_spark.errors import (
    LedgerFencedError,
    LedgerRecoveryError,
    LogNotFoundError,
    ProducerFencedError,
)
from ledgerlog_spark.log.committing.commits import KnownLogs
from ledgerlog_spark.log.committing.job import Job
from ledgerlog_spark.log.committing.stream_ledgers import OPEN_MAX, StreamLedgers
from ledgerlog_spark.log.log import Log
from ledgerlog_spark.log.logs import Logs
from ledgerlog_spark.log.maintenance.sweep_memory import SweepMemory
from ledgerlog_spark.log.maintenance.sweeper import Sweeper
from ledgerlog_spark.model import NO_ENTRY
from ledgerlog_spark.protocol.log.commit.epoch import JobKind
from ledgerlog_spark.protocol.log.state.records import StagedRange, WriteMode
from tests.unit.log.log_world import SCHEMA, LogWorld, payloads

HOUR_SECONDS = 3_600


class Stream:
    """A query run, with one process for its tasks and one for its commits."""

    def __init__(self, world: LogWorld, log: Log, run: str = "run", app: str = "query") -> None:
        self.world = world
        self.log = log
        self.run = run
        self.app = app
        self.ledgers = StreamLedgers()
        self.known = KnownLogs()
        self.next_batch = 0
        self.mode = WriteMode.APPEND

    async def job(self, schema: bytes = SCHEMA) -> Job:
        job = await self.log.begin(
            schema=schema,
            mode=self.mode,
            app=self.app,
            batch_id=self.next_batch,
            run=self.run,
            kind=JobKind.STREAM,
        )
        self.next_batch += 1
        return job

    async def range(self, job: Job, payload: bytes = b"") -> StagedRange:
        await self.ledgers.join(self.log.commits, job)
        writer = await self.ledgers.open_range(self.log.commits, job)
        await writer.append(payload or b"batch %d" % job.batch_id, rows=10)
        staged = await writer.finish(b"index")
        assert staged is not None
        return staged

    async def batch(self, payload: bytes = b"") -> StagedRange:
        job = await self.job()
        staged = await self.range(job, payload)
        await self.log.commit(job, [staged], known=self.known)
        return staged


async def opened(world: LogWorld, **properties: str) -> Stream:
    return Stream(world, await world.logs().create("flights", properties=properties))


async def is_closed(world: LogWorld, staged: StagedRange) -> bool:
    return (await world.client().ledger_metadata(staged.ledger_id)).is_closed


async def test_batches_lie_one_behind_the_other_in_one_ledger(world: LogWorld) -> None:
    stream = await opened(world)
    ranges = [await stream.batch() for _ in range(4)]
    assert len({r.ledger_id for r in ranges}) == 1
    assert [(r.first_entry_id, r.last_entry_id, r.index_entry_id) for r in ranges] == [
        (1, 2, 2), (3, 4, 4), (5, 6, 6), (7, 8, 8)
    ]  # fmt: skip
    assert await payloads(stream.log) == [b"batch %d" % n for n in range(4)]
    assert not await is_closed(world, ranges[0])


async def test_idle_ledgers_are_closed_after_thirty_seconds(world: LogWorld) -> None:
    stream = await opened(world)
    first = await stream.batch()
    await asyncio.sleep(29)
    second = await stream.batch()
    await asyncio.sleep(31)
    assert stream.ledgers.idle == 0
    assert await is_closed(world, first)
    third = await stream.batch()
    assert first.ledger_id == second.ledger_id != third.ledger_id


async def test_at_most_sixteen_ledgers_stay_open(world: LogWorld) -> None:
    first = await opened(world)
    staged = []
    for number in range(OPEN_MAX + 3):
        stream = Stream(world, first.log, app=f"query {number}")
        stream.ledgers = first.ledgers
        staged.append(await stream.batch())
    await asyncio.sleep(1)
    assert first.ledgers.idle == OPEN_MAX
    assert [await is_closed(world, s) for s in staged] == [True] * 3 + [False] * OPEN_MAX


@pytest.mark.parametrize(
    ("properties", "seconds"),
    [({"rollMs": "20000"}, 20), ({"stagingTtlMs": "40000"}, 20), ({"rollBytes": "30"}, 0)],
)
async def test_ledgers_roll_by_age_by_size_and_long_before_their_registration_ends(
    world: LogWorld, properties: dict[str, str], seconds: int
) -> None:
    stream = await opened(world, **properties)
    before = await stream.batch(b"ten bytes.")
    await asyncio.sleep(seconds)
    after = await stream.batch(b"ten bytes.")
    again = await stream.batch(b"ten bytes.")
    assert before.ledger_id != again.ledger_id
    await stream.ledgers.close()
    assert await is_closed(world, before)
    assert await is_closed(world, after)


@pytest.mark.parametrize("is_reaped", [False, True])
async def test_batches_an_hour_apart_meet_ledgers_that_are_sealed_and_marked(
    world: LogWorld, is_reaped: bool
) -> None:
    stream = await opened(world, stagingTtlMs=str(HOUR_SECONDS * 1_000 // 2))
    sweeper = world.logs().sweeper()
    ranges = []
    for _ in range(4):
        ranges.append(await stream.batch())
        if is_reaped:
            reap(stream)
        await asyncio.sleep(HOUR_SECONDS)
        assert await is_closed(world, ranges[-1]) is not is_reaped
        world.skip(HOUR_SECONDS * 1_000)
        await sweeper.sweep(stream.log.log_id)
        assert await is_closed(world, ranges[-1])
    assert len({staged.ledger_id for staged in ranges}) == 4
    assert await payloads(stream.log) == [b"batch %d" % n for n in range(4)]
    assert not await stream.log.host.store.producers.registered(stream.log.log_id, stream.app)


def reap(stream: Stream) -> None:
    """Continue in another process. The last process had no time to close anything."""
    for key in list(stream.ledgers._idle):
        stream.ledgers._taken(key)
    stream.ledgers = StreamLedgers()


async def test_another_schema_run_or_password_gets_a_ledger_of_its_own(world: LogWorld) -> None:
    stream = await opened(world)
    job = await stream.job()
    first = await stream.range(job)
    evolved = await stream.range(await stream.job(schema=b"another"))
    stream.run = "later"
    later = await stream.range(await stream.job())
    secret = replace(await stream.job(), password=b"another")
    locked = await stream.range(secret)
    ledger_ids = [staged.ledger_id for staged in (first, evolved, later, locked)]
    assert len(set(ledger_ids)) == 4


async def test_attempt_that_fails_takes_its_ledger_along(world: LogWorld) -> None:
    stream = await opened(world)
    first = await stream.batch()
    job = await stream.job()
    writer = await stream.ledgers.open_range(stream.log.commits, job)
    assert writer.ledger_id == first.ledger_id
    await writer.append(b"half", rows=1)
    writer.abandon()
    retried = await stream.range(job)
    assert retried.ledger_id != first.ledger_id
    await stream.log.commit(job, [retried], known=stream.known)
    assert await payloads(stream.log) == [b"batch 0", b"batch 1"]


async def test_ledger_that_fails_between_two_batches_is_not_continued(world: LogWorld) -> None:
    stream = await opened(world)
    first = await stream.batch()
    (idle,) = stream.ledgers._idle.values()
    await stream.log.seal(first.ledger_id)
    with pytest.raises(LedgerFencedError):
        await idle.ledger._handle.append_async(b"as the answer that comes late")
    second = await stream.batch()
    assert second.ledger_id != first.ledger_id
    assert await payloads(stream.log) == [b"batch 0", b"batch 1"]


async def test_ledger_fenced_within_a_batch_gives_up_its_confirmed_prefix(world: LogWorld) -> None:
    stream = await opened(world)
    job = await stream.job()
    await stream.ledgers.join(stream.log.commits, job)
    writer = await stream.ledgers.open_range(stream.log.commits, job)
    for number in range(3):
        await writer.append(b"safe %d" % number, rows=10)
        await asyncio.sleep(0.1)
    await stream.log.seal(writer.ledger_id)
    for number in range(2):
        await writer.append(b"lost %d" % number, rows=10)
    with pytest.raises(LedgerFencedError):
        await writer.finish(b"index")
    staged, again = await writer.cut()
    assert staged is not None
    assert (staged.first_entry_id, staged.last_entry_id, staged.rows) == (1, 3, 30)
    assert (staged.index_entry_id, staged.size_bytes) == (NO_ENTRY, 18)
    assert again == (b"lost 0", b"lost 1")
    elsewhere = await stream.ledgers.open_range(stream.log.commits, job)
    assert elsewhere.ledger_id != writer.ledger_id
    for payload in again:
        await elsewhere.append(payload, rows=10)
    rest = await elsewhere.finish(b"index")
    assert rest is not None
    await stream.log.commit(job, [staged, rest])
    assert await payloads(stream.log) == [b"safe 0", b"safe 1", b"safe 2", *again]


async def test_run_that_takes_over_seals_what_the_older_one_left_open(world: LogWorld) -> None:
    old = await opened(world)
    listed = await old.batch()
    job = await old.job()
    await old.ledgers.join(old.log.commits, job)
    zombie = await old.ledgers.open_range(old.log.commits, job)
    await zombie.append(b"never acknowledged", rows=1)
    new = Stream(world, old.log, run="later")
    new.next_batch = 1
    taken = await new.range(
        replace(job, run="later")  # the task begins it, as in Spark
    )
    await asyncio.sleep(1)
    assert await is_closed(world, listed)
    assert not await is_closed(world, taken)
    await zombie.append(b"nor this", rows=1)
    with pytest.raises(LedgerFencedError):
        await zombie.finish()
    staged, again = await zombie.cut()
    assert again[-1] == b"nor this"
    with pytest.raises(ProducerFencedError):
        await old.ledgers.open_range(old.log.commits, job)
    with pytest.raises(ProducerFencedError):
        await old.log.commit(job, [staged] if staged else [listed], known=old.known)
    assert await payloads(old.log) == [b"batch 0"]


async def test_sweeper_seals_what_a_replaced_run_left_when_nobody_else_could(
    world: LogWorld,
) -> None:
    logs: Logs = world.logs()
    old = Stream(world, await logs.create("flights"))
    listed = await old.batch()
    await old.log.begin(schema=SCHEMA, app="query", batch_id=1, run="r", kind=JobKind.STREAM)
    assert not await is_closed(world, listed)
    await logs.sweeper().sweep(old.log.log_id)
    assert await is_closed(world, listed)
    assert await payloads(old.log) == [b"batch 0"]


class Watched:
    """A client that records the floors of its seals, and cannot seal some ledgers."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.unsealable: set[int] = set()
        self.floors: dict[int, int] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def seal(self, ledger_id: int, *, floor_entry_id: int, **how: Any) -> Any:
        self.floors[ledger_id] = floor_entry_id
        if ledger_id in self.unsealable:
            raise LedgerRecoveryError("its bookies are gone")
        return await self._client.seal(ledger_id, floor_entry_id=floor_entry_id, **how)


async def test_sweeper_that_remembers_seals_what_each_replaced_run_left_until_it_can(
    world: LogWorld,
) -> None:
    logs, memory = world.logs(), SweepMemory()
    client: Any = Watched(world.client())

    async def next_pass() -> None:
        world.skip(HOUR_SECONDS * 1_000 + 1)
        sweeper = Sweeper(store=logs.store, ledgers=client, memory=memory)
        await sweeper.sweep(stream.log.log_id)

    async def replaced_by(run: str) -> None:
        stream.run = run
        await stream.job()

    stream = Stream(world, await logs.create("flights"))
    first = await stream.batch()
    await replaced_by("second")
    client.unsealable.add(first.ledger_id)
    await next_pass()
    assert client.floors == {first.ledger_id: first.last_entry_id}
    client.unsealable.clear()
    await next_pass()
    assert await is_closed(world, first)
    stream.ledgers = StreamLedgers()
    second = await stream.batch()
    await replaced_by("third")
    await next_pass()
    assert await is_closed(world, second)
    assert client.floors[second.ledger_id] == second.last_entry_id


async def test_run_that_meets_another_log_of_the_same_name_is_stopped(world: LogWorld) -> None:
    logs = world.logs()
    stream = Stream(world, await logs.create("flights"))
    await stream.batch()
    await logs.delete("flights")
    stream.log = await logs.create("flights")
    job = await stream.job()
    with pytest.raises(LogNotFoundError, match="created again"):
        await stream.ledgers.join(stream.log.commits, job)


async def test_ledger_without_a_listed_range_is_not_used_again_in_complete_mode(
    world: LogWorld,
) -> None:
    stream = await opened(world)
    stream.mode = WriteMode.OVERWRITE
    first, second = await stream.batch(), await stream.batch()
    elsewhere = StreamLedgers()
    elsewhere, stream.ledgers = stream.ledgers, elsewhere
    await stream.batch()
    stream.ledgers = elsewhere
    fourth = await stream.batch()
    assert first.ledger_id == second.ledger_id != fourth.ledger_id
    assert await payloads(stream.log) == [b"batch 3"]


async def stored(world: LogWorld) -> tuple[int, int]:
    """The existing ledgers, and the bytes of their entries on a bookie."""
    client = world.client()
    ids = [ledger_id async for ledger_id in client.list_ledgers()]
    kept = world.storages["bookie-0"].ledgers
    sizes = [sum(map(len, kept[i].entries.values())) for i in ids if i in kept]
    return len(ids), sum(sizes)


async def test_many_batches_in_complete_mode_leave_the_disk_as_full_as_fifty(
    world: LogWorld,
) -> None:
    logs = world.logs()
    retention = {"versionRetentionMs": "1", "deletedRetentionMs": "1"}
    stream = Stream(world, await logs.create("flights", properties=retention))
    stream.mode = WriteMode.OVERWRITE
    seen = []
    for number in range(400):
        await stream.batch(b"%03d" % number * 100)
        if number % 25 == 24:
            await logs.sweeper().sweep(stream.log.log_id)
            world.skip(10)
            await logs.sweeper().sweep(stream.log.log_id)
            seen.append(await stored(world))
    assert await payloads(stream.log) == [b"399" * 100]
    later = seen[2:]
    assert max(ledgers for ledgers, _ in later) <= 4, seen
    assert max(size for _, size in later) <= 10 * len(b"399" * 100), seen


class CrossedStore:
    """A log store in which something happens before each of the sweeper's first writes."""

    def __init__(self, store: Any, times: int, before: Callable[[], Awaitable[Any]]) -> None:
        self._store = store
        self._left = {"head": times, "producer": times}
        self._before = before
        self.producers = copy(store.producers)
        self.producers.write = self._write_producer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def write_head(self, *arguments: Any) -> Any:
        await self._cross("head")
        return await self._store.write_head(*arguments)

    async def _write_producer(self, *arguments: Any) -> Any:
        await self._cross("producer")
        return await self._store.producers.write(*arguments)

    async def _cross(self, what: str) -> None:
        if self._left[what]:
            self._left[what] -= 1
            await self._before()


async def test_sweeper_comes_through_beside_a_stream_that_crosses_most_of_its_steps(
    world: LogWorld,
) -> None:
    logs = world.logs()
    retention = {"versionRetentionMs": "1", "deletedRetentionMs": "1"}
    stream = Stream(world, await logs.create("flights", properties=retention))
    stream.mode = WriteMode.OVERWRITE
    for _ in range(20):
        await stream.batch()
    store: Any = CrossedStore(logs.store, 5, stream.batch)
    sweeper = Sweeper(store=store, ledgers=world.client())
    world.skip(10)
    swept = await sweeper.sweep(stream.log.log_id)
    assert swept.unlisted == swept.ledgers_deleted > 0
    assert store._left == {"head": 0, "producer": 0}
