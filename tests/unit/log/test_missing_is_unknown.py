"""If a read finds something empty or missing, this does not prove that it never existed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ledgerlog_spark.errors import (
    DataLossError,
    LedgerLogError,
    LogNotFoundError,
    MetadataUnavailableError,
    MetadataUnknownError,
    StaleCheckpointError,
)
from ledgerlog_spark.protocol.ledger.messages import MetadataOutcome
from ledgerlog_spark.protocol.log import messages as m
from ledgerlog_spark.protocol.log.change.truncate import TruncateMachine
from ledgerlog_spark.protocol.log.commit.commit import CommitMachine
from ledgerlog_spark.protocol.log.commit.epoch import EpochMachine, JobKind, Joined
from ledgerlog_spark.protocol.log.commit.plan import CommitRequest
from ledgerlog_spark.protocol.log.commit.result import CommitStatus
from ledgerlog_spark.protocol.log.properties import PropertiesMachine
from ledgerlog_spark.protocol.log.read.versions import StateMachine
from ledgerlog_spark.protocol.log.state.records import (
    RUNS_REMEMBERED_MAX,
    ProducerRecord,
    WriteMode,
)
from tests.unit.log.log_values import OneLog, full_statistics, staged, token
from tests.unit.log.log_world import DAY_MS, SCHEMA, LogWorld, commit, of, payloads, write


async def stream_batch(log: Any, run: str, batch_id: int, name: str) -> CommitStatus:
    job = await log.begin(
        schema=SCHEMA, app="monthly", run=run, batch_id=batch_id, kind=JobKind.STREAM
    )
    result = await log.commit(job, [await write(log, job, f"{name}{part}") for part in "ab"])
    status: CommitStatus = result.status
    return status


async def test_another_query_is_refused_also_after_the_producer_was_idle_for_long(
    world: LogWorld,
) -> None:
    logs = world.logs()
    log = await logs.create("flights")
    await stream_batch(log, "query-1/first", 0, "x")
    await stream_batch(log, "query-1/second", 1, "y")
    for _ in range(3):
        world.skip(31 * DAY_MS)
        await logs.sweeper().sweep(log.log_id)
    for batch_id in (0, 1, 2):
        with pytest.raises(StaleCheckpointError):
            await log.begin(
                app="monthly", run="query-2/run", batch_id=batch_id, kind=JobKind.STREAM
            )
    again = await stream_batch(log, "query-1/third", 1, "y again")
    assert again is CommitStatus.ALREADY_COMMITTED
    assert await stream_batch(log, "query-1/third", 2, "z") is CommitStatus.COMMITTED
    assert await payloads(log) == of("x", "y", "z")


async def test_job_under_the_name_of_a_stream_is_refused_and_not_taken_for_one_of_its_batches(
    world: LogWorld,
) -> None:
    log = await world.logs().create("flights")
    await stream_batch(log, "query/run", 0, "x")
    await stream_batch(log, "query/run", 1, "y")
    for batch_id in (0, 1):
        with pytest.raises(StaleCheckpointError, match="a streaming query writes") as caught:
            await log.begin(schema=SCHEMA, app="monthly", batch_id=batch_id)
        assert caught.value.definite
    await log.begin(schema=SCHEMA, app="weekly", batch_id=1)
    job = await log.begin(schema=SCHEMA, app="weekly", batch_id=1)
    assert not job.is_replay
    await log.commit(job, [await write(log, job, "z")])
    assert (await log.begin(schema=SCHEMA, app="weekly", batch_id=1)).is_replay
    assert await stream_batch(log, "query/run", 2, "v") is CommitStatus.COMMITTED


async def test_shrinking_keeps_the_last_run_and_writes_nothing_when_it_is_the_only_one(
    world: LogWorld,
) -> None:
    logs = world.logs()
    log = await logs.create("flights")
    for number in range(3):
        await stream_batch(log, f"query/{number}", number, "x")
    store, sweeper = logs.store, logs.sweeper()
    world.skip(29 * DAY_MS)
    await sweeper.sweep(log.log_id)
    young = await store.producers.read(log.log_id, "monthly")
    assert young is not None
    assert young.value.runs == ("query/0", "query/1", "query/2")
    world.skip(2 * DAY_MS)
    await sweeper.sweep(log.log_id)
    shrunk = await store.producers.read(log.log_id, "monthly")
    assert shrunk is not None
    assert shrunk.value == replace(young.value, runs=("query/2",))
    world.skip(31 * DAY_MS)
    await sweeper.sweep(log.log_id)
    assert await store.producers.read(log.log_id, "monthly") == shrunk


def join(record: ProducerRecord, run: str, batch_id: int) -> Joined:
    log = OneLog()
    log.producer("app", "nobody")
    log.producers["app"] = replace(log.producers["app"], value=record)
    machine = EpochMachine("flights", app="app", run=run, batch_id=batch_id, kind=JobKind.STREAM)
    joined: Joined = log.run(machine)
    return joined


@pytest.mark.parametrize("batch_id", [4, 5])
def test_record_without_a_run_does_not_let_a_query_in_whose_batches_these_may_not_be(
    batch_id: int,
) -> None:
    emptied = ProducerRecord(epoch=3, runs=(), last_batch_id=4)
    with pytest.raises(StaleCheckpointError, match="may belong to another query"):
        join(emptied, "query/run", batch_id)
    assert join(emptied, "run", batch_id).epoch == 4, "the app itself is the query"
    unused = replace(emptied, last_batch_id=-1)
    assert join(unused, "query/run", batch_id).epoch == 4


def test_record_of_a_query_that_restarts_for_ever_stays_small() -> None:
    log = OneLog()
    for number in range(3 * RUNS_REMEMBERED_MAX):
        machine = EpochMachine(
            "flights", app="app", run=f"query/{number}", batch_id=0, kind=JobKind.STREAM
        )
        log.run(machine)
    record = log.producers["app"].value
    assert record.epoch == 3 * RUNS_REMEMBERED_MAX
    assert len(record.runs) == RUNS_REMEMBERED_MAX == 64


def test_head_that_an_unsynchronised_read_does_not_find_is_looked_for_again() -> None:
    machine = StateMachine("flights", is_fresh=False)
    (ask,) = machine.start()
    assert isinstance(ask, m.ReadHead)
    (ask,) = machine.handle(m.HeadRead(ask.request, MetadataOutcome.GONE))
    assert isinstance(ask, m.Sync)
    (ask,) = machine.handle(m.Synced(ask.request, MetadataOutcome.OK))
    assert isinstance(ask, m.ReadHead)
    (end,) = machine.handle(m.HeadRead(ask.request, MetadataOutcome.GONE))
    assert isinstance(end, m.Failed)
    assert isinstance(end.error, LogNotFoundError)


def commit_without_pages(log: OneLog) -> Any:
    """A commit to a log whose head names pages that the store does not have."""
    log.producer("app", "run")
    log.register("app", 9_999)
    version = log.head.value.version
    ranges = tuple(staged(9_999, statistics=full_statistics(9)) for _ in range(40))
    request = CommitRequest("app", "run", 0, ranges, planned_version=version)
    return log.run(CommitMachine("flights", request, token=token(log.new_number())))


class PagelessLog(OneLog):
    """A log whose pages are missing. It counts the reads of pages."""

    is_pageless = False

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0
        for first in range(0, 200, 40):
            self.commit(
                *(staged(n, statistics=full_statistics(n)) for n in range(first, first + 40))
            )
        self.is_pageless = True

    def reply(self, ask: Any) -> Any:
        if self.is_pageless and isinstance(ask, m.ReadPages):
            self.looks += 1
            return m.PagesRead(ask.request, MetadataOutcome.GONE)
        return super().reply(ask)


def test_page_that_is_lost_ends_a_commit_and_a_change_of_the_head_by_its_name() -> None:
    log = PagelessLog()
    with pytest.raises(DataLossError, match="a page of its list that is not there"):
        commit_without_pages(log)
    assert log.looks == 2, "looked for again once, for another may have taken its place"
    log = PagelessLog()
    with pytest.raises(DataLossError, match="a page of its list that is not there"):
        log.run(TruncateMachine("flights", offset=4_000, token=token(log.new_number())))
    assert log.looks == 2


async def test_restore_that_got_through_is_not_an_error_because_its_producer_stays(
    world: LogWorld,
) -> None:
    logs = world.logs()
    log = await logs.create("flights")
    await commit(log, "x")
    await commit(log, "y", mode=WriteMode.OVERWRITE)

    async def fails(*_: Any, **__: Any) -> None:
        raise MetadataUnavailableError("the store went away")

    store: Any = log.host.store
    store.producers.delete = fails
    assert (await log.restore(1)).version == 3
    assert await payloads(log) == of("x")


class AwayLog(OneLog):
    """A log whose first write gets no answer. Later requests fail with `after`."""

    def __init__(self, after: str) -> None:
        super().__init__()
        self.after = after
        self.is_lost = False

    def reply(self, ask: Any) -> Any:
        if isinstance(ask, m.WriteHead | m.WriteProducer):
            self.is_lost = True
            return m.Written(ask.request, MetadataOutcome.UNKNOWN)
        if self.is_lost and self.after == "away":
            return m.Synced(ask.request, MetadataOutcome.UNAVAILABLE)
        if self.is_lost and self.after == "deleted" and isinstance(ask, m.ReadHead):
            return m.HeadRead(ask.request, MetadataOutcome.GONE)
        return super().reply(ask)


@pytest.mark.parametrize("after", ["away", "deleted"])
def test_change_of_the_head_that_may_have_happened_is_never_denied(after: str) -> None:
    machine = PropertiesMachine("flights", {"retentionMs": "5"}, token=token(77))
    with pytest.raises(LedgerLogError) as failed:
        AwayLog(after).run(machine)
    assert not failed.value.definite


def test_epoch_that_may_have_been_taken_is_never_denied() -> None:
    machine = EpochMachine("flights", app="app", run="run", batch_id=0, kind=JobKind.STREAM)
    with pytest.raises(MetadataUnknownError) as failed:
        AwayLog("away").run(machine)
    assert not failed.value.definite
    assert "is unknown" in str(failed.value)
