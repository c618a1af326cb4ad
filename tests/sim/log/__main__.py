"""`python -m tests.sim.log --schedules N --seed S`: the schedules with the seeds S to S + N - 1."""

from __future__ import annotations

import argparse
import logging
import sys

import pytest

from benchmarks.options import positive
from tests.sim.coverage import is_covered
from tests.sim.log.checks import Violation
from tests.sim.log.hosts.mutations import MUTATIONS as HOST_MUTATIONS
from tests.sim.log.hosts.world import HostWorld
from tests.sim.log.lists.world import list_schedule
from tests.sim.log.mutations import MUTATIONS
from tests.sim.log.schedules import run_host_schedules, run_schedules, use_small_heads
from tests.sim.log.stores.schedule import store_schedule
from tests.sim.log.unreached import WANTED
from tests.sim.log.world import World

HOSTS_EVERY = 4
"""For this number of schedules of machines alone, one of the shipped hosts runs. It takes about as
long as four of machines alone."""

STORES_EVERY = 10
"""For this number of schedules, one of the stores alone runs."""

LISTS_EVERY = 8
"""For coverage, one schedule of long lists runs for this number of other schedules."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=positive, default=1_000)
    parser.add_argument("--seed", type=int, default=0, help="of the first schedule")
    parser.add_argument("--trace", action="store_true", help="print every state of every head")
    by_name = {mutation.__name__: mutation for mutation in (*MUTATIONS, *HOST_MUTATIONS)}
    parser.add_argument(
        "--coverage", action="store_true", help="print what the schedules reach, and what not"
    )
    parser.add_argument("--mutation", choices=sorted(by_name), help="search with a defect on")
    arguments = parser.parse_args()
    use_small_heads()
    if arguments.mutation:
        by_name[arguments.mutation](pytest.MonkeyPatch())
    logging.disable(logging.WARNING)  # failed seals log warnings, but the schedules count them
    try:
        if arguments.coverage:
            return int(not is_covered(WANTED, lambda: play_all(arguments), sys.stdout))
        play(arguments)
    except Violation as violation:
        sys.stdout.write(f"{violation}\n")
        return 1
    return 0


def play(arguments: argparse.Namespace) -> None:
    """Run the requested schedules, of stores, of machines and of hosts."""
    seeds = range(arguments.seed, arguments.seed + arguments.schedules)
    hosts = range(arguments.seed, arguments.seed + -(-arguments.schedules // HOSTS_EVERY))
    stores = range(arguments.seed, arguments.seed + -(-arguments.schedules // STORES_EVERY))
    of_stores = run_host_schedules(stores, run=store_schedule, what="log stores")
    counts = run_schedules(seeds, _print_states if arguments.trace else None)
    of_hosts = run_host_schedules(hosts, _print_heads if arguments.trace else None)
    sys.stdout.write(f"{counts}\n{of_hosts}\n{of_stores}\n")


def play_all(arguments: argparse.Namespace) -> None:
    """Run the same schedules, and those of long lists, which also have their own program."""
    play(arguments)
    lists = range(arguments.seed, arguments.seed + -(-arguments.schedules // LISTS_EVERY))
    sys.stdout.write(f"{run_host_schedules(lists, run=list_schedule, what='log lists')}\n")


def _print_heads(world: HostWorld) -> None:
    for view in world.views.values():
        sys.stdout.write(f"{world.seed} {world.events} {view.store.state}\n")


def _print_states(world: World) -> None:
    for state in world.store.states:
        sys.stdout.write(f"{world.seed} {state.head} {state.producers} {state.marks}\n")


if __name__ == "__main__":
    sys.exit(main())
