"""`python -m tests.sim.log --schedules N --seed S`: the schedules with the seeds S to S + N - 1."""

from __future__ import annotations

import argparse
import sys

import pytest

from tests.sim.log.checks import Violation
from tests.sim.log.mutations import MUTATIONS
from tests.sim.log.schedules import run_schedules, use_small_heads
from tests.sim.log.world import World


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=0, help="of the first schedule")
    parser.add_argument("--trace", action="store_true", help="print every state of every head")
    by_name = {mutation.__name__: mutation for mutation in MUTATIONS}
    parser.add_argument("--mutation", choices=sorted(by_name), help="search with a defect on")
    arguments = parser.parse_args()
    use_small_heads()
    if arguments.mutation:
        by_name[arguments.mutation](pytest.MonkeyPatch())
    seeds = range(arguments.seed, arguments.seed + arguments.schedules)
    try:
        counts = run_schedules(seeds, _print_states if arguments.trace else None)
    except Violation as violation:
        sys.stdout.write(f"{violation}\n")
        return 1
    sys.stdout.write(f"{counts}\n")
    return 0


def _print_states(world: World) -> None:
    for state in world.store.states:
        sys.stdout.write(f"{world.seed} {state.head} {state.producers} {state.marks}\n")


if __name__ == "__main__":
    sys.exit(main())
