"""The promises of `VacationStore`, `WorkerReports` and `BookieIdentities`, in both worlds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ledgerlog_spark.errors import (
    ConfigurationError,
    LedgerNotFoundError,
    MetadataFormatError,
    MetadataVersionError,
)
from ledgerlog_spark.metadata.stores import MetadataStores
from ledgerlog_spark.model import Fragment, LedgerMetadata, Quorum, Version, Versioned
from ledgerlog_spark.wire.known_bookie import KnownBookie, KnownDirectory
from ledgerlog_spark.wire.repair_notes import (
    BlockedLedger,
    Vacation,
    VacationKind,
    VacationPhase,
    WorkerReport,
    WorkerTask,
)
from tests.fixtures.metadata_worlds import Signal, World, delete_cookie

Two = tuple[MetadataStores, MetadataStores]
BOOKIE = "b1:3181"
BEGUN = Vacation(VacationKind.DRAIN, VacationPhase.DRAINING, "ops@host", 17)
VACATING = replace(
    BEGUN, phase=VacationPhase.VACATING, ledgers_left=2, blocked=(BlockedLedger(7, "no_spare"),)
)
VACATED = replace(BEGUN, phase=VacationPhase.VACATED)
COOKIE = b"5\ncookie"
KNOWN = KnownBookie((KnownDirectory("0123456789abcdef", 1, 1),))
LEDGER = 7
METADATA = LedgerMetadata(Quorum(1, 1, 1), (Fragment(0, ("b0",)),))
MOVED = replace(METADATA, fragments=(Fragment(0, (BOOKIE,)),))


async def cookie_of(stores: MetadataStores) -> Version:
    found = await stores.registration.read_cookie(BOOKIE)
    assert found is not None
    return found.version


# Vacations.


async def test_a_vacation_is_written_at_its_version(two: Two) -> None:
    first, second = two
    assert await second.vacations.load(BOOKIE) is None
    version = await first.vacations.write(BOOKIE, BEGUN, None)
    assert await second.vacations.load(BOOKIE) == Versioned(BEGUN, version)
    newer = await second.vacations.write(BOOKIE, VACATING, version)
    for late in (None, version):
        with pytest.raises(MetadataVersionError, match="nothing was changed"):
            await first.vacations.write(BOOKIE, BEGUN, late)
    assert await first.vacations.all() == {BOOKIE: Versioned(VACATING, newer)}
    assert not await first.vacations.delete(BOOKIE, version)
    assert await first.vacations.delete(BOOKIE, newer)
    assert not await first.vacations.delete(BOOKIE, newer)
    assert await second.vacations.all() == {}


async def test_lost_answers_of_a_vacation_are_settled(world: World, two: Two) -> None:
    first, second = two
    await first.vacations.write("b2", BEGUN, None)
    for lose in (world.lose_next_reply, world.lose_next_request):
        lose(first.tree)
        version = await first.vacations.write(BOOKIE, BEGUN, None)
        lose(first.tree)
        version = await first.vacations.write(BOOKIE, VACATING, version)
        assert await second.vacations.load(BOOKIE) == Versioned(VACATING, version)
        lose(first.tree)
        assert await first.vacations.delete(BOOKIE, version)


async def test_a_change_of_a_vacation_is_noticed(two: Two) -> None:
    first, second = two
    noticed = Signal()
    cancel = second.vacations.watch(BOOKIE, noticed)
    await second.tree.sync()  # the store has the watch, or the session announces the change
    version = await first.vacations.write(BOOKIE, BEGUN, None)
    await noticed.called()
    await first.vacations.write(BOOKIE, VACATING, version)
    await noticed.called()
    cancel()


async def test_the_last_step_also_deletes_the_cookie_and_retires_the_record(two: Two) -> None:
    first, second = two
    await first.registration.write_cookie(BOOKIE, COOKIE, None)
    await first.known_bookies.write(BOOKIE, KNOWN, None)
    version = await first.vacations.write(BOOKIE, VACATING, None)
    cookie = await cookie_of(first)
    await first.vacations.write_and_delete_cookie(BOOKIE, VACATED, version, cookie)
    await second.tree.sync()
    found = await second.vacations.load(BOOKIE)
    assert found is not None
    assert found.value == VACATED
    assert await second.registration.read_cookie(BOOKIE) is None
    record = await second.known_bookies.read(BOOKIE)
    assert record is not None
    assert record.value == replace(KNOWN, is_retired=True)


async def test_a_bookie_that_returned_keeps_its_cookie(two: Two) -> None:
    """The bookie writes the vacation first when it starts."""
    first, second = two
    await first.registration.write_cookie(BOOKIE, COOKIE, None)
    version = await first.vacations.write(BOOKIE, VACATING, None)
    cookie = await cookie_of(first)
    await second.vacations.write(BOOKIE, replace(VACATING, returns=1), version)
    with pytest.raises(MetadataVersionError, match="decide again"):
        await first.vacations.write_and_delete_cookie(BOOKIE, VACATED, version, cookie)
    assert await second.registration.read_cookie(BOOKIE) is not None


async def test_another_cookie_is_not_deleted(two: Two) -> None:
    first, _ = two
    await first.registration.write_cookie(BOOKIE, COOKIE, None)
    version = await first.vacations.write(BOOKIE, VACATING, None)
    cookie = await cookie_of(first)
    await delete_cookie(first, BOOKIE)
    await first.registration.write_cookie(BOOKIE, COOKIE, None)
    with pytest.raises(MetadataVersionError, match="decide again"):
        await first.vacations.write_and_delete_cookie(BOOKIE, VACATED, version, cookie)
    found = await first.vacations.load(BOOKIE)
    assert found == Versioned(VACATING, version)


async def test_a_vacation_needs_the_id_of_a_bookie(two: Two) -> None:
    with pytest.raises(ConfigurationError, match="cannot be a bookie id"):
        await two[0].vacations.load("../x")


async def test_a_damaged_vacation_is_a_clear_error(two: Two) -> None:
    first, _ = two
    data = b'{"format":1,"type":"Vacation"}'
    await first.tree.create(f"{first.root}-repair/bookies/{BOOKIE}", data, make_parents=True)
    for call in (first.vacations.load(BOOKIE), first.vacations.all()):
        with pytest.raises(MetadataFormatError, match="cannot be read"):
            await call


# Reports of workers.


async def test_a_report_ends_with_its_session(world: World, two: Two) -> None:
    first, second = two
    report = WorkerReport((WorkerTask(7, "mark", 1, 10, 100),), bytes_copied=100, state="working")
    assert await second.worker_reports.all() == {}
    for each in (WorkerReport(), report):
        await first.worker_reports.publish("w1", each)
        assert await second.worker_reports.all() == {"w1": each}
    await second.worker_reports.publish("w1", WorkerReport())
    await second.worker_reports.withdraw("w1")
    assert await second.worker_reports.all() == {"w1": report}
    await world.expire(first.tree)
    assert await second.worker_reports.all() == {}
    await first.worker_reports.publish("w1", report)
    await first.worker_reports.withdraw("w1")
    assert await second.worker_reports.all() == {}


async def test_a_damaged_report_is_omitted(two: Two) -> None:
    first, _ = two
    await first.worker_reports.publish("w1", WorkerReport())
    await first.tree.create(f"{first.root}-repair/workers/w2", b"{")
    assert await first.worker_reports.all() == {"w1": WorkerReport()}


# Identities, and the transaction that checks them.


async def test_a_bookie_without_a_cookie_has_no_identity(two: Two) -> None:
    assert await two[0].identities.load(BOOKIE) is None


@pytest.mark.parametrize("is_ours", [True, False])
async def test_metadata_is_replaced_while_the_bookie_is_the_same(two: Two, is_ours: bool) -> None:
    first, second = two
    created = await first.ledgers.create(LEDGER, METADATA)
    await first.registration.write_cookie(BOOKIE, COOKIE, None)
    if is_ours:
        await first.known_bookies.write(BOOKIE, KNOWN, None)
    identity = await second.identities.load(BOOKIE)
    assert identity is not None
    replaced = await second.ledgers.replace(LEDGER, MOVED, created.version, [identity])
    await first.tree.sync()
    assert await first.ledgers.load(LEDGER) == replaced
    assert replaced.value == MOVED
    with pytest.raises(MetadataVersionError, match="decide again") as changed:
        await second.ledgers.replace(LEDGER, METADATA, created.version, [identity])
    assert changed.value.ledger_id == LEDGER


async def test_counters_of_a_bookie_that_stores_data_do_not_matter(two: Two) -> None:
    first, _ = two
    created = await first.ledgers.create(LEDGER, METADATA)
    await first.registration.write_cookie(BOOKIE, COOKIE, None)
    version = await first.known_bookies.write(BOOKIE, KNOWN, None)
    identity = await first.identities.load(BOOKIE)
    assert identity is not None
    busy = KnownBookie((KnownDirectory("0123456789abcdef", 2, 9),))
    await first.known_bookies.write(BOOKIE, busy, version)
    await first.ledgers.replace(LEDGER, MOVED, created.version, [identity])


DOUBT = KnownBookie((KnownDirectory("0123456789abcdef", 1, 1, doubt_epoch=1),))
OTHER_DIRECTORY = KnownBookie((KnownDirectory("fedcba9876543210", 1, 1),))


@pytest.mark.parametrize("known", [DOUBT, OTHER_DIRECTORY, KnownBookie(())])
async def test_a_bookie_that_may_have_lost_entries_is_not_named(
    two: Two, known: KnownBookie
) -> None:
    first, second = two
    created = await first.ledgers.create(LEDGER, METADATA)
    await first.registration.write_cookie(BOOKIE, COOKIE, None)
    version = await first.known_bookies.write(BOOKIE, KNOWN, None)
    identity = await first.identities.load(BOOKIE)
    assert identity is not None
    await second.known_bookies.write(BOOKIE, known, version)
    with pytest.raises(MetadataVersionError, match="has changed") as changed:
        await first.ledgers.replace(LEDGER, MOVED, created.version, [identity])
    assert changed.value.bookie_id == BOOKIE
    assert await first.ledgers.load(LEDGER) == created


async def test_a_cookie_that_was_made_again_is_another_one(two: Two) -> None:
    """Its version has the number 0 again."""
    first, second = two
    created = await first.ledgers.create(LEDGER, METADATA)
    await first.registration.write_cookie(BOOKIE, COOKIE, None)
    identity = await first.identities.load(BOOKIE)
    assert identity is not None
    await delete_cookie(second, BOOKIE)
    with pytest.raises(MetadataVersionError, match="has changed"):
        await first.ledgers.replace(LEDGER, MOVED, created.version, [identity])
    await second.registration.write_cookie(BOOKIE, COOKIE, None)
    with pytest.raises(MetadataVersionError, match="has changed"):
        await first.ledgers.replace(LEDGER, MOVED, created.version, [identity])


async def test_a_deleted_ledger_is_not_replaced(two: Two) -> None:
    first, second = two
    created = await first.ledgers.create(LEDGER, METADATA)
    await second.ledgers.delete(LEDGER)
    with pytest.raises(LedgerNotFoundError):
        await first.ledgers.replace(LEDGER, MOVED, created.version, [])


async def test_a_lost_answer_of_a_replacement_is_settled(world: World, two: Two) -> None:
    first, second = two
    for lose in (world.lose_next_reply, world.lose_next_request):
        created = await first.ledgers.create(LEDGER, METADATA)
        lose(first.tree)
        replaced = await first.ledgers.replace(LEDGER, MOVED, created.version, [])
        await second.tree.sync()
        assert await second.ledgers.load(LEDGER) == replaced
        assert replaced.version.number == created.version.number + 1
        await first.ledgers.delete(LEDGER)
