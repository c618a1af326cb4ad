"""A leader that truncates its log while it rolls."""

from __future__ import annotations

from ledgerlog_spark.protocol.leader_messages import RollRequested
from tests.unit.log.leader_world import LeaderWorld, in_world


def test_truncation_waits_for_a_roll_that_is_under_way() -> None:
    async def work(world: LeaderWorld) -> None:
        leader = await world.lead()
        for number in range(3):
            await leader.append(b"%d" % number)
        left = leader._ledger_id
        leader._host.post(RollRequested())
        while leader._ledger_id == left:
            await leader._change()
        assert leader._lists(left), "the ledger that was left is not closed yet"
        await leader.truncate(2)
        assert await world.values() == [b"2"]
        await leader.close()

    in_world(work)
