"""A deleted log is removed completely, even if the removing process dies between two requests."""

from __future__ import annotations

from typing import Any

import pytest

from ledgerlog_spark.errors import LedgerLogError, MetadataUnavailableError
from ledgerlog_spark.log.logs import Logs
from tests.sim.log.schedules import use_small_heads
from tests.unit.log.log_world import DAY_MS, LogWorld, commit


class Dying:
    """A tree whose process dies at its n-th delete."""

    def __init__(self, tree: Any, deletes_left: int) -> None:
        self._tree = tree
        self._deletes_left = deletes_left

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tree, name)

    async def delete(self, path: str, version: Any = None) -> None:
        if self._deletes_left == 0:
            raise MetadataUnavailableError("the process died", retriable=False)
        self._deletes_left -= 1
        await self._tree.delete(path, version)


@pytest.mark.parametrize("deletes", range(0, 48, 3))
async def test_removal_that_was_cut_short_is_ended_by_the_next_pass(
    world: LogWorld, deletes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_small_heads(monkeypatch.setattr)
    logs = world.logs()
    log = await logs.create("flights")
    for name in "abcd":
        await commit(log, name)
    await log.delete()
    world.skip(2 * DAY_MS)
    client, stores = world.client_and_stores()
    dying = stores.on(Dying(stores.tree, deletes), stores.root)
    _, errors = await Logs(store=dying.logs, ledgers=client).sweeper().sweep_all()
    assert all("died" in str(error) for error in errors)
    _, errors = await logs.sweeper().sweep_all()
    assert errors == []
    assert list(await logs.store.ids()) == []
    assert [i async for i in client.list_ledgers()] == []


async def test_mark_that_is_left_without_a_head_is_no_obstacle(world: LogWorld) -> None:
    """An older release deletes the head while another pass marks a ledger, and then dies."""
    logs, client = world.logs(), world.client()
    log = await logs.create("flights")
    ledger = await client.create_ledger()
    await log.delete()
    store: Any = logs.store
    await store._tree.create(store._paths.mark(log.log_id, ledger.id), b"listed")
    await store._tree.delete(store._paths.head(log.log_id))
    swept, errors = await logs.sweeper().sweep_all()
    assert errors == []
    assert [(each.ledgers_deleted, each.is_removed) for each in swept] == [(1, True)]
    assert list(await logs.store.ids()) == []
    assert [i async for i in client.list_ledgers()] == []


async def test_mark_of_a_ledger_that_cannot_be_sealed_waits_without_a_head(world: LogWorld) -> None:
    logs, client = world.logs(), world.client()
    log = await logs.create("flights")
    ledger = await client.create_ledger()
    await ledger.append(b"one")
    await log.delete()
    store: Any = logs.store
    await store._tree.create(store._paths.mark(log.log_id, ledger.id), b"listed")
    await store._tree.delete(store._paths.head(log.log_id))
    world.transport.silent.update(world.names)
    (swept,), errors = await logs.sweeper().sweep_all()
    assert errors == []
    assert (swept.ledgers_kept, swept.is_removed) == ((ledger.id,), False)
    world.transport.silent.clear()
    (swept,), errors = await logs.sweeper().sweep_all()
    assert errors == []
    assert (swept.ledgers_deleted, swept.is_removed) == (1, True)


async def test_pass_over_what_is_left_of_a_log_without_its_head_leaves_a_living_log(
    world: LogWorld,
) -> None:
    logs = world.logs()
    log = await logs.create("flights")
    await commit(log, "a")
    swept = await logs.sweeper()._remove_rest(log.log_id)
    assert not swept.is_removed
    with pytest.raises(LedgerLogError):
        await logs.create("flights")


async def test_pass_over_a_log_that_a_replica_does_not_show_yet_leaves_it_alone(
    world: LogWorld,
) -> None:
    logs = world.logs()
    client, stores = world.client_and_stores()
    tree: Any = stores.tree
    tree.hold_reads()
    log = await logs.create("flights")
    swept = await Logs(store=stores.logs, ledgers=client).sweeper().sweep(log.log_id)
    assert not swept.is_removed
    await commit(await logs.open("flights"), "a")
