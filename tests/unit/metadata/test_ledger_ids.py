"""New ledger ids while the store loses answers and the directory of the counter is missing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ledgerlog_spark.errors import MetadataUnavailableError, MetadataUnknownError
from ledgerlog_spark.metadata.ledgers.ids import TRANSACTIONS_MAX
from ledgerlog_spark.metadata.stores import MetadataStores
from ledgerlog_spark.testing.memory.nodes import MemoryNodes
from ledgerlog_spark.testing.memory.tree import Fault, MemoryTree
from tests.fixtures.counted_tree import counted_stores


async def cluster() -> tuple[MemoryTree, MetadataStores]:
    tree = MemoryTree(MemoryNodes())
    stores = MetadataStores.on(tree, "/ledgers")
    await stores.initialize()
    return tree, stores


async def test_first_ids_of_a_cluster_fail_for_the_answers_that_were_lost() -> None:
    tree, stores = await cluster()
    tree.inject(Fault.REQUEST_LOST, Fault.REQUEST_LOST)
    with pytest.raises(MetadataUnknownError, match="connection lost"):
        await stores.ledgers.new_ids()
    assert await stores.ledgers.new_ids() == [0]


async def test_directory_that_is_deleted_again_and_again_is_no_error_of_the_tree(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tree, stores = await cluster()
    create = tree.create

    async def undone(path: str, *rest: Any, **options: Any) -> Any:
        made = await create(path, *rest, **options)
        await tree.delete(path)
        return made

    monkeypatch.setattr(tree, "create", undone)
    with pytest.raises(MetadataUnavailableError, match="deleted after every attempt to create it"):
        await stores.ledgers.new_ids()


async def test_calls_at_the_same_time_share_transactions() -> None:
    tree, stores = await counted_stores()
    await stores.ledgers.new_ids()
    await stores.ledgers.close()
    tree.requests.clear()
    got = await asyncio.gather(*(stores.ledgers.new_ids() for _ in range(2 * 64)))
    await stores.ledgers.close()
    ids = [each for group in got for each in group]
    assert ids == list(range(1, 129))
    assert tree.requests["transact"] == 2 * 2  # two of 64 ids, and two that delete the nodes


async def test_transactions_for_ids_at_the_same_time_are_bounded() -> None:
    _, stores = await counted_stores(write_seconds=0.01)
    ids = stores.ledgers._ids
    calls = [asyncio.ensure_future(stores.ledgers.new_ids(64)) for _ in range(20)]
    most = 0
    while not all(call.done() for call in calls):
        most = max(most, len(ids._transactions))
        await asyncio.sleep(0)
    assert most == TRANSACTIONS_MAX
    assert len({each for call in calls for each in call.result()}) == 20 * 64


async def test_calls_that_share_a_failed_transaction_all_fail() -> None:
    tree, stores = await cluster()
    await stores.ledgers.new_ids()
    tree.disconnect()
    got = await asyncio.gather(
        *(stores.ledgers.new_ids() for _ in range(10)), return_exceptions=True
    )
    assert {type(each) for each in got} == {MetadataUnavailableError}
    tree.connect()
    assert len(await stores.ledgers.new_ids()) == 1


async def test_a_cancelled_call_does_not_disturb_the_others() -> None:
    _, stores = await cluster()
    await stores.ledgers.new_ids()
    calls = [asyncio.ensure_future(stores.ledgers.new_ids()) for _ in range(5)]
    await asyncio.sleep(0)
    calls[0].cancel()
    calls[3].cancel()
    got = await asyncio.gather(*calls, return_exceptions=True)
    ids = [each[0] for each in got if not isinstance(each, BaseException)]
    assert len(set(ids)) == 3
