"""The end of a leader log while it is written, and the watches of the end."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import replace
from typing import Any, Self

import pytest

from ledgerlog_spark.client.client import LedgerClient
from ledgerlog_spark.client.handles.writer import WriteHandle
from ledgerlog_spark.errors import (
    DataLossError,
    EntryUnknownError,
    LedgerNotFoundError,
    LocalProtocolError,
    LogKindError,
    MetadataUnavailableError,
)
from ledgerlog_spark.log.log import Log
from ledgerlog_spark.log.logs import Logs
from ledgerlog_spark.log.reading.open_ends import LISTINGS_MAX, while_ledgers_go
from ledgerlog_spark.log.reading.record_log import RecordLog
from ledgerlog_spark.metadata.logs.store import LogStore
from ledgerlog_spark.model import NO_ENTRY, Code
from ledgerlog_spark.protocol.leader.entry import (
    LeaderCodec,
    LeaderEntryHeader,
    encode_entry_header,
    encode_records,
)
from ledgerlog_spark.protocol.log.messages import WriteHead
from ledgerlog_spark.protocol.log.state.records import (
    Item,
    LogContent,
    LogHead,
    LogKind,
    OpenLedger,
    Paged,
)
from ledgerlog_spark.testing.memory.tree import MemoryTree
from tests.fixtures.client_world import ClientWorld
from tests.fixtures.metadata_worlds import memory_tree
from tests.unit.client.test_explicit_lac import herald

TIME_MS = 1_700_000_000_000


class LedWorld(ClientWorld):
    """A cluster with one leader log, whose list and ledgers are written by hand."""

    log: Log
    store: LogStore
    ledgers: LedgerClient

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        await self.led()
        return self

    async def led(self) -> None:
        self.ledgers, stores = self.client_and_stores()
        self.store = stores.logs
        self.log = await Logs(store=stores.logs, ledgers=self.ledgers).create(
            "orders", kind=LogKind.LEADER, content=LogContent.RECORDS
        )

    async def change(self, **fields: object) -> LogHead:
        found = await self.store.read_head(self.log.log_id)
        assert found is not None
        token = uuid.uuid4().hex
        head = replace(found.value, token=token, **fields)  # type: ignore[arg-type]
        await self.store.write_head(self.log.log_id, WriteHead(token, head, found.version))
        return head

    async def ledger(self) -> WriteHandle:
        return await self.ledgers.create_ledger(explicit_lac=True)

    async def open(self, *ledgers: tuple[WriteHandle, int]) -> None:
        listed = tuple(OpenLedger(ledger.id, offset, TIME_MS) for ledger, offset in ledgers)
        await self.change(open_ledgers=listed)


def entry_of(first_offset: int, count: int = 1) -> bytes:
    body = encode_records([b"record"] * count)
    header = LeaderEntryHeader(LeaderCodec.PLAIN, first_offset, TIME_MS, count, len(body))
    return encode_entry_header(header) + body


async def appended(ledger: WriteHandle, first_offset: int, *counts: int) -> None:
    for count in counts:
        await ledger.append(entry_of(first_offset, count))
        first_offset += count


async def test_empty_leader_log_ends_where_it_begins(world: LedWorld) -> None:
    await world.open((await world.ledger(), 0))
    snapshot = await world.log.snapshot()
    assert (snapshot.items, snapshot.interval.end_offset) == ((), 0)
    assert (snapshot.kind, snapshot.content) == (LogKind.LEADER, LogContent.RECORDS)


async def test_open_ledger_is_an_item_up_to_the_last_add_confirmed_as_it_is_now(
    world: LedWorld,
) -> None:
    ledger = await world.ledger()
    await world.open((ledger, 0))
    await appended(ledger, 0, 3, 4)
    await asyncio.sleep(0.1)
    snapshot = await world.log.snapshot()
    assert snapshot.items == (
        Item(ledger.id, 0, 1, NO_ENTRY, 7, ledger.length, 0, newest_ms=TIME_MS),
    )
    assert (snapshot.interval.start_offset, snapshot.interval.end_offset) == (0, 7)
    await appended(ledger, 7, 1)
    await asyncio.sleep(0.1)
    assert (await world.log.snapshot()).interval.end_offset == 8


async def test_younger_ledger_is_not_seen_before_the_older_one_is_closed(world: LedWorld) -> None:
    older, younger = await world.ledger(), await world.ledger()
    await world.open((older, 0), (younger, 0))
    await appended(older, 0, 5)
    await appended(younger, 5, 2, 2)
    await asyncio.sleep(0.1)
    assert [item.ledger_id for item in (await world.log.snapshot()).items] == [older.id]
    await older.close()
    snapshot = await world.log.snapshot()
    assert [(item.ledger_id, item.first_offset, item.rows) for item in snapshot.items] == [
        (older.id, 0, 5),
        (younger.id, 5, 4),
    ]
    assert snapshot.interval.end_offset == 9


async def test_older_ledger_that_was_closed_empty_is_passed_over(world: LedWorld) -> None:
    older, younger = await world.ledger(), await world.ledger()
    await world.open((older, 0), (younger, 0))
    await older.close()
    await appended(younger, 0, 2)
    await asyncio.sleep(0.1)
    snapshot = await world.log.snapshot()
    assert [(item.ledger_id, item.rows) for item in snapshot.items] == [(younger.id, 2)]


async def test_items_and_open_ledgers_follow_one_another_without_a_gap(world: LedWorld) -> None:
    closed, ledger = await world.ledger(), await world.ledger()
    await appended(closed, 0, 6)
    await closed.close()
    item = Item(closed.id, 0, 0, NO_ENTRY, 6, closed.length, 0)
    await world.change(
        items=Paged(recent=(item,)),
        end_offset=6,
        open_ledgers=(OpenLedger(ledger.id, 6, TIME_MS),),
    )
    await appended(ledger, 6, 1, 2)
    await asyncio.sleep(0.1)
    snapshot = await world.log.snapshot()
    assert [(item.first_offset, item.end_offset) for item in snapshot.items] == [(0, 6), (6, 9)]


async def test_ledger_that_holds_less_than_is_listed_before_it_is_a_loss_that_is_named(
    world: LedWorld,
) -> None:
    ledger = await world.ledger()
    await world.change(end_offset=10, open_ledgers=(OpenLedger(ledger.id, 10, TIME_MS),))
    await appended(ledger, 0, 3)
    await asyncio.sleep(0.1)
    with pytest.raises(DataLossError, match="ends at offset 3"):
        await world.log.snapshot()


async def announced_to_the_herald_alone(world: LedWorld) -> WriteHandle:
    """A ledger of records 0 to 149. Two of its bookies have a LAC for 0 to 100."""
    ledger = await world.client(explicit_lac_ms=10**9).create_ledger(explicit_lac=True)
    await world.open((ledger, 0))
    await appended(ledger, 0, *[1] * 101)
    await ledger.append_batch([entry_of(offset) for offset in range(101, 150)])
    return ledger


async def other_log(world: LedWorld) -> Log:
    """The same log, in a client that has not read it."""
    client, stores = world.client_and_stores()
    return await Logs(store=stores.logs, ledgers=client).open("orders")


async def test_end_of_a_log_never_falls_though_a_bookie_that_lags_answers_the_next_look(
    world: LedWorld,
) -> None:
    ledger = await announced_to_the_herald_alone(world)
    log = await other_log(world)
    assert (await log.view()).end_offset == 150
    world.transport.held.add(herald(ledger))
    assert (await log.view()).end_offset == 150
    assert (await log.snapshot()).interval.end_offset == 150
    world.transport.release(herald(ledger))


async def test_fresh_view_goes_up_to_where_another_process_saw_the_log_end(world: LedWorld) -> None:
    ledger = await announced_to_the_herald_alone(world)
    world.transport.held.add(herald(ledger))
    assert (await (await other_log(world)).view()).end_offset == 101
    log = await other_log(world)
    # Earlier reads prove nothing about a list that may be older.
    assert (await log.view(seen_offset=150, is_fresh=False)).end_offset == 101
    view = await log.view(seen_offset=150)
    assert (view.end_offset, view.items[-1].last_entry_id) == (150, 149)
    assert view.items[-1].size_bytes == ledger.length
    assert (await (await other_log(world)).view(seen_offset=120)).end_offset == 120
    world.transport.release(herald(ledger))


async def test_records_that_were_seen_and_that_no_bookie_has_are_not_in_the_view(
    world: LedWorld,
) -> None:
    await announced_to_the_herald_alone(world)
    log = await other_log(world)
    assert (await log.view(seen_offset=100_000)).end_offset == 150


async def test_records_that_were_seen_and_cannot_be_read_now_are_no_shorter_log(
    world: LedWorld,
) -> None:
    ledger = await announced_to_the_herald_alone(world)
    world.transport.refusing[herald(ledger)] = Code.UNAVAILABLE
    for name in set(world.names) - {herald(ledger)}:
        for entry_id in range(120, 150):
            del world.storages[name].ledgers[ledger.id].entries[entry_id]
    with pytest.raises(EntryUnknownError) as failed:
        await (await other_log(world)).view(seen_offset=150)
    assert failed.value.retriable


async def test_closed_ledger_ends_where_its_record_says_whatever_was_seen(world: LedWorld) -> None:
    ledger = await announced_to_the_herald_alone(world)
    await ledger.close()
    asked = len(world.transport.asked)
    assert (await (await other_log(world)).view(seen_offset=200)).end_offset == 150
    assert len(world.transport.asked) == asked + 1  # its last entry


async def test_ledger_that_is_gone_under_the_same_head_is_an_error(world: LedWorld) -> None:
    ledger = await world.ledger()
    await world.open((ledger, 0))
    await world.ledgers.delete_ledger(ledger.id)
    with pytest.raises(LedgerNotFoundError):
        await world.log.snapshot()


async def test_leader_log_has_no_versions_to_read(world: LedWorld) -> None:
    with pytest.raises(LogKindError):
        await world.log.snapshot(0)
    for asked in (world.log.version_at(0), world.log.restore(0)):
        with pytest.raises(LogKindError, match="has no versions"):
            await asked


class Heard:
    """Counts the calls of a watch, and waits until the log has a given end."""

    def __init__(self, log: Log) -> None:
        self.calls = 0
        self._log = log
        self._changed = asyncio.Event()
        self.cancel = log.watch_end(self._on_change)

    def _on_change(self) -> None:
        self.calls += 1
        self._changed.set()

    async def ends_at(self, offset: int, seconds: float) -> None:
        """Read again only after a call."""
        async with asyncio.timeout(seconds):
            while (await self._log.snapshot()).interval.end_offset < offset:
                await self._changed.wait()
                self._changed.clear()


async def test_watch_of_a_leader_logs_end_hears_of_appends_rolls_and_closes(
    world: LedWorld,
) -> None:
    older = await world.ledger()
    heard = Heard(world.log)
    await world.open((older, 0))
    await appended(older, 0, 3)
    await heard.ends_at(3, seconds=0.2)
    younger = await world.ledger()
    await world.open((older, 0), (younger, 3))
    await appended(younger, 3, 1)
    await older.close()
    await heard.ends_at(4, seconds=0.2)
    item = Item(older.id, 0, 0, NO_ENTRY, 3, older.length, 0)
    await world.change(
        items=Paged(recent=(item,)),
        end_offset=3,
        open_ledgers=(OpenLedger(younger.id, 3, TIME_MS),),
    )
    await appended(younger, 4, 1)
    await heard.ends_at(5, seconds=0.2)
    heard.cancel()


async def test_watch_follows_a_ledger_that_is_listed_while_it_looks(world: LedWorld) -> None:
    ledger = await world.ledger()
    store: Any = world.log.host.store
    read_head = store.read_head

    async def crossed(log_id: str) -> object:
        found = await read_head(log_id)
        store.read_head = read_head
        await world.open((ledger, 0))
        await asyncio.sleep(0.1)
        return found

    store.read_head = crossed
    heard = Heard(world.log)
    await asyncio.sleep(1)
    calls = heard.calls
    await appended(ledger, 0, 3)
    await asyncio.sleep(1)
    assert heard.calls > calls
    heard.cancel()


async def test_watch_that_begins_in_an_outage_follows_what_is_listed_when_that_is_over(
    world: LedWorld,
) -> None:
    ledger = await world.ledger()
    await world.open((ledger, 0))
    store: Any = world.log.host.store
    read_head, failures = store.read_head, 0

    async def away(log_id: str) -> object:
        nonlocal failures
        failures += 1
        if failures <= 3:
            raise MetadataUnavailableError("the store is away")
        return await read_head(log_id)

    store.read_head = away
    heard = Heard(world.log)
    await asyncio.sleep(60)
    calls = heard.calls
    await appended(ledger, 0, 3)
    await asyncio.sleep(1)
    assert heard.calls > calls
    heard.cancel()


async def test_tail_asks_nothing_of_a_ledger_that_it_has_read_to_its_end(world: LedWorld) -> None:
    """The list names a closed ledger as open until its leader changes the list."""
    ledger = await world.ledger()
    await world.open((ledger, 0))
    await appended(ledger, 0, 3)
    await ledger.close()
    log = RecordLog(await other_log(world), LogKind.LEADER, LogContent.RECORDS)
    offsets: list[int] = []

    async def follow() -> None:
        async for record in log.tail(0):
            offsets.append(record.offset)  # noqa: PERF401 - one by one, as they come

    tail = asyncio.create_task(follow())
    await asyncio.sleep(1)
    assert offsets == [0, 1, 2]
    asked = len(world.transport.asked)
    for _ in range(5):
        await world.change()
        await asyncio.sleep(1)
    assert len(world.transport.asked) == asked
    tail.cancel()
    await asyncio.gather(tail, return_exceptions=True)


async def test_read_is_made_anew_while_ledgers_of_its_list_are_gone() -> None:
    reads = 0

    async def read() -> int:
        nonlocal reads
        reads += 1
        if reads < LISTINGS_MAX:
            raise LedgerNotFoundError("sealed, listed as an item, truncated and deleted")
        return reads

    assert await while_ledgers_go(read) == LISTINGS_MAX


async def test_watch_is_silent_and_asks_nothing_while_nothing_changes(world: LedWorld) -> None:
    ledger = await world.ledger()
    await world.open((ledger, 0))
    heard = Heard(world.log)
    await appended(ledger, 0, 3)
    await heard.ends_at(3, seconds=0.2)
    await asyncio.sleep(1)
    calls, asked = heard.calls, len(world.transport.asked)
    await asyncio.sleep(3600)
    assert (heard.calls, len(world.transport.asked)) == (calls, asked)
    watched = [asked for asked in world.transport.asked if asked[0] == "watch_lac"]
    assert len(watched) == 1
    heard.cancel()


async def test_cancelled_watch_calls_nobody_and_stops_following_the_ledgers(
    world: LedWorld,
) -> None:
    ledger = await world.ledger()
    await world.open((ledger, 0))
    heard = Heard(world.log)
    await appended(ledger, 0, 3)
    await heard.ends_at(3, seconds=0.2)
    await asyncio.sleep(1)
    heard.cancel()
    heard.cancel()
    calls = heard.calls
    await appended(ledger, 3, 3)
    await world.change()
    await asyncio.sleep(1)
    assert heard.calls == calls
    assert all(not storage.watchers[ledger.id] for storage in world.storages.values()
               if ledger.id in storage.watchers)  # fmt: skip


@pytest.mark.parametrize("is_away", [False, True])
async def test_watch_that_nobody_cancels_ends_with_its_client(
    world: LedWorld, is_away: bool
) -> None:
    ledger = await world.ledger()
    await world.open((ledger, 0))
    client, stores = world.client_and_stores()
    store: Any = stores.logs
    log = await Logs(store=store, ledgers=client).open("orders")
    calls: list[int] = []
    tasks = asyncio.all_tasks()
    log.watch_end(lambda: calls.append(1))
    await asyncio.sleep(1)
    if is_away:
        memory_tree(stores).disconnect()
        await world.change()
        await asyncio.sleep(20)
    asked = 0
    read_head = store.read_head

    async def counted(log_id: str) -> object:
        nonlocal asked
        asked += 1
        return await read_head(log_id)

    store.read_head = counted
    heard = len(calls)
    await client.aclose()
    await asyncio.sleep(0.1)
    assert asyncio.all_tasks() <= tasks | {asyncio.current_task()}
    await asyncio.sleep(60)
    assert (asked, len(calls)) == (0, heard)


async def test_nothing_is_watched_for_a_client_that_is_closed(world: LedWorld) -> None:
    ledger = await world.ledger()
    await world.open((ledger, 0))
    client, stores = world.client_and_stores()
    log = await Logs(store=stores.logs, ledgers=client).open("orders")
    reader = RecordLog(log, LogKind.LEADER, LogContent.RECORDS)
    await client.aclose()
    tasks = asyncio.all_tasks()
    with pytest.raises(LocalProtocolError, match="closed"):
        log.watch_end(lambda: None)
    with pytest.raises(LocalProtocolError, match="closed"):
        await anext(reader.tail(0))
    assert isinstance(stores.tree, MemoryTree)
    assert not any(stores.tree._watches.values())
    assert asyncio.all_tasks() == tasks


async def test_watch_of_a_transactional_logs_end_hears_of_its_head_alone(world: LedWorld) -> None:
    client, stores = world.client_and_stores()
    log = await Logs(store=stores.logs, ledgers=client).create("rows")
    calls: list[int] = []
    cancel = log.watch_end(lambda: calls.append(1))
    await asyncio.sleep(1)
    assert calls == []
    found = await stores.logs.read_head(log.log_id)
    assert found is not None
    token = uuid.uuid4().hex
    head = replace(found.value, token=token)
    await stores.logs.write_head(log.log_id, WriteHead(token, head, found.version))
    await asyncio.sleep(1)
    assert calls
    cancel()
