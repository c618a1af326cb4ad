"""A bookie is decommissioned while it serves: real bookies, ZooKeeper, and auto-recovery."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest

import ledgerlog_spark as ll
from ledgerlog_spark.autorecovery.composed import AutoRecovery
from ledgerlog_spark.metadata.stores import MetadataStores, open_metadata
from ledgerlog_spark.protocol.autorecovery.vacate.vacating import VacatingSettings
from ledgerlog_spark.wire.repair_notes import Vacation, VacationKind, VacationPhase
from tests.fixtures.patience import eventually
from tests.integration.bookie.test_autorecovery import (
    WORKER,
    check_copies,
    five_bookies,
    named,
    written,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.bookie_process import BookieProcess

pytestmark = [pytest.mark.zookeeper, pytest.mark.processes]

VACATING = VacatingSettings(quiet_ms=2_000, poll_ms=300)
REFUSED = 3


async def is_over(stores: MetadataStores) -> bool:
    found = await stores.vacations.load("b1")
    return found is not None and found.value.is_over


async def names_only(stores: MetadataStores, ledger_ids: list[int]) -> bool:
    """Whether only these ledgers are left, whose writers have ended."""
    found = await stores.vacations.load("b1")
    if found is None or found.value.walks == 0:
        return False
    left = sorted(one.ledger_id for one in found.value.blocked)
    return left == sorted(ledger_ids) and found.value.ledgers_left == len(ledger_ids)


def seal_all(uri: str, ledger_ids: list[int]) -> None:
    with ll.connect(uri) as client:
        for ledger_id in ledger_ids:
            client.seal(ledger_id)


def test_all_copies_of_a_decommissioned_bookie_move_while_it_serves(
    make_bookie: Callable[..., BookieProcess], service_uri: str
) -> None:
    """AUTORECOVERY.md#Y5, AUTORECOVERY.md#Y6, AUTORECOVERY.md#Y8."""
    bookies = five_bookies(make_bookie)
    closed, left_open = written(service_uri)
    ids = [*closed, *left_open]
    events: list[tuple[str, Any]] = []

    async def decommission() -> None:
        stores = await open_metadata(service_uri)
        report = lambda *event: events.append(event)  # noqa: E731
        recovery = AutoRecovery("d:1", stores, report, WORKER, vacating=VACATING)
        running = asyncio.create_task(recovery.run())
        try:
            before = await named(stores, ids, "b1")
            waiting = await named(stores, left_open, "b1")
            assert set(waiting) < set(before)
            vacation = Vacation(VacationKind.DECOMMISSION, VacationPhase.DRAINING)
            await stores.vacations.write("b1", vacation, None)
            await eventually(lambda: names_only(stores, waiting), running)
            await asyncio.to_thread(seal_all, service_uri, waiting)
            await eventually(lambda: is_over(stores), running)
            assert await named(stores, ids, "b1") == []
            assert [one async for one in stores.moves.walk()] == []
            found = await stores.vacations.load("b1")
            assert found is not None
            assert found.value.ledgers_total == len(before)
            assert await stores.registration.read_cookie("b1") is None
            assert "b1" in await stores.registration.read_only()
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running
            await stores.close()

    asyncio.run(decommission())
    bookies["b1"].stop()
    code, said = bookies["b1"].refusal()
    assert code == REFUSED
    assert "was decommissioned" in said
    assert not [subject for event, subject in events if event == "job_crashed"]
    check_copies(service_uri, ids, bookies, seals=True)
