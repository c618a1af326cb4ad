"""`python -m tests.sim.service --schedules N --seed S`: the seeds S to S + N - 1."""

from __future__ import annotations

import argparse
import logging
import sys

import structlog

from tests.sim.log.checks import Violation
from tests.sim.service.world import run_schedules


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.service", description=__doc__)
    parser.add_argument("--schedules", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0, help="of the first schedule")
    arguments = parser.parse_args()
    quiet = structlog.make_filtering_bound_logger(logging.ERROR)
    structlog.configure(wrapper_class=quiet)  # connections are closed all the time
    try:
        print(run_schedules(range(arguments.seed, arguments.seed + arguments.schedules)))
    except Violation as violation:
        print(violation)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
