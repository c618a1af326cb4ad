"""The requests of a pass of upkeep. An idle pass reads only heads, and never ledgers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

import pytest

from ledgerlog_spark.client.services import Services
from ledgerlog_spark.log import clock
from ledgerlog_spark.log.logs import Logs
from ledgerlog_spark.log.maintenance.sweep_memory import LOOK_AGAIN_MS, SweepMemory
from ledgerlog_spark.model import Fragment, LedgerMetadata, Quorum
from ledgerlog_spark.protocol.log.commit.epoch import JobKind
from ledgerlog_spark.protocol.log.state.records import StagedRange
from ledgerlog_spark.testing.memory.nodes import MemoryNodes
from ledgerlog_spark.upkeep import upkeep as upkeep_module
from ledgerlog_spark.upkeep.merge_plan import MergePolicy
from ledgerlog_spark.upkeep.upkeep import Upkeep
from tests.fixtures.counted_tree import CountedTree, counted_stores

if TYPE_CHECKING:
    from ledgerlog_spark.log.log import Log
    from ledgerlog_spark.metadata.stores import MetadataStores

DAY_MS = 86_400_000
METADATA = LedgerMetadata(
    quorum=Quorum(3, 3, 2), fragments=(Fragment(0, ("a:1", "b:1", "c:1")),), token=77
)
LARGE_BYTES = 1 << 30
"""Size of a range that is too large for a merge."""

LEASE = Counter(create=1, sync=1, stat=1, delete=1)
CLOCK = Counter(set=1)
IDS = Counter(children=1)


class Ledgers:
    """The part of a client that upkeep needs for ledgers without a writer."""

    def __init__(self, stores: MetadataStores) -> None:
        self._stores = stores
        self.deleted: list[int] = []
        self.services: Any = None

    def check_open(self) -> None:
        return

    async def ledger_metadata(self, ledger_id: int) -> LedgerMetadata:
        return (await self._stores.ledgers.load(ledger_id)).value

    async def seal(self, ledger_id: int, **_: Any) -> LedgerMetadata:
        return await self.ledger_metadata(ledger_id)

    async def delete_ledger(self, ledger_id: int) -> None:
        self.deleted.append(ledger_id)


class Cluster:
    """Logs on a counted store whose clock the test moves."""

    is_virtual = True

    def __init__(self, tree: CountedTree, stores: MetadataStores, now_ms: list[int]) -> None:
        self.tree = tree
        self.stores = stores
        self.ledgers = Ledgers(stores)
        self.logs = Logs(store=stores.logs, ledgers=self.ledgers)  # type: ignore[arg-type]
        self._now_ms = now_ms
        self._ledger_id = 0
        services = Services.__new__(Services)
        services.logs, services.leases = stores.logs, stores.leases
        services.random = None  # type: ignore[assignment]
        self.ledgers.services = services

    def skip(self, ms: int) -> None:
        self._now_ms[0] += ms

    def upkeep(self, memory: SweepMemory | None = None) -> Upkeep:
        client: Any = self.ledgers
        return Upkeep(client, policy=MergePolicy(ranges_min=64, growth=4), memory=memory)

    async def commit(
        self, log: Log, ranges: int, *, app: str | None = None, batch_id: int = 0,
        is_last: bool = True, unlisted: int = 0,
    ) -> None:  # fmt: skip
        kind = JobKind.STREAM if app else JobKind.BATCH
        job = await log.begin(app=app, batch_id=batch_id, kind=kind)
        producer = await self.stores.logs.producers.read(log.log_id, job.app)
        assert producer is not None
        staged = []
        for number in range(ranges + unlisted):
            self._ledger_id += 1
            await self.stores.logs.producers.register_ledger(
                log.log_id,
                job.app,
                producer.value.epoch,
                producer.version,
                self._ledger_id,
                METADATA.closed(last_entry_id=9, length=100),
            )
            if number < ranges:
                staged.append(
                    StagedRange(
                        self._ledger_id, 1, 9, 9, rows=10, size_bytes=LARGE_BYTES, statistics=b""
                    )
                )
        await log.commit(job, staged, is_last=is_last)

    async def one_ledger(self, log: Log, ranges: int) -> None:
        """Create many ranges in one ledger, with few requests to the store."""
        job = await log.begin()
        producer = await self.stores.logs.producers.read(log.log_id, job.app)
        assert producer is not None
        self._ledger_id += 1
        await self.stores.logs.producers.register_ledger(
            log.log_id, job.app, 1, producer.version, self._ledger_id, METADATA
        )
        size = {"rows": 10, "size_bytes": LARGE_BYTES, "statistics": b""}
        await log.commit(
            job,
            [StagedRange(self._ledger_id, n * 9 + 1, n * 9 + 9, 9, **size) for n in range(ranges)],  # type: ignore[arg-type]
            is_last=True,
        )

    async def counted(self, work: Awaitable[Any]) -> Counter[str]:
        self.tree.requests.clear()
        await work
        return Counter(self.tree.requests)


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    now_ms = [1_700_000_000_000]
    monkeypatch.setattr(clock, "now_ms", lambda: now_ms[0])
    nodes = MemoryNodes()
    nodes._clock_ms = lambda: now_ms[0]
    tree, stores = await counted_stores(nodes=nodes)
    return Cluster(tree, stores, now_ms)


@pytest.mark.parametrize("ranges", [10, 1_000, 30_000])
async def test_idle_pass_asks_for_the_head_of_each_log_whatever_its_size(
    world: Cluster, ranges: int
) -> None:
    log = await world.logs.create("large")
    for _ in range(10):
        await world.one_ledger(log, ranges // 10)
    small = await world.logs.create("small")
    await world.commit(small, 3, app="stream")
    upkeep = world.upkeep()
    first = await world.counted(upkeep.run())
    # A page has hundreds of items. It is read once in each step, and not for each ledger.
    assert first.total() < 100 + ranges // 100, first
    world.skip(60_000)
    assert await world.counted(upkeep.run()) == LEASE + CLOCK + IDS + Counter(get=2)


async def test_pass_without_a_memory_asks_once_for_each_registration_that_is_left(
    world: Cluster,
) -> None:
    log = await world.logs.create("stream")
    await world.commit(log, 10, app="stream")
    few = await world.counted(world.upkeep().run())
    await world.commit(log, 1_000, app="stream", batch_id=1)
    many = await world.counted(world.upkeep().run())
    # The time of its creation and, after another run took over, its epoch.
    assert 2_000 <= many.total() - few.total() < 2_070, (few, many)
    assert many["set"] == 1, "the clock is written once"


async def test_pass_writes_the_clock_once_however_many_jobs_and_logs_there_are(
    world: Cluster,
) -> None:
    for name in "abc":
        log = await world.logs.create(name)
        for _ in range(20):
            await world.commit(log, 1, is_last=False)
    requests = await world.counted(world.upkeep().run())
    assert requests["set"] == 1
    assert requests["transact"] == 0


async def test_job_that_is_committed_for_good_leaves_no_producer_behind(world: Cluster) -> None:
    log = await world.logs.create("batches")
    await world.commit(log, 3, is_last=False)
    before = await world.counted(world.commit(log, 3, is_last=False))
    after = await world.counted(world.commit(log, 3, unlisted=1))
    assert after - before == Counter(transact=2, stat=1), "the ledger, its mark, the end"
    assert len(await world.stores.logs.producers.names(log.log_id)) == 2
    (mark,) = await world.stores.logs.producers.marked(log.log_id)
    assert mark.is_staged
    swept = await world.logs.sweeper().sweep(log.log_id)
    assert swept.ledgers_deleted == 1
    assert world.ledgers.deleted == [mark.ledger_id]
    assert len((await log.snapshot()).items) == 9


async def test_job_without_rows_leaves_no_producer_behind(world: Cluster) -> None:
    log = await world.logs.create("batches")
    await world.commit(log, 1)
    before = await world.counted(world.commit(log, 0, is_last=False))
    after = await world.counted(world.commit(log, 0))
    assert after - before == Counter(get=1, transact=1)
    await world.commit(log, 0, unlisted=1)  # a task may still be running
    assert len(await world.stores.logs.producers.names(log.log_id)) == 2


async def test_job_of_many_ledgers_is_forgotten_in_steps(world: Cluster) -> None:
    log = await world.logs.create("batches")
    await world.commit(log, 2_500)
    assert list(await world.stores.logs.producers.names(log.log_id)) == []
    assert list(await world.stores.logs.producers.marked(log.log_id)) == []


async def test_named_producer_stays_after_its_commit(world: Cluster) -> None:
    log = await world.logs.create("batches")
    await world.commit(log, 1, app="nightly")
    assert list(await world.stores.logs.producers.names(log.log_id)) == ["nightly"]


async def test_what_becomes_due_later_is_done_then_by_a_process_that_remembers(
    world: Cluster,
) -> None:
    """Registrations, marks, versions and retention, each at its due time."""
    retention = {"retentionMs": str(20 * DAY_MS), "versionRetentionMs": str(DAY_MS)}
    log = await world.logs.create("log", properties=retention)
    await world.commit(log, 2, app="stream", unlisted=1)
    memory = SweepMemory()
    upkeep = world.upkeep(memory)
    deleted: dict[int, int] = {}
    for hour in range(24 * 24):
        await upkeep.run()
        for ledger_id in world.ledgers.deleted:
            deleted.setdefault(ledger_id, hour)
        if hour == 24:
            await world.commit(log, 1, app="stream", batch_id=1)
        world.skip(LOOK_AGAIN_MS)
    assert sorted(deleted) == [1, 2, 3, 4]
    assert 7 * 24 <= deleted[3] <= 7 * 24 + 2
    assert 21 * 24 <= deleted[1] <= 21 * 24 + 3
    assert 22 * 24 <= deleted[4] <= 22 * 24 + 3


async def test_changed_properties_end_what_was_remembered(world: Cluster) -> None:
    log = await world.logs.create("log")
    await world.commit(log, 1, app="stream", unlisted=1)
    upkeep = world.upkeep()
    await upkeep.run()
    await log.set_properties({"stagingTtlMs": "60000"})
    world.skip(61_000)
    await upkeep.run()
    assert world.ledgers.deleted == [2]


async def test_a_clock_that_was_ahead_and_is_set_back_delays_nothing(world: Cluster) -> None:
    log = await world.logs.create("log")
    await world.commit(log, 1)
    upkeep = world.upkeep()
    world.skip(5 * DAY_MS)
    await upkeep.run()
    world.skip(-5 * DAY_MS)
    await world.commit(log, 1, app="stream", unlisted=1)
    await upkeep.run()
    world.skip(7 * DAY_MS + 2)
    await upkeep.run()
    assert world.ledgers.deleted == [3]


async def test_log_that_was_deleted_is_removed_in_time_and_forgotten(world: Cluster) -> None:
    log = await world.logs.create("log")
    await world.commit(log, 2)
    memory = SweepMemory()
    upkeep = world.upkeep(memory)
    await upkeep.run()
    await log.delete()
    await upkeep.run()
    idle = await world.counted(upkeep.run())
    assert idle == LEASE + IDS + Counter(get=1)
    world.skip(DAY_MS + 1)
    await upkeep.run()
    assert sorted(world.ledgers.deleted) == [1, 2]
    assert list(await world.stores.logs.ids()) == []
    await upkeep.run()
    assert memory._due == {}


def test_look_again_is_short_beside_every_time_of_grace() -> None:
    assert LOOK_AGAIN_MS <= DAY_MS // 24


@pytest.mark.parametrize(
    "properties",
    [{"retentionMs": str(DAY_MS)}, {"retentionBytes": str(5_000 * LARGE_BYTES)}],
    ids=["age", "size"],
)
async def test_one_pass_drops_all_that_is_due_however_many_ranges(
    world: Cluster, monkeypatch: pytest.MonkeyPatch, properties: dict[str, str]
) -> None:
    log = await world.logs.create("large", properties=properties)
    for _ in range(4):
        await world.one_ledger(log, 5_000)
    world.skip(2 * DAY_MS)
    await world.one_ledger(log, 5_000)
    with monkeypatch.context() as patch:
        patch.setattr(upkeep_module, "RETENTION_STEPS_MAX", 1)
        (kept,) = await world.upkeep().run() or []
    assert kept.truncated is not None
    assert kept.truncated.is_more_due
    assert 8_000 * 10 <= kept.truncated.start_offset < 20_000 * 10
    (kept,) = await world.upkeep().run() or []
    assert kept.truncated is not None
    assert (kept.truncated.start_offset, kept.truncated.is_more_due) == (20_000 * 10, False)
    assert len(kept.truncated.unlisted) >= 2, "those of all steps"
