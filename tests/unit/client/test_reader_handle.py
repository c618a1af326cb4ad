from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from ledgerlog_spark.client.settings import PAYLOAD_SIZE_BYTES_MAX, ClientSettings
from ledgerlog_spark.errors import (
    ConfigurationError,
    DigestMismatchError,
    EntryNotFoundError,
    EntryUnknownError,
    LedgerNotFoundError,
    LedgerRecoveryError,
    LocalProtocolError,
    UnauthorizedError,
)
from ledgerlog_spark.model import NO_ENTRY, Code, LedgerState
from ledgerlog_spark.protocol.ledger.entry_batch import EntryBatch
from ledgerlog_spark.protocol.ledger.messages import BatchReplied, LacReplied, ReadReplied
from ledgerlog_spark.protocol.ledger.read.budget import ReaderSettings
from ledgerlog_spark.protocol.ledger.read.lac import LacReader
from ledgerlog_spark.protocol.ledger.read.reader import LedgerReader
from ledgerlog_spark.protocol.ledger.read_room import ReadRoom
from ledgerlog_spark.protocol.ledger.recover.recovery import LedgerRecovery, RecoverySettings
from ledgerlog_spark.retry import RetryPolicy
from ledgerlog_spark.transport.port import LacRise
from tests.fixtures.client_world import ClientWorld
from tests.fixtures.metadata_worlds import memory_tree


async def written(world: ClientWorld, entries: int, *, close: bool = True, **kind: object) -> int:
    ledger = await world.client().create_ledger(**kind)  # type: ignore[arg-type]
    if entries:
        await ledger.append_batch([b"entry %d" % number for number in range(entries)])
    if close:
        await ledger.close()
    return ledger.id


async def test_a_closed_ledger_is_read_to_its_end_in_order(world: ClientWorld) -> None:
    ledger_id = await written(world, 3000)
    reader = await world.client().open_ledger(ledger_id)
    assert (reader.last_add_confirmed, reader.is_closed) == (2999, True)
    entries = [entry async for entry in reader.read()]
    assert [entry.entry_id for entry in entries] == list(range(3000))
    assert [entry.payload for entry in entries] == [b"entry %d" % n for n in range(3000)]
    assert reader.length == sum(len(entry.payload) for entry in entries) == entries[-1].length
    assert [entry.entry_id async for entry in reader.read(7, 9)] == [7, 8, 9]
    assert (await reader.read_entry(1234)).payload == b"entry 1234"


async def test_an_empty_ledger_reads_as_nothing(world: ClientWorld) -> None:
    reader = await world.client().open_ledger(await written(world, 0))
    assert reader.last_add_confirmed == NO_ENTRY
    assert [entry async for entry in reader.read()] == []


async def test_opening_and_reading_an_open_ledger_never_fences(world: ClientWorld) -> None:
    ledger = await world.client().create_ledger()
    await ledger.append(b"a")
    await ledger.append(b"b")
    reader = await world.client().open_ledger(ledger.id)
    # The header of entry 1 has the LAC 0, because a LAC is behind its writer.
    assert (reader.last_add_confirmed, reader.is_closed) == (0, False)
    assert [entry.payload async for entry in reader.read()] == [b"a"]
    assert await ledger.append(b"c") == 2
    assert await reader.refresh() == 1
    await ledger.close()
    assert await reader.refresh() == 2
    assert reader.is_closed


async def test_a_range_beyond_the_last_add_confirmed_is_refused_unless_it_is_listed(
    world: ClientWorld,
) -> None:
    ledger = await world.client().create_ledger()
    await ledger.append_batch([b"x"] * 10)
    reader = await world.client().open_ledger(ledger.id)
    assert reader.last_add_confirmed == NO_ENTRY
    with pytest.raises(LocalProtocolError, match="refresh"):
        await anext(reader.read(0, 9))
    listed = [batch async for batch in reader.read_batches(0, 9, is_listed=True)]
    assert [entry.entry_id for batch in listed for entry in batch] == list(range(10))


async def test_a_listed_range_of_an_open_ledger_is_read_without_asking_how_far_it_is_confirmed(
    world: ClientWorld,
) -> None:
    ledger = await world.client().create_ledger()
    await ledger.append_batch([b"x"] * 10)
    world.transport.asked.clear()
    reader = await world.client().open_ledger(ledger.id, is_listed=True)
    assert (world.transport.asked, reader.last_add_confirmed) == ([], NO_ENTRY)
    listed = [batch async for batch in reader.read_batches(0, 9, is_listed=True)]
    assert [entry.entry_id for batch in listed for entry in batch] == list(range(10))


async def test_an_open_ledger_whose_bookies_are_all_away_is_not_opened_as_if_it_were_empty(
    world: ClientWorld,
) -> None:
    ledger_id = await written(world, 10, close=False)
    for name in world.names:
        await world.kill(name)
    with pytest.raises(EntryUnknownError) as failed:
        await world.client().open_ledger(ledger_id)
    assert failed.value.retriable


@pytest.mark.parametrize(("first", "last"), [(-1, 0), (3, 2), (0, 5), (6, 7)])
async def test_a_bad_range_is_refused_and_nothing_is_read(
    world: ClientWorld, first: int, last: int
) -> None:
    reader = await world.client().open_ledger(await written(world, 5))
    world.transport.asked.clear()
    with pytest.raises(LocalProtocolError):
        await anext(reader.read(first, last))
    assert world.transport.asked == []


async def test_a_bad_digest_on_one_replica_is_read_from_another(world: ClientWorld) -> None:
    ledger_id = await written(world, 2000)
    world.transport.corrupt.update(world.names[:2])
    reader = await world.client().open_ledger(ledger_id)
    assert [entry.payload async for entry in reader.read()] == [
        b"entry %d" % number for number in range(2000)
    ]


async def test_bad_digests_on_all_replicas_are_an_error_and_never_data(world: ClientWorld) -> None:
    ledger_id = await written(world, 3)
    world.transport.corrupt.update(world.names)
    reader = await world.client().open_ledger(ledger_id)
    with pytest.raises(DigestMismatchError) as failed:
        await reader.read_entry(1)
    assert (failed.value.ledger_id, failed.value.entry_id) == (ledger_id, 1)
    assert sorted(failed.value.bookie_ids) == world.names


async def test_a_bookie_that_is_gone_is_passed_over(world: ClientWorld) -> None:
    ledger_id = await written(world, 2000)
    for name in world.names[:2]:
        await world.kill(name)
    reader = await world.client().open_ledger(ledger_id)
    assert len([entry async for entry in reader.read()]) == 2000


async def test_absent_is_said_only_when_every_replica_says_so(world: ClientWorld) -> None:
    ledger_id = await written(world, 3)
    for storage in world.storages.values():
        del storage.ledgers[ledger_id].entries[1]
    reader = await world.client().open_ledger(ledger_id)
    got: list[int] = []

    async def read_all() -> None:
        async for entry in reader.read():
            got.append(entry.entry_id)  # noqa: PERF401 (what came before the error counts)

    with pytest.raises(EntryNotFoundError) as failed:
        await read_all()
    assert got == [0]
    assert failed.value.entry_id == 1
    world.transport.refusing["bookie-1"] = Code.IO_ERROR
    with pytest.raises(EntryUnknownError) as unknown:
        await reader.read_entry(1)
    assert unknown.value.retriable


async def test_a_slow_bookie_is_helped_by_another(world: ClientWorld) -> None:
    ledger_id = await written(world, 10)
    loop = asyncio.get_running_loop()
    world.transport.held.update(world.names[:2])
    reader = await world.client().open_ledger(ledger_id)
    begun = loop.time()
    assert len([entry async for entry in reader.read()]) == 10
    assert loop.time() - begun < 3
    for name in world.names:
        world.transport.release(name)


@pytest.mark.world(
    settings=ClientSettings(
        reader=ReaderSettings(entries_ahead_max=20, batch_entries_max=5, batches_in_flight_max=2)
    )
)
async def test_a_reader_reads_ahead_no_further_than_its_limit(world: ClientWorld) -> None:
    reader = await world.client().open_ledger(await written(world, 500))
    world.transport.asked.clear()
    async with contextlib.aclosing(reader.read_batches()) as batches:
        await anext(batches)
        await asyncio.sleep(0.1)
        assert len(world.transport.asked) < 10
        seen = 5
        async for batch in batches:
            seen += len(batch)
    assert seen >= 500


async def test_a_reader_that_took_one_batch_of_large_entries_holds_no_more_than_its_bound(
    world: ClientWorld,
) -> None:
    large = bytes(PAYLOAD_SIZE_BYTES_MAX)
    ledger = await world.client().create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1)
    for _ in range(24):
        await ledger.append(large)
    await ledger.close()
    del large
    came: list[int] = []
    for storage in world.storages.values():
        count_bytes_read(storage, came)
    reader = await world.client().open_ledger(ledger.id)
    async with contextlib.aclosing(reader.read_batches()) as batches:
        taken = len((await anext(batches))[0].payload)
        await asyncio.sleep(60)
        assert taken < sum(came) <= taken + (64 << 20)
        held = sum(came) - taken
        await anext(batches)
        await asyncio.sleep(60)
        assert sum(came) <= 2 * taken + held + 1_000  # headers and digests
    assert [entry.entry_id async for entry in reader.read()] == list(range(24))


def count_bytes_read(storage: Any, came: list[int]) -> None:
    """Record the bytes of each entry that a storage returns."""
    read, read_batch = storage.read, storage.read_batch

    def counted(request: Any, on_done: Callable[..., None]) -> None:
        def done(code: Code, entry: bytes | None) -> None:
            came.append(len(entry or b""))
            on_done(code, entry)

        read(request, done)

    def counted_batch(request: Any, on_done: Callable[..., None]) -> None:
        def done(code: Code, entries: Sequence[bytes]) -> None:
            came.extend(map(len, entries))
            on_done(code, entries)

        read_batch(request, done)

    storage.read, storage.read_batch = counted, counted_batch


def deaf_to(kind: type, machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that ignores a kind of reply and continues with its timers, as a bug would."""
    handle = machine.handle

    def forgetful(self: Any, event: Any) -> Any:
        return [] if type(event) is kind else handle(self, event)

    monkeypatch.setattr(machine, "handle", forgetful)


async def test_a_seal_that_stands_still_ends_with_an_error(
    world: ClientWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = await world.client().create_ledger()
    await ledger.append_batch([b"x"] * 10)
    deaf_to(ReadReplied, LedgerRecovery, monkeypatch)
    began = asyncio.get_running_loop().time()
    with pytest.raises(LedgerRecoveryError, match="no request was answered") as caught:
        await world.client().seal(ledger.id)
    assert caught.value.retriable
    assert asyncio.get_running_loop().time() - began <= 2 * ClientSettings().stall_ms / 1e3
    monkeypatch.undo()
    assert (await world.client().seal(ledger.id)).last_entry_id == 9


async def test_a_read_that_stands_still_ends_with_an_error(
    world: ClientWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger_id = await written(world, 3000)
    reader = await world.client().open_ledger(ledger_id)
    deaf_to(BatchReplied, LedgerReader, monkeypatch)
    with pytest.raises(EntryUnknownError, match="no request was answered") as caught:
        [entry async for entry in reader.read()]
    assert caught.value.entry_id == 0


async def test_a_reader_whose_application_takes_its_time_stands_not_still(
    world: ClientWorld,
) -> None:
    ledger_id = await written(world, 3000)
    reader = await world.client().open_ledger(ledger_id)
    seen = 0
    async with contextlib.aclosing(reader.read_batches()) as batches:
        async for batch in batches:
            seen += len(batch)
            await asyncio.sleep(10 * ClientSettings().stall_ms / 1e3)
    assert seen == 3000


async def test_a_slow_answer_after_a_long_pause_of_the_application_is_waited_for(
    world: ClientWorld,
) -> None:
    ledger_id = await written(world, 3000)
    client = world.client(reader=ReaderSettings(entries_ahead_max=50))
    reader = await client.open_ledger(ledger_id)
    loop = asyncio.get_running_loop()
    stall = ClientSettings().stall_ms / 1e3
    began = loop.time()
    async with contextlib.aclosing(reader.read_batches()) as batches:
        seen = len(await anext(batches))
        # While the application is slow, nothing is requested, so no reply comes.
        await asyncio.sleep(began + 2 * stall - 1 - loop.time())
        world.transport.held |= set(world.names)
        for name in world.names:
            loop.call_later(2, world.transport.release, name)
        async for batch in batches:
            seen += len(batch)
    assert seen == 3000


async def test_a_seal_may_pause_longer_than_requests_take(world: ClientWorld) -> None:
    ledger = await world.client().create_ledger()
    await ledger.append(b"x")
    patient = RecoverySettings(
        retry=RetryPolicy(first_delay_ms=300_000, delay_max_ms=300_000, attempts_max=3)
    )
    world.transport.refusing = dict.fromkeys(world.names, Code.UNAVAILABLE)
    asyncio.get_running_loop().call_later(10, world.transport.refusing.clear)
    sealed = await world.client(recovery=patient).seal(ledger.id)
    assert sealed.last_entry_id == 0


async def test_asking_how_far_a_ledger_is_confirmed_never_lasts_for_ever(
    world: ClientWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = await world.client().create_ledger()
    await ledger.append(b"x")
    deaf_to(LacReplied, LacReader, monkeypatch)
    with pytest.raises(EntryUnknownError, match="no request was answered"):
        await world.client().open_ledger(ledger.id)


@pytest.mark.world(settings=ClientSettings(reader=ReaderSettings(batch_entries_max=7)))
async def test_a_bookie_that_returns_more_than_was_asked_for_changes_nothing(
    world: ClientWorld,
) -> None:
    reader = await world.client().open_ledger(await written(world, 100))
    world.transport.generous.update(world.names)
    assert [entry.entry_id async for entry in reader.read(3, 95)] == list(range(3, 96))


async def test_an_abandoned_read_stops_asking(world: ClientWorld) -> None:
    reader = await world.client().open_ledger(await written(world, 5000))
    batches = reader.read_batches()
    await anext(batches)
    await batches.aclose()
    world.transport.asked.clear()
    await asyncio.sleep(60)
    assert world.transport.asked == []


async def test_closing_the_handle_ends_its_reads(world: ClientWorld) -> None:
    reader = await world.client().open_ledger(await written(world, 10))
    world.transport.held.update(world.names)
    reading = asyncio.ensure_future(reader.read_entry(3))
    await asyncio.sleep(0)
    await reader.aclose()
    with pytest.raises(LocalProtocolError, match="closed"):
        await reading
    with pytest.raises(LocalProtocolError, match="open the ledger again"):
        await reader.read_entry(3)
    for name in world.names:
        world.transport.release(name)


@pytest.mark.parametrize("close", [True, False])
async def test_a_handle_that_was_closed_is_not_refreshed(world: ClientWorld, close: bool) -> None:
    """This holds for open and for closed ledgers."""
    client = world.client()
    reader = await client.open_ledger(await written(world, 3, close=close))
    await reader.aclose()
    with pytest.raises(LocalProtocolError, match="open the ledger again"):
        await reader.refresh()


async def test_a_wrong_password_is_refused_before_any_bookie_is_asked(world: ClientWorld) -> None:
    ledger_id = await written(world, 3, password=b"secret")
    world.transport.asked.clear()
    client = world.client()
    with pytest.raises(UnauthorizedError):
        await client.open_ledger(ledger_id, password=b"wrong")
    with pytest.raises(UnauthorizedError):
        await client.seal(ledger_id)
    assert world.transport.asked == []
    assert (await client.open_ledger(ledger_id, password=b"secret")).last_add_confirmed == 2


@pytest.mark.parametrize(
    ("ledger_id", "says"),
    [
        (-1, "ledger id -1 is not between 0"),
        (1 << 63, f"ledger id {1 << 63} is not between 0"),
        ("7", "ledger_id must be of type int, got '7'"),
        (3.0, "ledger_id must be of type int, got 3.0"),
        (True, "ledger_id must be of type int, got True"),
    ],
)
async def test_an_id_that_no_ledger_can_have_is_refused_as_an_argument(
    world: ClientWorld, ledger_id: Any, says: str
) -> None:
    client = world.client()
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: client.open_ledger(ledger_id),
        lambda: client.seal(ledger_id),
        lambda: client.delete_ledger(ledger_id),
        lambda: client.ledger_metadata(ledger_id),
    ]
    for call in calls:
        with pytest.raises(ConfigurationError, match=says):
            await call()


@pytest.mark.parametrize("digest_type", ["CRC32C", "CRC32", "HMAC", "DUMMY"])
@pytest.mark.parametrize("ensemble_size", [3, 5])
@pytest.mark.world(bookies=5)
async def test_every_digest_and_a_striped_ledger_read_back(
    world: ClientWorld, digest_type: str, ensemble_size: int
) -> None:
    ledger_id = await written(
        world, 50, digest_type=digest_type, password=b"p", ensemble_size=ensemble_size
    )
    reader = await world.client().open_ledger(ledger_id, password=b"p")
    assert [entry.payload async for entry in reader.read()] == [
        b"entry %d" % number for number in range(50)
    ]


async def test_a_ledger_deleted_under_a_reader_is_not_found_at_the_next_refresh(
    world: ClientWorld,
) -> None:
    client = world.client()
    reader = await client.open_ledger(await written(world, 3, close=False))
    await client.delete_ledger(reader.id)
    await client.delete_ledger(reader.id)
    with pytest.raises(LedgerNotFoundError):
        await reader.refresh()
    with pytest.raises(LedgerNotFoundError):
        await client.open_ledger(reader.id)


async def test_a_sealed_ledger_holds_what_was_acknowledged_and_sealing_again_says_the_same(
    world: ClientWorld,
) -> None:
    ledger_id = await written(world, 20, close=False)
    sealed = await world.client().seal(ledger_id)
    assert (sealed.state, sealed.last_entry_id) == (LedgerState.CLOSED, 19)
    first, second = await asyncio.gather(
        world.client().seal(ledger_id), world.client().seal(ledger_id)
    )
    assert first == second == sealed
    reader = await world.client().open_ledger(ledger_id)
    assert len([entry async for entry in reader.read()]) == 20


async def test_a_read_that_waits_for_room_is_no_standstill(world: ClientWorld) -> None:
    stall = world.settings.stall_ms / 1e3
    reader = await world.client().open_ledger(await written(world, 10))
    room = ReadRoom()
    first, place = room.place(), room.place()
    first.handed_size_bytes = room.size_bytes_max
    first.settled()
    batches = reader.read_batches(place=place)
    reading = asyncio.ensure_future(anext(batches))
    await asyncio.sleep(3.7 * stall)
    assert not reading.done()
    world.transport.held |= set(world.names)
    first.leave()
    place.take_turn()
    await asyncio.sleep(0.5 * stall)
    for name in world.names:
        world.transport.release(name)
    assert len(await reading) == 10
    await batches.aclose()
    assert room.reserved_size_bytes == 0


async def test_a_read_that_has_its_turn_and_stands_still_ends(world: ClientWorld) -> None:
    reader = await world.client().open_ledger(await written(world, 10))
    world.transport.held |= set(world.names)
    place = ReadRoom().place()
    place.take_turn()
    with pytest.raises(EntryUnknownError, match="no request was answered for a long time"):
        await anext(reader.read_batches(place=place))


async def test_a_ledger_that_was_closed_stays_closed_whatever_a_replica_shows(
    world: ClientWorld,
) -> None:
    writer = await world.client().create_ledger()
    await writer.append(b"there")
    before = world.nodes.current.copy()
    await writer.close()
    client, stores = world.client_and_stores()
    reader = await client.open_ledger(writer.id)
    assert reader.is_closed
    memory_tree(stores)._held = before
    await reader.reload()
    assert reader.is_closed
    assert await reader.refresh() == 0
    assert [entry.payload async for entry in reader.read()] == [b"there"]


async def test_a_ledger_that_a_replica_does_not_show_is_looked_for_again_after_a_sync(
    world: ClientWorld,
) -> None:
    """A new session may begin with a server that is behind the last session."""
    before = world.nodes.current.copy()
    writer = await world.client().create_ledger()
    await writer.append(b"there")
    client, stores = world.client_and_stores()
    reader = await client.open_ledger(writer.id)
    memory_tree(stores)._held = before
    await reader.reload()
    assert not reader.is_closed
    memory_tree(stores)._held = before
    follower = reader.follow(lambda: None)
    await asyncio.sleep(1)
    assert follower.error is None
    follower.cancel()


async def test_the_end_of_a_closed_ledger_does_not_move_whatever_a_bookie_says(
    world: ClientWorld,
) -> None:
    reader = await world.client().open_ledger(await written(world, 3))
    assert reader.is_closed
    reader.take_rise(LacRise(7, 3))
    assert reader.last_add_confirmed == 2
    assert await reader.refresh() == 2
    with pytest.raises(LocalProtocolError, match="lies beyond"):
        await reader.read_entry(3)


async def test_what_came_before_an_error_is_given_out_before_it(world: ClientWorld) -> None:
    reader = await world.client().open_ledger(await written(world, 10))
    batches = reader.read_batches()
    first = await anext(batches)
    assert isinstance(first, EntryBatch)
    (reading,) = reader._ranges
    reading._batches.append(first)
    reading._is_over = False
    reading.fail(EntryUnknownError("so it is", ledger_id=reader.id, entry_id=9))
    assert await anext(batches) == first
    with pytest.raises(EntryUnknownError, match="so it is"):
        await anext(batches)


async def test_a_follower_sees_a_close_that_came_while_it_read_the_record(
    world: ClientWorld,
) -> None:
    writer = await world.client().create_ledger()
    await writer.append(b"x")
    reader = await world.client().open_ledger(writer.id)
    store = reader._services.ledgers
    load = store.load

    async def closed_meanwhile(ledger_id: int) -> Any:
        found = await load(ledger_id)
        await writer.close()
        await asyncio.sleep(0.01)
        return found

    store.load = closed_meanwhile
    follower = reader.follow(lambda: None)
    await asyncio.sleep(0.005)
    store.load = load
    await asyncio.sleep(1)
    assert follower.is_over
    assert reader.is_closed
