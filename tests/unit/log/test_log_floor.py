"""The floor of a seal: the parts of the list that are read to find it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ledgerlog_spark.errors import NeedsOperatorError
from ledgerlog_spark.model import NO_ENTRY
from ledgerlog_spark.protocol.log import messages as m
from ledgerlog_spark.protocol.log.seal import PAGES_AT_ONCE, SINCE_KEY, FloorMachine, since_offset
from ledgerlog_spark.protocol.log.state.records import StagedRange, WriteMode
from tests.unit.log.log_values import OneLog, full_statistics, staged
from tests.unit.log.log_world import SCHEMA, LogWorld, commit, write


class WatchedLog(OneLog):
    """Records the number of pages in each read."""

    def __init__(self) -> None:
        super().__init__()
        self.at_once: list[int] = []

    def reply(self, ask: Any) -> Any:
        if isinstance(ask, m.ReadPages):
            self.at_once.append(len(ask.pages))
        return super().reply(ask)


def at(ledger_id: int, first: int, last: int) -> StagedRange:
    return replace(
        staged(ledger_id, 10, full_statistics(1)),
        first_entry_id=first, last_entry_id=last, index_entry_id=NO_ENTRY,
    )  # fmt: skip


@pytest.fixture(scope="module")
def large() -> WatchedLog:
    """3,000 ranges, of which every ninth is of ledger 7, and some newer ones, in many pages."""
    log = WatchedLog()
    for first in range(0, 3_000, 500):
        numbers = range(first, first + 500)
        log.commit(*(at(7 if n % 9 == 0 else 100 + n, n + 1, n + 1) for n in numbers))
    log.commit(at(8, 1, 4), at(7, 2, 3))
    log.commit(at(8, 5, 9))
    return log


def floors(log: OneLog, **since: int) -> dict[int, int]:
    wanted = {int(name[1:]): offset for name, offset in since.items()}
    found: dict[int, int] = log.run(FloorMachine("flights", wanted))
    return found


def test_floor_is_the_highest_listed_entry_wherever_it_is_listed(large: WatchedLog) -> None:
    large.at_once.clear()
    found = floors(large, _7=0, _8=0, _9=0)
    items = large.items()
    for ledger_id in (7, 8):
        listed = [item.last_entry_id for item in items if item.ledger_id == ledger_id]
        assert found[ledger_id] == max(listed)
    assert found == {7: 2_998, 8: 9, 9: NO_ENTRY}


def test_few_pages_are_held_at_a_time(large: WatchedLog) -> None:
    large.at_once.clear()
    floors(large, _7=0)
    assert sum(large.at_once) > PAGES_AT_ONCE, "the log has to have more pages than that"
    assert max(large.at_once) <= PAGES_AT_ONCE


def test_only_what_was_committed_since_the_ledger_was_made_is_read(large: WatchedLog) -> None:
    large.at_once.clear()
    assert floors(large, _8=30_000) == {8: 9}
    assert sum(large.at_once) <= 2


@pytest.mark.parametrize(
    ("custom", "offset"),
    [({}, 0), ({SINCE_KEY: b"77"}, 77), ({SINCE_KEY: b"-1"}, 0), ({SINCE_KEY: b"\xff7"}, 0)],
)
def test_ledger_that_does_not_say_since_when_may_be_listed_anywhere(
    custom: dict[str, bytes], offset: int
) -> None:
    assert since_offset(custom) == offset


async def test_ledgers_say_from_where_on_they_are_listed_and_are_sealed_above_that(
    world: LogWorld,
) -> None:
    log = await world.logs().create("flights")
    await commit(log, "x")
    await commit(log, "y", mode=WriteMode.OVERWRITE)
    job = await log.begin(schema=SCHEMA)
    await commit(log, "z")
    ledger = await log.commits.open_ledger(job)
    await ledger.send(b"row")
    metadata = await world.client().ledger_metadata(ledger.ledger_id)
    assert since_offset(metadata.custom) == 120
    assert await log.floor(ledger.ledger_id) == NO_ENTRY
    await log.commit(job, [StagedRange(ledger.ledger_id, 1, 3, -1, rows=3, size_bytes=9)])
    assert await log.floor(ledger.ledger_id) == 3
    with pytest.raises(NeedsOperatorError):
        await log.seal(ledger.ledger_id)


async def test_merged_range_is_listed_below_the_logs_end_and_its_ledger_says_so(
    world: LogWorld,
) -> None:
    log = await world.logs().create("flights")
    for name in "xyz":
        await commit(log, name)
    items = (await log.snapshot()).items
    begun = await log.begin(schema=SCHEMA)
    assert begun.since_offset == 180
    merge = replace(begun, since_offset=items[2].first_offset)
    both = await write(log, merge, "y", entries=6)
    await log.switch(merge, items[2:4], both)
    assert await log.floor(both.ledger_id) == both.last_entry_id


async def test_ledger_whose_record_is_gone_is_looked_for_in_the_whole_list(world: LogWorld) -> None:
    log = await world.logs().create("flights")
    await commit(log, "x")
    (item, _) = (await log.snapshot()).items
    await world.client().delete_ledger(item.ledger_id)
    assert await log.floor(item.ledger_id) == item.last_entry_id
    assert await log.floor(9_999) == NO_ENTRY
