"""A bookie process that is drained, decommissioned or recovered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ledgerlog_spark.metadata.stores import MetadataStores, open_metadata
from ledgerlog_spark.model import Code
from ledgerlog_spark.wire.repair_notes import Vacation, VacationKind, VacationPhase
from tests.fixtures.bookie_process import add_frame

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.bookie_process import BookieProcess

    MakeBookie = Callable[..., BookieProcess]

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper]

REFUSED = 3
ID = "bookie-7"


class Cluster:
    """The metadata stores, and waits for the registration of the bookie."""

    def __init__(self, stores: MetadataStores) -> None:
        self.stores = stores

    async def begin(self, kind: VacationKind, phase: VacationPhase) -> None:
        await self.stores.vacations.write(ID, Vacation(kind, phase), None)

    async def vacation(self) -> Vacation | None:
        found = await self.stores.vacations.load(ID)
        return None if found is None else found.value

    async def registered(self, *, is_read_only: bool | None) -> None:
        """Wait until the bookie is registered so, or not at all (None)."""
        changed = asyncio.Event()
        registration = self.stores.registration
        cancels = [
            registration.watch_writable(changed.set),
            registration.watch_read_only(changed.set),
        ]
        try:
            async with asyncio.timeout(30):
                while True:
                    changed.clear()
                    sight = await registration.sight(ID)
                    if (None if sight is None else sight[0]) is is_read_only:
                        return
                    await changed.wait()
        finally:
            for cancel in cancels:
                cancel()


@pytest.fixture
async def cluster(service_uri: str) -> AsyncIterator[Cluster]:
    stores = await open_metadata(service_uri)
    await stores.initialize()
    yield Cluster(stores)
    await stores.close()


async def test_a_drained_bookie_is_read_only_until_the_vacation_is_cancelled(
    make_bookie: MakeBookie, cluster: Cluster
) -> None:
    """AUTORECOVERY.md#Y2, also over a restart."""
    bookie = make_bookie(bookie_id=ID).start()
    await cluster.registered(is_read_only=False)
    await cluster.begin(VacationKind.DRAIN, VacationPhase.DRAINING)
    await cluster.registered(is_read_only=True)
    with bookie.peer() as peer:
        assert peer.ask(add_frame(1, 0, b"late")).code is Code.READ_ONLY
    bookie.stop()
    bookie.start()
    await cluster.registered(is_read_only=True)
    vacation = await cluster.vacation()
    assert vacation is not None
    assert vacation.returns == 1, "AUTORECOVERY.md#Y7"
    found = await cluster.stores.vacations.load(ID)
    assert found is not None
    assert await cluster.stores.vacations.delete(ID, found.version)
    await cluster.registered(is_read_only=False)
    with bookie.peer() as peer:
        assert peer.ask(add_frame(1, 0, b"now")).code is Code.OK


async def test_a_decommissioned_bookie_does_not_start(
    make_bookie: MakeBookie, cluster: Cluster
) -> None:
    """AUTORECOVERY.md#Y8."""
    bookie = make_bookie(bookie_id=ID).start()
    bookie.stop()
    cookie = await cluster.stores.registration.read_cookie(ID)
    assert cookie is not None
    await cluster.begin(VacationKind.DECOMMISSION, VacationPhase.VACATING)
    found = await cluster.stores.vacations.load(ID)
    assert found is not None
    over = replace(found.value, phase=VacationPhase.VACATED)
    await cluster.stores.vacations.write_and_delete_cookie(ID, over, found.version, cookie.version)
    code, said = bookie.refusal()
    assert code == REFUSED
    assert "was decommissioned" in said
    assert "ledgerlog bookie format" in said
    await cluster.registered(is_read_only=None)


@pytest.mark.parametrize("phase", list(VacationPhase))
async def test_a_bookie_that_is_back_ends_its_recovery(
    make_bookie: MakeBookie, cluster: Cluster, phase: VacationPhase
) -> None:
    """AUTORECOVERY.md#Y8."""
    bookie = make_bookie(bookie_id=ID).start()
    bookie.stop()
    await cluster.begin(VacationKind.RECOVER, phase)
    bookie.start()
    await cluster.registered(is_read_only=False)
    assert await cluster.vacation() is None
