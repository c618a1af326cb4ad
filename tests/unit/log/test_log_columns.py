"""What fixes a log's columns, and what replaces them (LOGS.md#G6, LOGS.md#K8)."""

from __future__ import annotations

from typing import Any

import pytest

from ledgerlog_spark.errors import ConcurrentCommitError
from ledgerlog_spark.protocol.log.commit.result import CommitStatus
from ledgerlog_spark.protocol.log.state.records import WriteMode
from tests.unit.log.log_world import DAY_MS, SCHEMA, LogWorld, commit, payloads, write

OTHER = SCHEMA + b"other"
WIDER = SCHEMA + b"wider"


async def schema_of(log: Any, version: int | None = None) -> bytes:
    schema = (await log.snapshot(version)).schema
    assert schema is not None
    return bytes(schema)


async def test_the_first_commit_has_its_own_columns_whatever_a_failed_write_made_the_log_with(
    world: LogWorld,
) -> None:
    log = await world.logs().create("flights", schema=OTHER)
    await log.abort(await log.begin(schema=OTHER))
    job = await log.begin(schema=SCHEMA)
    await log.commit(job, [await write(log, job, "x")])
    assert await schema_of(log) == SCHEMA
    assert [item.schema_id for item in (await log.snapshot()).items] == [1]
    assert await payloads(log) == [b"x 0", b"x 1", b"x 2"]


@pytest.mark.parametrize("replaces_first", [True, False])
async def test_of_two_first_writes_with_different_columns_one_is_committed(
    world: LogWorld, replaces_first: bool
) -> None:
    log = await world.logs().create("flights", schema=OTHER)
    jobs = [await log.begin(schema=schema) for schema in (OTHER, SCHEMA)]
    staged = [await write(log, job, "x") for job in jobs]
    order = (1, 0) if replaces_first else (0, 1)
    await log.commit(jobs[order[0]], [staged[order[0]]])
    before = await log.state()
    with pytest.raises(ConcurrentCommitError):
        await log.commit(jobs[order[1]], [staged[order[1]]])
    assert (await log.state()).head == before.head
    assert await schema_of(log) == (SCHEMA if replaces_first else OTHER)


async def test_two_first_writes_with_the_columns_of_the_log_stand_beside_each_other(
    world: LogWorld,
) -> None:
    log = await world.logs().create("flights", schema=SCHEMA)
    jobs = [await log.begin(schema=SCHEMA) for _ in "xy"]
    for job, name in zip(jobs, "xy", strict=True):
        await log.commit(job, [await write(log, job, name)])
    assert [payload[:1] for payload in await payloads(log)] == [*[b"x"] * 3, *[b"y"] * 3]


async def test_the_first_commit_fixes_the_columns_also_without_rows(world: LogWorld) -> None:
    log = await world.logs().create("flights", schema=OTHER)
    jobs = [await log.begin(schema=SCHEMA) for _ in range(2)]
    statuses = [(await log.commit(job, [])).status for job in jobs]
    assert statuses == [CommitStatus.COMMITTED, CommitStatus.NOTHING_TO_COMMIT]
    assert (await log.state()).head.version == 1
    assert await schema_of(log) == SCHEMA
    assert await payloads(log) == []


async def test_an_overwrite_replaces_the_columns_and_older_versions_keep_theirs(
    world: LogWorld,
) -> None:
    log = await world.logs().create("flights")
    await commit(log, "x")
    for schema in (OTHER, SCHEMA):  # back to columns that the log had
        job = await log.begin(schema=schema, mode=WriteMode.OVERWRITE)
        await log.commit(job, [await write(log, job, "y")])
    assert [await schema_of(log, version) for version in (1, 2, 3)] == [SCHEMA, OTHER, SCHEMA]
    assert await schema_of(log) == SCHEMA


async def test_columns_that_a_restore_took_away_come_back_with_the_rows_that_have_them(
    world: LogWorld,
) -> None:
    log = await world.logs().create("flights")
    await commit(log, "x")
    wider = await log.begin(schema=WIDER)
    await log.commit(wider, [await write(log, wider, "y")])
    await log.restore(1)
    assert await schema_of(log) == SCHEMA
    again = await log.begin(schema=WIDER)
    await log.commit(again, [await write(log, again, "z")])
    assert await schema_of(log) == WIDER


async def test_restoring_an_empty_version_restores_its_columns_too(world: LogWorld) -> None:
    log = await world.logs().create("flights")
    await commit(log, "x")
    for schema in (SCHEMA, OTHER):
        job = await log.begin(schema=schema, mode=WriteMode.OVERWRITE)
        await log.commit(job, [])
    assert await schema_of(log) == OTHER
    assert (await log.restore(2)).status is CommitStatus.COMMITTED
    assert await schema_of(log) == SCHEMA


async def test_columns_newer_than_the_current_ones_survive_the_sweeper(world: LogWorld) -> None:
    """Wide columns fill pages of their own, of which an index page names all but the last."""
    logs = world.logs()
    log = await logs.create("flights")
    schemas = [b"%06d" % number * 40_000 for number in range(16)]
    for schema in (*schemas, schemas[0]):
        job = await log.begin(schema=schema, mode=WriteMode.OVERWRITE)
        await log.commit(job, [])
    head = (await log.state()).head
    assert head.schemas.index
    assert head.schema_id == 0
    world.skip(DAY_MS)
    await logs.sweeper().sweep(log.log_id)
    assert [await schema_of(log, version) for version in range(1, 17)] == schemas
    assert list((await log.state()).schemas.values()) == schemas
