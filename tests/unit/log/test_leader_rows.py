"""Leaders and readers of rows on a whole cluster inside one event loop."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledgerlog_spark.arrow.leader_pieces import leader_schema
from ledgerlog_spark.arrow.stream_codec import ENTRY_ROWS_MAX
from ledgerlog_spark.client.settings import ClientSettings
from ledgerlog_spark.errors import (
    LeaderDeposedError,
    LocalProtocolError,
    LogKindError,
    PositionNotAvailableError,
    SchemaMismatchError,
)
from ledgerlog_spark.log.leader.leader import Leader
from ledgerlog_spark.log.log import Log
from ledgerlog_spark.log.reading.record_log import RecordLog
from ledgerlog_spark.log.reading.row_cursor import RowBatch
from ledgerlog_spark.protocol.log.state.records import LogContent, LogKind
from tests.fixtures.autojump import run_in_virtual_time
from tests.fixtures.examples import examples
from tests.unit.log.leader_world import LeaderWorld

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])
VISIBLE_SECONDS = 0.1


def table(first: int, end: int) -> pa.Table:
    numbers = range(first, end)
    return pa.table([pa.array(numbers, pa.int64()), [f"row {n}" for n in numbers]], schema=SCHEMA)


def batch(first: int, end: int) -> pa.RecordBatch:
    return table(first, end).combine_chunks().to_batches()[0]


async def log_of_rows(world: LeaderWorld, schema: pa.Schema = SCHEMA, **properties: str) -> Log:
    return await world.logs().open_or_create(
        "orders",
        schema=leader_schema(schema),
        kind=LogKind.LEADER,
        content=LogContent.ROWS,
        properties=properties,
    )


async def lead(world: LeaderWorld, **properties: str) -> Leader:
    return await (await log_of_rows(world, **properties)).lead(ClientSettings())


async def reader(world: LeaderWorld) -> RecordLog:
    log = await world.logs().open("orders")
    state = await log.state()
    return RecordLog(log, state.head.kind, state.head.content, state.schema)


async def batches(world: LeaderWorld, *places: Any) -> list[RowBatch]:
    return [one async for one in (await reader(world)).read_rows(*places)]


def numbers(found: list[RowBatch]) -> list[int]:
    """The column `n`, whose values are the offsets in these tests."""
    values: list[int] = []
    for one in found:
        assert one.rows.schema.equals(SCHEMA)
        expected = [*range(one.offset, one.end_offset)]
        assert one.rows["n"].to_pylist() == expected
        assert one.rows["text"].to_pylist() == [f"row {n}" for n in expected]
        values += expected
    return values


async def test_appended_rows_have_dense_positions_and_are_read_back_in_order(
    world: LeaderWorld,
) -> None:
    leader = await lead(world)
    assert leader.schema == SCHEMA
    first = await leader.append_rows(batch(0, 1))
    many = await leader.append_rows(table(1, 150_000))
    last = await leader.append_rows(batch(150_000, 150_003))
    assert (first.offsets, many.offsets, last.offsets) == (
        range(1),
        range(1, 150_000),
        range(150_000, 150_003),
    )
    assert leader.end_offset == 150_003
    assert await leader.close() == 150_003
    found = await batches(world)
    assert numbers(found) == [*range(150_003)]
    positions = [first[0], *many, *last]
    for one in found:
        assert one.position == positions[one.offset]
        assert positions[one.end_offset - 1].entry_id == one.entry_id
        assert one.rows.num_rows <= ENTRY_ROWS_MAX
    times = [one.append_time_ms for one in found]
    assert times == sorted(times)


async def test_appends_of_one_turn_share_an_entry_and_each_has_its_own_range(
    world: LeaderWorld,
) -> None:
    leader = await lead(world)
    sizes = [1, 5, 2, 70_000, 3, 1]
    futures, begin = [], 0
    for size in sizes:
        futures.append(leader.append_rows_async(table(begin, begin + size)))
        begin += size
    positions = await asyncio.gather(*futures)
    assert [len(of_one) for of_one in positions] == sizes
    assert [of_one.offsets.start for of_one in positions] == [0, 1, 6, 8, 70_008, 70_011]
    entries = [{position.entry_id for position in of_one} for of_one in positions]
    assert entries[0] == entries[1] == entries[2] == {0}
    assert len(entries[3]) == 2
    assert entries[4] == entries[5] == {3}
    await leader.close()
    assert numbers(await batches(world)) == [*range(begin)]


@settings(deadline=None, max_examples=examples(8))
@given(
    sizes=st.lists(st.one_of(st.integers(0, 40), st.integers(60_000, 70_000)), max_size=5),
    seed=st.integers(0, 1_000),
)
def test_any_part_of_any_appends_is_read_to_the_row(sizes: list[int], seed: int) -> None:
    """Each example has a world of its own."""

    async def work() -> None:
        chance = random.Random(seed)
        async with LeaderWorld() as world:
            leader = await lead(world)
            futures, end = [], 0
            for size in sizes:
                futures.append(leader.append_rows_async(table(end, end + size)))
                end += size
                if chance.random() < 0.3:
                    await leader.roll()
            for size, future in zip(sizes, futures, strict=True):
                assert len(await future) == size
            await leader.close()
            for _ in range(3):
                start, stop = sorted(chance.randint(0, end) for _ in range(2))
                assert numbers(await batches(world, start, stop)) == [*range(start, stop)]

    run_in_virtual_time(work())


async def test_nothing_appended_is_nothing_read(world: LeaderWorld) -> None:
    leader = await lead(world)
    nothing = await leader.append_rows(table(0, 0))
    assert (nothing.offsets, list(nothing)) == (range(0), [])
    assert await leader.close() == 0
    assert await batches(world) == []


async def test_rows_that_do_not_fit_are_refused_and_the_leader_goes_on(world: LeaderWorld) -> None:
    leader = await lead(world)
    with pytest.raises(SchemaMismatchError, match="'n'") as caught:
        await leader.append_rows(pa.table({"n": ["1"]}))
    assert caught.value.definite
    huge = random.Random(7).randbytes(5 << 20).hex()
    with pytest.raises(LocalProtocolError, match="one row has"):
        await leader.append_rows(pa.table({"n": [0, 1], "text": ["a", huge]}))
    assert (await leader.append_rows(pa.table({"n": [0]}))).offsets == range(1)
    await leader.close()
    assert (await batches(world))[0].rows.to_pylist() == [{"n": 0, "text": None}]


async def test_each_kind_of_content_names_the_methods_of_the_other(world: LeaderWorld) -> None:
    rows = await lead(world)
    with pytest.raises(LogKindError, match="with append_rows"):
        await rows.append(b"record")
    with pytest.raises(LogKindError, match="with append_rows"):
        await rows.append_many([b"record"])
    of_rows = await reader(world)
    with pytest.raises(LogKindError, match="read_rows and tail_rows"):
        of_rows.read_batches()
    await rows.close()

    log = await world.logs().create("records", kind=LogKind.LEADER, content=LogContent.RECORDS)
    with pytest.raises(LogKindError, match="of records, which have no schema"):
        await log.lead(ClientSettings(), schema=leader_schema(SCHEMA))
    records = await log.lead(ClientSettings())
    assert records.schema is None
    with pytest.raises(LogKindError, match="append bytes to it"):
        await records.append_rows(table(0, 1))
    with pytest.raises(LogKindError, match="read and tail"):
        RecordLog(log, LogKind.LEADER, LogContent.RECORDS).tail_rows()
    await records.close()


async def test_leader_that_comes_with_another_schema_is_refused_before_it_deposes_anybody(
    world: LeaderWorld,
) -> None:
    leader = await lead(world)
    wider = SCHEMA.append(pa.field("more", pa.int8()))
    other = SCHEMA.set(0, pa.field("n", pa.string()))
    log = await log_of_rows(world)
    for schema, says in ((wider, "the schema of a leader log cannot change"), (other, "'n'")):
        with pytest.raises(SchemaMismatchError, match=says):
            await log.lead(ClientSettings(), schema=leader_schema(schema))
    assert (await leader.append_rows(table(0, 1))).offsets == range(1)
    some = await log.lead(ClientSettings(), schema=leader_schema(pa.schema([SCHEMA.field(0)])))
    assert some.schema == SCHEMA
    with pytest.raises(LeaderDeposedError) as caught:
        await leader.append_rows(table(1, 2))
    assert caught.value.end_offset == 1
    await some.close()


async def test_log_that_was_made_without_a_schema_takes_no_rows(world: LeaderWorld) -> None:
    log = await world.logs().create("orders", kind=LogKind.LEADER)
    with pytest.raises(SchemaMismatchError, match="without a schema"):
        await log.lead(ClientSettings())
    found = await reader(world)
    assert found.schema is None
    assert [one async for one in found.read_rows()] == []


async def test_rows_go_on_over_rolls_a_new_leader_and_truncation(world: LeaderWorld) -> None:
    leader = await lead(world, rollBytes="3000")
    for first in range(0, 400, 10):
        await leader.append_rows(table(first, first + 10))
    leader.abandon()
    leader = await lead(world)
    assert leader.end_offset == 400
    await leader.append_rows(table(400, 90_000))
    await leader.truncate(123)
    await leader.close()
    assert numbers(await batches(world)) == [*range(123, 90_000)]
    assert len({one.ledger_id for one in await batches(world)}) > 2
    with pytest.raises(PositionNotAvailableError, match="oldest position is 123"):
        await batches(world, 100)


async def test_tail_begins_at_the_row_and_gives_each_row_once_within_100_ms(
    world: LeaderWorld,
) -> None:
    leader = await lead(world)
    await leader.append_rows(table(0, 100))
    tail = (await reader(world)).tail_rows(42)
    found = [await anext(tail)]
    assert found[0].offset == 42
    for first in range(100, 160, 20):
        await leader.append_rows(table(first, first + 20))
        async with asyncio.timeout(VISIBLE_SECONDS):
            found.append(await anext(tail))
        await leader.roll()
        await asyncio.sleep(5)
    assert numbers(found) == [*range(42, 160)]
    await tail.aclose()
    await leader.close()


async def test_rows_pending_when_the_client_ends_fail_and_say_that_they_are_unknown(
    world: LeaderWorld,
) -> None:
    leader = await lead(world)
    await leader.append_rows(table(0, 10))
    world.transport.held.update(world.names)
    pending = [leader.append_rows_async(table(n, n + 70_000)) for n in (10, 70_010)]
    await asyncio.sleep(0.01)
    assert leader.records_pending >= 140_000
    leader.abandon()
    for future in pending:
        with pytest.raises(LocalProtocolError, match="read it from offset 10") as caught:
            await future
        assert not caught.value.definite
    with pytest.raises(LocalProtocolError) as caught:
        await leader.append_rows(table(10, 11))
    assert caught.value.definite
