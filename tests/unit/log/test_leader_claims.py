"""Leaders that are fenced by other programs, with the shipped client and storage in one process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from ledgerlog_spark.client.settings import ClientSettings
from ledgerlog_spark.errors import LeaderDeposedError, LogNotFoundError
from ledgerlog_spark.protocol.log.claim import claim_of
from tests.unit.log.leader_world import LeaderWorld

if TYPE_CHECKING:
    from ledgerlog_spark.log.leader.leader import Leader
    from ledgerlog_spark.protocol.log.state.records import LogHead


async def head_of(leader: Leader) -> LogHead:
    found = await leader._log.store.read_head(leader.log_id)
    assert found is not None
    return found.value


async def is_candidate(leader: Leader, claim: str) -> bool:
    return (await leader._log.store.candidates(leader.log_id).look(claim)).is_there


async def recover(world: LeaderWorld, ledger_id: int) -> None:
    """Recover a ledger with another client, as an auto-recovery does."""
    client, _ = world.client_and_stores()
    await client.seal(ledger_id)


async def test_fence_of_an_idle_leader_costs_one_roll(world: LeaderWorld) -> None:
    leader = await world.lead()
    first = await leader.append(b"0")
    for number in (b"1", b"2"):
        await recover(world, leader._ledger_id)
        await leader.append(number)
    assert leader.is_leading
    assert await leader.close() == 3
    head = await head_of(leader)
    assert [item.rows for item in head.items.recent] == [1, 1, 1]
    assert head.items.recent[0].ledger_id == first.ledger_id
    assert await world.values() == [b"0", b"1", b"2"]


async def test_fence_while_appends_are_pending_repeats_none(world: LeaderWorld) -> None:
    leader = await world.lead()
    first = await leader.append(b"0")
    pending = [leader.append_async(b"%d" % number) for number in range(1, 40)]
    await recover(world, first.ledger_id)
    positions = await asyncio.gather(*pending)
    assert [position.offset for position in positions] == list(range(1, 40))
    assert (await leader.append(b"40")).offset == 40
    assert await leader.close() == 41
    assert await world.values() == [b"%d" % number for number in range(41)]


async def test_candidate_node_exists_from_the_opening_to_the_close(world: LeaderWorld) -> None:
    leader = await world.lead()
    claim = claim_of(await head_of(leader))
    assert await is_candidate(leader, claim)
    await leader.close()
    assert not await is_candidate(leader, claim)
    assert claim_of(await head_of(leader)) == claim


async def test_replaced_leader_leaves_the_candidates(world: LeaderWorld) -> None:
    earlier = await world.lead()
    claim = claim_of(await head_of(earlier))
    await earlier.append(b"0")
    later = await world.lead()
    with pytest.raises(LeaderDeposedError):
        await earlier.append(b"lost")
    await earlier._host.finish()
    assert not await is_candidate(later, claim)
    assert await is_candidate(later, claim_of(await head_of(later)))
    await later.close()


async def test_opening_of_a_deleted_log_leaves_no_node(world: LeaderWorld) -> None:
    log = await world.log()
    logs = world.logs()
    await logs.delete("orders")
    with pytest.raises(LogNotFoundError):
        await log.lead(ClientSettings())
    tree = log.host.store._tree
    assert "candidates" not in await tree.children(log.host.store._paths.log(log.log_id))
