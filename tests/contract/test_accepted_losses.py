"""The promises of the `AcceptedLosses` store, in memory and on a real ZooKeeper."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ledgerlog_spark.errors import MetadataFormatError, MetadataUnknownError
from ledgerlog_spark.metadata.stores import MetadataStores
from ledgerlog_spark.wire.accepted_loss import AcceptedLoss
from tests.fixtures.metadata_worlds import World, cluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LOSS = AcceptedLoss("b1", 17, 1, "closed", 9, (4, 5), 2, 1_764_240_000_000, "ops@h", "burnt")


@pytest.fixture
async def stores(world: World) -> AsyncIterator[MetadataStores]:
    stores = await cluster(world)
    yield stores
    await stores.close()


async def test_losses_are_listed_by_ledger(stores: MetadataStores) -> None:
    losses = stores.accepted_losses
    assert await losses.of_bookie("b1") == []
    small = replace(LOSS, ledger_id=9)
    other = replace(LOSS, bookie_id="b2")
    for loss in (LOSS, small, other):
        await losses.write(loss)
    assert await losses.of_bookie("b1") == [small, LOSS]
    assert await losses.of_bookie("b2") == [other]


async def test_a_ledger_has_its_newest_loss(stores: MetadataStores) -> None:
    again = replace(LOSS, reason="once more", epoch=2)
    await stores.accepted_losses.write(LOSS)
    await stores.accepted_losses.write(again)
    assert await stores.accepted_losses.of_bookie("b1") == [again]


async def test_apaches_tools_do_not_see_the_nodes(stores: MetadataStores) -> None:
    await stores.accepted_losses.write(LOSS)
    assert await stores.tree.children(f"{stores.root}-losses") == ["b1"]
    assert not any("losses" in name for name in await stores.tree.children(stores.root))


async def test_a_record_of_a_later_release_is_refused(stores: MetadataStores) -> None:
    await stores.accepted_losses.write(LOSS)
    path = f"{stores.root}-losses/b1/17"
    later = LOSS.encode().replace(b'"format":1', b'"format":2')
    await stores.tree.set(path, later, None)
    with pytest.raises(MetadataFormatError, match=r"format 2.*newer release"):
        await stores.accepted_losses.of_bookie("b1")


async def test_a_write_with_a_lost_answer_is_repeated(
    stores: MetadataStores, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = stores.tree.create
    lost: list[object] = []

    async def lose(*arguments: object, **options: object) -> object:
        created = await create(*arguments, **options)  # type: ignore[arg-type]
        if not lost:
            lost.append(created)
            raise MetadataUnknownError("lost")
        return created

    monkeypatch.setattr(stores.tree, "create", lose)
    await stores.accepted_losses.write(LOSS)
    assert await stores.accepted_losses.of_bookie("b1") == [LOSS]
