"""The requests of the audit's machines to the metadata store."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from ledgerlog_spark.autorecovery.audit.service import stores_of
from ledgerlog_spark.autorecovery.audit.store_requests import AuditStoreRequests
from ledgerlog_spark.client.bookies import BookieChoice
from ledgerlog_spark.errors import LedgerLogError
from ledgerlog_spark.metadata.replication.ports import Check, Walk
from ledgerlog_spark.metadata.stores import MetadataStores
from ledgerlog_spark.model import BookieInfo, Fragment, LedgerMetadata, Quorum
from ledgerlog_spark.protocol.autorecovery.audit import messages as m
from ledgerlog_spark.testing.cluster import memory_metadata
from ledgerlog_spark.testing.memory.nodes import MemoryNodes
from ledgerlog_spark.testing.memory.tree import MemoryTree

METADATA = LedgerMetadata(Quorum(3, 3, 2), (Fragment(0, ("a", "b", "c")),), token=1)


class Made:
    """Requests on stores in memory."""

    def __init__(self, stores: MetadataStores) -> None:
        self.stores = stores
        self.may_write = True
        self.errors: list[LedgerLogError] = []
        random = Random(0)
        self.requests = AuditStoreRequests(
            stores_of(stores),
            BookieChoice(stores.registration, stores.topologies, None, random),
            lambda: self.may_write,
            self.errors.append,
        )

    async def __call__(self, effect: Any) -> Any:
        performs = self.requests.performs | self.requests.stores  # type: ignore[operator]
        return await performs[type(effect)](effect)


@pytest.fixture
async def made() -> Any:
    stores = memory_metadata()
    await stores.initialize()
    yield Made(stores)
    await stores.close()


async def test_the_cluster_has_registrations_cookies_and_settings(made: Made) -> None:
    registration = made.stores.registration
    await registration.register(BookieInfo("a", "127.0.0.1", 1))
    await registration.register(BookieInfo("b", "127.0.0.1", 1), read_only=True)
    await registration.write_cookie("c", b"cookie", None)
    first = (await made(m.ReadCluster(1))).state
    assert first == m.ClusterState(frozenset("ab"), frozenset("c"), True, 0, 0)
    switch = made.stores.recovery_switch
    await switch.set_lost_bookie_delay(30)
    await switch.disable()
    second = (await made(m.ReadCluster(2))).state
    assert (second.delay_ms, second.is_enabled) == (30_000, False)
    await switch.audit_now()
    third = (await made(m.ReadCluster(3))).state
    assert third.delay_ms == 30_000
    assert third.delay_writes != second.delay_writes


async def test_a_bookie_that_becomes_writable_between_the_reads_is_registered(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {"writable": iter([[], ["a"]]), "read_only": iter([[]])}
    for name, each in answers.items():

        async def read(each: Any = each) -> list[str]:
            return next(each)

        monkeypatch.setattr(made.stores.registration, name, read)
    assert (await made(m.ReadCluster(1))).state.registered == {"a"}


async def test_records_come_in_pages_and_a_page_after_a_read_of_the_cluster_is_new(
    made: Made,
) -> None:
    ledgers = made.stores.ledgers
    for ledger_id in range(5):
        await ledgers.create(ledger_id, METADATA)
    page = await made(m.ReadRecords(1, -1, 2))
    assert ([one.ledger_id for one in page.records], page.last, page.is_end) == ([0, 1], 1, False)
    record = await ledgers.load(2)
    await ledgers.write(2, METADATA.in_recovery(), record.version)
    await made(m.ReadCluster(2))
    page = await made(m.ReadRecords(3, 1, 2))
    assert page.records[0].metadata.state is METADATA.in_recovery().state
    page = await made(m.ReadRecords(4, 3, 2))
    assert ([one.ledger_id for one in page.records], page.last, page.is_end) == ([4], 4, True)
    assert (await made(m.ReadRecords(5, 4, 2))).is_end


async def test_a_record_that_cannot_be_decoded_does_not_end_a_walk(made: Made) -> None:
    ledgers = made.stores.ledgers
    for ledger_id in range(3):
        await ledgers.create(ledger_id, METADATA)
    await made.stores.tree.set(ledgers.path(1), b"damaged", None)
    page = await made(m.ReadRecords(1, -1, 10))
    assert ([one.ledger_id for one in page.records], list(page.unreadable)) == ([0, 2], [1])
    loaded = await made(m.LoadRecords(2, (2, 1, 7)))
    assert ([one.ledger_id for one in loaded.records], loaded.unreadable) == ([2], [1])


async def test_notes_are_written_only_while_they_may_be(made: Made) -> None:
    made.may_write = False
    hole = m.WriteHole(1, 4, (m.FoundHole("a", 0, 1, 2),))
    notes = (m.WriteMark(1, 4, ("a",)), hole, m.WriteMove(1, 4, ("a",)))
    for note in notes:
        assert await made(note) == m.NoteWritten(1, is_written=False)
    stores = made.stores
    assert await stores.marks.load(4) is None
    assert await stores.holes.load(4) is None
    assert await stores.moves.load(4) is None
    made.may_write = True
    for note in notes:
        assert await made(note) == m.NoteWritten(1, is_written=True)
    assert await stores.marks.load(4) is not None
    assert await stores.holes.load(4) is not None
    assert await stores.moves.load(4) is not None


async def test_the_times_of_the_checks_survive_their_process(made: Made) -> None:
    await made.stores.ledgers.create(1, METADATA)  # so that the session has the store's clock
    for kind in (m.CheckKind.REPLICAS, m.CheckKind.PLACEMENT):
        assert (await made(m.ReadCheckTime(1, kind))).elapsed_ms is None
        await made(m.StoreCheckTime(kind, 9, is_complete=True))
        assert (await made(m.ReadCheckTime(2, kind))).elapsed_ms is not None


async def test_the_position_of_the_digest_check_is_stored_with_its_begin(made: Made) -> None:
    await made.stores.ledgers.create(1, METADATA)
    kind = m.CheckKind.DIGESTS
    first = await made(m.ReadCheckTime(1, kind))
    assert (first.is_read, first.elapsed_ms, first.after) == (True, None, -1)
    await made(m.StoreCheckTime(kind, 7))
    assert (await made(m.ReadCheckTime(2, kind))).after == 7
    await made(m.StoreCheckTime(kind, 9, is_complete=True))
    last = await made(m.ReadCheckTime(3, kind))
    assert last.after == -1
    assert last.elapsed_ms is not None


async def test_only_the_clock_of_the_store_dates_the_checks() -> None:
    """The store's clock is far behind that of this machine."""
    now_ms = [1_000_000]
    stores = memory_metadata(MemoryNodes(lambda: now_ms[0]))
    await stores.initialize()
    made = Made(stores)

    async def elapsed_ms(kind: m.CheckKind) -> int | None:
        now_ms[0] += 5
        elapsed: int | None = (await made(m.ReadCheckTime(1, kind))).elapsed_ms
        return elapsed

    for kind in (m.CheckKind.REPLICAS, m.CheckKind.PLACEMENT):
        await made(m.StoreCheckTime(kind, 9, is_complete=True))
        assert await elapsed_ms(kind) == 5
    digests = m.CheckKind.DIGESTS
    assert await elapsed_ms(digests) is None
    await made(m.StoreCheckTime(digests, 7))
    assert await elapsed_ms(digests) == 5
    made = Made(stores)  # a successor, which continues the check
    assert await elapsed_ms(digests) == 10
    await made(m.StoreCheckTime(digests, 8))
    assert await elapsed_ms(digests) == 15, "the begin of a check that is continued is the same"
    await stores.close()


async def test_positions_are_stored_only_while_they_may_be(made: Made) -> None:
    await made.stores.ledgers.create(1, METADATA)
    for may_write, position in ((False, -1), (True, 5)):
        made.may_write = may_write
        await made(m.StorePosition(5))
        await made(m.StoreCheckTime(m.CheckKind.DIGESTS, 5))
        await made(m.StoreCheckTime(m.CheckKind.REPLICAS, 5, is_complete=True))
        times = made.stores.check_times
        for walk in (Walk.LEDGERS, Walk.DIGESTS):
            assert (await times.position(walk)).ledger_id == position
        assert (await times.time_ms(Check.REPLICAS) is not None) == may_write


async def test_records_are_loaded_after_a_sync() -> None:
    nodes = MemoryNodes()
    stores, other = memory_metadata(nodes), memory_metadata(nodes)
    await stores.initialize()
    created = await other.ledgers.create(1, METADATA)
    made = Made(stores)
    assert isinstance(stores.tree, MemoryTree)
    stores.tree.hold_reads()
    await other.ledgers.write(1, METADATA.in_recovery(), created.version)
    (loaded,) = (await made(m.LoadRecords(1, (1,)))).records
    assert loaded.metadata.state is METADATA.in_recovery().state
    await stores.close()
    await other.close()


async def test_an_error_of_the_store_is_reported_and_answered(made: Made) -> None:
    await made.stores.tree.close()
    assert await made(m.ReadCluster(1)) == m.ClusterRead(1, None)
    assert await made(m.ReadRecords(2, -1, 5)) == m.RecordsRead(2, is_read=False)
    assert await made(m.LoadRecords(3, (1,))) == m.RecordsRead(3, is_read=False)
    assert await made(m.WriteMark(4, 1, ("a",))) == m.NoteWritten(4, is_written=False)
    assert not (await made(m.ReadCheckTime(5, m.CheckKind.REPLICAS))).is_read
    assert made.errors
