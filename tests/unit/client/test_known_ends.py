"""The known end of a ledger never decreases in a client (client.handles.known_ends)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ledgerlog_spark.client.handles import known_ends
from ledgerlog_spark.client.handles.known_ends import KnownEnds
from ledgerlog_spark.errors import EntryNotFoundError
from ledgerlog_spark.model import NO_ENTRY, Fragment, LedgerMetadata, LedgerState, Quorum, Versioned
from ledgerlog_spark.transport.port import LacRise
from tests.fixtures.client_world import ClientWorld
from tests.unit.client.test_explicit_lac import VISIBLE_SECONDS, Following, herald

if TYPE_CHECKING:
    from ledgerlog_spark.client.handles.writer import WriteHandle
    from ledgerlog_spark.metadata.stores import MetadataStores

OPEN = LedgerMetadata(Quorum(3, 3, 2), (Fragment(0, ("a", "b", "c")),), LedgerState.OPEN)


async def announced_to_the_herald_alone(world: ClientWorld) -> WriteHandle:
    """A ledger of entries 0 to 149. Two of its bookies have a LAC of 98."""
    ledger = await world.client(explicit_lac_ms=10**9).create_ledger(explicit_lac=True)
    await ledger.append_batch([b"x"] * 99)
    await ledger.append(b"x")
    await ledger.append_batch([b"x"] * 50)
    return ledger


async def test_a_look_that_misses_the_bookie_that_was_told_sees_no_less_than_the_look_before(
    world: ClientWorld,
) -> None:
    ledger = await announced_to_the_herald_alone(world)
    client = world.client()
    earlier = await client.open_ledger(ledger.id)
    assert earlier.last_add_confirmed == 149
    world.transport.held.add(herald(ledger))
    later = await client.open_ledger(ledger.id)
    assert later.last_add_confirmed == 149
    assert await later.refresh() == 149
    assert len([entry async for entry in later.read()]) == 150
    # The answering bookies have a smaller LAC, which another client gets.
    assert (await world.client().open_ledger(ledger.id)).last_add_confirmed == 99
    world.transport.release(herald(ledger))


async def test_a_handle_that_is_refreshed_sees_what_another_one_of_its_client_saw(
    world: ClientWorld,
) -> None:
    ledger = await world.client(explicit_lac_ms=10**9).create_ledger(explicit_lac=True)
    client = world.client()
    first, second = [await client.open_ledger(ledger.id) for _ in range(2)]
    await ledger.append_batch([b"x"] * 10)
    assert await first.refresh() == 9
    world.transport.held.add(herald(ledger))
    assert (second.last_add_confirmed, await second.refresh()) == (NO_ENTRY, 9)
    world.transport.release(herald(ledger))


async def test_what_a_handle_heard_as_a_follower_is_seen_by_the_next_look(
    world: ClientWorld,
) -> None:
    ledger = await world.client().create_ledger(explicit_lac=True)
    client = world.client()
    follower = Following(await client.open_ledger(ledger.id, is_listed=True))
    await ledger.append_batch([b"x"] * 10)
    await follower.sees(9, VISIBLE_SECONDS)
    world.transport.held.add(herald(ledger))
    assert (await client.open_ledger(ledger.id)).last_add_confirmed == 9
    assert (await client.open_ledger(ledger.id, is_listed=True)).last_add_confirmed == 9
    world.transport.release(herald(ledger))


def older_records(stores: MetadataStores, changed_id: int, record: LedgerMetadata) -> None:
    """From now on, a metadata server without the newest record answers."""
    load = stores.ledgers.load

    async def loaded(ledger_id: int) -> Versioned[LedgerMetadata]:
        found = await load(ledger_id)
        return replace(found, value=record) if ledger_id == changed_id else found

    stores.ledgers.load = loaded


@pytest.mark.parametrize("is_forgotten", [False, True])
async def test_a_ledger_that_was_seen_closed_is_never_open_again(
    world: ClientWorld, is_forgotten: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = await announced_to_the_herald_alone(world)
    before = ledger.metadata
    await ledger.close()
    other = await world.client().create_ledger()
    await other.close()
    client, stores = world.client_and_stores()
    earlier = await client.open_ledger(ledger.id)
    assert (earlier.is_closed, earlier.last_add_confirmed) == (True, 149)
    if is_forgotten:  # a handle keeps its known end even then
        monkeypatch.setattr(known_ends, "ENDS_MAX", 1)
        await client.open_ledger(other.id)
    older_records(stores, ledger.id, before)
    assert (await earlier.refresh(), earlier.is_closed) == (149, True)
    earlier.take_rise(LacRise(1_000, 0))  # from a watch that has just ended
    assert earlier.last_add_confirmed == 149
    if not is_forgotten:
        later = await client.open_ledger(ledger.id)
        assert (later.is_closed, later.last_add_confirmed) == (True, 149)


@pytest.mark.parametrize("by", ["its writer", "a seal", "another client before the seal"])
async def test_a_ledger_that_this_client_closed_is_never_open_again(
    world: ClientWorld, by: str
) -> None:
    client, stores = world.client_and_stores()
    ledger = await client.create_ledger()
    await ledger.append_batch([b"x"] * 10)
    before = ledger.metadata
    if by == "its writer":
        await ledger.close()
    elif by == "a seal":
        await client.seal(ledger.id)
    else:
        await world.client().seal(ledger.id)
        await client.seal(ledger.id)
    older_records(stores, ledger.id, before)
    later = await client.open_ledger(ledger.id)
    assert (later.is_closed, later.last_add_confirmed) == (True, 9)


async def test_a_lost_entry_takes_nothing_from_an_end_that_entries_behind_it_said(
    world: ClientWorld,
) -> None:
    ledger = await announced_to_the_herald_alone(world)
    client = world.client()
    reader = await client.open_ledger(ledger.id)
    assert (await reader.read_entry(149)).last_add_confirmed == 99
    for storage in world.storages.values():
        storage.ledgers[ledger.id].entries.pop(50, None)
    with pytest.raises(EntryNotFoundError):
        await reader.read_entry(50)
    for storage in world.storages.values():
        storage.ledgers[ledger.id].lac = NO_ENTRY
        for entry_id in range(60, 150):
            storage.ledgers[ledger.id].entries.pop(entry_id, None)
    assert (await client.open_ledger(ledger.id)).last_add_confirmed == 99


async def test_an_end_that_a_bookie_made_up_is_forgotten_once_its_entry_is_known_to_be_absent(
    world: ClientWorld,
) -> None:
    ledger = await announced_to_the_herald_alone(world)
    client = world.client()
    liar = world.storages[herald(ledger)].ledgers[ledger.id]
    liar.lac = 10_000
    reader = await client.open_ledger(ledger.id)
    assert reader.last_add_confirmed == 10_000
    with pytest.raises(EntryNotFoundError):
        await reader.read_entry(10_000)
    liar.lac = 149
    assert (await client.open_ledger(ledger.id)).last_add_confirmed == 149


async def test_an_absent_entry_behind_the_end_changes_nothing(world: ClientWorld) -> None:
    ledger = await announced_to_the_herald_alone(world)
    client = world.client()
    reader = await client.open_ledger(ledger.id)
    with pytest.raises(EntryNotFoundError):
        async for _ in reader.read_batches(100, 200, is_listed=True):
            pass
    world.transport.held.add(herald(ledger))
    assert (await client.open_ledger(ledger.id)).last_add_confirmed == 149
    world.transport.release(herald(ledger))


def test_ends_of_open_ledgers_rise_and_closed_ones_are_final() -> None:
    ends = KnownEnds()
    assert ends.last_add_confirmed(7) == NO_ENTRY
    ends.rise(7, 5)
    ends.rise(7, 3)
    assert ends.last_add_confirmed(7) == 5
    assert ends.newest(7, OPEN) is OPEN
    closed = OPEN.closed(last_entry_id=8, length=1)
    assert ends.newest(7, closed) is closed
    assert ends.newest(7, OPEN) == closed
    ends.rise(7, 9)
    ends.forget_from(7, 0)
    assert (ends.last_add_confirmed(7), ends.newest(7, OPEN)) == (8, closed)


def test_the_oldest_of_too_many_ends_goes() -> None:
    ends = KnownEnds()
    for ledger_id in range(known_ends.ENDS_MAX):
        ends.rise(ledger_id, 1)
    ends.rise(0, 2)
    ends.rise(known_ends.ENDS_MAX, 1)
    assert [ends.last_add_confirmed(i) for i in (0, 1, 2)] == [2, NO_ENTRY, 1]


def test_what_entries_say_stays_when_an_entry_is_absent() -> None:
    ends = KnownEnds()
    ends.rise(7, 100)
    ends.note_header_lac(7, 60)
    ends.note_header_lac(7, 40)
    ends.forget_from(7, 101)
    assert ends.last_add_confirmed(7) == 100
    ends.forget_from(7, 50)
    assert ends.last_add_confirmed(7) == 60
    ends.note_header_lac(7, 70)
    assert ends.last_add_confirmed(7) == 70
    closed = OPEN.closed(last_entry_id=80, length=1)
    ends.newest(7, closed)
    ends.note_header_lac(7, 90)
    assert ends.newest(7, OPEN) == closed


@pytest.mark.parametrize("look", ["asked", "the same end", "an entry"])
def test_the_end_of_a_ledger_that_is_looked_at_stays_while_many_others_are_scanned(
    look: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_ends, "ENDS_MAX", 10)
    ends = KnownEnds()
    ends.rise(1, 100)
    for ledger_id in range(2, 10):
        ends.newest(ledger_id, OPEN.closed(last_entry_id=5, length=5))
    if look == "asked":
        ends.last_add_confirmed(1)
    elif look == "the same end":
        ends.rise(1, 100)
    else:
        ends.note_header_lac(1, 99)
    for ledger_id in range(10, 18):
        ends.newest(ledger_id, OPEN.closed(last_entry_id=5, length=5))
    assert len(ends._ends) == 10
    assert ends.last_add_confirmed(1) == 100
