"""Upkeep of leader logs, while their leader appends."""

from __future__ import annotations

import pytest

from ledgerlog_spark.errors import ConfigurationError, LogKindError
from ledgerlog_spark.model import Position
from ledgerlog_spark.protocol.log.state.records import LogContent, LogKind
from ledgerlog_spark.upkeep.merge_plan import MergePolicy
from ledgerlog_spark.upkeep.merging import LogMerger, check_mergeable
from ledgerlog_spark.upkeep.upkeep import Upkeep
from tests.unit.upkeep.upkeep_world import RowsWorld

HOUR_MS = 3_600_000


async def test_retention_drops_closed_ledgers_under_a_leader_that_goes_on(world: RowsWorld) -> None:
    client, logs = world.opened()
    log = await logs.create(
        "orders",
        kind=LogKind.LEADER,
        content=LogContent.RECORDS,
        properties={"retentionMs": str(HOUR_MS)},
    )
    leader = await log.lead(client.services.settings)
    for number in range(3):
        await leader.append(b"old %d" % number)
        await leader.roll()
    world.skip(2 * HOUR_MS)
    await leader.append(b"new 3")
    await leader.roll()
    await leader.append(b"new 4")
    (kept,) = await Upkeep(client).run() or []
    assert kept.errors == ()
    assert kept.truncated is not None
    assert (kept.truncated.start_offset, len(kept.truncated.unlisted)) == (3, 3)
    await leader.append(b"new 5")
    await leader.roll()
    await leader.append(b"new 6")
    await leader.close()
    snapshot = await log.snapshot()
    assert [item.first_offset for item in snapshot.items] == [3, 4, 6]
    assert (snapshot.interval.start_offset, snapshot.interval.end_offset) == (3, 7)
    world.skip(25 * HOUR_MS)
    await log.set_properties({"retentionMs": None})
    (kept,) = await Upkeep(client).run() or []
    assert kept.swept is not None
    assert kept.swept.ledgers_deleted >= 3
    check = await log.check(every_entry=True)
    assert (check.findings, check.orphans) == ((), ())
    assert [c.ranges for c in check.ledgers] == [1, 1, 1]


async def test_leader_log_is_truncated_at_a_position_and_has_no_versions_to_restore(
    world: RowsWorld,
) -> None:
    client, logs = world.opened()
    log = await logs.create("orders", kind=LogKind.LEADER, content=LogContent.RECORDS)
    leader = await log.lead(client.services.settings)
    for number in range(3):
        await leader.append(b"%d" % number)
        await leader.roll()
    done = await log.truncate(Position(log.log_id, 1))
    assert (done.version, done.start_offset, len(done.unlisted)) == (0, 1, 1)
    assert await log.truncate(0) == await log.truncate(1)
    with pytest.raises(ConfigurationError, match="end at 3"):
        await log.truncate(4)
    with pytest.raises(ConfigurationError, match="belongs to log of another, not to"):
        await log.truncate(Position("of another", 1))
    with pytest.raises(LogKindError):
        await log.restore(0)
    with pytest.raises(LogKindError):
        await log.version_at(world.now_ms)
    await leader.close()


async def test_leader_log_is_not_merged_and_the_error_says_what_makes_its_ledgers_larger(
    world: RowsWorld,
) -> None:
    client, logs = world.opened()
    log = await logs.create("orders", kind=LogKind.LEADER, content=LogContent.RECORDS)
    with pytest.raises(LogKindError, match=r"cannot be merged.*rollBytes and rollMs"):
        check_mergeable((await log.state()).head)
    rows = await logs.create("flights")
    check_mergeable((await rows.state()).head)
    merged = await LogMerger(log, client, MergePolicy()).merge()
    assert (merged.ledgers, merged.ranges_before) == (0, 0)


async def test_snapshot_of_a_leader_log_has_the_time_of_its_newest_record(world: RowsWorld) -> None:
    client, logs = world.opened()
    log = await logs.create("orders", kind=LogKind.LEADER, content=LogContent.RECORDS)
    created_ms = (await log.snapshot()).interval.commit_time_ms
    leader = await log.lead(client.services.settings)
    world.skip(HOUR_MS)
    await leader.append(b"in the open ledger")
    open_ms = (await log.snapshot()).interval.commit_time_ms
    assert open_ms >= created_ms + HOUR_MS
    world.skip(HOUR_MS)
    await leader.append(b"in a closed one")
    await leader.close()
    snapshot = await log.snapshot()
    assert snapshot.interval.commit_time_ms >= open_ms + HOUR_MS
    assert snapshot.interval.commit_time_ms == snapshot.items[-1].newest_ms
