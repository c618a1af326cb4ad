"""The auditor's host on a cluster in memory, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from ledgerlog_spark.autorecovery.audit.service import LEASE, AuditService
from ledgerlog_spark.client.services import Services
from ledgerlog_spark.client.settings import ClientSettings
from ledgerlog_spark.metadata.stores import MetadataStores
from ledgerlog_spark.model import BookieInfo, Code
from ledgerlog_spark.testing.bookie import MemoryStorage
from ledgerlog_spark.testing.cluster import MemoryCluster, memory_metadata
from ledgerlog_spark.testing.in_process import InProcessTransport
from ledgerlog_spark.testing.memory.tree import MemoryTree
from ledgerlog_spark.wire.repair_notes import Hole, HoleKind, Move, MoveReason

pytestmark = pytest.mark.virtual_time

PAYLOADS = [b"%d" % number * 100 for number in range(10)]
WAIT_SECONDS_MAX = 7_200.0


class ListingTransport(InProcessTransport):
    """The transport of the cluster in memory, which can also list entries."""

    def __init__(self, bookies: dict[str, MemoryStorage]) -> None:
        super().__init__(bookies)
        self._storages = bookies
        self.codes: dict[str, Code] = {}

    def list_entries(
        self,
        bookie_id: str,
        ledger_id: int,
        _timeout_ms: int,
        on_reply: Callable[[Code, Sequence[tuple[int, int]]], None],
    ) -> None:
        code = self.codes.get(bookie_id, Code.OK)
        if bookie_id not in self._storages:
            code = Code.UNAVAILABLE
        ranges: Sequence[tuple[int, int]] = ()
        if code is Code.OK:
            ledger = self._storages[bookie_id].ledgers.get(ledger_id)
            ids = sorted(ledger.entries) if ledger is not None else []
            cuts = [0, *(n + 1 for n, (a, b) in enumerate(pairwise(ids)) if b != a + 1), len(ids)]
            ranges = [(ids[a], ids[b - 1]) for a, b in pairwise(cuts) if b > a]
        asyncio.get_running_loop().call_soon(on_reply, code, ranges)


@dataclass
class Audited:
    """A cluster in memory, and one process with an auditor."""

    cluster: MemoryCluster
    stores: MetadataStores
    transport: ListingTransport
    service: AuditService
    reports: list[tuple[str, Any]]
    running: asyncio.Task[None] | None = None

    def begin(self) -> None:
        self.running = asyncio.create_task(self.service.run())

    async def ledger(self) -> int:
        client = self.cluster.client()
        ledger = await client.create_ledger()
        for payload in PAYLOADS:
            await ledger.append(payload)
        await ledger.close()
        return ledger.id

    async def until(self, is_reached: Callable[[], Any]) -> None:
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while not await is_reached():  # noqa: ASYNC110 - the store has no event for it
                await asyncio.sleep(0.5)


async def announce(stores: MetadataStores, bookie_id: str, host: str = "127.0.0.1") -> None:
    await stores.registration.register(BookieInfo(bookie_id, host, 3181, 3182))


@asynccontextmanager
async def audited(bookies: int = 5) -> AsyncIterator[Audited]:
    async with MemoryCluster(bookies) as cluster:
        admin, stores = memory_metadata(cluster.nodes), memory_metadata(cluster.nodes)
        for bookie_id in cluster.bookies:
            await cluster._session.registration.register(
                BookieInfo(bookie_id, "127.0.0.1", 3181, 3182)
            )
        transport = ListingTransport(cluster.bookies)
        random = Random(0)
        services = Services.on(stores, transport, ClientSettings(), random)
        reports: list[tuple[str, Any]] = []
        service = AuditService(
            "daemon:1", stores, services, transport, lambda *report: reports.append(report)
        )
        made = Audited(cluster, admin, transport, service, reports)
        try:
            yield made
        finally:
            if made.running is not None:
                made.running.cancel()
                await asyncio.gather(made.running, return_exceptions=True)
            await transport.aclose()
            await stores.close()
            await admin.close()


async def test_the_ledgers_of_a_lost_bookie_are_marked_after_the_delay() -> None:
    async with audited() as world:
        world.begin()
        await world.until(lambda: _async(world.service.is_elected))
        assert await world.stores.auditor_election.current() == "daemon:1"
        ledger_id = await world.ledger()
        record = await world.stores.ledgers.load(ledger_id)
        lost = record.value.last_fragment.ensemble[1]
        await asyncio.sleep(40)  # the hold after the election
        await world.cluster.stop_bookie(lost)
        await asyncio.sleep(50)
        assert await world.stores.marks.load(ledger_id) is None
        await world.until(lambda: world.stores.marks.load(ledger_id))
        mark = await world.stores.marks.load(ledger_id)
        assert mark is not None
        assert mark.replicas == (lost,)


async def test_a_bookie_that_returns_within_the_delay_is_not_marked() -> None:
    async with audited() as world:
        ledger_id = await world.ledger()
        world.begin()
        lost = (await world.stores.ledgers.load(ledger_id)).value.last_fragment.ensemble[0]
        await asyncio.sleep(40)
        await world.cluster.stop_bookie(lost)
        await asyncio.sleep(30)
        await world.cluster.start_bookie(lost)
        await asyncio.sleep(200)
        assert await world.stores.marks.load(ledger_id) is None


async def test_a_request_for_an_audit_ends_the_delay() -> None:
    async with audited() as world:
        ledger_id = await world.ledger()
        world.begin()
        lost = (await world.stores.ledgers.load(ledger_id)).value.last_fragment.ensemble[0]
        await asyncio.sleep(40)
        await world.stores.recovery_switch.set_lost_bookie_delay(100_000)
        await world.cluster.stop_bookie(lost)
        await asyncio.sleep(500)
        assert await world.stores.marks.load(ledger_id) is None
        await world.stores.recovery_switch.audit_now()
        await asyncio.sleep(5)
        assert await world.stores.marks.load(ledger_id) is not None


async def test_a_disabled_auto_recovery_marks_nothing_until_it_is_enabled() -> None:
    async with audited() as world:
        await world.stores.recovery_switch.disable()
        ledger_id = await world.ledger()
        world.begin()
        lost = (await world.stores.ledgers.load(ledger_id)).value.last_fragment.ensemble[0]
        await asyncio.sleep(40)
        await world.cluster.stop_bookie(lost)
        await asyncio.sleep(500)
        assert await world.stores.marks.load(ledger_id) is None
        await world.stores.recovery_switch.enable()
        await asyncio.sleep(5)
        assert await world.stores.marks.load(ledger_id) is not None


async def test_a_hole_and_a_damaged_copy_are_reported_and_marks_are_not_written() -> None:
    async with audited() as world:
        lacking, damaged = await world.ledger(), await world.ledger()
        members = (await world.stores.ledgers.load(lacking)).value.last_fragment.ensemble
        del world.cluster.bookies[members[0]].ledgers[lacking].entries[4]
        holder = (await world.stores.ledgers.load(damaged)).value.last_fragment.ensemble[2]
        entries = world.cluster.bookies[holder].ledgers[damaged].entries
        entries[7] = entries[7][:-1] + bytes([entries[7][-1] ^ 1])
        world.begin()
        await world.until(lambda: world.stores.holes.load(lacking))
        await world.until(lambda: world.stores.holes.load(damaged))
        found = await world.stores.holes.load(lacking)
        assert found is not None
        assert found.value.holes == (Hole(members[0], 0, HoleKind.MISSING, ((4, 4),)),)
        found = await world.stores.holes.load(damaged)
        assert found is not None
        assert found.value.holes == (Hole(holder, 0, HoleKind.DAMAGED, ((7, 7),)),)
        assert [each async for each in world.stores.marks.walk()] == []


async def test_a_bookie_in_limbo_is_reported_only_after_an_hour() -> None:
    async with audited() as world:
        ledger_id = await world.ledger()
        member = (await world.stores.ledgers.load(ledger_id)).value.last_fragment.ensemble[0]
        world.transport.codes[member] = Code.IO_ERROR
        world.begin()
        await world.until(lambda: _async(world.service.holds_checks))
        begun = asyncio.get_running_loop().time()
        await world.until(lambda: world.stores.holes.load(ledger_id))
        assert asyncio.get_running_loop().time() - begun >= 3_600


async def test_misplaced_copies_are_reported_as_moves() -> None:
    async with audited() as world:
        ledger_id = await world.ledger()
        members = (await world.stores.ledgers.load(ledger_id)).value.last_fragment.ensemble
        session = world.cluster._session
        for number, bookie_id in enumerate(sorted(world.cluster.bookies)):
            host = "10.0.0.1" if bookie_id in members[:2] else f"10.0.1.{number}"
            await announce(session, bookie_id, host)
        world.begin()
        await world.until(lambda: world.stores.moves.load(ledger_id))
        moves = await world.stores.moves.load(ledger_id)
        assert moves is not None
        assert moves.value.moves == (Move(members[1], reason=MoveReason.PLACEMENT),)


async def test_the_checks_run_while_another_auditor_is_elected() -> None:
    async with MemoryCluster(3) as cluster:
        other = memory_metadata(cluster.nodes)
        apache = await other.auditor_election.join("apache:1")
        await asyncio.sleep(1)
        assert apache.elected.is_set()
        stores = memory_metadata(cluster.nodes)
        transport = ListingTransport(cluster.bookies)
        random = Random(0)
        services = Services.on(stores, transport, ClientSettings(), random)
        service = AuditService("daemon:1", stores, services, transport, lambda *_: None)
        running = asyncio.create_task(service.run())
        await asyncio.sleep(30)
        assert service.holds_checks
        assert [service.is_elected] == [False]
        assert await other.leases.holder(LEASE) == {"id": "daemon:1"}
        await apache.leave()
        await asyncio.sleep(30)
        assert [service.is_elected] == [True]
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await transport.aclose()
        await stores.close()
        await other.close()


async def test_a_successor_is_elected_after_the_session_of_the_auditor_ended() -> None:
    async with audited() as world:
        world.begin()
        await world.until(lambda: _async(world.service.is_elected))
        ledger_id = await world.ledger()
        await asyncio.sleep(40)
        (begun,) = [each for name, each in world.reports if name == "elected"]
        assert begun == "daemon:1"
        tree = world.service._stores.tree
        tree.expire_session()  # type: ignore[attr-defined]
        await world.until(lambda: _async(len(_elections(world)) == 2))
        of_elections = [name for name, _ in world.reports if name in {"elected", "stepped_down"}]
        assert of_elections == ["elected", "stepped_down", "elected"]
        lost = (await world.stores.ledgers.load(ledger_id)).value.last_fragment.ensemble[0]
        await world.cluster.stop_bookie(lost)
        await world.until(lambda: world.stores.marks.load(ledger_id))


async def test_an_auditor_goes_on_after_an_outage_of_the_store() -> None:
    async with audited() as world:
        world.begin()
        await world.until(lambda: _async(world.service.is_elected))
        ledger_id = await world.ledger()
        await asyncio.sleep(40)
        tree = world.service._stores.tree
        assert isinstance(tree, MemoryTree)
        tree.disconnect()
        await asyncio.sleep(5)
        tree.connect()
        await asyncio.sleep(5)
        lost = (await world.stores.ledgers.load(ledger_id)).value.last_fragment.ensemble[0]
        await world.cluster.stop_bookie(lost)
        await world.until(lambda: world.stores.marks.load(ledger_id))
        assert len(_elections(world)) == 1


async def test_the_checks_end_with_the_session_of_their_lease() -> None:
    async with audited() as world:
        world.begin()
        await world.until(lambda: _async(world.service.holds_checks))
        world.service._stores.tree.expire_session()  # type: ignore[attr-defined]
        await world.until(lambda: _async(_count(world, "checks_begin") == 2))


async def test_a_process_that_ends_leaves_the_election() -> None:
    async with audited() as world:
        world.begin()
        await world.until(lambda: _async(world.service.is_elected))
        assert world.running is not None
        world.running.cancel()
        await asyncio.gather(world.running, return_exceptions=True)
        assert await world.stores.auditor_election.current() is None
        assert await world.stores.leases.holder(LEASE) is None


def _count(world: Audited, event: str) -> int:
    return [name for name, _ in world.reports].count(event)


def _elections(world: Audited) -> list[Any]:
    return [each for name, each in world.reports if name == "elected"]


async def _async(value: Any) -> Any:
    return value
