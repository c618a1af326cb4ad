"""`python -m tests.sim.log.stores --schedules N --seed S`: the seeds S to S + N - 1."""

from __future__ import annotations

import argparse
import sys

from tests.sim.log.checks import Violation
from tests.sim.log.schedules import run_host_schedules, use_small_heads
from tests.sim.log.stores.schedule import store_schedule


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=0, help="of the first schedule")
    arguments = parser.parse_args()
    use_small_heads()
    seeds = range(arguments.seed, arguments.seed + arguments.schedules)
    try:
        counts = run_host_schedules(seeds, run=store_schedule, what="log stores")
    except Violation as violation:
        sys.stdout.write(f"{violation}\n")
        return 1
    sys.stdout.write(f"{counts}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
