"""Metadata of ledgers in a cache (ledgerlog_spark.client.recent_records)."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

import pytest

from ledgerlog_spark.client import client as client_module
from ledgerlog_spark.client.recent_records import (
    AGE_MAX_S,
    SIZE_BYTES_MAX,
    RecentRecords,
    memory_size_bytes,
)
from ledgerlog_spark.model import Fragment, LedgerMetadata, LedgerState, Quorum
from tests.fixtures.client_world import ClientWorld
from tests.unit.client.test_reader_handle import written

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
    each = memory_size_bytes(RECORD)
    records = RecentRecords(size_bytes_max=100 * each)
    for ledger_id in range(100):
        records.put(ledger_id, RECORD)
    records.put(0, RECORD)
    records.put(100, RECORD)
    assert records.get(0) == records.get(2) == records.get(100) == RECORD
    assert records.get(1) is None
    assert records.size_bytes == 100 * each


def changed(fragments: int, custom: int = 0) -> LedgerMetadata:
    """Metadata with many ensemble changes, as in a cluster with unstable bookies."""
    return replace(
        RECORD,
        fragments=tuple(
            Fragment(n, tuple(f"bookie-{n}-{m}.example.org:3181" for m in range(3)))
            for n in range(fragments)
        ),
        custom={f"name {n}": b"value %d" % n for n in range(custom)},
    )


def deep_size_bytes(value: object, seen: set[int]) -> int:
    """Memory of a value and of everything that it refers to."""
    if id(value) in seen or isinstance(value, type | Enum):
        return 0
    seen.add(id(value))
    size = sys.getsizeof(value)
    if isinstance(value, Mapping):
        parts = [*value, *value.values()]
    elif isinstance(value, tuple):
        parts = list(value)
    elif is_dataclass(value):
        parts = [getattr(value, field.name) for field in fields(value)]
    else:
        parts = []
    return size + sum(deep_size_bytes(part, seen) for part in parts)


@pytest.mark.parametrize(
    "record",
    [
        RECORD,
        changed(1),
        changed(500),
        changed(1, custom=300),
        replace(RECORD, password=bytes(5_000), unknown_fields=bytes(70_000)),
        replace(RECORD, custom={"\N{HOT BEVERAGE}" * 1_000: b""}),
    ],
    ids=["small", "long names", "many fragments", "custom", "bytes", "wide text"],
)
def test_a_record_is_counted_with_at_least_its_memory(record: LedgerMetadata) -> None:
    size = deep_size_bytes(record, set())
    assert size <= memory_size_bytes(record) <= 4 * size


def test_large_records_are_bounded_by_their_memory() -> None:
    records = RecentRecords()
    record = changed(1_000)
    seen: set[int] = set()
    for ledger_id in range(100):
        records.put(ledger_id, changed(1_000))
    kept = [found for n in range(100) if (found := records.get(n)) is not None]
    assert records.get(99) == record
    assert 0 < sum(deep_size_bytes(each, seen) for each in kept) <= SIZE_BYTES_MAX


def test_a_record_larger_than_the_bound_is_not_kept_and_moves_no_other() -> None:
    records = RecentRecords(size_bytes_max=10_000)
    records.put(1, RECORD)
    records.put(2, RECORD)
    records.put(2, changed(1_000))
    assert records.get(1) == RECORD
    assert records.get(2) is None
    assert records.size_bytes == memory_size_bytes(RECORD)


def counted_loads(stores: MetadataStores) -> list[int]:
    """The ids of the ledgers whose metadata is loaded from now on."""
    loads: list[int] = []
    load = stores.ledgers.load

    async def counted(ledger_id: int) -> object:
        loads.append(ledger_id)
        return await load(ledger_id)

    stores.ledgers.load = counted  # type: ignore[assignment]
    return loads


async def test_a_handle_that_may_be_outdated_costs_no_request_after_the_first(
    world: ClientWorld,
) -> None:
    ledger_id = await written(world, 10)
    client, stores = world.client_and_stores()
    loads = counted_loads(stores)
    for _ in range(3):
        reader = await client.open_ledger(ledger_id, is_listed=True, may_be_outdated=True)
        assert len([entry async for entry in reader.read(0, 9)]) == 10
    assert loads == [ledger_id]
    await client.open_ledger(ledger_id)
    assert loads == [ledger_id] * 2


async def test_records_that_another_client_read_cost_this_one_nothing(world: ClientWorld) -> None:
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


async def test_records_for_tasks_are_as_many_as_fit_the_bound(
    world: ClientWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger_ids = [await written(world, 1) for _ in range(7)]
    client, stores = world.client_and_stores()
    loads = counted_loads(stores)
    each = memory_size_bytes((await stores.ledgers.load(ledger_ids[0])).value)
    loads.clear()
    monkeypatch.setattr(client_module, "LOADS_AT_ONCE", 2)
    monkeypatch.setattr(client_module, "SIZE_BYTES_MAX", 3 * each + each // 2)
    assert list(await client.recent_records(ledger_ids)) == ledger_ids[:3]
    assert loads == ledger_ids[:4]
