"""The command line of one part of the simulation of logs."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from tests.sim.log.checks import Violation
from tests.sim.log.schedules import run_host_schedules, use_small_heads

if TYPE_CHECKING:
    from collections.abc import Callable


def main_of(run: Callable[[int], Any], what: str) -> int:
    """Plays `--schedules N --seed S`, the seeds S to S + N - 1; the exit status."""
    parser = argparse.ArgumentParser(description=f"random schedules: {what}")
    parser.add_argument("--schedules", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=0, help="of the first schedule")
    arguments = parser.parse_args()
    use_small_heads()
    seeds = range(arguments.seed, arguments.seed + arguments.schedules)
    try:
        counts = run_host_schedules(seeds, run=run, what=what)
    except Violation as violation:
        sys.stdout.write(f"{violation}\n")
        return 1
    sys.stdout.write(f"{counts}\n")
    return 0
