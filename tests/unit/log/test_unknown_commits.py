"""A commit with an unknown outcome, and its job: no advice leads to duplicate rows."""

from __future__ import annotations

from typing import Any

import pytest

from ledgerlog_spark.errors import (
    CommitUnknownError,
    MetadataUnknownError,
    ProducerFencedError,
)
from ledgerlog_spark.log.log import Log
from ledgerlog_spark.protocol.log.commit import commit as commits
from ledgerlog_spark.protocol.log.commit.result import CommitStatus
from tests.unit.log.log_world import DAY_MS, SCHEMA, LogWorld, write

HISTORY = "`ledgerlog logs history flights`"


async def with_lost_reply(
    log: Log, monkeypatch: pytest.MonkeyPatch, **job: Any
) -> tuple[Any, list[Any], CommitUnknownError]:
    """A job whose commit succeeded, but whose reply was lost."""
    monkeypatch.setattr(commits, "UNKNOWN_MAX", 0)
    begun = await log.begin(schema=SCHEMA, **job)
    staged = [await write(log, begun, "x")]
    store, write_head = log.host.store, log.host.store.write_head

    async def lost(*arguments: Any) -> Any:
        await write_head(*arguments)
        raise MetadataUnknownError("the connection was lost after the request was sent")

    monkeypatch.setattr(store, "write_head", lost)
    with pytest.raises(CommitUnknownError) as unknown:
        await log.commit(begun, staged)
    monkeypatch.setattr(store, "write_head", write_head)
    return begun, staged, unknown.value


async def test_a_retry_after_the_staging_time_tells_where_the_rows_may_be(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await world.logs().create("flights")
    job, staged, unknown = await with_lost_reply(log, monkeypatch)
    assert HISTORY in unknown.message
    world.skip(8 * DAY_MS)
    for _ in range(2):
        await world.logs().sweeper().sweep_all()
    with pytest.raises(ProducerFencedError, match="no longer has producer") as gone:
        await log.commit(job, staged)
    assert HISTORY in gone.value.message
    assert "changed nothing" in gone.value.message
    assert (gone.value.definite, gone.value.retriable) == (True, False)
    assert [version.rows for version in await log.history()][-1] == 30


async def test_a_retry_within_the_staging_time_finds_the_batch(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await world.logs().create("flights")
    job, staged, _ = await with_lost_reply(log, monkeypatch)
    assert (await log.commit(job, staged)).status is CommitStatus.ALREADY_COMMITTED


async def test_a_named_batch_is_committed_again_under_its_numbers(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await world.logs().create("flights")
    _, _, unknown = await with_lost_reply(log, monkeypatch, app="daily", batch_id=3)
    assert unknown.message.endswith("commit it again with the same producer and batch id")
    again = await log.begin(schema=SCHEMA, app="daily", batch_id=3)
    assert again.is_replay


async def test_a_job_that_is_committed_twice_tells_that_its_rows_may_be_there(
    world: LogWorld,
) -> None:
    log = await world.logs().create("flights")
    job = await log.begin(schema=SCHEMA)
    staged = [await write(log, job, "x")]
    await log.commit(job, staged, is_last=True)
    with pytest.raises(ProducerFencedError, match="the job was committed before") as gone:
        await log.commit(job, staged)
    assert HISTORY in gone.value.message
    assert (await log.state()).head.version == 1
