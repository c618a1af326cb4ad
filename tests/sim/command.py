"""The command line of the simulators that run one schedule after the other."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from benchmarks.options import positive
from tests.sim.log.checks import Violation


def play(name: str, run_schedules: Callable[[range], object]) -> int:
    """Run the schedules of the command line, and return the exit code: 1 after a violation."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {name}",
        description="Plays random schedules; a violation names the seed to play again.",
    )
    parser.add_argument("--schedules", type=positive, default=200)
    parser.add_argument("--seed", type=int, default=0, help="of the first schedule")
    options = parser.parse_args()
    try:
        said, code = run_schedules(range(options.seed, options.seed + options.schedules)), 0
    except Violation as violation:
        said, code = violation, 1
    sys.stdout.write(f"{said}\n")
    return code
