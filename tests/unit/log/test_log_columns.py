"""Commits that fix a log's columns or replace them (LOGS.md#G6, LOGS.md#K8)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ledgerlog_spark.arrow.spark_types import stored_schema
from ledgerlog_spark.errors import (
    ConcurrentCommitError,
    LogKindError,
    SchemaMismatchError,
    UnauthorizedError,
)
from ledgerlog_spark.log.committing.commits import KnownLogs
from ledgerlog_spark.protocol.log.commit.result import CommitStatus
from ledgerlog_spark.protocol.log.state.records import LogKind, Operation, WriteMode
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
    """Wide columns fill separate pages. An index page names all of these except the last."""
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


async def test_an_append_of_columns_without_rows_is_a_version(world: LogWorld) -> None:
    log = await world.logs().create("flights")
    await commit(log, "x")
    before = await log.snapshot()
    result = await log.commit(await log.begin(schema=WIDER), [])
    assert (result.status, result.version, result.end_offset) == (
        CommitStatus.COMMITTED,
        2,
        before.interval.end_offset,
    )
    after = await log.snapshot()
    assert (after.schema, after.items) == (WIDER, before.items)
    assert (await log.snapshot(1)).schema == SCHEMA
    assert [each.operation for each in await log.history()][1:] == [Operation.APPEND] * 2


async def test_an_append_without_rows_and_without_new_columns_is_nothing(world: LogWorld) -> None:
    log = await world.logs().create("flights")
    await commit(log, "x")
    result = await log.commit(await log.begin(schema=SCHEMA), [])
    assert result.status is CommitStatus.NOTHING_TO_COMMIT
    assert (await log.state()).head.version == 1


async def test_of_two_appends_of_the_same_columns_the_second_is_nothing(world: LogWorld) -> None:
    log = await world.logs().create("flights")
    await commit(log, "x")
    jobs = [await log.begin(schema=WIDER) for _ in range(2)]
    statuses = [(await log.commit(job, [])).status for job in jobs]
    assert statuses == [CommitStatus.COMMITTED, CommitStatus.NOTHING_TO_COMMIT]
    assert (await log.state()).head.version == 2


async def test_of_two_appends_of_different_columns_the_second_is_refused(world: LogWorld) -> None:
    log = await world.logs().create("flights")
    await commit(log, "x")
    jobs = [await log.begin(schema=schema) for schema in (WIDER, OTHER)]
    await log.commit(jobs[0], [])
    with pytest.raises(ConcurrentCommitError, match="schema of log 'flights' changed"):
        await log.commit(jobs[1], [])
    assert await schema_of(log) == WIDER


async def test_columns_that_were_replaced_meanwhile_are_not_concluded_from_kept_state(
    world: LogWorld,
) -> None:
    """This process has just added the columns, but another process has replaced them since then."""
    log, known = await world.logs().create("flights"), KnownLogs()
    await commit(log, "x")
    jobs = [await log.begin(schema=WIDER, app="app", run="r", batch_id=n) for n in range(2)]
    await log.commit(jobs[0], [], known=known)
    overwrite = await log.begin(schema=OTHER, mode=WriteMode.OVERWRITE)
    await log.commit(overwrite, [])
    with pytest.raises(ConcurrentCommitError):
        await log.commit(jobs[1], [], known=known)


async def test_two_empty_first_writes_with_different_columns_do_not_both_succeed(
    world: LogWorld,
) -> None:
    log = await world.logs().create("flights", schema=OTHER)
    jobs = [await log.begin(schema=schema) for schema in (OTHER, SCHEMA)]
    await log.commit(jobs[0], [])
    with pytest.raises(ConcurrentCommitError):
        await log.commit(jobs[1], [])
    assert await schema_of(log) == OTHER


def columns(**types: str) -> bytes:
    return fields(*({"name": name, "type": kind, "metadata": {}} for name, kind in types.items()))


def fields(*each: dict[str, Any]) -> bytes:
    nullable = [{**field, "nullable": True} for field in each]
    return stored_schema(json.dumps({"type": "struct", "fields": nullable}))


async def test_columns_are_added_by_one_call(world: LogWorld) -> None:
    log = await world.logs().create("flights")
    job = await log.begin(schema=columns(k="long"))
    await log.commit(job, [await write(log, job, "x")], is_last=True)
    result = await log.add_columns(columns(s="string"), expected_version=1)
    assert (result.status, result.version) == (CommitStatus.COMMITTED, 2)
    assert await schema_of(log) == columns(k="long", s="string")
    again = await log.add_columns(columns(s="string", k="integer"))
    assert (again.status, again.version) == (CommitStatus.NOTHING_TO_COMMIT, 2)
    assert not await world.logs().store.producers.names(log.log_id)


async def test_a_log_without_a_commit_gets_its_columns(world: LogWorld) -> None:
    logs = world.logs()
    for name, schema in (("bare", b""), ("made", columns(k="long"))):
        log = await logs.create(name, schema=schema)
        assert (await log.add_columns(columns(s="string"))).version == 1
    assert await schema_of(await logs.open("bare")) == columns(s="string")
    assert await schema_of(await logs.open("made")) == columns(k="long", s="string")


async def test_columns_that_cannot_be_added_change_nothing(world: LogWorld) -> None:
    logs = world.logs()
    log = await logs.create("flights", schema=columns(k="long"))
    await log.add_columns(columns(k="long"))
    with pytest.raises(SchemaMismatchError, match="column 'k' of log 'flights' is long"):
        await log.add_columns(columns(k="string"))
    with pytest.raises(ConcurrentCommitError):
        await log.add_columns(columns(s="string"), expected_version=0)
    with pytest.raises(ConcurrentCommitError):
        await log.add_columns(columns(k="long"), expected_version=0)
    leader = await logs.create("led", schema=columns(k="long"), kind=LogKind.LEADER)
    with pytest.raises(LogKindError, match="whose columns are fixed"):
        await leader.add_columns(columns(s="string"))
    assert (await log.state()).head.version == 1
    assert not await logs.store.producers.names(leader.log_id)


async def test_columns_are_added_beside_those_that_others_add_meanwhile(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await world.logs().create("flights", schema=columns(k="long"))
    await log.add_columns(columns(k="long"))
    begin = type(log.commits).begin

    async def overtaken(commits: Any, **how: Any) -> Any:
        monkeypatch.setattr(type(log.commits), "begin", begin)
        await log.add_columns(columns(other="long"))
        return await begin(commits, **how)

    monkeypatch.setattr(type(log.commits), "begin", overtaken)
    assert (await log.add_columns(columns(s="string"))).version == 3
    assert await schema_of(log) == columns(k="long", other="long", s="string")
    assert not await world.logs().store.producers.names(log.log_id)


DEFAULTED = fields(
    {"name": "k", "type": "long", "metadata": {}},
    {
        "name": "n",
        "type": "integer",
        "metadata": {"CURRENT_DEFAULT": "7", "EXISTS_DEFAULT": "7"},
    },
)


async def add_while_another_commits(
    log: Any, monkeypatch: pytest.MonkeyPatch, schema: bytes, **how: Any
) -> Any:
    """Add columns; another writer commits a row after the columns were planned."""
    begin = type(log.commits).begin

    async def overtaken(commits: Any, **given: Any) -> Any:
        monkeypatch.setattr(type(log.commits), "begin", begin)
        job = await log.begin(schema=columns(k="long"))
        await log.commit(job, [await write(log, job, "x")], is_last=True)
        return await begin(commits, **given)

    monkeypatch.setattr(type(log.commits), "begin", overtaken)
    return await log.add_columns(schema, **how)


async def test_columns_are_added_only_to_the_version_that_the_caller_read(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await world.logs().create("flights", schema=columns(k="long"))
    await log.add_columns(columns(k="long"))
    with pytest.raises(ConcurrentCommitError):
        await add_while_another_commits(log, monkeypatch, columns(s="string"), expected_version=1)
    assert await schema_of(log) == columns(k="long")
    assert not await world.logs().store.producers.names(log.log_id)


async def test_a_column_with_a_default_is_added_only_before_the_first_row(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = world.logs()
    empty = await logs.create("empty", schema=columns(k="long"))
    await empty.add_columns(columns(k="long"))
    assert (await empty.add_columns(DEFAULTED)).version == 2

    filled = await logs.create("filled", schema=columns(k="long"))
    job = await filled.begin(schema=columns(k="long"))
    await filled.commit(job, [await write(filled, job, "x")], is_last=True)
    with pytest.raises(SchemaMismatchError, match="default"):
        await filled.add_columns(DEFAULTED)

    overtaken = await logs.create("overtaken", schema=columns(k="long"))
    await overtaken.add_columns(columns(k="long"))
    with pytest.raises(SchemaMismatchError, match="default"):
        await add_while_another_commits(overtaken, monkeypatch, DEFAULTED)
    assert await schema_of(overtaken) == columns(k="long")


async def test_columns_are_added_to_a_log_with_a_password_by_those_who_have_it(
    world: LogWorld,
) -> None:
    log = await world.logs().create("flights", schema=columns(k="long"))
    job = await log.begin(schema=columns(k="long"), password=b"secret")
    await log.commit(job, [await write(log, job, "x")], is_last=True)
    with pytest.raises(UnauthorizedError):
        await log.add_columns(columns(s="string"))
    assert (await log.add_columns(columns(s="string"), password=b"secret")).version == 2
