"""Commits that expect the version that a job read (LOGS.md#K17)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from ledgerlog_spark.errors import ConcurrentCommitError, LocalProtocolError
from ledgerlog_spark.model import Versioned
from ledgerlog_spark.protocol.ledger.messages import MetadataOutcome
from ledgerlog_spark.protocol.log import messages as m
from ledgerlog_spark.protocol.log.commit.result import CommitStatus
from ledgerlog_spark.protocol.log.state.records import WriteMode
from tests.unit.log.log_values import token
from tests.unit.log.log_world import SCHEMA, LogWorld, commit, of, payloads, write
from tests.unit.log.test_log_commit import REQUEST, Session

MODES = (WriteMode.APPEND, WriteMode.OVERWRITE)


def expecting(version: int, **changes: Any) -> Session:
    return Session(replace(REQUEST, expected_version=version, **changes))


def overtake(session: Session) -> None:
    """Another producer commits a version between the request and its answer."""
    head = session.log.head
    other = replace(head.value, token=token(99), version=head.value.version + 1)
    session.log.head = Versioned(other, replace(head.version, number=head.version.number + 1))


@pytest.mark.parametrize("mode", MODES)
def test_a_commit_on_the_expected_version_is_a_commit_like_any_other(mode: WriteMode) -> None:
    assert expecting(0, mode=mode).result().status is CommitStatus.COMMITTED


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("expected", [1, 7])
def test_a_log_with_another_version_is_refused_before_any_write(
    mode: WriteMode, expected: int
) -> None:
    session = expecting(expected, mode=mode, planned_version=0)
    error = session.error()
    assert isinstance(error, ConcurrentCommitError)
    assert (error.definite, error.retriable) == (True, False)
    assert (error.fields["version"], error.fields["expected_version"]) == (0, expected)
    assert session.log.heads_written == 0


def test_the_version_is_compared_again_when_a_transaction_was_overtaken() -> None:
    session = expecting(0)
    session.until(m.WriteHead)
    overtake(session)
    session.written(MetadataOutcome.CONFLICT)
    assert isinstance(session.error(), ConcurrentCommitError)
    assert session.log.heads_written == 0


def test_a_commit_with_a_lost_reply_is_recognised_although_the_version_moved() -> None:
    session = expecting(0)
    session.lose_reply()
    result = session.result()
    assert (result.status, result.version) == (CommitStatus.COMMITTED, 1)
    assert session.log.heads_written == 1


def test_a_commit_with_a_lost_reply_is_recognised_also_behind_the_commit_of_another() -> None:
    session = expecting(0)
    session.lose_reply()
    overtake(session)
    assert session.result().status is CommitStatus.COMMITTED


def test_a_lost_request_that_another_commit_overtook_fails_for_certain() -> None:
    session = expecting(0)
    session.lose_request()
    overtake(session)
    error = session.error()
    assert isinstance(error, ConcurrentCommitError)
    assert error.definite
    assert session.log.heads_written == 0


def test_a_batch_that_is_in_the_log_is_a_replay_whatever_version_it_expected() -> None:
    session = expecting(0)
    assert session.result().status is CommitStatus.COMMITTED
    again = Session(session.machine._request)
    again.log = session.log
    assert again.result().status is CommitStatus.ALREADY_COMMITTED


def test_an_append_without_rows_compares_the_version_too() -> None:
    assert isinstance(expecting(1, ranges=()).error(), ConcurrentCommitError)
    assert expecting(0, ranges=()).result().status is CommitStatus.NOTHING_TO_COMMIT


def test_what_an_earlier_commit_left_proves_no_version() -> None:
    """The kept state has the version, but another process has committed in the meantime."""
    session = Session()
    session.result()
    known = session.machine.known_after
    assert known is not None
    assert known.may_precede(replace(REQUEST, batch_id=4))
    assert not known.may_precede(replace(REQUEST, batch_id=4, expected_version=1))


@pytest.mark.parametrize("mode", MODES)
async def test_jobs_that_read_one_version_are_committed_once(
    world: LogWorld, mode: WriteMode
) -> None:
    log = await world.logs().create("flights")
    await commit(log, "x")
    jobs = [await log.begin(schema=SCHEMA, mode=mode, expected_version=1) for _ in "yz"]
    staged = [await write(log, job, name) for job, name in zip(jobs, "yz", strict=True)]
    await log.commit(jobs[0], [staged[0]])
    with pytest.raises(ConcurrentCommitError, match=r"at version 2, and the write expects .* 1"):
        await log.commit(jobs[1], [staged[1]])
    assert {each[:1] for each in await payloads(log)} == {
        WriteMode.APPEND: {b"x", b"y"},
        WriteMode.OVERWRITE: {b"y"},
    }[mode]


@pytest.mark.parametrize("reads", [True, False], ids=["begin reads", "its caller read"])
async def test_a_job_of_an_old_version_does_not_begin(world: LogWorld, *, reads: bool) -> None:
    log = await world.logs().create("flights")
    for name in "xy":
        await commit(log, name)
    producers = await world.logs().store.producers.names(log.log_id)
    planned = None if reads else await log.state()
    with pytest.raises(ConcurrentCommitError):
        await log.begin(schema=SCHEMA, expected_version=1, planned=planned)
    assert await world.logs().store.producers.names(log.log_id) == producers


async def test_a_named_batch_that_is_in_the_log_begins_as_a_replay(world: LogWorld) -> None:
    log = await world.logs().create("flights")
    how: dict[str, Any] = {"schema": SCHEMA, "app": "daily", "batch_id": 3, "expected_version": 0}
    job = await log.begin(**how)
    await log.commit(job, [await write(log, job, "x")])
    again = await log.begin(**how)
    assert again.is_replay
    assert (await log.commit(again, [])).status is CommitStatus.ALREADY_COMMITTED


async def test_a_restore_compares_the_version(world: LogWorld) -> None:
    log = await world.logs().create("flights")
    for name in "xy":
        await commit(log, name)
    for is_forced in (False, True):
        with pytest.raises(ConcurrentCommitError):
            await log.restore(1, expected_version=1, overwrite_if_changed=is_forced)
    assert (await log.restore(1, expected_version=2)).version == 3
    assert await payloads(log) == of("x")


async def test_a_restore_that_was_overtaken_after_its_plan_is_refused(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await world.logs().create("flights")
    for name in "xy":
        await commit(log, name)
    take_over = type(log.commits).take_over

    async def overtaken(commits: Any, job: Any, **how: Any) -> Any:
        monkeypatch.setattr(type(log.commits), "take_over", take_over)
        await commit(log, "z")
        return await take_over(commits, job, **how)

    monkeypatch.setattr(type(log.commits), "take_over", overtaken)
    with pytest.raises(ConcurrentCommitError, match=r"at version 3, and the write expects .* 2"):
        await log.restore(1, overwrite_if_changed=True, expected_version=2)
    assert await payloads(log) == of("x", "y", "z")


async def test_a_version_is_a_number(world: LogWorld) -> None:
    log = await world.logs().create("flights")
    wrong: Any = "1"
    with pytest.raises(LocalProtocolError, match="expected_version"):
        await log.begin(schema=SCHEMA, expected_version=wrong)
    with pytest.raises(LocalProtocolError, match="expected_version"):
        await log.restore(0, expected_version=wrong)


async def test_three_writers_that_add_one_to_what_they_read_lose_no_update(
    world: LogWorld,
) -> None:
    """The number of entries is the value of a version: each writer replaces k entries by k + 1."""
    log = await world.logs().create("counter")
    await commit(log, "x")
    successes = 0

    async def updates() -> None:
        nonlocal successes
        for _ in range(5):
            snapshot = await log.snapshot()
            version, value = snapshot.interval.version, snapshot.interval.rows // 10
            try:
                job = await log.begin(
                    schema=SCHEMA, mode=WriteMode.OVERWRITE, expected_version=version
                )
                await log.commit(job, [await write(log, job, "x", value + 1)])
            except ConcurrentCommitError:
                continue
            successes += 1

    before = (await log.snapshot()).interval.rows // 10
    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(updates())
    assert successes >= 5
    assert (await log.snapshot()).interval.rows // 10 == before + successes
