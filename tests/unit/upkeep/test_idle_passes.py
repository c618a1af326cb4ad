"""What a pass of upkeep asks the store, counted: an idle one asks for heads, never for ledgers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
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
from tests.fixtures.autojump import run_in_virtual_time
from tests.fixtures.counted_tree import CountedTree, counted_stores

if TYPE_CHECKING:
    from ledgerlog_spark.log.log import Log
    from ledgerlog_spark.metadata.stores import MetadataStores

DAY_MS = 86_400_000
Work = Callable[["Cluster"], Awaitable[None]]
METADATA = LedgerMetadata(
    quorum=Quorum(3, 3, 2), fragments=(Fragment(0, ("a:1", "b:1", "c:1")),), token=77
)
LARGE_BYTES = 1 << 30
"""Of a range that no merge is worth."""

LEASE = Counter(create=1, sync=1, stat=1, delete=1)
CLOCK = Counter(set=1)
IDS = Counter(children=1)


class Ledgers:
    """The part of a client that upkeep needs of ledgers that nobody writes."""

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
        """Many ranges, all in one ledger: they cost the store next to nothing to make."""
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
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[[Work], None]:
    now_ms = [1_700_000_000_000]
    monkeypatch.setattr(clock, "now_ms", lambda: now_ms[0])
    return lambda work: _run(work, now_ms)


def _run(work: Work, now_ms: list[int]) -> None:
    async def inside() -> None:
        nodes = MemoryNodes()
        nodes._clock_ms = lambda: now_ms[0]
        tree, stores = await counted_stores(nodes=nodes)
        await work(Cluster(tree, stores, now_ms))

    run_in_virtual_time(inside())


@pytest.mark.parametrize("ranges", [10, 1_000, 100_000])
def test_idle_pass_asks_for_the_head_of_each_log_whatever_its_size(run: Any, ranges: int) -> None:
    async def work(cluster: Cluster) -> None:
        log = await cluster.logs.create("large")
        for _ in range(10):
            await cluster.one_ledger(log, ranges // 10)
        small = await cluster.logs.create("small")
        await cluster.commit(small, 3, app="stream")
        upkeep = cluster.upkeep()
        first = await cluster.counted(upkeep.run())
        # One page of the list has hundreds of items; each is read once a step, not once a ledger.
        assert first.total() < 100 + ranges // 100, first
        cluster.skip(60_000)
        assert await cluster.counted(upkeep.run()) == LEASE + CLOCK + IDS + Counter(get=2)

    run(work)


def test_pass_without_a_memory_asks_once_for_each_registration_that_is_left(run: Any) -> None:
    async def work(cluster: Cluster) -> None:
        log = await cluster.logs.create("stream")
        await cluster.commit(log, 10, app="stream")
        few = await cluster.counted(cluster.upkeep().run())
        await cluster.commit(log, 1_000, app="stream", batch_id=1)
        many = await cluster.counted(cluster.upkeep().run())
        # When it was made; and, as another run took over, of which epoch it is.
        assert 2_000 <= many.total() - few.total() < 2_070, (few, many)
        assert many["set"] == 1, "the clock is written once"

    run(work)


def test_pass_writes_the_clock_once_however_many_jobs_and_logs_there_are(run: Any) -> None:
    async def work(cluster: Cluster) -> None:
        for name in "abc":
            log = await cluster.logs.create(name)
            for _ in range(20):
                await cluster.commit(log, 1, is_last=False)
        requests = await cluster.counted(cluster.upkeep().run())
        assert requests["set"] == 1
        assert requests["transact"] == 0

    run(work)


def test_job_that_is_committed_for_good_leaves_no_producer_behind(run: Any) -> None:
    async def work(cluster: Cluster) -> None:
        log = await cluster.logs.create("batches")
        await cluster.commit(log, 3, is_last=False)
        before = await cluster.counted(cluster.commit(log, 3, is_last=False))
        after = await cluster.counted(cluster.commit(log, 3, unlisted=1))
        assert after - before == Counter(transact=2, stat=1), "the ledger, its mark, the end"
        assert len(await cluster.stores.logs.producers.names(log.log_id)) == 2
        (mark,) = await cluster.stores.logs.producers.marked(log.log_id)
        assert mark.is_staged
        swept = await cluster.logs.sweeper().sweep(log.log_id)
        assert swept.ledgers_deleted == 1
        assert cluster.ledgers.deleted == [mark.ledger_id]
        assert len((await log.snapshot()).items) == 9

    run(work)


def test_job_without_rows_leaves_no_producer_behind(run: Any) -> None:
    async def work(cluster: Cluster) -> None:
        log = await cluster.logs.create("batches")
        await cluster.commit(log, 1)
        before = await cluster.counted(cluster.commit(log, 0, is_last=False))
        after = await cluster.counted(cluster.commit(log, 0))
        assert after - before == Counter(get=1, transact=1)
        await cluster.commit(log, 0, unlisted=1)  # a task is perhaps still at work
        assert len(await cluster.stores.logs.producers.names(log.log_id)) == 2

    run(work)


def test_job_of_many_ledgers_is_forgotten_in_steps(run: Any) -> None:
    async def work(cluster: Cluster) -> None:
        log = await cluster.logs.create("batches")
        await cluster.commit(log, 2_500)
        assert list(await cluster.stores.logs.producers.names(log.log_id)) == []
        assert list(await cluster.stores.logs.producers.marked(log.log_id)) == []

    run(work)


def test_named_producer_stays_after_its_commit(run: Any) -> None:
    async def work(cluster: Cluster) -> None:
        log = await cluster.logs.create("batches")
        await cluster.commit(log, 1, app="nightly")
        assert list(await cluster.stores.logs.producers.names(log.log_id)) == ["nightly"]

    run(work)


def test_what_becomes_due_later_is_done_then_by_a_process_that_remembers(run: Any) -> None:
    """Registrations, marks, versions and retention, each when its own time comes."""

    async def work(cluster: Cluster) -> None:
        retention = {"retentionMs": str(20 * DAY_MS), "versionRetentionMs": str(DAY_MS)}
        log = await cluster.logs.create("log", properties=retention)
        await cluster.commit(log, 2, app="stream", unlisted=1)
        memory = SweepMemory()
        upkeep = cluster.upkeep(memory)
        deleted: dict[int, int] = {}
        for hour in range(24 * 24):
            await upkeep.run()
            for ledger_id in cluster.ledgers.deleted:
                deleted.setdefault(ledger_id, hour)
            if hour == 24:
                await cluster.commit(log, 1, app="stream", batch_id=1)
            cluster.skip(LOOK_AGAIN_MS)
        assert sorted(deleted) == [1, 2, 3, 4]
        assert 7 * 24 <= deleted[3] <= 7 * 24 + 2
        assert 21 * 24 <= deleted[1] <= 21 * 24 + 3
        assert 22 * 24 <= deleted[4] <= 22 * 24 + 3

    run(work)


def test_changed_properties_end_what_was_remembered(run: Any) -> None:
    async def work(cluster: Cluster) -> None:
        log = await cluster.logs.create("log")
        await cluster.commit(log, 1, app="stream", unlisted=1)
        upkeep = cluster.upkeep()
        await upkeep.run()
        await log.set_properties({"stagingTtlMs": "60000"})
        cluster.skip(61_000)
        await upkeep.run()
        assert cluster.ledgers.deleted == [2]

    run(work)


def test_a_clock_that_was_ahead_and_is_set_back_delays_nothing(run: Any) -> None:
    async def work(cluster: Cluster) -> None:
        log = await cluster.logs.create("log")
        await cluster.commit(log, 1)
        upkeep = cluster.upkeep()
        cluster.skip(5 * DAY_MS)
        await upkeep.run()
        cluster.skip(-5 * DAY_MS)
        await cluster.commit(log, 1, app="stream", unlisted=1)
        await upkeep.run()
        cluster.skip(7 * DAY_MS + 2)
        await upkeep.run()
        assert cluster.ledgers.deleted == [3]

    run(work)


def test_log_that_was_deleted_is_removed_in_time_and_forgotten(run: Any) -> None:
    async def work(cluster: Cluster) -> None:
        log = await cluster.logs.create("log")
        await cluster.commit(log, 2)
        memory = SweepMemory()
        upkeep = cluster.upkeep(memory)
        await upkeep.run()
        await log.delete()
        await upkeep.run()
        idle = await cluster.counted(upkeep.run())
        assert idle == LEASE + IDS + Counter(get=1)
        cluster.skip(DAY_MS + 1)
        await upkeep.run()
        assert sorted(cluster.ledgers.deleted) == [1, 2]
        assert list(await cluster.stores.logs.ids()) == []
        await upkeep.run()
        assert memory._due == {}

    run(work)


def test_look_again_is_short_beside_every_time_of_grace() -> None:
    assert LOOK_AGAIN_MS <= DAY_MS // 24


@pytest.mark.parametrize(
    "properties",
    [{"retentionMs": str(DAY_MS)}, {"retentionBytes": str(5_000 * LARGE_BYTES)}],
    ids=["age", "size"],
)
def test_one_pass_drops_all_that_is_due_however_many_ranges(
    run: Any, monkeypatch: pytest.MonkeyPatch, properties: dict[str, str]
) -> None:
    async def work(cluster: Cluster) -> None:
        log = await cluster.logs.create("large", properties=properties)
        for _ in range(6):
            await cluster.one_ledger(log, 5_000)
        cluster.skip(2 * DAY_MS)
        await cluster.one_ledger(log, 5_000)
        with monkeypatch.context() as patch:
            patch.setattr(upkeep_module, "RETENTION_STEPS_MAX", 1)
            (kept,) = await cluster.upkeep().run() or []
        assert kept.truncated is not None
        assert kept.truncated.is_more_due
        assert 8_000 * 10 <= kept.truncated.start_offset < 30_000 * 10
        (kept,) = await cluster.upkeep().run() or []
        assert kept.truncated is not None
        assert (kept.truncated.start_offset, kept.truncated.is_more_due) == (30_000 * 10, False)
        assert len(kept.truncated.unlisted) >= 2, "those of all steps"

    run(work)
