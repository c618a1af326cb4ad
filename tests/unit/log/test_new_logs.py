"""The end of a job that created its log (LOGS.md#K10, LOGS.md#K19)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ledgerlog_spark.errors import (
    LogNotFoundError,
    MetadataUnavailableError,
    ProducerFencedError,
)
from ledgerlog_spark.metadata.logs.store import LogStore
from ledgerlog_spark.protocol.log.commit.result import CommitStatus
from ledgerlog_spark.testing.memory.tree import Fault, MemoryTree
from tests.unit.log.log_world import DAY_MS, SCHEMA, LogWorld, commit, write

if TYPE_CHECKING:
    from ledgerlog_spark.log.committing.job import Job
    from ledgerlog_spark.log.log import Log


async def created(world: LogWorld, **how: Any) -> tuple[Log, Job]:
    """A new log, and the job for which it was created."""
    log = await world.logs().create("flights", schema=SCHEMA)
    return log, await log.begin(schema=SCHEMA, is_log_new=True, **how)


async def exists(world: LogWorld) -> bool:
    return "flights" in await world.logs().names()


@pytest.mark.parametrize("app", [None, "daily"])
async def test_an_aborted_job_deletes_the_log_that_was_created_for_it(
    world: LogWorld, app: str | None
) -> None:
    log, job = await created(world, app=app)
    staged = await write(log, job, "x")
    await log.abort(job)
    assert not await exists(world)
    with pytest.raises((LogNotFoundError, ProducerFencedError)):
        await log.commit(job, [staged])
    await log.abort(job)
    await world.logs().create("flights")
    await log.abort(job)
    assert await exists(world), "it is another log"


async def test_what_the_job_wrote_goes_with_the_log(world: LogWorld) -> None:
    log, job = await created(world)
    ledgers = {(await write(log, job, name)).ledger_id for name in "xy"}
    await log.abort(job)
    world.skip(2 * DAY_MS)
    swept, errors = await world.logs().sweeper().sweep_all()
    assert not errors
    assert [(each.is_removed, each.ledgers_deleted) for each in swept] == [(True, len(ledgers))]
    assert not await world.logs().store.ids()


async def test_an_abort_after_the_commit_changes_nothing(world: LogWorld) -> None:
    log, job = await created(world, app="daily")
    await log.commit(job, [await write(log, job, "x")])
    before = await log.state()
    await log.abort(job)
    assert await log.state() == before
    assert await log.has_batch("daily", 0)


async def test_a_log_that_others_wrote_to_meanwhile_stays(world: LogWorld) -> None:
    log, job = await created(world)
    await commit(log, "x")
    await log.abort(job)
    assert (await log.state()).head.version == 1


@pytest.mark.parametrize("app", [None, "daily"])
async def test_a_log_in_which_another_job_has_begun_stays_for_that_job(
    world: LogWorld, app: str | None
) -> None:
    log, job = await created(world, app=app)
    other = await log.begin(schema=SCHEMA, app=app)
    await log.abort(job)
    assert await exists(world)
    result = await log.commit(other, [await write(log, other, "x")])
    assert result.status is CommitStatus.COMMITTED


async def test_a_log_with_changed_properties_stays(world: LogWorld) -> None:
    log, job = await created(world)
    await log.set_properties({"retentionMs": "1000"})
    await log.abort(job)
    assert await exists(world)


async def test_a_job_of_an_existing_log_deletes_nothing(world: LogWorld) -> None:
    log = await world.logs().create("flights")
    await log.abort(await log.begin(schema=SCHEMA))
    assert await exists(world)


def between(monkeypatch: pytest.MonkeyPatch, others: Any) -> None:
    """Run `others` after all reads of an abort and before its transaction."""
    delete = LogStore.delete_log

    async def delete_log(store: LogStore, *head: Any, **producers: Any) -> None:
        monkeypatch.setattr(LogStore, "delete_log", delete)
        await others()
        await delete(store, *head, **producers)

    monkeypatch.setattr(LogStore, "delete_log", delete_log)


async def test_a_commit_between_the_reads_and_the_deletion_keeps_the_log(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, job = await created(world)
    between(monkeypatch, lambda: commit(log, "x"))
    await log.abort(job)
    assert (await log.state()).head.version == 1


async def test_a_job_that_begins_between_the_reads_and_the_deletion_keeps_the_log(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, job = await created(world)
    between(monkeypatch, lambda: log.begin(schema=SCHEMA))
    await log.abort(job)
    assert await exists(world)
    assert len(await world.logs().store.producers.names(log.log_id)) == 2


async def test_a_ledger_between_the_reads_and_the_deletion_is_marked_by_another_attempt(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, job = await created(world, app="daily")
    between(monkeypatch, lambda: write(log, job, "x"))
    await log.abort(job)
    assert not await exists(world)
    assert len(await world.logs().store.producers.marked(log.log_id)) == 1


async def test_a_job_that_failed_stays_replaced_if_the_log_stays(world: LogWorld) -> None:
    """A new record would not name the failed run, and would have the old version numbers."""
    log, job = await created(world, app="daily", run="failed")
    producers = world.logs().store.producers
    before = await producers.read(log.log_id, "daily")
    assert before is not None
    await log.begin(schema=SCHEMA)
    await log.abort(job)
    later = await log.begin(schema=SCHEMA, app="daily", run="later")
    after = await producers.read(log.log_id, "daily")
    assert after is not None
    assert after.version.incarnation == before.version.incarnation
    assert after.value.runs == ("failed", "later")
    with pytest.raises(ProducerFencedError):
        await log.commits.open_ledger(job)
    result = await log.commit(later, [await write(log, later, "x")])
    assert result.status is CommitStatus.COMMITTED


async def test_a_change_between_the_reads_and_the_deletion_keeps_the_log(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, job = await created(world)
    between(monkeypatch, lambda: log.set_properties({"retentionMs": "1000"}))
    await log.abort(job)
    assert await exists(world)


async def test_a_job_that_begins_on_a_log_deleted_meanwhile_is_told_so_at_once(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, job = await created(world)
    take_over = type(log.commits).take_over

    async def late(commits: Any, begun: Any, **how: Any) -> Any:
        monkeypatch.setattr(type(log.commits), "take_over", take_over)
        await log.abort(job)
        return await take_over(commits, begun, **how)

    monkeypatch.setattr(type(log.commits), "take_over", late)
    with pytest.raises(LogNotFoundError) as raised:
        await log.begin(schema=SCHEMA)
    assert raised.value.definite


@pytest.mark.parametrize("fault", [Fault.REPLY_LOST, Fault.REQUEST_LOST])
async def test_a_lost_reply_of_the_deletion_is_resolved_by_reading(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    log, job = await created(world)
    transact = MemoryTree.transact
    lost: list[Fault] = []

    async def losing(tree: MemoryTree, operations: Any) -> Any:
        if not lost and any(each.path.endswith("/deleted") for each in operations):
            lost.append(fault)
            tree.inject(fault)
        return await transact(tree, operations)

    monkeypatch.setattr(MemoryTree, "transact", losing)
    await log.abort(job)
    assert lost
    assert not await exists(world)


async def test_a_store_that_cannot_be_reached_is_an_error(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, job = await created(world)

    async def unreachable(*_: Any) -> Any:
        raise MetadataUnavailableError("the store does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(MemoryTree, "transact", unreachable)
        with pytest.raises(MetadataUnavailableError):
            await log.abort(job)
    assert await exists(world)
    await log.abort(job)
    assert not await exists(world)


async def test_a_log_without_a_job_is_deleted_when_it_is_unused(world: LogWorld) -> None:
    log = await world.logs().create("flights")
    assert await log.delete_if_unused()
    assert not await exists(world)
    assert await log.delete_if_unused()
    again = await world.logs().create("flights")
    await again.begin(schema=SCHEMA)
    assert not await again.delete_if_unused()
    assert await exists(world)


async def test_a_batch_is_found_without_a_change(world: LogWorld) -> None:
    log = await world.logs().create("flights")
    assert not await log.has_batch("daily", 0)
    assert not await world.logs().store.producers.names(log.log_id)
    job = await log.begin(schema=SCHEMA, app="daily", batch_id=3)
    assert not await log.has_batch("daily", 3)
    await log.commit(job, [await write(log, job, "x")])
    found = [await log.has_batch("daily", batch_id) for batch_id in (2, 3, 4)]
    assert found == [True, True, False]
