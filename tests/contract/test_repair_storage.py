"""The promises of `RepairStorage`: of the one in memory, and of a bookie's storage."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from bookie_server.core.doubt import Doubt
from ledgerlog_spark.model import NO_ENTRY, Code
from tests.crash.machine import Machine
from tests.fixtures.repair_world import IN_DOUBT, MemoryRepairStorage, stored
from tests.sim.runtime import Scheduler


class World:
    """A storage in doubt, in virtual time."""

    def __init__(self, storage: Any, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self.storage = storage
        self.run = run

    def verify(self, ledger_id: int, *entry_ids: int) -> frozenset[int]:
        verified: frozenset[int] = self.run(
            self.storage.verify_held(
                ledger_id, entry_ids, lambda i, entry: entry == stored(ledger_id, i)
            )
        )
        return verified

    def store(self, ledger_id: int, *entry_ids: int) -> None:
        for i in entry_ids:
            code = self.run(self.storage.store_repaired(ledger_id, i, stored(ledger_id, i)))
            assert code is Code.OK


def in_memory() -> World:
    scheduler = Scheduler()
    return World(MemoryRepairStorage(doubt=Doubt()), scheduler.run)


def of_a_bookie() -> World:
    machine = Machine()
    machine.start()
    return World(machine.serving, lambda coroutine: machine.scheduler.run(coroutine, machine.host))


@pytest.fixture(params=[in_memory, of_a_bookie])
def world(request: pytest.FixtureRequest) -> World:
    made: World = request.param()
    made.run(made.storage.raise_doubt())
    made.run(made.storage.date_doubt(1, IN_DOUBT.transaction))
    assert made.storage.doubt == IN_DOUBT
    return made


def test_a_fetched_entry_gives_the_ledger_a_state_in_limbo(world: World) -> None:
    storage = world.storage
    assert not storage.is_known(7)
    assert storage.last_accepted_id(7) == NO_ENTRY
    world.store(7, 4, 0)
    assert storage.is_known(7)
    assert storage.limbo_ledgers() == [7]
    assert storage.last_accepted_id(7) == 4
    assert world.verify(7, 0, 1, 4) == {0, 4}


def test_a_cleared_ledger_leaves_limbo(world: World) -> None:
    storage = world.storage
    world.store(8, 0)
    world.store(7, 0)
    assert storage.limbo_ledgers() == [7, 8]
    assert world.run(storage.clear_ledger(7, 1, 0)) is Code.OK
    assert storage.limbo_ledgers() == [8]


def test_an_epoch_before_the_newest_clears_nothing(world: World) -> None:
    storage = world.storage
    world.store(7, 0)
    world.run(storage.raise_doubt())
    assert world.run(storage.clear_ledger(7, 1, 0)) is Code.OK
    assert storage.limbo_ledgers() == [7]
    assert not storage.doubt.may_be_repaired


def test_a_ledger_without_entries_can_be_cleared_and_kept(world: World) -> None:
    storage = world.storage
    assert world.run(storage.clear_ledger(7, 1, -1)) is Code.OK
    assert world.run(storage.keep_in_limbo(8)) is Code.OK
    assert storage.is_known(7)
    assert storage.limbo_ledgers() == [8]


def test_a_ledger_that_is_kept_stays_cleared(world: World) -> None:
    storage = world.storage
    world.run(storage.clear_ledger(7, 1, -1))
    world.run(storage.keep_in_limbo(7))
    assert storage.limbo_ledgers() == []


def test_ledgers_with_a_state_stay_in_limbo_after_the_doubt(world: World) -> None:
    storage = world.storage
    world.store(7, 0)
    world.run(storage.end_doubt(1))
    assert storage.doubt.is_over
    assert storage.limbo_ledgers() == [7]
    world.store(8, 0)
    assert storage.limbo_ledgers() == [7], "a new state begins after the doubt"


def test_the_end_of_an_earlier_epoch_ends_no_later_doubt(world: World) -> None:
    storage = world.storage
    world.run(storage.raise_doubt())
    world.run(storage.end_doubt(1))
    assert (storage.doubt.epoch, storage.doubt.cleared) == (2, 1)
    assert not storage.doubt.is_over


def test_a_held_entry_that_is_not_intact_can_be_stored_again(world: World) -> None:
    storage = world.storage
    wrong = stored(7, 0, payload=b"other b")
    assert world.run(storage.store_repaired(7, 0, wrong)) is Code.OK
    assert world.verify(7, 0) == frozenset()
    world.store(7, 0)
    assert world.verify(7, 0) == {0}


def test_asked_ledgers_are_taken_once(world: World) -> None:
    assert world.storage.take_asked() == []
