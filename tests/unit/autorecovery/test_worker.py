"""The host of replication jobs, on stores in memory and in virtual time."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from ledgerlog_spark.autorecovery.replicate import worker as module
from ledgerlog_spark.autorecovery.replicate.quiet import LEDGERS_MAX, QuietLedgers
from ledgerlog_spark.autorecovery.replicate.worker import (
    POLL_SECONDS,
    ReplicationWorker,
    WorkerParts,
    WorkerSettings,
)
from ledgerlog_spark.client.bookies import BookieChoice
from ledgerlog_spark.errors import MetadataUnknownError
from ledgerlog_spark.metadata.stores import MetadataStores
from ledgerlog_spark.model import BookieInfo, Fragment, LedgerMetadata, LedgerState, Quorum
from ledgerlog_spark.protocol.autorecovery.replicate.messages import JobOutcome
from ledgerlog_spark.testing.cluster import memory_metadata
from ledgerlog_spark.testing.memory.nodes import MemoryNodes
from ledgerlog_spark.testing.memory.tree import Fault
from ledgerlog_spark.wire.repair_notes import Hole, Holes
from tests.fixtures.metadata_worlds import memory_tree

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.virtual_time

CLOSED = LedgerMetadata(
    Quorum(3, 3, 2), (Fragment(0, ("b0", "b1", "b2")),), has_password=True
).closed(last_entry_id=9, length=1_000)


class Host:
    """A worker of a cluster in which b2 is lost and nobody can replace it.

    So each ledger of `CLOSED` ends with NO_SPARE, before any request to a bookie.
    """

    def __init__(self, nodes: MemoryNodes) -> None:
        self.nodes = nodes
        self.stores = memory_metadata(nodes)
        self.events: list[tuple[str, Any]] = []
        self.looks = 0

    async def prepare(self) -> None:
        await self.stores.initialize()
        for name in ("b0", "b1"):
            await self.stores.registration.register(BookieInfo(name, f"h-{name}", 3181))

    def worker(self, **settings: Any) -> ReplicationWorker:
        stores = self.stores
        choice = BookieChoice(stores.registration, stores.topologies, None, Random(0))
        unused: Any = None
        parts = WorkerParts(stores, unused, unused, choice, unused, unused)
        return ReplicationWorker(
            "w", parts, lambda *event: self.events.append(event), WorkerSettings(**settings)
        )

    @contextlib.asynccontextmanager
    async def running(self, **settings: Any) -> AsyncIterator[ReplicationWorker]:
        worker = self.worker(**settings)
        task = asyncio.create_task(worker.run())
        try:
            yield worker
            assert not task.done(), "the worker ended by itself"
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def outcomes(self) -> Counter[JobOutcome]:
        return Counter(subject[2].outcome for event, subject in self.events if event == "job")

    async def marked(self) -> list[int]:
        return [one async for one in self.stores.marks.walk()]

    def count_looks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        switch = self.stores.recovery_switch
        is_enabled = switch.is_enabled

        async def counted() -> bool:
            self.looks += 1
            return await is_enabled()

        monkeypatch.setattr(switch, "is_enabled", counted)


@pytest.fixture
async def host() -> AsyncIterator[Host]:
    made = Host(MemoryNodes())
    await made.prepare()
    yield made
    await made.stores.close()


@pytest.fixture
async def other(host: Host) -> AsyncIterator[MetadataStores]:
    """The session of another worker."""
    stores = memory_metadata(host.nodes)
    yield stores
    await stores.close()


async def test_a_ledger_that_another_worker_heals_causes_no_further_looks(
    host: Host, other: MetadataStores, monkeypatch: pytest.MonkeyPatch
) -> None:
    await host.stores.ledgers.create(7, CLOSED)
    mark = await host.stores.marks.mark(7, ["b2"])
    lock = await other.replication_locks.acquire(7, "other")
    assert lock is not None
    async with host.running():
        await asyncio.sleep(1)  # the worker finds the lock
        assert await other.marks.delete(7, mark, lock)
        await other.replication_locks.release(7)
        await asyncio.sleep(30)
        host.count_looks(monkeypatch)
        await asyncio.sleep(60)
    assert host.looks <= 60 / POLL_SECONDS + 1


async def test_failed_tasks_that_wait_hide_no_other_task(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_MAX", 10)
    for ledger_id in range(1, 13):
        await host.stores.ledgers.create(ledger_id, CLOSED)
        await host.stores.marks.mark(ledger_id, ["b2"])
    await host.stores.marks.mark(99, ["b2"])  # its ledger was deleted, so the mark can go
    async with host.running():
        await asyncio.sleep(30)
        assert await host.marked() == list(range(1, 13))
        await host.stores.marks.mark(0, ["b2"])  # also deleted, before where the last look ended
        await asyncio.sleep(60)
        assert await host.marked() == list(range(1, 13))
    assert host.outcomes()[JobOutcome.NO_SPARE] >= 12


async def test_a_job_that_fails_by_a_defect_is_tried_again_after_longer_pauses(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    await host.stores.marks.mark(7, ["b2"])

    async def load(_ledger_id: int) -> Any:
        raise RuntimeError("a defect")

    monkeypatch.setattr(host.stores.ledgers, "load", load)
    async with host.running():
        await asyncio.sleep(160)
        crashes = [subject for event, subject in host.events if event == "job_crashed"]
        # After 5, 10, 20, 40 and 80 s.
        assert 4 <= len(crashes) <= 6
        assert str(crashes[0]) == "a defect"
        note = await host.stores.attempts.load(7)
        assert note is not None
        assert note.value.refusal == "crashed"
        assert "a defect" in note.value.detail
        assert await host.stores.replication_locks.holder(7) is None


async def test_reports_go_on_after_a_defect(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    reports = host.stores.worker_reports
    publish, calls = reports.publish, 0

    async def failing(*args: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise RuntimeError("a defect")
        await publish(*args)

    monkeypatch.setattr(reports, "publish", failing)
    async with host.running():
        await asyncio.sleep(10)
        assert "w" in await reports.all()
    assert [event for event, _ in host.events] == ["report_failed"]


async def test_a_ledger_of_two_queues_has_one_job_at_a_time(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    await host.stores.ledgers.create(7, CLOSED)
    await host.stores.marks.mark(7, ["b2"])
    await host.stores.holes.add(7, Holes((Hole("b0"),)))
    load, at_once, most = host.stores.ledgers.load, 0, 0

    async def slow(ledger_id: int) -> Any:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(1)
        at_once -= 1
        return await load(ledger_id)

    locks = host.stores.replication_locks
    acquire, refused = locks.acquire, 0

    async def counted(*args: Any) -> Any:
        nonlocal refused
        lock = await acquire(*args)
        refused += lock is None
        return lock

    monkeypatch.setattr(host.stores.ledgers, "load", slow)
    monkeypatch.setattr(locks, "acquire", counted)
    async with host.running():
        await asyncio.sleep(60)
    assert (most, refused) == (1, 0)
    assert {subject[0] for event, subject in host.events if event == "job"} == {"mark", "hole"}


async def test_open_ledgers_in_their_grace_delay_no_other_ledger(host: Host) -> None:
    open_ledger = replace(CLOSED, state=LedgerState.OPEN, last_entry_id=-1, length=0)
    for ledger_id in range(5):
        await host.stores.ledgers.create(ledger_id, open_ledger)
        await host.stores.marks.mark(ledger_id, ["b2"])
    async with host.running(jobs_max=2) as worker:
        await asyncio.sleep(20)  # of a grace of 30 s
        assert len(worker.progress().tasks) == 5
        await host.stores.marks.mark(99, ["b2"])
        await asyncio.sleep(5)
        assert await host.marked() == list(range(5))
        await asyncio.sleep(10)  # then each job is tried
        assert host.events


async def test_the_end_of_the_session_drops_jobs_in_their_grace(host: Host) -> None:
    open_ledger = replace(CLOSED, state=LedgerState.OPEN, last_entry_id=-1, length=0)
    for ledger_id in range(5):
        await host.stores.ledgers.create(ledger_id, open_ledger)
        await host.stores.marks.mark(ledger_id, ["b2"])
    async with host.running(jobs_max=2) as worker:
        await asyncio.sleep(20)
        session_id = host.stores.tree.session_id
        host.stores.tree.expire_session()  # type: ignore[attr-defined]
        await asyncio.sleep(15)
        assert ("session_lost", "w") in host.events
        assert host.stores.tree.session_id != session_id
        assert len(worker.progress().tasks) == 5  # taken again, in the new session


async def test_a_worker_that_ends_gives_its_locks_back(host: Host) -> None:
    open_ledger = replace(CLOSED, state=LedgerState.OPEN, last_entry_id=-1, length=0)
    for ledger_id in range(5):
        await host.stores.ledgers.create(ledger_id, open_ledger)
        await host.stores.marks.mark(ledger_id, ["b2"])
    async with host.running(jobs_max=2):
        await asyncio.sleep(20)
        assert await host.stores.replication_locks.holder(3) == "w"
        assert "w" in await host.stores.worker_reports.all()
    assert [await host.stores.replication_locks.holder(one) for one in range(5)] == [None] * 5
    assert "w" not in await host.stores.worker_reports.all()


async def test_a_lock_that_is_left_after_a_failure_is_released_by_the_next_turn(
    host: Host, other: MetadataStores
) -> None:
    locks = host.stores.replication_locks
    assert await locks.acquire(7, "w") is not None
    memory_tree(host.stores).inject(*[Fault.REQUEST_LOST] * 4)
    with pytest.raises(MetadataUnknownError):
        await locks.release(7)
    assert await other.replication_locks.acquire(7, "w2") is None
    async with host.running():
        await asyncio.sleep(2 * POLL_SECONDS)
        assert await other.replication_locks.acquire(7, "w2") is not None


async def test_a_new_bookie_makes_failed_ledgers_due(host: Host) -> None:
    """AUTORECOVERY.md#X12."""
    await host.stores.ledgers.create(7, CLOSED)
    await host.stores.marks.mark(7, ["b2"])
    async with host.running() as worker:
        await asyncio.sleep(200)
        before = worker.counters.jobs_failed
        await asyncio.sleep(20)
        assert worker.counters.jobs_failed == before, "the pause is longer"
        info = BookieInfo("b0", "h-b0", 3181)
        await host.stores.registration.unregister("b0")
        await host.stores.registration.register(info)
        await asyncio.sleep(1)
        assert worker.counters.jobs_failed > before


async def test_the_third_failure_is_noted_until_the_ledger_is_healed(host: Host) -> None:
    """AUTORECOVERY.md#X12: it is tried at once, after 5 s and after 15 s."""
    await host.stores.ledgers.create(7, CLOSED)
    await host.stores.marks.mark(7, ["b2"])
    async with host.running() as worker:
        await asyncio.sleep(9)
        assert worker.counters.jobs_failed == 2
        assert host.outcomes()[JobOutcome.NO_SPARE] == 1
        assert await host.stores.attempts.load(7) is None
        await asyncio.sleep(9)
        assert worker.counters.jobs_failed == 3
        assert host.outcomes()[JobOutcome.NO_SPARE] == 2
        await asyncio.sleep(900)
        assert worker.counters.jobs_failed > 5
        assert host.outcomes()[JobOutcome.NO_SPARE] == 2, "a ledger has few lines"
        note = await host.stores.attempts.load(7)
        assert note is not None
        assert note.value.refusal == "no_spare"
        assert note.value.count == worker.counters.jobs_failed
        record = await host.stores.ledgers.load(7)
        empty = LedgerMetadata(Quorum(2, 2, 1), (Fragment(0, ("b0", "b1")),), has_password=True)
        empty = empty.closed(last_entry_id=-1, length=0)
        await host.stores.ledgers.write(7, empty, record.version)
        await asyncio.sleep(400)
        assert host.outcomes()[JobOutcome.HEALED] == 1
        assert await host.stores.attempts.load(7) is None


async def test_queues_are_walked_only_after_a_change_or_a_pause(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    for ledger_id in range(5):
        await host.stores.ledgers.create(ledger_id, CLOSED)
        await host.stores.marks.mark(ledger_id, ["b2"])
    walk, walks = host.stores.marks.walk, 0

    def counted(*args: Any) -> Any:
        nonlocal walks
        walks += 1
        return walk(*args)

    monkeypatch.setattr(host.stores.marks, "walk", counted)
    async with host.running() as worker:
        await asyncio.sleep(POLL_SECONDS - 1)
    assert worker.counters.jobs_failed >= 10
    assert walks <= 3


async def test_the_number_of_jobs_is_bounded(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "JOBS_OPEN_MAX", 3)
    open_ledger = replace(CLOSED, state=LedgerState.OPEN, last_entry_id=-1, length=0)
    for ledger_id in range(5):
        await host.stores.ledgers.create(ledger_id, open_ledger)
        await host.stores.marks.mark(ledger_id, ["b2"])
    async with host.running(jobs_max=2) as worker:
        await asyncio.sleep(20)
        assert len(worker.progress().tasks) == 3


async def test_a_disabled_worker_begins_no_job(host: Host) -> None:
    await host.stores.recovery_switch.disable()
    await host.stores.ledgers.create(7, CLOSED)
    await host.stores.marks.mark(7, ["b2"])
    async with host.running() as worker:
        await asyncio.sleep(60)
        assert (worker.progress().state, host.outcomes()) == ("disabled", Counter())
        await host.stores.recovery_switch.enable()
        await asyncio.sleep(1)
        assert host.outcomes()[JobOutcome.NO_SPARE] == 1


async def test_a_ledger_that_another_worker_heals_is_not_reported(
    host: Host, other: MetadataStores
) -> None:
    await host.stores.ledgers.create(7, CLOSED)
    await host.stores.marks.mark(7, ["b2"])
    assert await other.replication_locks.acquire(7, "other") is not None
    async with host.running():
        await asyncio.sleep(60)
    assert host.events == []


async def test_the_rate_is_that_since_the_last_report(host: Host) -> None:
    worker = host.worker()
    worker.progress()
    for copied, rate in ((3_000, 1_500), (0, 0), (500, 250)):
        worker.counters.bytes_copied += copied
        await asyncio.sleep(2)
        assert worker.progress().bytes_per_second == rate


def test_the_ledgers_whose_last_entries_are_remembered_are_bounded() -> None:
    quiet = QuietLedgers()
    for ledger_id in range(LEDGERS_MAX + 5):
        quiet.measure(ledger_id, 0, 0.0)
    assert len(quiet._seen) == LEDGERS_MAX
    assert quiet.measure(LEDGERS_MAX, 0, 7.0) == 7
    assert quiet.measure(0, 0, 7.0) == 0, "forgotten"


async def test_a_session_that_ends_while_jobs_begin_keeps_no_ledger_from_the_worker(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job is cancelled before its first step, because the session ended during the look."""
    await host.stores.ledgers.create(3, CLOSED)
    await host.stores.marks.mark(3, ["b2"])
    walk = host.stores.moves.walk
    has_ended = False

    async def ended(after: int = -1) -> AsyncIterator[int]:
        nonlocal has_ended
        async for one in walk(after):
            yield one
        if not has_ended:
            has_ended = True
            host.stores.tree.expire_session()  # type: ignore[attr-defined]
            await asyncio.sleep(12)  # the worker has noticed the new session before the answer

    monkeypatch.setattr(host.stores.moves, "walk", ended)
    async with host.running() as worker:
        await asyncio.sleep(60)
        assert ("session_lost", "w") in host.events
        assert worker.counters.jobs_failed > 0, "the ledger was tried"
