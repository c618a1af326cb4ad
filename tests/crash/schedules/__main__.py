"""`python -m tests.crash.schedules --schedules N --seed S`: runs schedules until a violation."""

from __future__ import annotations

import argparse
import logging
import math
import signal
import sys
import time

import structlog

from benchmarks.options import above_zero, positive
from tests.crash.schedules import KINDS, violation_of

SECONDS_MAX = 60


class HangsError(AssertionError):
    """A schedule did not end."""


def _hangs(_signal: int, _frame: object) -> None:
    raise HangsError(f"it did not end within {SECONDS_MAX} s")


def main() -> int:
    """Return 1 after a violation."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.schedules", description=__doc__)
    parser.add_argument("--schedules", type=positive, default=1_000)
    parser.add_argument("--seed", type=int, default=0, help="number of the first schedule")
    parser.add_argument("--kind", choices=KINDS, help="only schedules of this kind")
    parser.add_argument(
        "--seconds", type=above_zero, default=math.inf, help="begin none after this"
    )
    chosen = parser.parse_args()
    signal.signal(signal.SIGALRM, _hangs)
    quiet = structlog.make_filtering_bound_logger(logging.CRITICAL)
    structlog.configure(wrapper_class=quiet)
    kinds = list(KINDS)
    played = 0
    ends_at = time.monotonic() + chosen.seconds
    for number in range(chosen.seed, chosen.seed + chosen.schedules):
        if time.monotonic() >= ends_at:
            break
        if chosen.kind and kinds[number % len(kinds)] != chosen.kind:
            continue
        played += 1
        signal.alarm(SECONDS_MAX)
        violation = violation_of(number)
        signal.alarm(0)  # the end of the process may take long after a large schedule
        if violation:
            print(f"seed {number}: {violation}")
            return 1
    print(f"{played:,} schedules, 0 violations")
    return 0


if __name__ == "__main__":
    sys.exit(main())
