"""Records of ledgers kept for a while (ledgerlog_spark.client.recent_records)."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

from ledgerlog_spark.client import recent_records
from ledgerlog_spark.client.recent_records import AGE_MAX_S, RecentRecords
from ledgerlog_spark.model import Fragment, LedgerMetadata, LedgerState, Quorum
from tests.fixtures.client_world import ClientWorld
from tests.unit.client.test_reader_handle import in_world, written

if TYPE_CHECKING:
    from ledgerlog_spark.metadata.stores import MetadataStores

RECORD = LedgerMetadata(Quorum(3, 3, 2), (Fragment(0, ("a", "b", "c")),), LedgerState.OPEN)


def test_a_record_is_known_until_it_is_too_old() -> None:
    now_s = 100.0
    records = RecentRecords(lambda: now_s)
    assert records.get(7) is None
    records.put(7, RECORD)
    now_s += AGE_MAX_S
    assert records.get(7) == RECORD
    now_s += 0.1
    assert records.get(7) is None


def test_the_oldest_of_too_many_records_goes() -> None:
    records = RecentRecords()
    for ledger_id in range(recent_records.RECORDS_MAX):
        records.put(ledger_id, RECORD)
    records.put(0, RECORD)
    records.put(recent_records.RECORDS_MAX, RECORD)
    assert records.get(0) == RECORD
    assert records.get(1) is None


def counted_loads(stores: MetadataStores) -> list[int]:
    """Ids of the ledgers whose records are loaded from now on."""
    loads: list[int] = []
    load = stores.ledgers.load

    async def counted(ledger_id: int) -> object:
        loads.append(ledger_id)
        return await load(ledger_id)

    stores.ledgers.load = counted  # type: ignore[method-assign, assignment]
    return loads


def test_a_handle_that_may_be_outdated_costs_no_request_after_the_first() -> None:
    async def work(world: ClientWorld) -> None:
        ledger_id = await written(world, 10)
        client, stores = world.client_and_stores()
        loads = counted_loads(stores)
        for _ in range(3):
            reader = await client.open_ledger(ledger_id, is_listed=True, may_be_outdated=True)
            assert len([entry async for entry in reader.read(0, 9)]) == 10
        assert loads == [ledger_id]
        await client.open_ledger(ledger_id)
        assert loads == [ledger_id] * 2

    in_world(work)


def test_records_that_another_client_read_cost_this_one_nothing() -> None:
    async def work(world: ClientWorld) -> None:
        ledger_ids = [await written(world, 10) for _ in range(3)]
        driver, driver_stores = world.client_and_stores()
        driver_loads = counted_loads(driver_stores)
        await driver.open_ledger(ledger_ids[0])
        gone = 10**6
        records = await driver.recent_records([*ledger_ids, gone])
        assert set(records) == set(ledger_ids)
        assert sorted(set(driver_loads) - {gone}) == ledger_ids
        assert driver_loads.count(ledger_ids[0]) == 1

        task, task_stores = world.client_and_stores()
        task_loads = counted_loads(task_stores)
        task.remember(pickle.loads(pickle.dumps(records)))
        for ledger_id in ledger_ids:
            reader = await task.open_ledger(ledger_id, is_listed=True, may_be_outdated=True)
            assert len([entry async for entry in reader.read(0, 9)]) == 10
        assert task_loads == []

    in_world(work)
