"""A log that is truncated while its leader rolls, and while clients read it."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from ledgerlog_spark.errors import (
    DataLossError,
    MetadataUnavailableError,
    PositionNotAvailableError,
)
from ledgerlog_spark.log.reading.record_log import RecordLog
from ledgerlog_spark.protocol.leader.messages import RollRequested
from ledgerlog_spark.protocol.log.state.records import LogContent, LogKind
from tests.unit.log.leader_world import LeaderWorld


async def test_truncation_waits_for_a_roll_that_is_under_way(world: LeaderWorld) -> None:
    leader = await world.lead()
    for number in range(3):
        await leader.append(b"%d" % number)
    left = leader._ledger_id
    leader._host.post(RollRequested())
    while leader._ledger_id == left:
        await leader._next_change()
    assert leader._lists(left), "the ledger that was left is not closed yet"
    await leader.truncate(2)
    assert await world.values() == [b"2"]
    await leader.close()


@pytest.mark.parametrize("how", ["read", "tail"])
@pytest.mark.parametrize("is_open", [False, True])
async def test_records_that_are_truncated_while_they_are_read_are_not_lost(
    world: LeaderWorld, how: str, is_open: bool
) -> None:
    """Their ledgers are deleted after a grace period. A slow read may take longer."""
    leader = await world.lead()
    for value in (b"0", b"1", b"2", b"3"):
        await leader.append(value)
        if value != b"3":
            await leader.roll()
    if not is_open:
        await leader.close()
    reader = await world.reader()
    call = reader.read(0) if how == "read" else reader.tail(0)
    async with contextlib.aclosing(call) as records:
        assert (await anext(records)).value == b"0"
        log = await world.log()
        await log.truncate(3)
        gone = {mark.ledger_id for mark in await log.host.store.producers.marked(log.log_id)}
        assert len(gone) == 3
        for ledger_id in gone:
            await world.client().delete_ledger(ledger_id)
        with pytest.raises(PositionNotAvailableError, match="was truncated") as failed:
            await anext(records)
        assert (failed.value.offset, failed.value.oldest_offset) == (1, 3)


@pytest.mark.parametrize("how", ["read", "tail"])
async def test_records_whose_ledger_is_gone_while_the_list_has_it_are_lost(
    world: LeaderWorld, how: str
) -> None:
    leader = await world.lead()
    for value in (b"0", b"1", b"2"):
        await leader.append(value)
        await leader.roll()
    log = await world.log()
    items = (await log.snapshot()).items
    reader = await world.reader()
    call = reader.read(0) if how == "read" else reader.tail(0)
    async with contextlib.aclosing(call) as records:
        assert (await anext(records)).value == b"0"
        await world.client().delete_ledger(items[1].ledger_id)
        with pytest.raises(DataLossError):
            await anext(records)


async def test_a_read_ends_when_the_loss_of_records_is_unknown(
    world: LeaderWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tail waits for the metadata store. A read of a part fails with a retriable error."""

    async def away(machine: Any) -> Any:
        raise MetadataUnavailableError("no quorum")

    leader = await world.lead()
    for value in (b"0", b"1", b"2"):
        await leader.append(value)
        await leader.roll()
    log = await world.log()
    items = (await log.snapshot()).items
    reader = RecordLog(log, LogKind.LEADER, LogContent.RECORDS)
    async with contextlib.aclosing(reader.read(0)) as records:
        assert (await anext(records)).value == b"0"
        await world.client().delete_ledger(items[1].ledger_id)
        monkeypatch.setattr(log.host, "run", away)
        async with asyncio.timeout(60):
            with pytest.raises(MetadataUnavailableError):
                await anext(records)
