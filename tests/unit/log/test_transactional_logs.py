"""Logs on a whole cluster inside one event loop: bookies, metadata and time are simulated."""

from __future__ import annotations

import asyncio
import itertools
import pickle
from random import Random
from typing import Any

import pytest

from ledgerlog_spark.errors import (
    ConcurrentCommitError,
    ConfigurationError,
    DataLossError,
    LedgerFencedError,
    LedgerLogError,
    LedgerNotFoundError,
    LogExistsError,
    LogNotFoundError,
    NeedsOperatorError,
    NotEnoughBookiesError,
    ProducerFencedError,
    SchemaMismatchError,
    StaleCheckpointError,
    VersionNotAvailableError,
)
from ledgerlog_spark.log.committing.commits import KnownLogs
from ledgerlog_spark.log.logs import Logs
from ledgerlog_spark.protocol.log import sweep
from ledgerlog_spark.protocol.log.commit.epoch import JobKind
from ledgerlog_spark.protocol.log.commit.result import CommitStatus
from ledgerlog_spark.protocol.log.seal import LOG_ID_KEY
from ledgerlog_spark.protocol.log.state.records import StagedRange, WriteMode
from ledgerlog_spark.testing.memory.tree import Fault, MemoryTree
from tests.unit.log.log_world import DAY_MS, SCHEMA, LogWorld, commit, of, payloads, write


async def test_appended_batch_is_read_back_in_order_of_its_ranges(world: LogWorld) -> None:
    log = await world.logs().create("flights")
    await commit(log, "x")
    await commit(log, "y")
    assert await payloads(await world.logs().open("flights")) == of("x", "y")
    snapshot = await log.snapshot()
    assert (snapshot.interval.version, snapshot.interval.rows) == (2, 120)
    assert [item.first_offset for item in snapshot.items] == [0, 30, 60, 90]
    first = snapshot.items[0]
    assert (first.first_entry_id, first.last_entry_id, first.index_entry_id) == (1, 4, 4)
    assert snapshot.schema == SCHEMA
    client = world.client()
    metadata = await client.ledger_metadata(first.ledger_id)
    assert metadata.is_closed
    assert metadata.custom[LOG_ID_KEY] == log.log_id.encode()
    reader = await client.open_ledger(first.ledger_id)
    assert (await reader.read_entry(0)).payload == SCHEMA


async def test_nothing_of_a_job_is_visible_before_its_commit_and_never_after_an_abort(
    world: LogWorld,
) -> None:
    log = await world.logs().create("flights")
    job = await log.begin(schema=SCHEMA)
    staged = await write(log, job, "x")
    assert (await log.snapshot()).items == ()
    await log.abort(job)
    assert (await log.snapshot()).items == ()
    assert (await world.client().ledger_metadata(staged.ledger_id)).is_closed


async def test_abort_after_a_commit_that_landed_deletes_nothing(world: LogWorld) -> None:
    log = await world.logs().create("flights")
    job = await commit(log, "x")
    await log.abort(job)
    assert await payloads(log) == of("x")


async def test_overwrite_replaces_rows_and_the_old_version_can_still_be_read(
    world: LogWorld,
) -> None:
    log = await world.logs().create("flights")
    await commit(log, "x")
    await commit(log, "y", mode=WriteMode.OVERWRITE)
    assert await payloads(log) == of("y")
    assert await payloads(log, 1) == of("x")
    assert await payloads(log, 0) == []
    history = await log.history()
    assert [(v.version, v.start_offset, v.end_offset) for v in history] == [
        (0, 0, 0), (1, 0, 60), (2, 60, 120),
    ]  # fmt: skip
    with pytest.raises(VersionNotAvailableError) as missing:
        await log.snapshot(3)
    assert missing.value.oldest == 0


async def test_overwrite_planned_before_a_commit_of_others_fails_without_the_option(
    world: LogWorld,
) -> None:
    log = await world.logs().create("flights", schema=SCHEMA)
    careful = await log.begin(schema=SCHEMA, mode=WriteMode.OVERWRITE)
    bold = await log.begin(schema=SCHEMA, mode=WriteMode.OVERWRITE, overwrite_if_changed=True)
    staged = await write(log, careful, "careful")
    staged_boldly = await write(log, bold, "bold")
    await commit(log, "x")
    with pytest.raises(ConcurrentCommitError) as refused:
        await log.commit(careful, [staged])
    assert refused.value.definite
    assert await payloads(log) == of("x")
    await log.commit(bold, [staged_boldly])
    assert await payloads(log) == [b"bold 0", b"bold 1", b"bold 2"]


async def test_repeated_app_and_version_changes_nothing(world: LogWorld) -> None:
    log = await world.logs().create("flights")
    await commit(log, "x", app="nightly", batch_id=4)
    again = await log.begin(schema=SCHEMA, app="nightly", batch_id=4)
    assert again.is_replay
    staged = StagedRange(1, 1, 2, 2, rows=5, size_bytes=5)
    result = await log.commit(again, [staged])
    assert result.status is CommitStatus.ALREADY_COMMITTED
    older = await log.begin(schema=SCHEMA, app="nightly", batch_id=3)
    assert older.is_replay
    await commit(log, "y", app="nightly", batch_id=5)
    assert await payloads(log) == of("x", "y")


async def test_stream_whose_batch_went_back_is_refused_and_the_last_batch_is_a_no_op(
    world: LogWorld,
) -> None:
    log = await world.logs().create("flights")
    await commit(log, "x", app="query", batch_id=7, run="r1", kind=JobKind.STREAM)
    with pytest.raises(StaleCheckpointError) as stale:
        await log.begin(app="query", batch_id=6, run="r2", kind=JobKind.STREAM)
    assert (stale.value.batch_id, stale.value.last_batch_id) == (6, 7)
    again = await log.begin(schema=SCHEMA, app="query", batch_id=7, run="r2", kind=JobKind.STREAM)
    assert not again.is_replay
    result = await log.commit(again, [await write(log, again, "again")])
    assert result.status is CommitStatus.ALREADY_COMMITTED
    assert await payloads(log) == of("x")


async def test_zombie_can_neither_register_a_ledger_nor_commit(world: LogWorld) -> None:
    log = await world.logs().create("flights")
    old = await log.begin(schema=SCHEMA, app="query", run="r1", kind=JobKind.STREAM)
    staged = await write(log, old, "old")
    new = await log.begin(schema=SCHEMA, app="query", run="r2", kind=JobKind.STREAM)
    with pytest.raises(ProducerFencedError):
        await log.open_range(old)
    with pytest.raises(ProducerFencedError):
        await log.commit(old, [staged])
    await log.commit(new, [await write(log, new, "new")])
    assert await payloads(log) == [b"new 0", b"new 1", b"new 2"]


async def test_append_without_rows_writes_nothing_and_overwrite_without_rows_empties(
    world: LogWorld,
) -> None:
    log = await world.logs().create("flights")
    await commit(log, "x")
    before = await log.state()
    empty = await log.begin(schema=SCHEMA)
    writer = await log.open_range(empty)
    assert await writer.finish() is None
    result = await log.commit(empty, [])
    assert result.status is CommitStatus.NOTHING_TO_COMMIT
    assert await log.state() == before
    emptied = await log.begin(schema=SCHEMA, mode=WriteMode.OVERWRITE)
    await log.commit(emptied, [])
    assert await payloads(log) == []
    assert await payloads(log, 1) == of("x")


async def test_job_pickles_without_showing_its_password(world: LogWorld) -> None:
    log = await world.logs().create("flights")
    job = await log.begin(schema=SCHEMA, password=b"secret")
    copy = pickle.loads(pickle.dumps(job))
    assert copy == job
    assert "secret" not in repr(job)
    await log.commit(copy, [await write(log, copy, "x")])
    item = (await log.snapshot()).items[0]
    read = log.read_range(item.ledger_id, 1, 3, password=b"secret")
    assert sum([len(batch) async for batch in read]) == 3


async def test_another_schema_since_planning_fails_the_job_and_the_same_one_does_not(
    world: LogWorld,
) -> None:
    log = await world.logs().create("flights")
    same, other = [await log.begin(schema=s) for s in (SCHEMA, b"another schema")]
    staged_same, staged_other = await write(log, same, "s"), await write(log, other, "o")
    await commit(log, "x")
    await log.commit(same, [staged_same])
    with pytest.raises(ConcurrentCommitError):
        await log.commit(other, [staged_other])
    state = await log.state()
    assert state.schemas == {0: SCHEMA}
    grown = await log.begin(schema=b"grown schema")
    await log.commit(grown, [await write(log, grown, "g")])
    snapshot = await log.snapshot()
    assert snapshot.schemas == {0: SCHEMA, 1: b"grown schema"}
    assert [item.schema_id for item in snapshot.items] == [0, 0, 0, 1]
    assert (await log.snapshot(2)).schema == SCHEMA


async def test_large_schema_of_a_new_log_goes_to_a_page_and_one_too_large_is_refused(
    world: LogWorld,
) -> None:
    logs, schema = world.logs(), Random(5).randbytes(200_000)
    log = await logs.create("flights", schema=schema)
    state = await log.state()
    assert state.schema == schema
    assert state.schema_id_of(schema) == 0
    assert len(await logs.store.page_nodes(log.log_id)) == 1
    with pytest.raises(SchemaMismatchError):
        await logs.create("other", schema=bytes(300_000))
    assert list(await logs.names()) == ["flights"]
    job = await log.begin(schema=bytes(300_000))
    with pytest.raises(SchemaMismatchError):
        await log.commit(job, [await write(log, job, "x")])
    world.skip(DAY_MS)
    await logs.sweeper().sweep(log.log_id)
    assert (await log.state()).schema == schema


async def test_schema_decided_on_an_older_state_fails_the_commit(world: LogWorld) -> None:
    log = await world.logs().create("flights", schema=SCHEMA)
    planned = await log.state()
    grown = await log.begin(schema=b"with one more column")
    await log.commit(grown, [await write(log, grown, "g")])
    late = await log.begin(schema=b"with another column", planned=planned)
    with pytest.raises(ConcurrentCommitError):
        await log.commit(late, [await write(log, late, "l")])


async def test_names_and_properties_are_checked_before_anything_is_written(world: LogWorld) -> None:
    logs = world.logs()
    names: tuple[Any, ...] = ("", ".", "..", "a/b", "ü", "x" * 201, 5, None)
    for name in names:
        with pytest.raises(ConfigurationError):
            await logs.create(name)
    with pytest.raises(ConfigurationError, match="did you mean ackQuorum"):
        await logs.create("flights", properties={"ackQorum": "2"})
    with pytest.raises(ConfigurationError):
        await logs.create("flights", properties={"ensembleSize": "2"})
    assert list(await logs.names()) == []
    await logs.create("flights")
    with pytest.raises(LogExistsError):
        await logs.create("flights")
    with pytest.raises(LogNotFoundError):
        await logs.open("fligths")


async def test_too_few_bookies_are_reported_at_once(world: LogWorld) -> None:
    properties = {"ensembleSize": "5", "writeQuorum": "3", "ackQuorum": "2"}
    log = await world.logs().create("flights", properties=properties)
    job = await log.begin(schema=SCHEMA)
    with pytest.raises(NotEnoughBookiesError) as few:
        await log.open_range(job)
    assert (few.value.wanted, few.value.available) == (5, 3)


async def test_committed_range_of_an_open_ledger_is_read_to_its_end(world: LogWorld) -> None:
    log = await world.logs().create("flights")
    job = await log.begin(schema=SCHEMA)
    writer = await log.open_range(job)
    for number in range(5):
        await writer.append(b"row %d" % number, rows=1)
    while writer._pending:
        await writer._acknowledged()
    staged = StagedRange(writer.ledger_id, 1, 5, -1, rows=5, size_bytes=25)
    await log.commit(job, [staged])
    metadata = await world.client().ledger_metadata(writer.ledger_id)
    assert not metadata.is_closed
    assert await payloads(await world.logs().open("flights")) == [b"row %d" % n for n in range(5)]


async def test_ledger_closed_below_its_listed_end_is_reported_as_data_loss(world: LogWorld) -> None:
    log = await world.logs().create("flights")
    job = await log.begin(schema=SCHEMA)
    staged = await write(log, job, "x")
    beyond = StagedRange(staged.ledger_id, 1, 9, -1, rows=9, size_bytes=9)
    await log.commit(job, [beyond])
    with pytest.raises(DataLossError, match="closed at entry 4"):
        await payloads(log)


async def test_seal_stops_rather_than_close_below_what_the_log_lists(world: LogWorld) -> None:
    log = await world.logs().create("flights")
    job = await log.begin(schema=SCHEMA)
    writer = await log.open_range(job)
    await writer.append(b"row", rows=1)
    await writer._acknowledged()
    beyond = StagedRange(writer.ledger_id, 1, 3, -1, rows=3, size_bytes=9)
    await log.commit(job, [beyond])
    assert await log.floor(writer.ledger_id) == 3
    with pytest.raises(NeedsOperatorError):
        await log.seal(writer.ledger_id)
    assert not (await world.client().ledger_metadata(writer.ledger_id)).is_closed


async def test_task_whose_ledger_is_fenced_fails_and_its_retry_leaves_no_duplicate(
    world: LogWorld,
) -> None:
    log = await world.logs().create("flights")
    job = await log.begin(schema=SCHEMA)
    writer = await log.open_range(job)
    await writer.append(b"lost", rows=1)
    await log.seal(writer.ledger_id)

    async def finish() -> None:
        await writer.append(b"lost too", rows=1)
        await writer.finish(b"index")

    with pytest.raises(LedgerFencedError):
        await finish()
    writer.abandon()
    await log.commit(job, [await write(log, job, "x")])
    assert await payloads(log) == [b"x 0", b"x 1", b"x 2"]


async def test_sweeper_deletes_staged_ledgers_after_their_time_and_fails_their_commit(
    world: LogWorld,
) -> None:
    logs = world.logs()
    log = await logs.create("flights")
    await commit(log, "x")
    late = await log.begin(schema=SCHEMA)
    staged = await write(log, late, "late")
    world.skip(6 * DAY_MS)
    assert (await logs.sweeper().sweep(log.log_id)).deregistered == 0
    world.skip(2 * DAY_MS)
    swept = await logs.sweeper().sweep(log.log_id)
    assert (swept.deregistered, swept.ledgers_deleted) == (1, 1)
    with pytest.raises(LedgerNotFoundError):
        await world.client().ledger_metadata(staged.ledger_id)
    with pytest.raises(ProducerFencedError):
        await log.commit(late, [staged])
    assert await payloads(log) == of("x")


async def test_replaced_versions_expire_and_their_ledgers_go_after_the_time_of_grace(
    world: LogWorld,
) -> None:
    logs = world.logs()
    log = await logs.create("flights")
    await commit(log, "x")
    old = [item.ledger_id for item in (await log.snapshot()).items]
    await commit(log, "y", mode=WriteMode.OVERWRITE)
    world.skip(6 * DAY_MS)
    assert (await logs.sweeper().sweep(log.log_id)).unlisted == 0
    assert await payloads(log, 1) == of("x")
    world.skip(2 * DAY_MS)
    swept = await logs.sweeper().sweep(log.log_id)
    assert (swept.unlisted, swept.ledgers_deleted) == (2, 0)
    with pytest.raises(VersionNotAvailableError) as gone:
        await log.snapshot(1)
    assert gone.value.oldest == 2
    for ledger_id in old:
        await world.client().ledger_metadata(ledger_id)
    world.skip(2 * DAY_MS)
    assert (await logs.sweeper().sweep(log.log_id)).ledgers_deleted == 2
    for ledger_id in old:
        with pytest.raises(LedgerNotFoundError):
            await world.client().ledger_metadata(ledger_id)
    assert await payloads(log) == of("y")
    assert (await logs.sweeper().sweep(log.log_id)).ledgers_deleted == 0


async def test_producers_made_up_for_jobs_are_forgotten_and_their_rows_stay(
    world: LogWorld,
) -> None:
    logs = world.logs()
    log = await logs.create("flights")
    job = await commit(log, "x")
    await commit(log, "y", app="nightly", batch_id=1)
    dead = await log.begin(schema=SCHEMA)
    world.skip(8 * DAY_MS)
    await logs.sweeper().sweep(log.log_id)
    assert list(await logs.store.producers.names(log.log_id)) == ["nightly"]
    assert list(await logs.store.producers.registered(log.log_id, "nightly")) == []
    assert list(await logs.store.producers.marked(log.log_id)) == []
    for gone in (job, dead):
        with pytest.raises(ProducerFencedError):
            await log.open_range(gone)
    world.skip(2 * DAY_MS)
    await logs.sweeper().sweep(log.log_id)
    assert await payloads(log) == of("x", "y")
    assert (await log.begin(app="nightly", batch_id=1)).is_replay


async def test_any_ledger_is_sealed_with_the_floor_of_the_log_that_owns_it(world: LogWorld) -> None:
    logs = world.logs()
    log = await logs.create("flights")
    job = await log.begin(schema=SCHEMA)
    writer = await log.open_range(job)
    await writer.append(b"row", rows=1)
    await writer._acknowledged()
    await log.commit(job, [StagedRange(writer.ledger_id, 1, 3, -1, rows=3, size_bytes=9)])
    assert await logs.owner(writer.ledger_id) == "flights"
    with pytest.raises(NeedsOperatorError):
        await logs.seal(writer.ledger_id)
    free = await world.client().create_ledger()
    assert await logs.owner(free.id) is None
    assert (await logs.seal(free.id)).is_closed
    await logs.delete("flights")
    assert await logs.owner(writer.ledger_id) is None


async def test_deleted_log_frees_its_name_and_its_ledgers_go_after_the_time_of_grace(
    world: LogWorld,
) -> None:
    logs = world.logs()
    log = await logs.create("flights")
    await commit(log, "x")
    ledgers = [item.ledger_id for item in (await log.snapshot()).items]
    late = await log.begin(schema=SCHEMA)
    staged = await write(log, late, "late")
    await logs.delete("flights")
    with pytest.raises(LogNotFoundError):
        await log.commit(late, [staged])
    with pytest.raises(LogNotFoundError):
        await logs.open("flights")
    again = await logs.create("flights")
    assert again.log_id != log.log_id
    assert not (await logs.sweeper().sweep(log.log_id)).is_removed
    await world.client().ledger_metadata(ledgers[0])
    world.skip(2 * DAY_MS)
    swept, errors = await logs.sweeper().sweep_all()
    assert not errors
    removed = {s.log_id: s for s in swept}[log.log_id]
    assert (removed.is_removed, removed.ledgers_deleted) == (True, 3)
    for ledger_id in (*ledgers, staged.ledger_id):
        with pytest.raises(LedgerNotFoundError):
            await world.client().ledger_metadata(ledger_id)
    assert list(await logs.store.ids()) == [again.log_id]


async def test_many_producers_commit_at_the_same_time_and_every_batch_is_there_once(
    world: LogWorld,
) -> None:
    log = await world.logs().create("flights", schema=SCHEMA)
    names = [f"p{number:02}" for number in range(12)]
    others = [await world.logs().open("flights") for _ in names]
    await asyncio.gather(*(commit(o, n) for o, n in zip(others, names, strict=True)))
    read = await payloads(log)
    assert sorted(read) == of(*names)
    history = await log.history()
    assert [v.version for v in history] == list(range(13))
    for earlier, later in itertools.pairwise(history):
        assert earlier.end_offset < later.end_offset
        assert earlier.commit_time_ms < later.commit_time_ms


@pytest.mark.parametrize("fault", [Fault.REQUEST_LOST, Fault.REPLY_LOST, Fault.DELAYED])
@pytest.mark.parametrize("write_number", range(9))
async def test_job_meets_a_lost_or_delayed_write_and_its_batch_is_there_once(
    world: LogWorld, fault: Fault, write_number: int
) -> None:
    await world.logs().create("flights", schema=SCHEMA)
    client, stores = world.client_and_stores()
    tree = stores.tree
    assert isinstance(tree, MemoryTree)
    log = await Logs(store=stores.logs, ledgers=client).open("flights")
    no_fault: Any = None
    tree.inject(*[no_fault] * write_number, fault)
    asyncio.get_running_loop().call_later(0.2, tree.deliver_delayed)
    while True:
        try:
            await commit(log, "x", app="nightly", batch_id=1)
        except LedgerLogError as error:
            if error.definite and not error.retriable:
                raise
            continue
        break
    await asyncio.sleep(60)
    tree.deliver_delayed()
    assert await payloads(await world.logs().open("flights")) == of("x")
    assert (await log.snapshot()).interval.version == 1


async def test_commit_from_known_state_has_the_present_time_of_the_store(world: LogWorld) -> None:
    log = await world.logs().create("flights")
    known = KnownLogs()
    for batch_id in (0, 1):
        job = await log.begin(schema=SCHEMA, app="stream", run="run", batch_id=batch_id)
        await log.commit(job, [await write(log, job, "x")], known=known)
        world.skip(DAY_MS)
    _, first, second = await log.history()
    assert second.commit_time_ms - first.commit_time_ms >= DAY_MS
    producer = await log.host.store.producers.read(log.log_id, "stream")
    assert producer is not None
    assert producer.value.time_ms - first.commit_time_ms >= DAY_MS


async def test_release_ends_all_registrations_of_a_job_and_its_ledgers_are_swept_at_once(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = world.logs()
    log = await logs.create("flights")
    job = await log.begin(schema=SCHEMA)
    ledger_ids = [(await write(log, job, "x")).ledger_id for _ in range(5)]
    with monkeypatch.context() as small_steps:
        small_steps.setattr(sweep, "STEP_LEDGERS_MAX", 2)
        await log.release(job)
    assert list(await logs.store.producers.names(log.log_id)) == []
    for ledger_id in ledger_ids:
        assert (await world.client().ledger_metadata(ledger_id)).is_closed
    swept = await logs.sweeper().sweep(log.log_id)
    assert (swept.deregistered, swept.ledgers_deleted) == (0, 5)
    with pytest.raises(ProducerFencedError):
        await log.open_range(job)
    await log.release(job)
