"""A dead bookie is replaced everywhere: real bookies, ZooKeeper, the auditor and the worker."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import ledgerlog_spark as ll
from ledgerlog_spark.autorecovery.composed import AutoRecovery
from ledgerlog_spark.autorecovery.replicate.worker import WorkerSettings
from ledgerlog_spark.metadata.stores import MetadataStores, open_metadata
from ledgerlog_spark.protocol.autorecovery.replicate.job import ReplicationSettings
from tests.fixtures.patience import eventually, until
from tests.fixtures.ports import free_port
from tests.fixtures.replicas import Copies
from tests.fixtures.stage import start_all

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.bookie_process import BookieProcess

pytestmark = [pytest.mark.zookeeper, pytest.mark.processes]

QUORUMS = ((3, 3, 2), (3, 2, 2), (4, 2, 2))
LEDGERS = 12
ENTRIES = 30
WORKER = WorkerSettings(job=ReplicationSettings(grace_ms=300))


def payload(ledger_id: int, entry_id: int) -> bytes:
    return b"%d:%d " % (ledger_id, entry_id) * 40


def written(uri: str) -> tuple[list[int], list[int]]:
    """Write ledgers, and return the ids of the closed and of the open ones."""
    closed, left_open = [], []
    with ll.connect(uri) as client:
        for number in range(LEDGERS):
            size, write, ack = QUORUMS[number % len(QUORUMS)]
            ledger = client.create_ledger(ensemble_size=size, write_quorum=write, ack_quorum=ack)
            ledger.append_batch([payload(ledger.id, one) for one in range(ENTRIES)])
            if number % 4:
                ledger.close()
                closed.append(ledger.id)
            else:
                left_open.append(ledger.id)
    return closed, left_open


async def named(stores: MetadataStores, ids: list[int], name: str) -> list[int]:
    """The ledgers whose metadata names a bookie."""
    found = []
    for ledger_id in ids:
        metadata = (await stores.ledgers.load(ledger_id)).value
        if any(name in fragment.ensemble for fragment in metadata.fragments):
            found.append(ledger_id)
    return found


def check_copies(
    uri: str, ids: list[int], bookies: dict[str, BookieProcess], *, seals: bool
) -> None:
    """Read each copy from its bookie. The reader shares no code with the worker."""
    copies = Copies()
    with ll.connect(uri) as client:
        for ledger_id in ids:
            if seals:
                client.seal(ledger_id)
            metadata = client.ledger_metadata(ledger_id)
            assert metadata.last_entry_id == ENTRIES - 1
            copies.check(ledger_id, metadata, bookies, partial(payload, ledger_id))
    assert copies.wrong == 0, copies.broken
    assert copies.absent == 0
    assert copies.entries == len(ids) * ENTRIES


async def is_healed(stores: MetadataStores, ids: list[int], name: str) -> bool:
    marks = [one async for one in stores.marks.walk() if one in ids]
    return not marks and not await named(stores, ids, name)


def test_every_ledger_of_a_killed_bookie_gets_all_its_copies_back(
    make_bookie: Callable[..., BookieProcess], service_uri: str
) -> None:
    bookies = five_bookies(make_bookie)
    closed, left_open = written(service_uri)
    ids = [*closed, *left_open]
    events: list[tuple[str, Any]] = []

    async def heal() -> None:
        stores = await open_metadata(service_uri)
        recovery = AutoRecovery("d:1", stores, lambda *event: events.append(event), WORKER)
        running = asyncio.create_task(recovery.run())
        try:
            await stores.recovery_switch.set_lost_bookie_delay(0)
            bookies["b1"].kill()
            await eventually(lambda: is_healed(stores, ids, "b1"), running)
            assert recovery.worker.counters.members_replaced
            assert recovery.worker.counters.entries_copied
            reports = await stores.worker_reports.all()
            assert set(reports) == {"d:1"}
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running
            await stores.close()

    asyncio.run(heal())
    assert [event for event, _ in events if event == "elected"]
    assert not [subject for event, subject in events if event == "job_crashed"]
    check_copies(service_uri, ids, bookies, seals=True)


def test_bookies_heal_each_other(
    make_bookie: Callable[..., BookieProcess], service_uri: str
) -> None:
    bookies = five_bookies(make_bookie, autorecovery=True)
    left = [one for name, one in bookies.items() if name != "b2"]
    closed, _ = written(service_uri)

    async def wait() -> None:
        stores = await open_metadata(service_uri)
        try:
            await stores.recovery_switch.set_lost_bookie_delay(0)
            bookies["b2"].kill()
            await eventually(are_told)
            await eventually(lambda: is_healed(stores, closed, "b2"))
        finally:
            await stores.close()

    async def are_told() -> bool:
        lost = [one.metric("autorecovery_bookies_lost") for one in left]
        return sorted(lost) == [0, 0, 0, 1]

    asyncio.run(wait())
    until(lambda: sum(one.metric("autorecovery_is_auditor") for one in left) == 1)
    assert sum(one.metric("autorecovery_ledgers_healed") for one in left) > 0
    assert sum(one.metric("autorecovery_bytes_copied") for one in left) > 0
    assert sum(one.metric("autorecovery_members_replaced") for one in left) > 0
    check_copies(service_uri, closed, bookies, seals=False)
    assert any('"replicated"' in one.log() for one in left)


def five_bookies(
    make_bookie: Callable[..., BookieProcess], **settings: object
) -> dict[str, BookieProcess]:
    names = [f"b{n}" for n in range(5)]
    bookies = {
        name: make_bookie(
            name, bookie_id=name, session_timeout_ms=2_000, metrics_port=free_port(), **settings
        )
        for name in names
    }
    start_all(bookies.values())
    return bookies
