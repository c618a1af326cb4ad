"""A commit, and every other change of a log with a waiting caller, has an overall deadline."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from ledgerlog_spark.errors import (
    CommitUnknownError,
    LogTimeoutError,
    MetadataUnknownError,
)
from ledgerlog_spark.log.host import CHANGE_TIMEOUT_MS
from ledgerlog_spark.protocol.log.commit.result import CommitStatus
from ledgerlog_spark.protocol.log.read.versions import SnapshotMachine
from tests.unit.log.log_world import SCHEMA, LogWorld, payloads, write

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

SLOW_SECONDS = 14
"""Duration of a request. A store with a time limit of 15 s never ends it with an error."""


def slow_after(call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Carry out the request, and answer late."""

    async def called(*how: Any, **named: Any) -> Any:
        done = await call(*how, **named)
        await asyncio.sleep(SLOW_SECONDS)
        return done

    return called


async def never(*_: object, **__: object) -> Any:
    await asyncio.Event().wait()


async def fails_late(*_: object, **__: object) -> Any:
    await asyncio.sleep(SLOW_SECONDS)
    raise MetadataUnknownError("no answer")


@pytest.mark.parametrize(
    "request_name", ["sync", "read_head", "producers.read", "producers.registered"]
)
async def test_commit_that_gets_no_answer_to_a_read_ends_in_time_and_happened_not(
    world: LogWorld, request_name: str
) -> None:
    log = await world.logs().create("flights")
    job = await log.begin(schema=SCHEMA)
    ranges = [await write(log, job, "a")]
    store: Any = log.host.store
    part, _, request_name = request_name.rpartition(".")
    requests = getattr(store, part) if part else store
    call = getattr(requests, request_name)
    setattr(requests, request_name, never)
    loop = asyncio.get_running_loop()
    began = loop.time()
    with pytest.raises(LogTimeoutError, match="the log was not changed") as failed:
        await log.commit(job, ranges, timeout_ms=5_000)
    assert 5 <= loop.time() - began < 6
    error = failed.value
    assert (error.definite, error.retriable, error.timeout_ms) == (True, True, 5_000)
    setattr(requests, request_name, call)
    assert (await log.commit(job, ranges)).status is CommitStatus.COMMITTED


@pytest.mark.parametrize("timeout_ms", [None, 5_000])
async def test_a_deadline_of_somebody_else_is_not_that_of_the_change(
    world: LogWorld, timeout_ms: int | None
) -> None:
    log = await world.logs().create("flights")
    store: Any = log.host.store

    async def times_out(*_: object) -> None:
        raise TimeoutError("a socket's")

    store.read_head = times_out
    with pytest.raises(TimeoutError, match="a socket's"):
        await log.host.run(SnapshotMachine("flights"), timeout_ms=timeout_ms)


@pytest.mark.parametrize("is_carried_out", [False, True])
async def test_commit_whose_transaction_is_out_at_the_deadline_is_unknown(
    world: LogWorld, is_carried_out: bool
) -> None:
    log = await world.logs().create("flights")
    job = await log.begin(schema=SCHEMA)
    ranges = [await write(log, job, "a")]
    store: Any = log.host.store
    call = store.write_head
    store.write_head = slow_after(call) if is_carried_out else never
    with pytest.raises(CommitUnknownError) as failed:
        await log.commit(job, ranges, timeout_ms=5_000)
    assert (failed.value.definite, failed.value.timeout_ms) == (False, 5_000)
    store.write_head = call
    wanted = CommitStatus.ALREADY_COMMITTED if is_carried_out else CommitStatus.COMMITTED
    assert (await log.commit(job, ranges)).status is wanted
    assert await payloads(log) == [b"a 0", b"a 1", b"a 2"]


async def test_commit_whose_transaction_was_not_answered_is_unknown_while_it_is_settled(
    world: LogWorld,
) -> None:
    log = await world.logs().create("flights")
    job = await log.begin(schema=SCHEMA)
    ranges = [await write(log, job, "a")]
    store: Any = log.host.store
    store.write_head = fails_late
    loop = asyncio.get_running_loop()
    began = loop.time()
    with pytest.raises(CommitUnknownError):
        await log.commit(job, ranges)
    assert loop.time() - began <= CHANGE_TIMEOUT_MS / 1e3 + 1


@pytest.mark.parametrize("change", ["truncate", "set_properties"])
@pytest.mark.parametrize("answer", [never, fails_late])
async def test_other_changes_have_the_same_deadline(
    world: LogWorld, change: str, answer: Any
) -> None:
    log = await world.logs().create("flights")
    job = await log.begin(schema=SCHEMA)
    await log.commit(job, [await write(log, job, "a")])
    store: Any = log.host.store
    store.write_head = answer
    loop = asyncio.get_running_loop()
    began = loop.time()
    with pytest.raises(LogTimeoutError, match="may have been changed") as failed:
        await (log.truncate(10) if change == "truncate" else log.set_properties({"rollMs": "1"}))
    assert not failed.value.definite
    assert loop.time() - began <= CHANGE_TIMEOUT_MS / 1e3 + 1


async def test_job_that_cannot_begin_ends_in_time(world: LogWorld) -> None:
    log = await world.logs().create("flights")
    store: Any = log.host.store
    store.producers.write = fails_late
    loop = asyncio.get_running_loop()
    began = loop.time()
    with pytest.raises((LogTimeoutError, MetadataUnknownError)) as failed:
        await log.begin(schema=SCHEMA)
    assert not failed.value.definite
    assert loop.time() - began <= CHANGE_TIMEOUT_MS / 1e3 + 1
