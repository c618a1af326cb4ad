"""Runs schedules of logs and counts what happened in them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ledgerlog_spark.log.committing import commits, range_writer
from ledgerlog_spark.log.leader import leader
from ledgerlog_spark.log.maintenance import log_maintenance as log_upkeep
from ledgerlog_spark.log.maintenance import sweeper
from ledgerlog_spark.metadata.logs import store as log_store
from ledgerlog_spark.protocol.log import sweep as log_sweep
from ledgerlog_spark.protocol.log import transaction
from ledgerlog_spark.protocol.log.change import expiry as log_expiry
from ledgerlog_spark.protocol.log.change import retention as log_retention
from ledgerlog_spark.protocol.log.change import truncate as log_truncate
from ledgerlog_spark.protocol.log.commit import commit as log_commit
from ledgerlog_spark.protocol.log.commit import epoch as log_epoch
from ledgerlog_spark.protocol.log.read import view as log_view
from ledgerlog_spark.protocol.log.state import pages as log_pages
from ledgerlog_spark.protocol.log.state.pages import HeadShare
from tests.sim.log.hosts.world import host_schedule
from tests.sim.log.world import World, schedule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

SMALL: Mapping[Any, Mapping[str, Any]] = {
    log_pages: {
        "SHARES": {
            "items": HeadShare(recent_size_bytes_max=150, pages_max=2),
            "history": HeadShare(recent_size_bytes_max=120, pages_max=2),
            "schemas": HeadShare(recent_size_bytes_max=100, pages_max=2),
        },
        "PAGE_BODY_SIZE_BYTES_MAX": 500,
    },
    log_commit: {"UNKNOWN_MAX": 2, "REBASES_MAX": 1},
    log_epoch: {"ATTEMPTS_MAX": 4, "UNKNOWN_MAX": 2},
    transaction: {"ATTEMPTS_MAX": 4},
    log_expiry: {"STEP_ITEMS_MAX": 3, "VERSIONS_AT_ONCE": 2},
    log_truncate: {"STEP_ITEMS_MAX": 3},
    log_retention: {"ITEMS_AT_ONCE": 4},
    log_sweep: {"STEP_LEDGERS_MAX": 2},
    log_upkeep: {"STEP_LEDGERS_MAX": 2, "DELETE_ATTEMPTS_MAX": 2},
    commits: {"PRODUCERS_MAX": 2},
    log_store: {"TRANSACTION_SIZE_BYTES_MAX": 900},
    log_view: {"VERSIONS_AT_ONCE": 2},
    leader: {"ENTRY_RECORDS_MAX": 3},
    range_writer: {"PENDING_SIZE_BYTES_MAX": 45},
    sweeper: {"STEP_LEDGERS_MAX": 2, "PAGES_AT_ONCE": 2, "FAILED_SEALS_MAX": 2},
}
"""Limits so small that most commits write pages and an index of pages, that work takes several
steps, and that machines sometimes give up."""


def use_small_heads(set_attribute: Callable[[object, str, Any], None] = setattr) -> None:
    """Apply small limits, permanently or until the effect of `set_attribute` is undone."""
    for module, values in SMALL.items():
        for name, value in values.items():
            set_attribute(module, name, value)


def trace_under_two_hash_seeds(program: str) -> str:
    """Run `python -m program --trace` twice, and return its output, which must be the same."""
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


class Played(Protocol):
    """The counts of a world after its schedule."""

    @property
    def events(self) -> int:
        """The number of requests."""

    @property
    def counts(self) -> Counter[str]:
        """The number of occurrences of each situation, by name."""


@dataclass
class Counts:
    """Counts of what happened in schedules without a violation."""

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
    seeds: Iterable[int],
    on_end: Callable[[Any], None] | None = None,
    run: Callable[[int], Played] = host_schedule,
    what: str = "log hosts",
) -> str:
    """Run schedules of the shipped hosts until the first violation; return a line with counts."""
    schedules = events = 0
    counts: Counter[str] = Counter()
    for seed in seeds:
        world = run(seed)
        schedules += 1
        events += world.events
        counts += world.counts
        if on_end is not None:
            on_end(world)
    seen = ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items()))
    return f"{what}: {schedules:,} schedules, {events:,} requests, {seen}, 0 violations"


def run_schedules(seeds: Iterable[int], on_end: Callable[[World], None] | None = None) -> Counts:
    """Run one schedule for each seed. The first `Violation` ends the run and names its seed."""
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
