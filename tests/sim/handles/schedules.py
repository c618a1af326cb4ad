"""Runs schedules of clients and counts what happened in them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tests.sim.handles.world import handle_schedule

if TYPE_CHECKING:
    from collections.abc import Iterable


def run_schedules(seeds: Iterable[int]) -> str:
    """One schedule for each seed, the first `Violation` ends it; the line that counts."""
    schedules = events = 0
    counts: Counter[str] = Counter()
    for seed in seeds:
        world = handle_schedule(seed)
        schedules += 1
        events += world.events
        counts += world.counts
    seen = ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items()))
    return f"handles: {schedules:,} schedules, {events:,} requests, {seen}, 0 violations"
