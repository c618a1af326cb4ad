"""Leaders and readers of records on a whole cluster inside one event loop."""

from __future__ import annotations

import asyncio
import contextlib
from itertools import pairwise
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from ledgerlog_spark.client.settings import ClientSettings
from ledgerlog_spark.errors import (
    ConfigurationError,
    LeaderDeposedError,
    LocalProtocolError,
    LogKindError,
    LogNotFoundError,
    MetadataError,
    MetadataUnknownError,
    PositionNotAvailableError,
)
from ledgerlog_spark.log.leader.leader import ENTRY_RECORDS_MAX
from ledgerlog_spark.log.leader.ledger_writer import LeaderWriter
from ledgerlog_spark.log.logs import Logs
from ledgerlog_spark.log.reading.record_log import RecordLog
from ledgerlog_spark.log.records import RECORD_SIZE_BYTES_MAX, Record
from ledgerlog_spark.model import Position
from ledgerlog_spark.protocol.leader.messages import EntriesConfirmed
from ledgerlog_spark.protocol.log.messages import WriteHead
from ledgerlog_spark.protocol.log.state.records import LogContent, LogKind
from ledgerlog_spark.testing.memory.tree import MemoryTree
from tests.unit.log.leader_world import LeaderWorld

VISIBLE_SECONDS = 0.1


def of(first: int, end: int) -> list[bytes]:
    return [b"record %d" % number for number in range(first, end)]


async def test_appended_records_have_dense_positions_and_are_read_back_in_order(
    world: LeaderWorld,
) -> None:
    leader = await world.lead()
    first = await leader.append(b"record 0")
    many = await leader.append_many(of(1, 500))
    last = await leader.append(memoryview(b"record 500"))
    assert (first.log_id, first.offset, first.entry_id) == (leader.log_id, 0, 0)
    assert (many.offsets, len(many), many[-1].offset) == (range(1, 500), 499, 499)
    assert first < many[0] < many[-1] < last
    assert await leader.close() == 501
    records = [record async for record in (await world.reader()).read()]
    assert [record.value for record in records] == of(0, 501)
    assert [record.position for record in records] == [first, *many, last]
    places = [(record.ledger_id, record.entry_id) for record in records]
    assert places == [(p.ledger_id, p.entry_id) for p in (first, *many, last)]
    assert all(one.append_time_ms <= two.append_time_ms for one, two in pairwise(records))


async def test_a_refusal_of_the_store_ends_the_leader_with_that_error(
    world: LeaderWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = await world.lead()
    await leader.append(b"safe")

    async def refused(*_: object) -> None:
        raise MetadataError("closed to us by an access list")

    monkeypatch.setattr(leader._log.store, "write_head", refused)
    with pytest.raises(MetadataError, match="access list"):
        await leader.close()
    with pytest.raises(MetadataError, match="access list"):
        await leader.append(b"more")


async def test_close_says_where_the_list_ends_though_another_leader_came_and_went(
    world: LeaderWorld,
) -> None:
    leader = await world.lead()
    await leader.append(b"mine")
    store: Any = leader._log.store
    write_head = store.write_head

    async def heard_late(log_id: str, write: WriteHead) -> None:
        store.write_head = write_head
        await write_head(log_id, write)
        other = await world.lead()
        await other.append_many(of(0, 2))
        assert await other.close() == 3
        raise MetadataUnknownError("the reply was lost")

    store.write_head = heard_late
    assert await leader.close() == 3
    assert leader.end_offset == 1
    assert await leader.close() == 3
    assert await world.values() == [b"mine", *of(0, 2)]


async def test_nothing_appended_is_nothing_read(world: LeaderWorld) -> None:
    leader = await world.lead()
    nothing = await leader.append_many([])
    assert (list(nothing), repr(nothing)) == ([], "Positions(none)")
    assert await leader.close() == 0
    assert await leader.close() == 0
    assert await world.values() == []


async def test_appends_of_one_turn_travel_in_one_entry_and_large_batches_in_several(
    world: LeaderWorld,
) -> None:
    leader = await world.lead()
    futures = [leader.append_async(record) for record in of(0, 100)]
    positions = await asyncio.gather(*futures)
    assert {position.entry_id for position in positions} == {0}
    many = await leader.append_many(of(100, 100 + 3 * ENTRY_RECORDS_MAX))
    assert [many[at].offset for at in range(0, len(many), 5_000)] == [*many.offsets[::5_000]]
    assert len({position.entry_id for position in many}) == 3
    assert list(many[7:9]) == [many[7], many[8]]
    await leader.close()
    records = [record async for record in (await world.reader()).read(100)]
    assert [record.entry_id for record in records] == [p.entry_id for p in many]


async def test_small_appends_wait_for_the_entry_that_is_out_and_no_longer_than_the_linger(
    world: LeaderWorld,
) -> None:
    leader = await world.lead()
    world.transport.held.update(world.names)
    futures = [leader.append_async(b"is out")]
    await asyncio.sleep(0)
    futures += [leader.append_async(b"waits for it") for _ in range(10)]
    await asyncio.sleep(0)
    assert len(world.transport.waiting["bookie-0"]) == 1
    await asyncio.sleep(0.002)
    assert len(world.transport.waiting["bookie-0"]) == 2
    futures += [leader.append_async(b"waits for both")]
    for name in world.names:
        world.transport.release(name)
    entry_ids = [position.entry_id for position in await asyncio.gather(*futures)]
    assert entry_ids == [0] + 10 * [1] + [2]


async def test_batch_that_shares_entries_with_others_has_the_position_of_each_record(
    world: LeaderWorld,
) -> None:
    leader = await world.lead()
    sizes = [1, ENTRY_RECORDS_MAX - 2, 3, ENTRY_RECORDS_MAX + 1, 2 * ENTRY_RECORDS_MAX, 5]
    futures, first = [], 0
    for size in sizes:
        futures.append(leader.append_many_async(of(first, first + size)))
        first += size
    batches = [await future for future in futures]
    await leader.close()
    records = [record async for record in (await world.reader()).read()]
    told = [position for batch in batches for position in batch]
    assert [record.position for record in records] == told
    assert [(r.ledger_id, r.entry_id) for r in records] == [(p.ledger_id, p.entry_id) for p in told]


@pytest.mark.parametrize("size", [0, 1, 300_000, RECORD_SIZE_BYTES_MAX])
async def test_record_of_any_size_comes_back(world: LeaderWorld, size: int) -> None:
    record = (b"0123456789abcdef" * (size // 16 + 1))[:size]
    leader = await world.lead()
    await leader.append_many([b"before", record, b"after"])
    await leader.close()
    assert await world.values() == [b"before", record, b"after"]


async def test_bad_records_are_refused_and_nothing_is_appended(world: LeaderWorld) -> None:
    leader = await world.lead()
    for bad in ("text", 7, bytes(RECORD_SIZE_BYTES_MAX + 1)):
        with pytest.raises(LocalProtocolError):
            leader.append_async(bad)  # type: ignore[arg-type]
        with pytest.raises(LocalProtocolError):
            leader.append_many_async([b"good", bad])  # type: ignore[list-item]
    assert (await leader.append(b"good")).offset == 0
    await leader.close()
    with pytest.raises(LocalProtocolError, match="closed"):
        await leader.append(b"late")


async def test_positions_go_on_over_rolls_and_leaders(world: LeaderWorld) -> None:
    for round_ in range(3):
        leader = await world.lead()
        for part in range(3):
            first = (round_ * 3 + part) * 10
            positions = await leader.append_many(of(first, first + 10))
            assert positions.offsets == range(first, first + 10)
            await leader.roll()
        await leader.close()
    assert await world.values() == of(0, 90)
    state = await (await world.reader()).state()
    assert len(state.head.items.recent) == 9
    assert state.head.open_ledgers == ()


async def test_roll_of_an_empty_ledger_does_nothing(world: LeaderWorld) -> None:
    leader = await world.lead()
    await leader.roll()
    await leader.append(b"record 0")
    await leader.roll()
    await leader.roll()
    await leader.close()
    assert len((await (await world.reader()).state()).head.items.recent) == 1


async def test_log_rolls_by_size_under_load_and_loses_nothing(world: LeaderWorld) -> None:
    leader = await world.lead(rollBytes="200000")
    noise, futures = Random(7), []
    for first in range(0, 3000, 50):
        for number in range(first, first + 50):
            record = b"%d " % number + noise.randbytes(997)
            futures.append(leader.append_many_async([record]))
        await asyncio.sleep(0.001)
    assert [(await future).offsets.start for future in futures] == list(range(3000))
    await leader.close()
    values = await world.values()
    assert [int(value.split(b" ")[0]) for value in values] == list(range(3000))
    assert len((await (await world.reader()).state()).head.items.recent) > 5


async def test_new_leader_deposes_the_old_one_whose_error_says_what_is_safe(
    world: LeaderWorld,
) -> None:
    old = await world.lead()
    await old.append_many(of(0, 10))
    new = await world.lead()
    pending = old.append_async(b"late")
    with pytest.raises(LeaderDeposedError) as caught:
        await pending
    assert (caught.value.end_offset, caught.value.definite) == (10, False)
    assert "open the log with lead=True again" in str(caught.value)
    assert "new ledger" not in str(caught.value), "advice for who writes a single ledger"
    with pytest.raises(LeaderDeposedError) as caught:
        await old.append(b"later")
    assert caught.value.definite
    with pytest.raises(LeaderDeposedError):
        await old.close()
    assert not old.is_leading
    assert (await new.append(b"record 10")).offset == 10
    await new.close()
    assert await world.values() == of(0, 11)


async def test_log_is_led_with_the_properties_that_it_has_and_with_no_others(
    world: LeaderWorld,
) -> None:
    leader = await world.lead(rollBytes="200000", onBookieFailure="roll_ledger")
    log = await world.logs().open("orders")
    for wanted in (
        {"rollBytes": "200001"},
        {"onBookieFailure": "change_ensemble"},
        {"rollBytes": "200000", "ackQuorum": "3"},
    ):
        with pytest.raises(ConfigurationError, match="ledgerlog logs set orders") as caught:
            await log.lead(ClientSettings(), properties=wanted)
        assert caught.value.key in wanted
    await leader.append(b"nobody took it over")
    for same in ({"ROLLBYTES": "0200000"}, {"ackQuorum": "2", "rollBytes": "200000"}, {}):
        leader = await log.lead(ClientSettings(), properties=same)
    await leader.close()


async def test_leader_of_a_deleted_log_stops_though_nothing_changes_its_list(
    world: LeaderWorld,
) -> None:
    leader = await world.lead()
    await leader.append_many(of(0, 10))
    world.transport.held.update(world.names)
    pending = leader.append_async(b"late")
    leader.send_now()
    await world.logs().delete("orders")
    again = await world.log()
    with pytest.raises(LogNotFoundError, match="lead=True again") as caught:
        await pending
    assert (caught.value.definite, caught.value.retriable) == (False, False)
    assert (caught.value.end_offset, caught.value.pending_end_offset) == (10, 11)
    with pytest.raises(LogNotFoundError) as caught:
        await leader.append(b"later")
    assert caught.value.definite
    with pytest.raises(LogNotFoundError):
        await leader.close()
    for name in world.names:
        world.transport.release(name)
    assert again.log_id != leader.log_id
    new = await world.lead()
    assert (await new.append(b"record 0")).offset == 0
    await new.close()
    assert await world.values() == of(0, 1)


async def test_leader_goes_on_after_changes_of_its_head_by_itself_and_by_others(
    world: LeaderWorld,
) -> None:
    leader = await world.lead()
    for number in range(3):
        await leader.append(b"record %d" % number)
        await leader.roll()
    other = await world.logs().open("orders")
    await other.set_properties({"rollBytes": "3000000"})
    await other.truncate(1)
    assert (await leader.append(b"record 3")).offset == 3
    assert await leader.close() == 4
    assert await world.values() == of(1, 4)


@pytest.mark.world(bookies=5)
async def test_leader_goes_on_when_a_bookie_is_lost_and_readers_see_everything(
    world: LeaderWorld,
) -> None:
    leader = await world.lead()
    futures = [leader.append_async(record) for record in of(0, 100)]
    await futures[0]
    state = await (await world.reader()).state()
    ledger = state.head.open_ledgers[0].ledger_id
    metadata = await world.client().ledger_metadata(ledger)
    await world.kill(metadata.last_fragment.ensemble[0])
    for record in of(100, 200):
        futures.append(leader.append_async(record))
        await asyncio.sleep(0.05)
    assert [(await future).offset for future in futures] == list(range(200))
    await leader.close()
    assert await world.values() == of(0, 200)


@pytest.mark.world(bookies=5)
async def test_leader_that_rolls_on_bookie_failure_keeps_positions(world: LeaderWorld) -> None:
    leader = await world.lead(onBookieFailure="roll_ledger")
    first = await leader.append(b"record 0")
    metadata = await world.client().ledger_metadata(first.ledger_id)
    await world.kill(metadata.last_fragment.ensemble[0])
    positions = await leader.append_many(of(1, 50))
    while positions[-1].ledger_id == first.ledger_id:
        positions = await leader.append_many(of(positions[-1].offset + 1, positions[-1].offset + 9))
        await asyncio.sleep(0.05)
    end = await leader.close()
    assert await world.values() == of(0, end)
    sealed = await world.client().ledger_metadata(first.ledger_id)
    assert len(sealed.fragments) == 1


@pytest.mark.world(bookies=5)
async def test_ledger_with_records_that_were_ordered_again_is_not_empty_and_is_rolled(
    world: LeaderWorld,
) -> None:
    leader = await world.lead(onBookieFailure="roll_ledger")
    first = await leader.append(b"record 0")
    metadata = await world.client().ledger_metadata(first.ledger_id)
    for bookie in metadata.last_fragment.ensemble[:2]:
        await world.kill(bookie)
    again = await leader.append(b"record 1")
    assert again.ledger_id != first.ledger_id
    await leader.roll()
    assert (await leader.append(b"record 2")).ledger_id != again.ledger_id
    await leader.close()
    assert await world.values() == of(0, 3)


@pytest.mark.world(bookies=4)
async def test_last_record_before_a_ledger_fails_is_seen_though_nothing_more_is_appended(
    world: LeaderWorld,
) -> None:
    """Two bookies acknowledged the record. The third fails when nothing is pending any more."""
    leader = await world.lead(onBookieFailure="roll_ledger")
    first = await leader.append(b"record 0")
    metadata = await world.client().ledger_metadata(first.ledger_id)
    world.transport.silent.add(metadata.last_fragment.ensemble[0])
    assert (await leader.append(b"record 1")).ledger_id == first.ledger_id
    await asyncio.sleep(60)
    assert (await world.client().ledger_metadata(first.ledger_id)).is_closed
    assert await world.values() == of(0, 2)
    assert (await leader.append(b"record 2")).ledger_id != first.ledger_id
    await leader.close()
    assert await world.values() == of(0, 3)


def test_leader_writer_confirms_all_entries_of_a_run_at_once() -> None:
    told: list[Any] = []
    writer = LeaderWriter(told.append)
    handle: Any = SimpleNamespace(id=7)
    writer.handle = handle
    writer.complete([(writer, 3), (writer, 4), (writer, 5)])
    assert told == [EntriesConfirmed(7, 5)]


async def test_error_of_a_truncated_position_has_the_oldest_one(world: LeaderWorld) -> None:
    leader = await world.lead()
    positions = list(await leader.append_many(of(0, 10)))
    await leader.roll()
    await leader.append_many(of(10, 20))
    await leader.truncate(positions[5])
    reader = await world.reader()
    for place in (0, positions[4]):
        with pytest.raises(PositionNotAvailableError, match="oldest position is 5") as caught:
            [record async for record in reader.read(place)]
        assert caught.value.oldest_offset == 5
        with pytest.raises(PositionNotAvailableError, match="oldest position is 5"):
            await anext(reader.tail(place))
    assert [record.value async for record in reader.read(positions[5], 12)] == of(5, 12)
    await leader.truncate(15)
    assert (await reader.snapshot()).interval.start_offset == 15
    with pytest.raises(ConfigurationError, match="100"):
        await leader.truncate(100)
    await leader.close()
    assert await world.values() == of(15, 20)


async def test_parts_are_read_from_any_place_to_any_place(world: LeaderWorld) -> None:
    leader = await world.lead()
    for first in range(0, 60, 3):
        await leader.append_many(of(first, first + 3))
        if first == 30:
            await leader.roll()
    await asyncio.sleep(VISIBLE_SECONDS)
    for start in range(0, 61, 7):
        for end in range(start, 61, 4):
            assert await world.values(start, end) == of(start, end)
    reader = await world.reader()
    with pytest.raises(PositionNotAvailableError, match=r"now ends at 60; to wait for it"):
        [record async for record in reader.read(0, 61)]
    with pytest.raises(PositionNotAvailableError, match=r"now ends at 60; to wait for it"):
        [record async for record in reader.read(61)]
    with pytest.raises(ConfigurationError, match="the end must not be before the start"):
        [record async for record in reader.read(7, 5)]
    for bad in (-1, True, "5", Position("another", 5)):
        with pytest.raises(ConfigurationError):
            [record async for record in reader.read(bad)]  # type: ignore[arg-type]
    await leader.close()


class Tailing:
    """A tail in a separate task. A test can wait for its records."""

    def __init__(self, reader: RecordLog, start: int | None = 0) -> None:
        self.records: list[Record] = []
        self._changed = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run(reader, start))

    async def _run(self, reader: RecordLog, start: int | None) -> None:
        async with contextlib.aclosing(reader.tail(start)) as records:
            async for record in records:
                self.records.append(record)
                self._changed.set()

    async def has(self, count: int, seconds: float = VISIBLE_SECONDS) -> None:
        async with asyncio.timeout(seconds):
            while len(self.records) < count:
                self._changed.clear()
                await self._changed.wait()

    async def end(self) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task


async def test_tail_delivers_the_last_record_of_an_idle_leader_within_100_ms(
    world: LeaderWorld,
) -> None:
    leader = await world.lead()
    tailing = Tailing(await world.reader())
    for number in range(5):
        await leader.append(b"record %d" % number)
        await tailing.has(number + 1)
        await asyncio.sleep(5)
    assert [record.value for record in tailing.records] == of(0, 5)
    await tailing.end()
    await leader.close()


async def test_record_that_came_damaged_with_the_news_of_it_is_read_from_another_bookie(
    world: LeaderWorld,
) -> None:
    leader = await world.lead()
    first = await leader.append(b"record 0")
    tailing = Tailing(await world.reader())
    await tailing.has(1)
    metadata = await world.client().ledger_metadata(first.ledger_id)
    ensemble = metadata.last_fragment.ensemble
    world.transport.corrupt.add(ensemble[first.ledger_id % len(ensemble)])
    await leader.append(b"record 1")
    await tailing.has(2)
    assert [record.value for record in tailing.records] == of(0, 2)
    await tailing.end()
    await leader.close()


async def test_new_records_come_with_their_notification_and_are_not_requested(
    world: LeaderWorld,
) -> None:
    leader = await world.lead()
    await leader.append(b"record 0")
    tailing = Tailing(await world.reader())
    await tailing.has(1)
    asked = len(world.transport.asked)
    for number in range(1, 20):
        await leader.append(b"record %d" % number)
        await tailing.has(number + 1)
        await asyncio.sleep(1)
    reads = [what for what, _ in world.transport.asked[asked:] if what.startswith("read")]
    assert reads == []
    await tailing.end()
    await leader.close()


@pytest.mark.world(bookies=5)
async def test_tail_goes_on_over_rolls_leaders_and_a_lost_bookie(world: LeaderWorld) -> None:
    tailing: Tailing | None = None
    count = 0
    for round_ in range(4):
        leader = await world.lead()
        if tailing is None:
            tailing = Tailing(await world.reader())
        for _ in range(3):
            await leader.append_many(of(count, count + 20))
            count += 20
            await leader.append(b"record %d" % count)
            count += 1
            await tailing.has(count, 5)
            if round_ == 1:
                await leader.roll()
        if round_ == 2:
            await world.kill(min(world.storages))
        if round_ % 2:
            await leader.close()
    assert tailing is not None
    await tailing.has(count, 60)
    assert [record.value for record in tailing.records] == of(0, count)
    assert [record.offset for record in tailing.records] == list(range(count))
    await tailing.end()


async def test_tail_begins_at_its_position_and_waits_for_records_that_do_not_exist_yet(
    world: LeaderWorld,
) -> None:
    leader = await world.lead()
    await leader.append_many(of(0, 10))
    await asyncio.sleep(1)
    reader = await world.reader()
    middle, end, later = Tailing(reader, 7), Tailing(reader, None), Tailing(reader, 12)
    await middle.has(3)
    await leader.append_many(of(10, 15))
    await end.has(5)
    await later.has(3)
    assert [record.offset for record in middle.records[:3]] == [7, 8, 9]
    assert [record.offset for record in end.records] == [10, 11, 12, 13, 14]
    assert [record.offset for record in later.records] == [12, 13, 14]
    for tailing in (middle, end, later):
        await tailing.end()
    await leader.close()


async def test_tail_of_an_idle_log_asks_nobody(world: LeaderWorld) -> None:
    leader = await world.lead()
    await leader.append_many(of(0, 10))
    tailing = Tailing(await world.reader())
    await tailing.has(10)
    await asyncio.sleep(5)
    asked = len(world.transport.asked)
    await asyncio.sleep(3000)
    assert len(world.transport.asked) == asked
    await tailing.end()
    await leader.close()


async def test_transactional_log_is_neither_led_nor_read_without_spark(world: LeaderWorld) -> None:
    log = await world.logs().create("rows")
    with pytest.raises(LogKindError, match="with Spark"):
        await log.lead(ClientSettings())
    reading = RecordLog(log, LogKind.TRANSACTIONAL, LogContent.ROWS)
    for read in (reading.read_batches, reading.read_rows):
        with pytest.raises(LogKindError, match="with Spark"):
            read()


async def test_appends_pending_when_the_client_ends_fail_and_say_that_they_are_unknown(
    world: LeaderWorld,
) -> None:
    leader = await world.lead()
    await leader.append(b"record 0")
    world.transport.held.update(world.names)
    pending = leader.append_async(b"record 1")
    await asyncio.sleep(0.01)
    leader.abandon()
    with pytest.raises(LocalProtocolError, match="read it from offset 1") as caught:
        await pending
    assert not caught.value.definite
    with pytest.raises(LocalProtocolError):
        await leader.append(b"record 2")


async def test_new_leader_keeps_what_the_old_one_could_not_say_was_acknowledged(
    world: LeaderWorld,
) -> None:
    old = await world.lead()
    await old.append_many(of(0, 5))
    world.transport.held.update(world.names)
    pending = old.append_async(b"record 5")
    await asyncio.sleep(0.01)
    for name in world.names:
        world.transport.release(name)
    old.abandon()
    with contextlib.suppress(LocalProtocolError):
        await pending
    new = await world.lead()
    position = await new.append(b"next")
    await new.close()
    values = await world.values()
    assert values[: position.offset] == of(0, position.offset)
    assert position.offset in (5, 6)
    assert values[position.offset] == b"next"


async def test_tail_whose_client_is_closed_ends_with_an_error_and_does_not_hang(
    world: LeaderWorld,
) -> None:
    leader = await world.lead()
    await leader.append_many(of(0, 3))
    for is_waiting_in_a_ledger in (True, False):
        client, stores = world.client_and_stores()
        log = await Logs(store=stores.logs, ledgers=client).open("orders")
        tail = RecordLog(log, LogKind.LEADER, LogContent.RECORDS).tail(0)
        assert [(await anext(tail)).value for _ in range(3)] == of(0, 3)
        waiting = asyncio.ensure_future(anext(tail))
        await asyncio.sleep(1)
        await client.aclose()
        with pytest.raises(LocalProtocolError, match="closed"):
            await waiting
        if is_waiting_in_a_ledger:
            await leader.close()


async def test_appends_that_wait_are_sent_in_order_when_several_entries_are_confirmed_at_once(
    world: LeaderWorld,
) -> None:
    leader = await world.lead()
    noise = Random(7)
    world.transport.held.update(world.names)
    futures = [leader.append_async(noise.randbytes(200_000)) for _ in range(250)]
    await asyncio.sleep(0.1)
    world.transport.held.clear()
    answers = [world.transport.waiting.pop(name) for name in world.names]
    for answer in (one for of_bookie in answers for one in of_bookie[1:]):
        answer()
    assert not any(future.done() for future in futures)
    for of_bookie in answers:
        of_bookie[0]()
    assert [(await future).offset for future in futures] == list(range(250))
    await leader.close()
    assert len(await world.values()) == 250


async def test_tail_outlives_a_metadata_store_that_is_away_and_a_lost_session(
    world: LeaderWorld,
) -> None:
    leader = await world.lead()
    client, stores = world.client_and_stores()
    tree = stores.tree
    assert isinstance(tree, MemoryTree)
    log = await Logs(store=stores.logs, ledgers=client).open("orders")
    tailing = Tailing(RecordLog(log, LogKind.LEADER, LogContent.RECORDS))
    await leader.append_many(of(0, 10))
    await tailing.has(10)
    tree.disconnect()
    await leader.append_many(of(10, 20))
    await tailing.has(20)  # of the ledger that is followed, from its bookies
    for first in (20, 30):
        await leader.roll()
        await leader.append_many(of(first, first + 10))
    await asyncio.sleep(30)
    assert len(tailing.records) == 20
    tree.connect()
    await tailing.has(40, seconds=5)
    tree.expire_session()
    await leader.roll()
    await leader.append_many(of(40, 50))
    await tailing.has(50, seconds=5)
    assert [record.value for record in tailing.records] == of(0, 50)
    await tailing.end()
    await leader.close()


async def test_leader_goes_on_in_its_ledger_while_the_metadata_store_is_away(
    world: LeaderWorld,
) -> None:
    client, stores = world.client_and_stores()
    tree = stores.tree
    assert isinstance(tree, MemoryTree)
    log = await Logs(store=stores.logs, ledgers=client).create(
        "orders",
        kind=LogKind.LEADER,
        content=LogContent.RECORDS,
        properties={"rollBytes": "2000"},
    )
    leader = await log.lead(ClientSettings())
    first = await leader.append(b"record 0")
    tree.disconnect()
    for number in range(1, 500):
        position = await leader.append(b"record %d" % number)
        assert (position.offset, position.ledger_id) == (number, first.ledger_id)
    tree.connect()
    await asyncio.sleep(30)
    assert (await leader.append(b"record 500")).ledger_id != first.ledger_id
    await leader.close()
    assert await world.values() == of(0, 501)
