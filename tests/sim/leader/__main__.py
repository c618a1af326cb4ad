"""`python -m tests.sim.leader --schedules N --seed S`: schedules with the seeds S to S + N - 1."""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext

from tests.sim.leader.cluster import cluster_schedule
from tests.sim.leader.mutations import MUTATIONS, applied
from tests.sim.leader.schedules import run_schedules
from tests.sim.leader.world import LeaderWorld, schedule
from tests.sim.log.checks import Violation
from tests.sim.log.schedules import use_small_heads


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.leader", description=__doc__)
    parser.add_argument("--schedules", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=0, help="of the first schedule")
    parser.add_argument("--mutation", choices=sorted(MUTATIONS), help="search with a defect on")
    parser.add_argument("--cluster", action="store_true", help="with bookies below the leaders")
    parser.add_argument("--trace", action="store_true", help="print every state of every head")
    arguments = parser.parse_args()
    use_small_heads()
    seeds = range(arguments.seed, arguments.seed + arguments.schedules)
    with applied(arguments.mutation) if arguments.mutation else nullcontext():
        try:
            on_end = _print_states if arguments.trace else None
            run = cluster_schedule if arguments.cluster else schedule
            counts = run_schedules(seeds, on_end, run)
        except Violation as violation:
            sys.stdout.write(f"{violation}\n")
            return 1
    sys.stdout.write(f"{counts}\n")
    return 0


def _print_states(world: LeaderWorld) -> None:
    for state in world.store.states:
        sys.stdout.write(f"{world.seed} {state.head} {state.marks}\n")


if __name__ == "__main__":
    sys.exit(main())
