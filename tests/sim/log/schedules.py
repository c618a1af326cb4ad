"""Runs schedules of logs and counts what happened in them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.protocol.log_pages import HeadShare
from tests.sim.log.world import World, schedule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

SMALL_HEAD: Mapping[str, Any] = {
    "SHARES": {
        "items": HeadShare(recent_size_bytes_max=150, pages_max=2),
        "history": HeadShare(recent_size_bytes_max=120, pages_max=2),
        "schemas": HeadShare(recent_size_bytes_max=100, pages_max=2),
    },
    "PAGE_BODY_SIZE_BYTES_MAX": 500,
}
"""For `log_pages`: a head so small that most commits write pages, and an index of them."""


@dataclass
class Counts:
    """What schedules went through without a violation."""

    schedules: int = 0
    events: int = 0
    faults: int = 0
    commits: int = 0
    others: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        others = ", ".join(f"{count:,} {name}" for name, count in sorted(self.others.items()))
        return (
            f"log: {self.schedules:,} schedules, {self.events:,} events, {self.faults:,} faults, "
            f"{self.commits:,} commits, {others}, 0 violations"
        )


def run_schedules(seeds: Iterable[int], on_end: Callable[[World], None] | None = None) -> Counts:
    """Run one schedule for each seed; the first `Violation` ends it and names its seed."""
    counts = Counts()
    for seed in seeds:
        world = schedule(seed)
        counts.schedules += 1
        counts.events += world.store.events
        counts.faults += world.store.faults
        counts.commits += len(world.checks.committed)
        counts.others += world.checks.counts
        if on_end is not None:
            on_end(world)
    return counts
