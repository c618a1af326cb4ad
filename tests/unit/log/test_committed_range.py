"""Listed ranges with outdated metadata (ledgerlog_spark.log.reading.committed_range)."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from ledgerlog_spark.errors import DataLossError, EntryUnknownError, UnauthorizedError
from ledgerlog_spark.log.host import LogHost
from ledgerlog_spark.log.reading.committed_range import read_range
from ledgerlog_spark.model import Code
from tests.fixtures.client_world import ClientWorld
from tests.unit.client.test_reader_handle import written

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ledgerlog_spark.client.client import LedgerClient

ENTRIES = [b"entry %d" % number for number in range(50)]


class Reading:
    """A client that read the ledger once, and the number of later loads of its metadata."""

    def __init__(self, world: ClientWorld, ledger_id: int) -> None:
        self.world = world
        self.ledger_id = ledger_id
        self.client: LedgerClient
        self.client, self.stores = world.client_and_stores()
        self.loads = 0
        load = self.stores.ledgers.load

        async def counted(ledger_id: int) -> object:
            self.loads += 1
            return await load(ledger_id)

        self.stores.ledgers.load = counted  # type: ignore[assignment]

    async def payloads(
        self, password: bytes = b"", *, meanwhile: Callable[[], Awaitable[None]] | None = None
    ) -> list[bytes]:
        async def sync() -> None:
            """Do nothing, because a single store is always synchronised."""
            nonlocal meanwhile
            if meanwhile is not None:
                happens, meanwhile = meanwhile, None
                await happens()

        store: Any = SimpleNamespace(sync=sync)
        host = LogHost("flights", "1", store=store, ledgers=self.client)
        batches = read_range(host, self.ledger_id, 0, len(ENTRIES) - 1, password=password)
        return [bytes(entry.payload) async for batch in batches for entry in batch]

    async def move_to(self, *names: str) -> None:
        """Copy the ledger to other bookies, and list these in its metadata, as a repair does."""
        loaded = await self.world.client_and_stores()[1].ledgers.load(self.ledger_id)
        (fragment,) = loaded.value.fragments
        for old, new in zip(fragment.ensemble, names, strict=True):
            await self.world.join(new)
            ledgers = self.world.storages[old].ledgers
            self.world.storages[new].ledgers[self.ledger_id] = ledgers[self.ledger_id]
        moved = replace(loaded.value, fragments=(replace(fragment, ensemble=names),))
        stores = self.world.client_and_stores()[1]
        await stores.ledgers.write(self.ledger_id, moved, loaded.version)


async def reading(world: ClientWorld) -> Reading:
    found = Reading(world, await written(world, len(ENTRIES)))
    assert await found.payloads() == ENTRIES
    assert found.loads == 1
    return found


async def test_a_ledger_read_again_costs_the_store_nothing(world: ClientWorld) -> None:
    known = await reading(world)
    assert await known.payloads() == ENTRIES
    assert known.loads == 1


async def test_entries_that_moved_while_the_record_was_kept_are_found(world: ClientWorld) -> None:
    known = await reading(world)
    await known.move_to("new-0", "new-1", "new-2")
    for name in world.names:
        world.storages[name].ledgers.clear()
    assert await known.payloads() == ENTRIES
    before = known.loads
    assert await known.payloads() == ENTRIES
    assert known.loads == before


@pytest.mark.parametrize("code", [Code.UNAVAILABLE, Code.TIMEOUT])
async def test_a_ledger_all_of_whose_bookies_were_replaced_and_are_down_is_read(
    world: ClientWorld, code: Code
) -> None:
    known = await reading(world)
    await known.move_to("new-0", "new-1", "new-2")
    world.transport.refusing |= dict.fromkeys(world.names, code)
    assert await known.payloads() == ENTRIES


async def test_what_no_bookie_of_an_unchanged_record_can_answer_for_stays_unknown(
    world: ClientWorld,
) -> None:
    known = await reading(world)
    world.transport.refusing |= dict.fromkeys(world.names, Code.UNAVAILABLE)
    with pytest.raises(EntryUnknownError):
        await known.payloads()
    assert known.loads == 2


async def test_entries_that_all_bookies_deny_under_a_fresh_record_are_lost(
    world: ClientWorld,
) -> None:
    known = await reading(world)
    for storage in world.storages.values():
        storage.ledgers.clear()
    with pytest.raises(DataLossError, match="no bookie has them"):
        await known.payloads()


async def test_entries_that_moved_after_the_bookies_denied_them_are_found(
    world: ClientWorld,
) -> None:
    known = await reading(world)
    held = {name: world.storages[name].ledgers.pop(known.ledger_id) for name in world.names}

    async def repair_ends() -> None:
        for name in world.names:
            world.storages[name].ledgers[known.ledger_id] = held[name]
        await known.move_to("new-0", "new-1", "new-2")
        for name in held:
            world.storages[name].ledgers.clear()

    assert await known.payloads(meanwhile=repair_ends) == ENTRIES


async def test_a_kept_record_opens_for_its_password_alone(world: ClientWorld) -> None:
    known = Reading(world, await written(world, len(ENTRIES), password=b"secret"))
    assert await known.payloads(b"secret") == ENTRIES
    with pytest.raises(UnauthorizedError):
        await known.payloads(b"other")
