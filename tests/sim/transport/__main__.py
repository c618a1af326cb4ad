"""`python -m tests.sim.transport --schedules N --seed S`: the seeds S to S + N - 1."""

from __future__ import annotations

import argparse
import sys

from tests.sim.log.checks import Violation
from tests.sim.transport.schedules import run_schedules


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.transport", description=__doc__)
    parser.add_argument("--schedules", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0, help="of the first schedule")
    arguments = parser.parse_args()
    try:
        print(run_schedules(range(arguments.seed, arguments.seed + arguments.schedules)))
    except Violation as violation:
        print(violation)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
