"""Runs schedules of leader logs and counts what happened in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.sim.leader.world import LeaderWorld, schedule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


@dataclass
class Counts:
    """Counts of what happened in schedules without a violation."""

    schedules: int = 0
    events: int = 0
    faults: int = 0
    acknowledged: int = 0
    ledgers: int = 0
    deposed: int = 0
    overtaken: int = 0
    recovered: int = 0
    claimed_back: int = 0

    def __str__(self) -> str:
        return (
            f"leader: {self.schedules:,} schedules, {self.events:,} events, "
            f"{self.faults:,} faults, {self.acknowledged:,} appends in {self.ledgers:,} ledgers, "
            f"{self.deposed:,} leaders deposed, {self.overtaken:,} openings overtaken, "
            f"{self.recovered:,} recoveries of own ledgers, "
            f"{self.claimed_back:,} claims taken back, 0 violations"
        )


def run_schedules(
    seeds: Iterable[int],
    on_end: Callable[[LeaderWorld], None] | None = None,
    run: Callable[[int], LeaderWorld] = schedule,
) -> Counts:
    """Run one schedule for each seed. The first `Violation` ends the run and names its seed."""
    counts = Counts()
    for seed in seeds:
        world = run(seed)
        counts.schedules += 1
        counts.events += world.events
        counts.faults += world.faults
        counts.ledgers += len(world.checks.listed_ever)
        for leader in world.leaders:
            counts.acknowledged += sum(a.acknowledged_ms is not None for a in leader.appends)
            counts.deposed += leader.stopped is not None and leader.opened is not None
            counts.overtaken += leader.is_overtaken
            counts.recovered += leader.recoveries
        counts.claimed_back += world.claimed_back
        if on_end is not None:
            on_end(world)
    return counts
