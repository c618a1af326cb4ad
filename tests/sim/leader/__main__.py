"""`python -m tests.sim.leader --schedules N --seed S`: schedules with the seeds S to S + N - 1."""

from __future__ import annotations

import argparse
import logging
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING

from benchmarks.options import positive
from tests.sim.coverage import is_covered
from tests.sim.leader.cluster import cluster_schedule
from tests.sim.leader.damaged import damaged_schedule
from tests.sim.leader.deleted import deleted_schedule
from tests.sim.leader.hosts.mutations import MUTATIONS as HOST_MUTATIONS
from tests.sim.leader.hosts.world import LeaderHosts, host_schedule
from tests.sim.leader.mutations import MUTATIONS, applied
from tests.sim.leader.schedules import run_schedules
from tests.sim.leader.unreached import WANTED
from tests.sim.leader.world import LeaderWorld, schedule
from tests.sim.log.checks import Violation
from tests.sim.log.schedules import run_host_schedules, use_small_heads

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

HOSTS_EVERY = 4
"""For this number of schedules of machines alone, one schedule of the shipped hosts runs."""
OTHERS_EVERY = 2
"""For this number of schedules, one more runs in which the log is deleted under the machines, and
one in which it loses records."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.leader", description=__doc__)
    parser.add_argument("--schedules", type=positive, default=1_000)
    parser.add_argument("--seed", type=int, default=0, help="of the first schedule")
    parser.add_argument(
        "--mutation", choices=sorted({*MUTATIONS, *HOST_MUTATIONS}), help="search with a defect on"
    )
    parser.add_argument(
        "--coverage", action="store_true", help="print what the schedules reach, and what not"
    )
    parser.add_argument("--cluster", action="store_true", help="with bookies below the leaders")
    parser.add_argument("--hosts", action="store_true", help="schedules of the shipped hosts alone")
    parser.add_argument("--trace", action="store_true", help="print every state of every head")
    arguments = parser.parse_args()
    use_small_heads()
    logging.disable(logging.WARNING)  # failed seals log warnings, but the schedules count them
    with _defect(arguments.mutation):
        try:
            if arguments.coverage:
                return int(not is_covered(WANTED, lambda: play(arguments), sys.stdout))
            play(arguments)
        except Violation as violation:
            sys.stdout.write(f"{violation}\n")
            return 1
    return 0


def _defect(name: str | None) -> AbstractContextManager[None]:
    if name is None:
        return nullcontext()
    return applied(name, MUTATIONS if name in MUTATIONS else HOST_MUTATIONS)


def play(arguments: argparse.Namespace) -> None:
    """Run the requested schedules: of machines, of hosts, of logs that are deleted."""
    on_end = _print_states if arguments.trace else None
    first, count = arguments.seed, arguments.schedules
    if arguments.hosts:
        _play_hosts(range(first, first + count), arguments)
        return
    if arguments.cluster:
        sys.stdout.write(
            f"{run_schedules(range(first, first + count), on_end, cluster_schedule)}\n"
        )
        return
    sys.stdout.write(f"{run_schedules(range(first, first + count), on_end, schedule)}\n")
    some = range(first, first + -(-count // OTHERS_EVERY))
    sys.stdout.write(f"deleted {run_schedules(some, on_end, deleted_schedule)}\n")
    sys.stdout.write(f"damaged {run_schedules(some, on_end, damaged_schedule)}\n")
    _play_hosts(range(first, first + -(-count // HOSTS_EVERY)), arguments)


def _play_hosts(seeds: range, arguments: argparse.Namespace) -> None:
    on_end = _print_heads if arguments.trace else None
    sys.stdout.write(f"{run_host_schedules(seeds, on_end, host_schedule, 'leader hosts')}\n")


def _print_heads(world: LeaderHosts) -> None:
    for view in world.views.values():
        sys.stdout.write(f"{world.seed} {world.events} {view.store.state}\n")


def _print_states(world: LeaderWorld) -> None:
    for state in world.store.states:
        sys.stdout.write(f"{world.seed} {state.head} {state.marks}\n")


if __name__ == "__main__":
    sys.exit(main())
