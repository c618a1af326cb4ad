"""Streams that restart: they find all records that any reader saw."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ledgerlog_spark.errors import LedgerLogError
from tests.sim.leader.hosts.blame import LeaderCall
from tests.sim.leader.hosts.ledgers import SEEN
from tests.sim.log.hosts.process import sleep

if TYPE_CHECKING:
    from ledgerlog_spark.protocol.log.state.records import Item
    from tests.sim.leader.hosts.view import LeaderView
    from tests.sim.leader.hosts.world import LeaderHosts
    from tests.sim.log.hosts.process import Process

LOST_RECORDS = 5
"""Number of records by which a checkpoint is beyond the end, as if records had been lost."""


async def start_again(process: Process) -> None:
    """Read the log from the offset of a checkpoint, repeatedly."""
    world: LeaderHosts = process.world
    SEEN.set(True)
    while world.is_busy:
        await sleep(process, 20, 200)
        log = process.logs.open_by_id("log", world.newest_id)
        view, truth = world.views[log.log_id], world.truth_of(log.log_id)
        seen = truth.shown
        is_fresh, was_lost = world.extra.random() < 0.6, world.extra.random() < 0.2
        call = LeaderCall(world, process, log.log_id)
        try:
            found = await log.view(
                view.head.start_offset,
                seen_offset=seen + LOST_RECORDS * was_lost,
                is_fresh=is_fresh,
            )
        except LedgerLogError as error:
            call.judge(error)
            continue
        is_there = found.end_offset >= seen or not is_fresh
        world.require(is_there, f"a log that was seen up to {seen} ends at {found.end_offset}")
        if not was_lost:
            truth.shown = max(seen, truth.shown, found.end_offset)
            for item in found.items:
                _check_safe(view, item)
        world.counts["starts again"] += 1


def _check_safe(view: LeaderView, item: Item) -> None:
    """Check that all records of an item are acknowledged, and begin at the item's offset."""
    ledger = view.ledgers.by_id[item.ledger_id]
    if ledger.is_deleted:
        return
    is_safe = item.last_entry_id < ledger.readable
    view.require(is_safe, f"{item} goes beyond entry {ledger.readable - 1}, the last one")
    begins_at = ledger.stored[0].first_offset
    view.require(item.first_offset == begins_at, f"{item} begins at {begins_at}")
