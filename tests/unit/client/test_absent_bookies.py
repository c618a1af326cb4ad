"""Three bookies are enough: one of them dies, and appends and new ledgers go on."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from ledgerlog_spark.client.client import LedgerClient
from ledgerlog_spark.client.handles.creation import LedgerSpec
from ledgerlog_spark.client.handles.writer import WriteHandle
from ledgerlog_spark.client.hole_reports import notes_of
from ledgerlog_spark.errors import (
    LedgerLogError,
    MetadataFormatError,
    MetadataUnavailableError,
    NotEnoughBookiesError,
)
from ledgerlog_spark.metadata.replication.ports import LedgerNotes
from ledgerlog_spark.model import Fragment, LedgerMetadata, Quorum, Version
from ledgerlog_spark.protocol.ledger.messages import HoleLeft
from ledgerlog_spark.protocol.ledger.write.add_pipeline import Window
from ledgerlog_spark.protocol.ledger.write.settings import WriterSettings
from ledgerlog_spark.retry import RetryPolicy
from ledgerlog_spark.wire.repair_notes import Hole, Holes
from tests.fixtures.client_world import ClientWorld
from tests.fixtures.kinds import now
from tests.fixtures.records import of_this_thread

WINDOW = 50


class FakeNotes:
    """A store of notes that fails as often as a test wants."""

    def __init__(self, *errors: LedgerLogError) -> None:
        self.errors = list(errors)
        self.notes: list[tuple[int, tuple[Hole, ...]]] = []

    async def add(self, ledger_id: int, note: Holes) -> Version:
        if self.errors:
            raise self.errors.pop(0)
        self.notes.append((ledger_id, note.holes))
        return Version(1, len(self.notes))


def note_in(world: ClientWorld, *errors: LedgerLogError) -> FakeNotes:
    notes = FakeNotes(*errors)
    world.hole_notes = cast("LedgerNotes[Holes]", notes)
    return notes


def hole(bookie_id: str, first: int, last: int, fragment: int = 0) -> Hole:
    return Hole(bookie_id, fragment, ranges=((first, last),))


def small_client(world: ClientWorld) -> LedgerClient:
    return world.client(writer=WriterSettings(window=Window(entries_max=WINDOW)))


async def test_appends_go_on_for_ever_while_one_of_three_bookies_is_away(
    world: ClientWorld,
) -> None:
    notes = note_in(world)
    client = small_client(world)
    ledger = await client.create_ledger()
    assert await ledger.append(b"x") == 0
    storage = await world.leave("bookie-1")
    for number in range(1, 20 * WINDOW):
        assert await ledger.append(b"x") == number
        assert ledger._writer._pipeline.entries_in_flight <= WINDOW
    assert now(ledger.absent_bookies) == ("bookie-1",)
    await asyncio.sleep(600)
    assert await ledger.append(b"x") == 20 * WINDOW
    assert not now(notes.notes), "the fragment has not ended"
    await world.come_back("bookie-1", storage)
    await asyncio.sleep(10)
    assert not now(ledger.absent_bookies)
    first, last = ledger.metadata.fragments
    assert (last.first_entry_id, last.ensemble) == (20 * WINDOW + 1, first.ensemble)
    await client.services.holes.drained()
    assert notes.notes == [(ledger.id, (hole("bookie-1", 1, 20 * WINDOW),))]
    assert await ledger.append(b"x") == last.first_entry_id
    await asyncio.sleep(1)
    assert world.entries_of("bookie-1", ledger.id) == [0, last.first_entry_id]
    closed = await ledger.close()
    assert closed.last_entry_id == last.first_entry_id


async def test_a_short_absence_leaves_no_hole(world: ClientWorld) -> None:
    ledger = await world.client().create_ledger()
    storage = await world.leave("bookie-1")
    assert [await ledger.append(b"x") for _ in range(10)] == list(range(10))
    await asyncio.sleep(3)
    await world.come_back("bookie-1", storage)
    await asyncio.sleep(3)
    assert len(ledger.metadata.fragments) == 1
    assert world.entries_of("bookie-1", ledger.id) == list(range(10))


async def test_new_ledgers_name_a_bookie_that_is_away_and_use_it_when_it_is_back(
    world: ClientWorld, caplog: pytest.LogCaptureFixture
) -> None:
    client = world.client()
    storage = await world.leave("bookie-2")
    ledger = await client.create_ledger()
    assert set(ledger.metadata.last_fragment.ensemble) == set(world.names)
    assert ledger.absent_bookies == ("bookie-2",)
    assert "names bookie-2, which is not registered" in of_this_thread(caplog)[0].getMessage()
    world.transport.asked.clear()
    assert [await ledger.append(b"x") for _ in range(3)] == [0, 1, 2]
    assert ("add", "bookie-2") not in world.transport.asked
    await world.come_back("bookie-2", storage)
    await asyncio.sleep(10)
    assert await ledger.append(b"x") == 3
    await asyncio.sleep(1)
    assert world.entries_of("bookie-2", ledger.id) == [3]
    unused = await client.create_ledger()
    assert not unused.absent_bookies


async def test_a_bookie_that_is_back_at_the_first_append_is_not_waited_for(
    world: ClientWorld,
) -> None:
    client = world.client()
    storage = await world.leave("bookie-2")
    ledger = await client.create_ledger()
    await world.come_back("bookie-2", storage)
    await asyncio.sleep(1)
    assert await ledger.append(b"x") == 0
    await asyncio.sleep(1)
    assert not now(ledger.absent_bookies)
    assert await ledger.append(b"x") == 1
    await asyncio.sleep(1)
    assert world.entries_of("bookie-2", ledger.id)[-1] == 1


async def test_a_ledger_that_replaces_no_bookie_goes_on_without_one_that_was_absent(
    world: ClientWorld,
) -> None:
    client = world.client()
    storage = await world.leave("bookie-2")
    ledger = await client.create_registered_ledger(
        client.services.ledgers.create, LedgerSpec(Quorum(3, 3, 2), changes_ensemble=False)
    )
    assert [await ledger.append(b"x") for _ in range(3)] == [0, 1, 2]
    await world.come_back("bookie-2", storage)
    await asyncio.sleep(60)
    assert await ledger.append(b"x") == 3
    assert len((await ledger.close()).fragments) == 1


async def test_no_ledger_is_created_without_an_ack_quorum(world: ClientWorld) -> None:
    client = world.client()
    for name in world.names[:2]:
        await world.kill(name)
    with pytest.raises(NotEnoughBookiesError) as refused:
        await client.create_ledger()
    assert (refused.value.wanted, refused.value.available) == (3, 1)
    with pytest.raises(NotEnoughBookiesError):
        await client.check_bookies(Quorum(3, 3, 2))
    await world.join("bookie-0")
    await client.check_bookies(Quorum(3, 3, 2))
    with pytest.raises(NotEnoughBookiesError):
        await client.check_bookies(Quorum(3, 3, 3))


@pytest.mark.world(bookies=4)
async def test_an_idle_writer_replaces_a_bookie_that_is_lost(world: ClientWorld) -> None:
    notes = note_in(world)
    client = world.client()
    ledger = await client.create_ledger()
    assert await ledger.append(b"x") == 0
    victim = ledger.metadata.last_fragment.ensemble[1]
    await world.kill(victim)
    await asyncio.sleep(9)
    assert victim in ledger.ensemble
    await asyncio.sleep(6)
    assert victim not in now(ledger.ensemble)
    assert ledger.metadata.last_fragment.first_entry_id == 1
    closed = await ledger.close()
    assert len(closed.fragments) == 1, "the new fragment has no entries"
    assert notes.notes == []


@pytest.mark.world(bookies=4)
async def test_idle_writers_that_use_all_bookies_together_have_spares_each(
    world: ClientWorld,
) -> None:
    client = world.client()
    ledgers = [await client.create_ledger() for _ in range(12)]
    assert {name for one in ledgers for name in one.ensemble} == set(world.names)
    for one in ledgers:
        assert await one.append(b"x") == 0
    await world.kill("bookie-1")
    await asyncio.sleep(15)
    assert [one.id for one in ledgers if "bookie-1" in one.ensemble] == []


async def test_without_a_spare_a_lost_bookie_changes_nothing(
    world: ClientWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    notified: list[str] = []
    monkeypatch.setattr(WriteHandle, "member_lost", lambda _, name: notified.append(name))
    client = world.client()
    ledger = await client.create_ledger()
    assert await ledger.append(b"x") == 0
    await world.kill("bookie-1")
    world.transport.asked.clear()
    await asyncio.sleep(60)
    assert len(ledger.metadata.fragments) == 1
    assert world.transport.asked == []
    assert notified == []


@pytest.mark.world(bookies=5)
async def test_a_spare_of_one_writer_may_be_a_member_of_another_one(world: ClientWorld) -> None:
    """Many writers together use every bookie. An idle one replaces its lost bookie all the same."""
    client = world.client()
    ledgers = [await client.create_ledger() for _ in range(12)]
    for ledger in ledgers:
        assert await ledger.append(b"x") == 0
    assert {name for one in ledgers for name in one.ensemble} == {f"bookie-{n}" for n in range(5)}
    victim = ledgers[0].ensemble[1]
    await world.kill(victim)
    await asyncio.sleep(60)
    assert [victim in one.ensemble for one in ledgers] == [False] * 12
    assert {len(one.metadata.fragments) for one in ledgers} == {1, 2}


@pytest.mark.world(bookies=4)
async def test_a_lost_bookie_is_announced_each_ten_seconds(
    world: ClientWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that may not change, and so does not replace it, is not notified at each look."""
    notified: list[str] = []
    monkeypatch.setattr(WriteHandle, "member_lost", lambda _, name: notified.append(name))
    ledger = await world.client().create_ledger()
    victim = ledger.ensemble[1]
    await world.kill(victim)
    await asyncio.sleep(61)
    assert notified[:1] == [victim]
    assert 4 <= len(notified) <= 6


@pytest.mark.world(bookies=4)
async def test_a_loss_is_decided_after_a_sync(
    world: ClientWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = world.client()
    ledger = await client.create_ledger()
    registration = client.services.registration
    sync, synced = registration.sync, list[bool]()

    async def noted() -> None:
        synced.append(True)
        await sync()

    monkeypatch.setattr(registration, "sync", noted)
    await asyncio.sleep(30)
    assert not synced, "a look reads from memory while all bookies are writable"
    await world.kill(ledger.ensemble[1])
    await asyncio.sleep(9)
    assert not synced
    await asyncio.sleep(6)
    assert synced


@pytest.mark.world(bookies=4)
async def test_nothing_is_lost_while_the_store_is_away_and_shortly_after(
    world: ClientWorld,
) -> None:
    class Session:
        is_connected = False

        async def is_orphaned(self) -> bool:
            return False

    client = world.client(session_timeout_ms=10_000)
    client.services.session = session = Session()
    ledger = await client.create_ledger()
    victim = ledger.metadata.last_fragment.ensemble[1]
    await world.kill(victim)
    await asyncio.sleep(60)
    assert victim in ledger.ensemble
    session.is_connected = True
    await asyncio.sleep(18)
    assert victim in ledger.ensemble
    await asyncio.sleep(10)
    assert victim not in now(ledger.ensemble)


async def test_a_sealed_ledger_is_reported_if_its_copies_are_short(world: ClientWorld) -> None:
    notes = note_in(world)
    ledger = await world.client().create_ledger()
    await world.kill("bookie-1")
    for _ in range(3):
        await ledger.append(b"x")
    sealer = world.client()
    closed = await sealer.seal(ledger.id)
    await sealer.services.holes.drained()
    assert closed.last_entry_id == 2
    ((ledger_id, holes),) = notes.notes
    assert (ledger_id, {one.bookie_id for one in holes}) == (ledger.id, {"bookie-1"})


RECORD = LedgerMetadata(Quorum(2, 2, 1), (Fragment(0, ("b", "c")), Fragment(10, ("b", "d"))))


async def test_a_hole_is_noted_for_each_fragment_that_names_its_bookie() -> None:
    holes = [HoleLeft(4, 12, "b"), HoleLeft(4, 12, "c"), HoleLeft(11, 12, "c"), HoleLeft(3, 9, "d")]
    assert notes_of(RECORD, holes) == [hole("b", 4, 9), hole("b", 10, 12, 10), hole("c", 4, 9)]


async def test_a_report_is_repeated_until_the_store_takes_it_or_a_limit(
    world: ClientWorld, caplog: pytest.LogCaptureFixture
) -> None:
    notes = note_in(world, *(MetadataUnavailableError("away", retriable=True) for _ in range(3)))
    queue = world.client().services.holes
    queue.add(1, RECORD, [HoleLeft(0, 1, "b")])
    queue.add(2, RECORD, [HoleLeft(0, 1, "b")])
    queue.add(2, RECORD, [HoleLeft(5, 6, "c")])
    await queue.drained()
    assert notes.notes == [(1, (hole("b", 0, 1),)), (2, (hole("b", 0, 1), hole("c", 5, 6)))]
    assert (queue.reported, queue.dropped) == (3, 0)
    notes.errors = [MetadataFormatError("damaged")]
    queue.add(3, RECORD, [HoleLeft(0, 1, "b")])
    await queue.drained()
    notes.errors = [MetadataUnavailableError("away", retriable=True) for _ in range(1_000)]
    queue.add(4, RECORD, [HoleLeft(0, 1, "b")])
    await queue.drained()
    assert (queue.reported, queue.dropped) == (3, 2)
    told = [one.getMessage() for one in of_this_thread(caplog) if one.levelname == "WARNING"]
    assert len(told) == 2
    assert len(notes.notes) == 2


async def test_waiting_reports_are_bounded(
    world: ClientWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ledgerlog_spark.client.hole_reports.LEDGERS_MAX", 3)
    monkeypatch.setattr("ledgerlog_spark.client.hole_reports.HOLES_MAX", 2)
    notes = note_in(world)
    queue = world.client().services.holes
    for number in range(5):
        queue.add(number, RECORD, [HoleLeft(number, number, "b")])
    queue.add(0, RECORD, [HoleLeft(7, 8, "c"), HoleLeft(9, 9, "b")])
    await queue.drained()
    assert queue.dropped == 3
    assert notes.notes == [
        (0, (hole("b", 0, 0), hole("c", 7, 8))),
        (1, (hole("b", 1, 1),)),
        (2, (hole("b", 2, 2),)),
    ]


async def test_a_bookie_that_is_registered_and_does_not_answer_is_tried_ever_less_often(
    world: ClientWorld,
) -> None:
    """Each try begins a fragment, so a partition must not fill the metadata."""
    settings = WriterSettings(
        window=Window(entries_max=WINDOW),
        replacement=RetryPolicy(first_delay_ms=100, delay_max_ms=500, attempts_max=3),
    )
    ledger = await world.client(writer=settings).create_ledger()
    world.transport.silent.add("bookie-1")
    for _ in range(2 * 3600):
        await ledger.append(b"x")
        await asyncio.sleep(0.5)
    fragments = len(ledger.metadata.fragments)
    assert 3 < fragments < 25
    world.transport.silent.clear()
    await asyncio.sleep(400)
    assert await ledger.append(b"x") == 2 * 3600
    assert not now(ledger.absent_bookies)


async def test_a_bookie_that_stored_entries_after_its_return_may_return_soon_again(
    world: ClientWorld,
) -> None:
    ledger = await small_client(world).create_ledger()
    for absence in range(1, 4):
        storage = await world.leave("bookie-1")
        for _ in range(2 * WINDOW):
            await ledger.append(b"x")
        await asyncio.sleep(60)
        assert now(ledger.absent_bookies)
        await world.come_back("bookie-1", storage)
        await asyncio.sleep(6)
        assert not now(ledger.absent_bookies)
        assert len(ledger.metadata.fragments) == absence + 1
        await ledger.append(b"x")
        await asyncio.sleep(1)


async def test_a_bookie_that_failed_shortly_before_the_close_is_reported(
    world: ClientWorld,
) -> None:
    notes = note_in(world)
    client = world.client()
    ledger = await client.create_ledger()
    await ledger.append(b"x")
    await world.kill("bookie-1")
    for _ in range(3):
        await ledger.append(b"x")
    await asyncio.sleep(1)
    assert not ledger.absent_bookies, "its adds are still repeated"
    await ledger.close()
    await client.services.holes.drained()
    assert notes.notes == [(ledger.id, (hole("bookie-1", 1, 3),))]


async def test_a_read_only_bookie_is_not_away(world: ClientWorld) -> None:
    """It is full, for example, and would refuse the entries."""
    client = world.client()
    info = await client.services.registration.info("bookie-1")
    await client.create_ledger()
    registration = world.registration
    await registration.unregister("bookie-1")
    await registration.register(info, read_only=True)
    with pytest.raises(NotEnoughBookiesError):
        await client.create_ledger()
    assert await client.services.absent_bookies() == ()
