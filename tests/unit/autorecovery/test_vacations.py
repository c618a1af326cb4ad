"""The host of vacations, on stores in memory and in virtual time."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ledgerlog_spark.autorecovery.vacate.runner import UNREADABLE, VacationRunner, remove_moves
from ledgerlog_spark.autorecovery.vacate.survey import holdings, surroundings
from ledgerlog_spark.autorecovery.vacate.vacations import LEASE, run_vacations
from ledgerlog_spark.errors import (
    MetadataFormatError,
    MetadataUnavailableError,
    MetadataUnknownError,
)
from ledgerlog_spark.metadata.stores import MetadataStores
from ledgerlog_spark.model import BookieInfo, Fragment, LedgerMetadata, Quorum
from ledgerlog_spark.protocol.autorecovery.vacate.messages import (
    LoadVacation,
    Retire,
    VacationEnd,
    VacationOutcome,
    WalkLedgers,
    WriteVacation,
)
from ledgerlog_spark.protocol.autorecovery.vacate.share import is_named
from ledgerlog_spark.testing.cluster import memory_metadata
from ledgerlog_spark.wire.repair_notes import (
    Move,
    MoveReason,
    Moves,
    Vacation,
    VacationKind,
    VacationPhase,
)
from tests.fixtures.metadata_worlds import memory_tree

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection

pytestmark = pytest.mark.virtual_time

THREE = Quorum(3, 3, 2)
BOOKIES = ("b0", "b1", "b2", "b3")


def closed(*ensemble: str) -> LedgerMetadata:
    return LedgerMetadata(THREE, (Fragment(0, ensemble),)).closed(last_entry_id=9, length=1_000)


@pytest.fixture
async def stores() -> AsyncIterator[MetadataStores]:
    """Four bookies, and three ledgers of which b0 has two."""
    stores = memory_metadata()
    await stores.initialize()
    for name in BOOKIES:
        info = BookieInfo(name, f"h-{name}", 3181, None, {"ledgerlog.free_bytes": "5000"})
        await stores.registration.register(info)
        await stores.registration.write_cookie(name, b"5\n", None)
    for ledger_id, ensemble in enumerate(
        (("b0", "b1", "b2"), ("b1", "b2", "b3"), ("b2", "b0", "b3"))
    ):
        await stores.ledgers.create(ledger_id, closed(*ensemble))
    yield stores
    await stores.close()


async def begin(stores: MetadataStores, kind: VacationKind = VacationKind.DRAIN) -> None:
    info = BookieInfo("b0", "h-b0", 3181)
    await stores.vacations.write("b0", Vacation(kind, VacationPhase.DRAINING), None)
    await stores.registration.register(info, read_only=True)


async def move_all(stores: MetadataStores, keep: Collection[int] = ()) -> list[int]:
    """Do the work of a worker: replace b0, and delete the notes, except for `keep`."""
    moved = [ledger_id async for ledger_id in stores.moves.walk() if ledger_id not in keep]
    for ledger_id in moved:
        found = await stores.ledgers.load(ledger_id)
        if is_named(found.value, "b0"):
            spare = next(b for b in BOOKIES if b not in found.value.last_fragment.ensemble)
            ensemble = [spare if b == "b0" else b for b in found.value.last_fragment.ensemble]
            await stores.ledgers.write(ledger_id, closed(*ensemble), found.version)
        note = await stores.moves.load(ledger_id)
        assert note is not None
        await stores.moves.delete(ledger_id, note.version)
    return moved


async def state(stores: MetadataStores) -> Vacation:
    found = await stores.vacations.load("b0")
    assert found is not None
    return found.value


@pytest.mark.parametrize("kind", list(VacationKind))
async def test_a_vacation_ends_when_all_copies_are_moved(
    stores: MetadataStores, kind: VacationKind
) -> None:
    """AUTORECOVERY.md#Y4, AUTORECOVERY.md#Y5."""
    await begin(stores, kind)
    running = asyncio.ensure_future(VacationRunner(stores, "b0").run())
    await asyncio.sleep(2)
    noted = await state(stores)
    assert (noted.phase, noted.ledgers_total, noted.bytes_total) == (
        VacationPhase.VACATING,
        2,
        2_000,
    )
    note = await stores.moves.load(0)
    assert note is not None
    assert note.value.moves == (Move("b0", reason=MoveReason(kind.value)),)
    await asyncio.sleep(20)
    assert await move_all(stores) == [0, 2]
    await asyncio.sleep(30)
    assert not running.done(), "lists of writers may be a minute old"
    assert await asyncio.wait_for(running, 30) is VacationEnd.VACATED
    over = await state(stores)
    assert (over.phase, over.ledgers_left, over.ledgers_total) == (VacationPhase.VACATED, 0, 2)
    cookie = await stores.registration.read_cookie("b0")
    assert (cookie is None) == (kind is VacationKind.DECOMMISSION)


async def test_a_cancelled_vacation_removes_its_moves_and_no_others(
    stores: MetadataStores,
) -> None:
    await begin(stores)
    running = asyncio.ensure_future(VacationRunner(stores, "b0").run())
    await asyncio.sleep(2)
    kept = Move("b0", 0, MoveReason.PLACEMENT)
    await stores.moves.add(0, Moves((kept,)))
    found = await stores.vacations.load("b0")
    assert found is not None
    assert await stores.vacations.delete("b0", found.version)
    assert await asyncio.wait_for(running, 10) is VacationEnd.CANCELLED
    assert [ledger_id async for ledger_id in stores.moves.walk()] == [0]
    note = await stores.moves.load(0)
    assert note is not None
    assert note.value.moves == (kept,)
    await remove_moves(stores, "b0")
    assert await stores.moves.load(0) is not None


async def test_nothing_begins_while_auto_recovery_is_disabled(stores: MetadataStores) -> None:
    await stores.recovery_switch.disable()
    await begin(stores)
    running = asyncio.ensure_future(run_vacations("daemon", stores))
    await asyncio.sleep(60)
    assert (await state(stores)).phase is VacationPhase.DRAINING
    await stores.recovery_switch.enable()
    await asyncio.sleep(10)
    assert (await state(stores)).phase is VacationPhase.VACATING
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_all_vacations_are_run_one_after_the_other(stores: MetadataStores) -> None:
    await begin(stores)
    await stores.vacations.write("b9", Vacation(VacationKind.RECOVER, VacationPhase.DRAINING), None)
    running = asyncio.ensure_future(run_vacations("daemon", stores))
    for _ in range(40):
        await asyncio.sleep(5)
        await move_all(stores)
    found = await stores.vacations.all()
    assert [one.value.phase for one in found.values()] == [VacationPhase.VACATED] * 2
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_metadata_that_cannot_be_read_keeps_a_vacation_from_its_end(
    stores: MetadataStores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AUTORECOVERY.md#Y6: the ledger may name the bookie."""
    path = stores.ledgers.path(1)
    found = await stores.tree.get(path)
    await stores.tree.set(path, b"damaged", found.version)
    await begin(stores)
    running = asyncio.ensure_future(VacationRunner(stores, "b0").run())
    walk, walks = stores.ledgers.walk, 0

    def counted(*args: Any) -> Any:
        nonlocal walks
        walks += 1
        return walk(*args)

    monkeypatch.setattr(stores.ledgers, "walk", counted)
    moved: list[int] = []
    for _ in range(60):
        await asyncio.sleep(5)
        moved += await move_all(stores, keep={1})
    assert not running.done()
    assert moved == [0, 2], "the other ledgers move all the same"
    assert walks == 1, "the next walk is due after ten minutes"
    blocked = await state(stores)
    assert (blocked.ledgers_left, blocked.blocked_count) == (1, 1)
    assert [(one.ledger_id, one.reason) for one in blocked.blocked] == [(1, UNREADABLE)]
    await stores.tree.set(path, found.value, None)
    for _ in range(70):
        await asyncio.sleep(5)
        await move_all(stores)
    assert await asyncio.wait_for(running, 300) is VacationEnd.VACATED
    assert (await state(stores)).blocked == ()


async def test_a_defect_ends_the_run_of_a_vacation_with_its_error(
    stores: MetadataStores, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def load(_bookie_id: str) -> Any:
        raise RuntimeError("a defect")

    monkeypatch.setattr(stores.vacations, "load", load)
    with pytest.raises(RuntimeError, match="a defect"):
        await asyncio.wait_for(VacationRunner(stores, "b0").run(), 60)


async def test_moves_of_a_vacation_that_was_cancelled_without_a_process_are_removed(
    stores: MetadataStores,
) -> None:
    """AUTORECOVERY.md#Y1."""
    kept = (Move("b9", reason=MoveReason.DRAIN), Move("b0", 0, MoveReason.PLACEMENT))
    await stores.vacations.write("b9", Vacation(VacationKind.DRAIN, VacationPhase.VACATED), None)
    await stores.moves.add(0, Moves((Move("b0", reason=MoveReason.DRAIN), *kept)))
    await stores.moves.add(2, Moves((Move("b0", reason=MoveReason.DECOMMISSION),)))
    running = asyncio.ensure_future(run_vacations("daemon", stores))
    await asyncio.sleep(10)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    note = await stores.moves.load(0)
    assert note is not None
    assert set(note.value.moves) == set(kept)
    assert await stores.moves.load(2) is None


@pytest.mark.parametrize("error", [MetadataUnavailableError, MetadataUnknownError])
async def test_a_store_that_fails_is_tried_again(
    stores: MetadataStores, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    await begin(stores)
    write = stores.vacations.write
    failures: list[object] = []

    async def failing(*arguments: Any) -> Any:
        if len(failures) < 3:
            failures.append(arguments)
            raise error("not now")
        return await write(*arguments)

    monkeypatch.setattr(type(stores.vacations), "write", lambda _, *given: failing(*given))
    running = asyncio.ensure_future(VacationRunner(stores, "b0").run())
    for _ in range(40):
        await asyncio.sleep(5)
        await move_all(stores)
    assert await asyncio.wait_for(running, 300) is VacationEnd.VACATED
    assert len(failures) == 3


async def test_a_survey_has_the_figures_of_the_cluster(stores: MetadataStores) -> None:
    held = await holdings(stores, "b0")
    assert (held.ledgers, held.size_bytes, held.open_ledgers) == (2, 2_000, 0)
    around = await surroundings(stores, "b0")
    assert around.targets("b0") == ("b1", "b2", "b3")
    assert around.free_elsewhere("b0") == 15_000
    assert around.bookies.places["b1"].host == "h-b1"
    assert (around.is_enabled, around.others) == (True, ())
    await stores.recovery_switch.disable()
    await stores.vacations.write("b2", Vacation(VacationKind.DRAIN, VacationPhase.DRAINING), None)
    around = await surroundings(stores, "b0")
    assert (around.is_enabled, around.others) == (False, ("b2",))


async def test_a_vacation_does_not_begin_if_a_ledger_may_name_the_bookie(
    stores: MetadataStores,
) -> None:
    found = await stores.tree.get(stores.ledgers.path(1))
    await stores.tree.set(stores.ledgers.path(1), b"damaged", found.version)
    with pytest.raises(MetadataFormatError):
        await holdings(stores, "b0")


@pytest.fixture
async def other(stores: MetadataStores) -> AsyncIterator[MetadataStores]:
    """Another session of the same cluster."""
    made = memory_metadata(memory_tree(stores).nodes)
    yield made
    await made.close()


async def test_a_walk_shows_what_was_written_before_it(
    stores: MetadataStores, other: MetadataStores
) -> None:
    """AUTORECOVERY.md#Y6."""
    await stores.ledgers.load(0)
    memory_tree(stores).hold_reads()
    await other.ledgers.create(9, closed("b0", "b1", "b2"))
    walked: Any = await VacationRunner(stores, "b0")._walk(WalkLedgers(1, -1, sync_first=True))
    assert [ledger_id for ledger_id, _ in walked.ledgers] == [0, 1, 2, 9]


async def test_a_vacation_that_another_process_wrote_is_a_conflict(
    stores: MetadataStores, other: MetadataStores
) -> None:
    """AUTORECOVERY.md#Y7."""
    await begin(stores)
    runner = VacationRunner(stores, "b0")
    loaded: Any = await runner._load(LoadVacation(1))
    returned = replace(await state(other), returns=1)
    await other.vacations.write("b0", returned, loaded.found.version)
    for kind in (WriteVacation, Retire):
        effect = kind(2, loaded.found.value, loaded.found.version)
        written: Any = await runner._performers[kind](effect)
        assert written.outcome is VacationOutcome.CONFLICT
    assert (await state(stores)).returns == 1
    assert await stores.registration.read_cookie("b0") is not None


async def test_vacations_run_only_in_the_process_that_has_the_lease(
    stores: MetadataStores, other: MetadataStores
) -> None:
    assert await other.leases.acquire(LEASE, {"id": "other"})
    await begin(stores)
    running = asyncio.ensure_future(run_vacations("daemon", stores))
    await asyncio.sleep(60)
    assert (await state(stores)).phase is VacationPhase.DRAINING
    await other.leases.release(LEASE)
    await asyncio.sleep(30)
    assert (await state(stores)).phase is VacationPhase.VACATING
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_vacations_go_on_after_an_error_of_the_store(
    stores: MetadataStores, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begin(stores)
    read, failures = stores.vacations.all, iter([MetadataUnavailableError("not now")])

    async def failing() -> Any:
        for error in failures:
            raise error
        return await read()

    monkeypatch.setattr(stores.vacations, "all", failing)
    running = asyncio.ensure_future(run_vacations("daemon", stores))
    await asyncio.sleep(60)
    assert (await state(stores)).phase is VacationPhase.VACATING
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
