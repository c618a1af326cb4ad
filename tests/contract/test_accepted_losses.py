"""The promises of the `AcceptedLosses` store, in memory and on a real ZooKeeper."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ledgerlog_spark.errors import LocalProtocolError, MetadataFormatError, MetadataUnknownError
from ledgerlog_spark.metadata.stores import MetadataStores
from ledgerlog_spark.metadata.tree import NodeExistsError
from ledgerlog_spark.model import Version
from ledgerlog_spark.wire.accepted_loss import AcceptedLoss
from ledgerlog_spark.wire.ledger_loss import ACCEPTANCES_MAX, AcceptedRanges
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


ACCEPTANCE = AcceptedRanges(((3, 5), (9, 9)), False, 1_764_240_000_000, "ops@h", "disks burnt")


async def test_a_ledger_keeps_all_acceptances_of_the_cluster(stores: MetadataStores) -> None:
    losses = stores.accepted_losses
    assert await losses.of_ledger(17) is None
    await losses.accept(17, ACCEPTANCE)
    later = replace(ACCEPTANCE, ranges=((20, 21),), is_forced=True)
    assert (await losses.accept(17, later)).acceptances == (ACCEPTANCE, later)
    found = await losses.of_ledger(17)
    assert found is not None
    assert found.acceptances == (ACCEPTANCE, later)
    assert found.ranges == ((3, 5), (9, 9), (20, 21))
    assert await losses.ledger_ids() == {17}
    assert await losses.of_ledger(18) is None
    assert await losses.of_bookie("b1") == []


async def test_an_acceptance_with_a_lost_answer_is_added_once(
    world: World, stores: MetadataStores, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses, tree = stores.accepted_losses, stores.tree
    await losses.accept(17, ACCEPTANCE)
    later = replace(ACCEPTANCE, reason="once more")
    write = tree.set

    async def losing(path: str, data: bytes, version: Version | None) -> Version:
        monkeypatch.undo()
        world.lose_next_reply(tree)
        return await write(path, data, version)

    monkeypatch.setattr(tree, "set", losing)
    assert (await losses.accept(17, later)).acceptances == (ACCEPTANCE, later)
    assert (await losses.accept(17, later)).acceptances == (ACCEPTANCE, later)
    found = await losses.of_ledger(17)
    assert found is not None
    assert found.acceptances == (ACCEPTANCE, later)


async def test_two_operators_at_once_lose_nothing(world: World, stores: MetadataStores) -> None:
    other = MetadataStores.on(await world.session(), world.root)
    reasons = [replace(ACCEPTANCE, reason=str(number)) for number in range(4)]
    await asyncio.gather(
        *(each.accepted_losses.accept(17, reason)
          for each, reason in zip([stores, other] * 2, reasons, strict=True)),
        return_exceptions=True,
    )  # fmt: skip
    found = await stores.accepted_losses.of_ledger(17)
    assert found is not None
    assert len(set(found.acceptances)) == len(found.acceptances) >= 2
    await other.close()


async def test_the_acceptances_of_a_ledger_are_bounded(stores: MetadataStores) -> None:
    for number in range(ACCEPTANCES_MAX):
        await stores.accepted_losses.accept(17, replace(ACCEPTANCE, reason=str(number)))
    with pytest.raises(LocalProtocolError, match="is full"):
        await stores.accepted_losses.accept(17, ACCEPTANCE)


async def test_a_damaged_record_of_a_ledger_is_refused(stores: MetadataStores) -> None:
    path = f"{stores.root}-losses/@ledgers/17"
    for data in (b"", b"{}", b'{"format": 2}', b"\xff"):
        with suppress(NodeExistsError):
            await stores.tree.create(path, data, make_parents=True)
        await stores.tree.set(path, data, None)
        with pytest.raises(MetadataFormatError, match="cannot be read"):
            await stores.accepted_losses.of_ledger(17)
        with pytest.raises(MetadataFormatError, match="cannot be read"):
            await stores.accepted_losses.accept(17, ACCEPTANCE)
        assert (await stores.tree.get(path)).value == data
