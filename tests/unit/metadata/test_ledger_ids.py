"""New ledger ids while the store loses answers and the directory of the counter is missing."""

from __future__ import annotations

from typing import Any

import pytest

from ledgerlog_spark.errors import MetadataUnavailableError, MetadataUnknownError
from ledgerlog_spark.metadata.stores import MetadataStores
from ledgerlog_spark.testing.memory.nodes import MemoryNodes
from ledgerlog_spark.testing.memory.tree import Fault, MemoryTree


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
