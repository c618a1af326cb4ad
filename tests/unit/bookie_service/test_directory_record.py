"""The record of a directory over a storage with counters, and a store that fails or is away."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from bookie_server.core.directory_identity import DirectoryIdentity
from bookie_server.core.doubt import Doubt
from bookie_server.errors import (
    DirectoryIdentityError,
    OlderCopyError,
    RetiredBookieError,
    SwappedDirectoryError,
)
from bookie_server.service.membership.directory_record import DirectoryRecord
from ledgerlog_spark.errors import MetadataUnavailableError, MetadataVersionError
from ledgerlog_spark.metadata.known_bookies import KnownBookies
from ledgerlog_spark.model import Version
from ledgerlog_spark.testing.cluster import memory_metadata
from ledgerlog_spark.testing.memory.nodes import MemoryNodes
from ledgerlog_spark.wire.known_bookie import KnownBookie
from tests.sim.runtime import Host, Scheduler

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ledgerlog_spark.metadata.stores import MetadataStores

BOOKIE_ID, PATH = "b1", "/data/b1"
A, B = "aa" * 8, "bb" * 8
INTERVAL_MS = 60_000


class Counting:
    """A storage whose counter rises only when it is told so, unless its device is full."""

    def __init__(self, changes: int = 1, directory_id: str = A) -> None:
        self.identity = DirectoryIdentity(directory_id, 1, changes)
        self.records_stored = 0
        self.commits = 0
        self.is_full = False
        self.doubt = Doubt()
        self.failure = None

    async def date_doubt(self, epoch: int, transaction: int) -> None:
        self.doubt = self.doubt.dated(epoch, transaction)

    def raise_doubt(self) -> None:
        self.doubt = self.doubt.raised()
        self.identity = replace(self.identity, doubt_epoch=self.doubt.epoch)

    async def count_change(self) -> None:
        self.commits += 1
        if not self.is_full:
            self.identity = replace(self.identity, changes=self.identity.changes + 1)


class Fragile(KnownBookies):
    """A store whose next writes fail, or come after a write of another process."""

    failures = 0
    writes = 0
    overtaken_by: KnownBookie | None = None

    async def write(self, bookie_id: str, known: KnownBookie, version: Version | None) -> Version:
        self.writes += 1
        if self.failures:
            self.failures -= 1
            raise MetadataUnavailableError("away")
        if self.overtaken_by is not None:
            other, self.overtaken_by = self.overtaken_by, None
            await super().write(bookie_id, other, version)
        return await super().write(bookie_id, known, version)


@pytest.fixture
async def stores() -> AsyncIterator[MetadataStores]:
    opened = memory_metadata(MemoryNodes())
    await opened.initialize()
    yield opened
    await opened.close()


@pytest.fixture
def known(stores: MetadataStores) -> Fragile:
    return Fragile(stores.tree, stores.root)


async def changes_in(known: KnownBookies) -> int | None:
    found = await known.read(BOOKIE_ID)
    return None if found is None else found.value.directories[0].changes


async def begun(known: KnownBookies, storage: Counting) -> DirectoryRecord:
    record = DirectoryRecord(known, BOOKIE_ID, [PATH])
    await record.begin([storage])
    return record


async def test_a_check_finds_a_loss_or_refuses_and_changes_nothing(known: Fragile) -> None:
    record = DirectoryRecord(known, BOOKIE_ID, [PATH])
    await record.check([DirectoryIdentity()])
    assert await known.read(BOOKIE_ID) is None
    await begun(known, Counting(5))
    before = await known.read(BOOKIE_ID)
    await record.check([Counting(5).identity])
    await record.check([Counting(6).identity])
    (found,) = await record.check([Counting(4).identity])
    assert "change 4, but" in found.loss
    assert (found.starts, found.changes, found.doubt_epoch) == (1, 5, 0)
    assert (await record.check([Counting(5).identity]))[0].loss == ""
    with pytest.raises(SwappedDirectoryError):
        await record.check([Counting(6, B).identity])
    assert await known.read(BOOKIE_ID) == before


async def test_a_start_writes_the_record_after_the_manifest(known: Fragile) -> None:
    storage = Counting(5)
    await begun(known, storage)
    found = await known.read(BOOKIE_ID)
    assert found is not None
    assert found.value == storage.identity.known()


async def test_a_start_whose_record_cannot_be_written_fails(known: Fragile) -> None:
    known.failures = 1
    with pytest.raises(MetadataUnavailableError):
        await begun(known, Counting())
    assert await known.read(BOOKIE_ID) is None


async def test_a_start_goes_on_after_the_last_record_of_the_process_before(
    known: Fragile,
) -> None:
    await begun(known, Counting(5))
    known.overtaken_by = Counting(6).identity.known()
    await begun(known, Counting(7))
    assert await changes_in(known) == 7


@pytest.mark.parametrize(
    ("other", "error_type"),
    [
        (Counting(9).identity.known(), OlderCopyError),
        (Counting(6).identity.known(), DirectoryIdentityError),  # a copy that started too
        (Counting(6, B).identity.known(), SwappedDirectoryError),
        (replace(Counting(5).identity.known(), is_retired=True), RetiredBookieError),
    ],
)
async def test_a_start_that_another_process_overtakes_is_refused(
    known: Fragile, other: KnownBookie, error_type: type[Exception]
) -> None:
    await begun(known, Counting(5))
    known.overtaken_by = other
    record = DirectoryRecord(known, BOOKIE_ID, [PATH])
    with pytest.raises(error_type):
        await record.begin([Counting(6)])
    await record.close(1_000)  # such a process writes no record
    found = await known.read(BOOKIE_ID)
    assert found is not None
    assert found.value == other


async def test_a_start_is_refused_if_a_copy_wrote_the_record_before_its_first_read(
    known: Fragile,
) -> None:
    await begun(known, Counting(6))
    before = await known.read(BOOKIE_ID)
    with pytest.raises(DirectoryIdentityError, match="started at the same time"):
        await begun(known, Counting(6))
    assert await known.read(BOOKIE_ID) == before


async def test_a_start_gives_up_if_it_is_overtaken_again_and_again(
    known: Fragile, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0

    async def overtaken(*_: object) -> Version:
        nonlocal calls
        calls += 1
        raise MetadataVersionError("overtaken")

    monkeypatch.setattr(known, "write", overtaken)
    with pytest.raises(MetadataVersionError):
        await begun(known, Counting())
    assert calls == 4


async def test_the_counter_rises_once_for_each_interval_with_data(known: Fragile) -> None:
    storage = Counting()
    record = await begun(known, storage)
    await record.advance()
    assert (storage.commits, await changes_in(known)) == (0, 1)
    storage.records_stored = 1
    await record.advance()
    assert (storage.commits, await changes_in(known)) == (1, 2)
    writes = known.writes
    await record.advance()
    assert (storage.commits, known.writes) == (1, writes)
    storage.records_stored = 9
    await record.advance()
    assert (storage.commits, await changes_in(known)) == (2, 3)


async def test_records_during_the_commit_are_counted_in_the_next_interval(
    known: Fragile,
) -> None:
    class Busy(Counting):
        async def count_change(self) -> None:
            self.records_stored += 1
            await super().count_change()

    storage = Busy()
    record = await begun(known, storage)
    storage.records_stored = 1
    await record.advance()
    await record.advance()
    assert storage.commits == 2


async def test_records_before_the_start_is_recorded_are_covered_by_it(known: Fragile) -> None:
    storage = Counting()
    storage.records_stored = 3
    record = await begun(known, storage)
    await record.advance()
    assert storage.commits == 0


async def test_while_the_store_is_away_the_counter_is_ahead_by_one(known: Fragile) -> None:
    storage = Counting()
    record = await begun(known, storage)
    known.failures = 3
    for number in range(1, 4):
        storage.records_stored = number
        await record.advance()
    assert (storage.identity.changes, await changes_in(known)) == (2, 1)
    await record.advance()  # the store is back
    assert (storage.identity.changes, await changes_in(known)) == (2, 2)
    await record.advance()
    assert (storage.identity.changes, await changes_in(known)) == (3, 3)


async def test_the_record_is_never_ahead_of_the_manifest(known: Fragile) -> None:
    storage = Counting()
    record = await begun(known, storage)
    storage.is_full, storage.records_stored = True, 1
    await record.advance()
    assert await changes_in(known) == 1


async def test_a_clean_stop_writes_the_last_counter(known: Fragile) -> None:
    storage = Counting()
    record = await begun(known, storage)
    await storage.count_change()
    await record.close(1_000)
    assert await changes_in(known) == 2


async def test_a_stop_does_not_wait_for_a_store_that_is_away(
    known: Fragile, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = Counting()
    record = await begun(known, storage)
    await storage.count_change()

    async def never(*_: object) -> Version:
        await asyncio.get_running_loop().create_future()
        raise AssertionError("the future has no result")

    monkeypatch.setattr(known, "write", never)
    await record.close(1)
    assert await changes_in(known) == 1


async def test_a_record_of_another_process_is_never_replaced(known: Fragile) -> None:
    storage = Counting()
    record = await begun(known, storage)
    retired = replace(storage.identity.known(), is_retired=True)
    found = await known.read(BOOKIE_ID)
    assert found is not None
    await known.write(BOOKIE_ID, retired, found.version)
    for number in range(1, 3):
        storage.records_stored = number
        await record.advance()
    await storage.count_change()
    await record.close(1_000)
    found = await known.read(BOOKIE_ID)
    assert found is not None
    assert found.value == retired


async def test_a_doubt_after_a_change_of_the_record_is_dated(known: Fragile) -> None:
    """An operator has written the record that the bookie itself wrote before."""
    storage = Counting()
    record = await begun(known, storage)
    found = await known.read(BOOKIE_ID)
    assert found is not None
    await known.write(BOOKIE_ID, found.value, found.version)
    storage.raise_doubt()
    assert not await record._has_dated()
    assert not storage.doubt.transaction
    assert await record._has_dated()
    assert storage.doubt.transaction == await known.transaction(BOOKIE_ID)


async def test_a_deleted_record_is_written_again(known: Fragile, stores: MetadataStores) -> None:
    storage = Counting()
    record = await begun(known, storage)
    found = await known.read(BOOKIE_ID)
    assert found is not None
    await stores.tree.delete(f"{stores.root}-bookies/{BOOKIE_ID}", found.version)
    for number in range(1, 3):
        storage.records_stored = number
        await record.advance()
    assert await changes_in(known) == storage.identity.changes == 2


async def test_a_process_with_a_newer_copy_ends_the_writes_of_this_one(known: Fragile) -> None:
    storage = Counting()
    record = await begun(known, storage)
    found = await known.read(BOOKIE_ID)
    assert found is not None
    await known.write(BOOKIE_ID, Counting(9).identity.known(), found.version)
    for number in range(1, 4):
        storage.records_stored = number
        await record.advance()
    storage.raise_doubt()
    await record._has_dated()
    assert await changes_in(known) == 9
    assert not storage.doubt.transaction


def test_the_interval_has_its_length_and_ends_with_a_stop() -> None:
    """On the simulated clock."""

    class Written:
        async def read(self, _bookie_id: str) -> None:
            return None

        async def write(self, *_: object) -> None:
            times.append(scheduler.now_us // 1_000)

    scheduler, times = Scheduler(), list[int]()
    host = Host(scheduler, "bookie")
    storage = Counting()
    record = DirectoryRecord(Written(), BOOKIE_ID, [PATH])  # type: ignore[arg-type]
    scheduler.run(record.begin([storage]), host)
    record.follow(host, INTERVAL_MS)
    for _ in range(3):
        storage.records_stored += 1
        scheduler.run_for(INTERVAL_MS)
    assert [after - before for before, after in pairwise(times)] == [INTERVAL_MS] * 3
    record.stop()
    storage.records_stored += 1
    scheduler.run_for(2 * INTERVAL_MS)
    assert len(times) == 4


def simulated(known: object, storage: Counting) -> tuple[DirectoryRecord, Host]:
    """A record after its start, on the simulated clock."""
    host = Host(Scheduler(), "bookie")
    record = DirectoryRecord(known, BOOKIE_ID, [PATH])  # type: ignore[arg-type]
    host.scheduler.run(record.begin([storage]), host)
    return record, host


class Transactions:
    """A store that counts its transactions, and refuses some writes."""

    def __init__(self) -> None:
        self.number = 0
        self.failures = 0
        self.epochs: list[int] = []

    async def read(self, _bookie_id: str) -> None:
        return None

    async def write(self, _bookie_id: str, known: KnownBookie, _version: object) -> Version:
        if self.failures:
            self.failures -= 1
            raise MetadataUnavailableError("away")
        self.number += 1
        self.epochs.append(known.directories[0].doubt_epoch)
        return Version(1, self.number)

    async def transaction(self, _bookie_id: str) -> int:
        return self.number


def test_the_doubt_of_a_start_is_dated_by_the_record_of_the_start() -> None:
    known, storage = Transactions(), Counting()
    storage.raise_doubt()
    record, host = simulated(known, storage)
    record.note_doubt(host)
    host.scheduler.run_for(1)
    assert storage.doubt == Doubt(epoch=1, transaction=1)
    assert known.epochs == [1]


def test_a_doubt_is_dated_by_a_write_that_began_after_it_was_durable() -> None:
    """The record of the start was written before the loss, so it dates nothing."""
    known, storage = Transactions(), Counting()
    record, host = simulated(known, storage)
    storage.raise_doubt()
    record.note_doubt(host)
    host.scheduler.run_for(1)
    assert storage.doubt == Doubt(epoch=1, transaction=2)
    assert known.epochs == [0, 1]


def test_the_date_of_a_doubt_is_tried_until_the_store_is_back_and_the_pauses_grow() -> None:
    known, storage = Transactions(), Counting()
    record, host = simulated(known, storage)
    known.failures = 4
    storage.raise_doubt()
    record.note_doubt(host)
    record.note_doubt(host)  # one task is enough
    host.scheduler.run_for(14_000)
    assert (known.failures, storage.doubt.transaction) == (0, 0)
    host.scheduler.run_for(2_000)
    assert storage.doubt == Doubt(epoch=1, transaction=2)
    assert known.epochs == [0, 1]


def test_after_a_stop_no_doubt_is_dated() -> None:
    known, storage = Transactions(), Counting()
    record, host = simulated(known, storage)
    known.failures = 1
    storage.raise_doubt()
    record.note_doubt(host)
    host.scheduler.run_for(10)
    record.stop()
    host.scheduler.run_for(100_000)
    assert storage.doubt.transaction == 0
    record.note_doubt(host)
    host.scheduler.run_for(100_000)
    assert storage.doubt.transaction == 0


def test_the_next_epoch_is_dated_too() -> None:
    known, storage = Transactions(), Counting()
    record, host = simulated(known, storage)
    for epoch in (1, 2):
        storage.raise_doubt()
        record.note_doubt(host)
        host.scheduler.run_for(1)
        assert storage.doubt == Doubt(epoch=epoch, transaction=1 + epoch)
