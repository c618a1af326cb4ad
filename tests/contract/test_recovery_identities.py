"""A recovery does not close a ledger on a bookie that has lost its entries, in both worlds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from random import Random
from typing import Any

import pytest

from ledgerlog_spark.client.client import LedgerClient
from ledgerlog_spark.client.services import Services
from ledgerlog_spark.client.settings import ClientSettings
from ledgerlog_spark.errors import LedgerRecoveryError
from ledgerlog_spark.metadata.stores import MetadataStores
from ledgerlog_spark.model import BookieInfo
from ledgerlog_spark.protocol.ledger.recover.recovery import RecoverySettings
from ledgerlog_spark.retry import RetryPolicy
from ledgerlog_spark.testing.bookie import MemoryStorage
from ledgerlog_spark.testing.in_process import InProcessTransport
from ledgerlog_spark.wire.known_bookie import KnownBookie, KnownDirectory
from tests.fixtures.client_world import FaultyTransport
from tests.fixtures.metadata_worlds import delete_cookie

Two = tuple[MetadataStores, MetadataStores]
SETTINGS = ClientSettings(
    recovery=RecoverySettings(retry=RetryPolicy(first_delay_ms=1, delay_max_ms=1, attempts_max=3))
)
FIRST = KnownBookie((KnownDirectory("0123456789abcdef", 1, 1),))
EMPTY = KnownBookie((KnownDirectory("fedcba9876543210", 1, 1),))


class Wiping(FaultyTransport):
    """Calls `before_answer` before each of the first `times` answers of b3 is passed on."""

    def __init__(self, storages: dict[str, MemoryStorage]) -> None:
        super().__init__(InProcessTransport(storages))
        self.times = 1
        self.before_answer: Callable[[], Awaitable[None]]
        self._tasks: set[asyncio.Task[None]] = set()

    def _held(self, bookie_id: str, on_reply: Callable[..., None]) -> Callable[..., None]:
        if bookie_id != "b3" or not self.times:
            return on_reply
        self.times -= 1

        async def wipe_first(*answer: Any) -> None:
            await self.before_answer()
            on_reply(*answer)

        def reply(*answer: Any) -> None:
            self._tasks.add(asyncio.get_running_loop().create_task(wipe_first(*answer)))

        return reply


class Cluster:
    """Three bookies, of which b2 dies, and b3, which replaces it. Each entry needs three copies."""

    def __init__(self, client: MetadataStores, admin: MetadataStores) -> None:
        self.admin = admin
        self.storages = {f"b{number}": MemoryStorage() for number in range(4)}
        self.transport = Wiping(self.storages)
        services = Services.on(client, self.transport, SETTINGS, Random(1))
        self.client = LedgerClient(services)

    async def join(self, name: str, *, is_ours: bool) -> None:
        registration = self.admin.registration
        if is_ours:
            await self.admin.known_bookies.write_with_cookie(name, FIRST, None, b"cookie", None)
        else:
            await registration.write_cookie(name, b"cookie", None)
        await registration.register(BookieInfo(name, "127.0.0.1", 3181))

    async def dead_writer(self, *, is_ours: bool) -> int:
        """Return a ledger with one entry, which only b0 and b1 have. b3 is a spare bookie."""
        for name in ("b0", "b1", "b2"):
            await self.join(name, is_ours=is_ours)
        ledger = await self.client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=3)
        await ledger.append(b"x")
        del self.storages["b2"]
        await self.admin.registration.unregister("b2")
        await self.join("b3", is_ours=is_ours)
        return ledger.id

    async def fix(self) -> None:
        """Replace the directory of b3 by an empty one, and write its cookie again."""
        self.storages["b3"] = MemoryStorage()
        cookie = await self.admin.registration.read_cookie("b3")
        assert cookie is not None
        await self.admin.registration.write_cookie("b3", b"cookie", cookie.version)

    async def make_again(self) -> None:
        """Replace the directory of b3. Its cookie is deleted, and the bookie creates another."""
        self.storages["b3"] = MemoryStorage()
        await delete_cookie(self.admin, "b3")
        record = await self.admin.known_bookies.read("b3")
        assert record is not None
        await self.admin.known_bookies.write_with_cookie(
            "b3", EMPTY, record.version, b"cookie", None
        )


@pytest.fixture
async def cluster(two: Two) -> AsyncIterator[Cluster]:
    cluster = Cluster(*two)
    yield cluster
    await cluster.client.aclose()


@pytest.mark.parametrize(
    ("change", "is_ours"),
    [(Cluster.fix, True), (Cluster.fix, False), (Cluster.make_again, True)],
    ids=["fixed, ours", "fixed, apache's", "made again, ours"],
)
async def test_a_replacement_whose_cookie_was_replaced_gets_the_entries_again(
    cluster: Cluster, change: Callable[[Cluster], Awaitable[None]], *, is_ours: bool
) -> None:
    ledger_id = await cluster.dead_writer(is_ours=is_ours)
    cluster.transport.before_answer = partial(change, cluster)
    closed = await cluster.client.seal(ledger_id)
    assert closed.last_entry_id == 0
    found = (await cluster.admin.ledgers.load(ledger_id)).value
    assert set(found.last_fragment.ensemble) == {"b0", "b1", "b3"}
    assert list(cluster.storages["b3"].ledgers[ledger_id].entries) == [0]
    assert cluster.transport.asked.count(("add", "b3")) == 2


async def test_a_ledger_is_not_closed_while_its_replacement_loses_entries(
    cluster: Cluster,
) -> None:
    cluster.transport.times = 3
    ledger_id = await cluster.dead_writer(is_ours=True)
    cluster.transport.before_answer = cluster.fix
    with pytest.raises(LedgerRecoveryError, match="lost its entries") as failed:
        await cluster.client.seal(ledger_id)
    assert failed.value.retriable
    assert failed.value.bookie_ids == ("b3",)
    assert not (await cluster.admin.ledgers.load(ledger_id)).value.is_closed
    assert (await cluster.client.seal(ledger_id)).last_entry_id == 0
