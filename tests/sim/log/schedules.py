"""Runs schedules of logs and counts what happened in them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ledgerlog_spark.protocol import log_pages
from ledgerlog_spark.protocol.log_pages import HeadShare
from tests.sim.log.hosts.world import host_schedule
from tests.sim.log.world import World, schedule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tests.sim.log.hosts.world import HostWorld

SMALL_HEAD: Mapping[str, Any] = {
    "SHARES": {
        "items": HeadShare(recent_size_bytes_max=150, pages_max=2),
        "history": HeadShare(recent_size_bytes_max=120, pages_max=2),
        "schemas": HeadShare(recent_size_bytes_max=100, pages_max=2),
    },
    "PAGE_BODY_SIZE_BYTES_MAX": 500,
}
"""For `log_pages`: a head so small that most commits write pages, and an index of them."""


def use_small_heads(set_attribute: Callable[[object, str, Any], None] = setattr) -> None:
    """From now on, or until what `set_attribute` did is undone."""
    for name, value in SMALL_HEAD.items():
        set_attribute(log_pages, name, value)


def trace_under_two_hash_seeds(program: str) -> str:
    """What `python -m program --trace` prints of five schedules, the same in both runs."""
    traces = {
        subprocess.run(
            [sys.executable, "-m", program, "--schedules", "5", "--trace"],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            cwd=Path(__file__).parents[3],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    (trace,) = traces
    return trace


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


def run_host_schedules(
    seeds: Iterable[int], on_end: Callable[[HostWorld], None] | None = None
) -> str:
    """As `run_schedules` of the shipped hosts; the line that counts what happened."""
    schedules = events = 0
    counts: Counter[str] = Counter()
    for seed in seeds:
        world = host_schedule(seed)
        schedules += 1
        events += world.events
        counts += world.counts
        if on_end is not None:
            on_end(world)
    seen = ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items()))
    return f"log hosts: {schedules:,} schedules, {events:,} requests, {seen}, 0 violations"


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
