"""An idle writer announces its LAC, and readers are notified without polling."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from ledgerlog_spark.client.handles.lac_announcer import EXPLICIT_LAC_KEY, herald_index
from ledgerlog_spark.client.handles.reader import ReadHandle
from ledgerlog_spark.client.handles.writer import WriteHandle
from ledgerlog_spark.client.settings import ClientSettings
from ledgerlog_spark.errors import LedgerNotFoundError
from ledgerlog_spark.model import NO_ENTRY
from tests.fixtures.client_world import ClientWorld

VISIBLE_SECONDS = 0.1


class Following:
    """A read handle with a follower. A test can wait for its LAC."""

    def __init__(self, handle: ReadHandle) -> None:
        self.handle = handle
        self._changed = asyncio.Event()
        self.follower = handle.follow(self._changed.set)

    async def until(self, condition: Callable[[], bool], seconds: float = 60) -> None:
        async with asyncio.timeout(seconds):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def sees(self, entry_id: int, seconds: float = 60) -> None:
        await self.until(lambda: self.handle.last_add_confirmed >= entry_id, seconds)


async def written(world: ClientWorld, **kind: object) -> WriteHandle:
    return await world.client().create_ledger(explicit_lac=True, **kind)  # type: ignore[arg-type]


async def followed(world: ClientWorld, ledger: WriteHandle) -> Following:
    return Following(await world.client().open_ledger(ledger.id))


def lac_writes(world: ClientWorld) -> list[str]:
    return [bookie_id for what, bookie_id in world.transport.asked if what == "write_lac"]


def tellings(world: ClientWorld) -> list[str]:
    return [bookie_id for what, bookie_id in world.transport.asked if what == "announce_lac"]


def watched(world: ClientWorld) -> list[str]:
    return [bookie_id for what, bookie_id in world.transport.asked if what == "watch_lac"]


def herald(ledger: WriteHandle) -> str:
    ensemble = ledger.metadata.last_fragment.ensemble
    return ensemble[herald_index(ledger.id, len(ensemble))]


async def test_last_entry_of_an_idle_writer_is_seen_by_a_follower_without_a_later_append(
    world: ClientWorld,
) -> None:
    ledger = await written(world)
    following = await followed(world, ledger)
    for entry_id in range(5):
        await ledger.append(b"entry")
        await following.sees(entry_id, VISIBLE_SECONDS)
        await asyncio.sleep(1)
    assert [entry.entry_id async for entry in following.handle.read()] == list(range(5))


async def test_whoever_opens_the_ledger_of_an_idle_writer_sees_its_last_entry(
    world: ClientWorld,
) -> None:
    ledger = await written(world)
    await ledger.append_batch([b"entry"] * 10)
    await asyncio.sleep(VISIBLE_SECONDS)
    assert (await world.client().open_ledger(ledger.id)).last_add_confirmed == 9
    world.transport.without_control.update(world.names)
    assert (await world.client().open_ledger(ledger.id)).last_add_confirmed == NO_ENTRY


async def test_herald_is_told_then_all_bookies_are_written_to_and_then_there_is_silence(
    world: ClientWorld,
) -> None:
    ledger = await written(world)
    await ledger.append(b"entry")
    assert (tellings(world), lac_writes(world)) == ([herald(ledger)], [])
    await asyncio.sleep(60)
    assert tellings(world) == [herald(ledger)]
    assert sorted(lac_writes(world)) == sorted(world.names)


async def test_writer_that_was_not_asked_to_announces_nothing(world: ClientWorld) -> None:
    ledger = await world.client().create_ledger()
    await ledger.append(b"entry")
    await asyncio.sleep(60)
    assert lac_writes(world) == []
    assert EXPLICIT_LAC_KEY not in ledger.metadata.custom


async def test_herald_that_cannot_be_told_is_written_to_at_once(world: ClientWorld) -> None:
    ledger = await written(world)
    world.transport.untold.update(world.names)
    following = await followed(world, ledger)
    await ledger.append(b"entry")
    assert lac_writes(world) == [herald(ledger)]
    await following.sees(0, VISIBLE_SECONDS)
    await asyncio.sleep(60)
    assert sorted(lac_writes(world)) == sorted(world.names)


async def test_bookie_that_takes_its_time_is_written_what_came_meanwhile(
    world: ClientWorld,
) -> None:
    """The delay is longer than all attempts of the announcer."""
    world.transport.untold.update(world.names)
    ledger = await written(world)
    slow = herald(ledger)
    world.transport.held.add(slow)
    await ledger.append(b"first")
    await asyncio.sleep(0.01)
    await ledger.append(b"second")
    await asyncio.sleep(2)
    assert world.storages[slow].ledgers[ledger.id].lac == 0
    world.transport.release(slow)
    await asyncio.sleep(0.1)
    assert world.storages[slow].ledgers[ledger.id].lac == 1


async def test_writer_that_appends_again_and_again_tells_of_each_entry_and_writes_no_lac(
    world: ClientWorld,
) -> None:
    ledger = await written(world)
    following = await followed(world, ledger)
    for entry_id in range(50):
        await ledger.append(b"entry")
        assert len(tellings(world)) == entry_id + 1
        await following.sees(entry_id, VISIBLE_SECONDS)
        await asyncio.sleep(0.04)
    assert set(tellings(world)) == {herald(ledger)}
    assert lac_writes(world) == []
    await asyncio.sleep(VISIBLE_SECONDS)
    assert sorted(lac_writes(world)) == sorted(world.names)


async def test_entry_that_was_acknowledged_just_before_the_ledger_failed_is_seen(
    world: ClientWorld,
) -> None:
    client = world.client(explicit_lac_ms=30_000)
    ledger = await client.create_ledger(explicit_lac=True, changes_ensemble=False)
    world.transport.without_control.add(herald(ledger))
    following = await followed(world, ledger)
    await asyncio.sleep(1)
    (silent,) = {*world.names} - {herald(ledger), watched(world)[-1]}
    world.transport.silent.add(silent)
    await ledger.append(b"entry")
    await asyncio.sleep(20)
    assert not ledger.is_writable
    await following.sees(0, 20)


async def test_writer_that_was_closed_announces_nothing_more(world: ClientWorld) -> None:
    ledger = await written(world)
    pending = ledger.append_async(b"entry")
    await ledger.close()
    assert await pending == 0
    await asyncio.sleep(60)
    assert tellings(world) == lac_writes(world) == []


async def test_writer_that_appends_again_at_once_leaves_writing_to_its_entries(
    world: ClientWorld,
) -> None:
    ledger = await written(world)
    world.transport.untold.update(world.names)
    for _ in range(200):
        await ledger.append(b"entry")
    assert len(lac_writes(world)) <= 2
    await asyncio.sleep(VISIBLE_SECONDS)
    assert (await world.client().open_ledger(ledger.id)).last_add_confirmed == 199


async def test_bookie_that_takes_no_lac_is_tried_again_a_few_times_only(world: ClientWorld) -> None:
    world.transport.without_control.update(world.names)
    ledger = await written(world)
    await ledger.append(b"entry")
    await asyncio.sleep(3600)
    assert 3 <= len(lac_writes(world)) <= 30


async def test_follower_goes_to_the_next_bookie_when_one_fails(world: ClientWorld) -> None:
    ledger = await written(world)
    world.transport.without_control.add(herald(ledger))
    following = await followed(world, ledger)
    await ledger.append(b"entry")
    await following.sees(0, VISIBLE_SECONDS)
    assert watched(world)[0] == herald(ledger)
    assert len(set(watched(world))) == 2


async def test_follower_reads_headers_where_no_bookie_can_be_watched(world: ClientWorld) -> None:
    world.transport.without_control.update(world.names)
    ledger = await written(world)
    following = await followed(world, ledger)
    await ledger.append(b"first")
    await ledger.append(b"second")
    await following.sees(0)


async def test_follower_goes_along_when_the_ensemble_changes(world: ClientWorld) -> None:
    await world.join("bookie-3")
    world.names.append("bookie-3")
    ledger = await written(world)
    following = await followed(world, ledger)
    await ledger.append(b"before")
    await following.sees(0, VISIBLE_SECONDS)
    await world.kill(herald(ledger))
    for entry_id in range(1, 5):
        await ledger.append(b"after")
        await following.sees(entry_id)
    assert len(ledger.metadata.fragments) == 2


async def test_bookie_that_came_into_the_ensemble_of_an_idle_writer_is_told_and_watched(
    world: ClientWorld,
) -> None:
    await world.join("bookie-3")
    world.names.append("bookie-3")
    ledger = await written(world)
    following = await followed(world, ledger)
    await ledger.append(b"before")
    await following.sees(0, VISIBLE_SECONDS)
    first_herald = herald(ledger)
    world.transport.silent.add(first_herald)
    await ledger.append(b"confirmed by the others")
    await following.sees(1)
    assert first_herald not in ledger.metadata.last_fragment.ensemble
    assert watched(world) == [first_herald, herald(ledger)]
    await asyncio.sleep(1)
    assert herald(ledger) in lac_writes(world)
    assert ledger._announcer is not None
    assert set(ledger._announcer._written) <= set(ledger.metadata.last_fragment.ensemble)
    assert (await world.client().open_ledger(ledger.id)).last_add_confirmed == 1


async def test_follower_hears_that_the_ledger_was_closed_and_ends(world: ClientWorld) -> None:
    ledger = await written(world)
    following = await followed(world, ledger)
    await ledger.append_batch([b"entry"] * 7)
    await ledger.close()
    await following.until(lambda: following.handle.is_closed)
    assert (following.handle.last_add_confirmed, following.follower.error) == (6, None)
    asked = len(world.transport.asked)
    await asyncio.sleep(600)
    assert len(world.transport.asked) == asked


async def test_follower_of_a_deleted_ledger_ends_with_its_error(world: ClientWorld) -> None:
    ledger = await written(world)
    following = await followed(world, ledger)
    await ledger.append(b"entry")
    await following.sees(0)
    await world.client().delete_ledger(ledger.id)
    await following.until(lambda: following.follower.error is not None)
    assert isinstance(following.follower.error, LedgerNotFoundError)


async def test_cancelled_follower_and_closed_handle_hear_nothing_more(world: ClientWorld) -> None:
    ledger = await written(world)
    calls: list[int] = []
    handle = await world.client().open_ledger(ledger.id)
    follower = handle.follow(lambda: calls.append(1))
    other = await followed(world, ledger)
    await ledger.append(b"entry")
    await other.sees(0)
    await asyncio.sleep(1)
    follower.cancel()
    follower.cancel()
    await other.handle.aclose()
    heard = len(calls)
    await ledger.append(b"entry")
    await asyncio.sleep(1)
    assert len(calls) == heard
    assert other.handle.last_add_confirmed == 0


def test_explicit_lac_has_a_setting_in_milliseconds_that_is_positive() -> None:
    assert ClientSettings().explicit_lac_ms == 50
    with pytest.raises(ValueError, match="explicit_lac_ms"):
        ClientSettings(explicit_lac_ms=0)
