"""`python -m tests.sim.vacate --schedules N --seed S`: the seeds S to S + N - 1."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable

from tests.sim.checker import Violation
from tests.sim.command import play
from tests.sim.log.checks import Violation as Reported
from tests.sim.vacate.schedule import play as play_one


def run_schedules(seeds: Iterable[int]) -> str:
    """Play the schedules, and return what happened in them."""
    counts: Counter[str] = Counter()
    for seed in seeds:
        try:
            counts.update(play_one(seed).counts)
        except Violation as violation:
            raise Reported(f"vacate, seed {seed}: {violation}") from violation
        counts["schedules"] += 1
    return "vacate: " + ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items()))


if __name__ == "__main__":
    sys.exit(play("tests.sim.vacate", run_schedules))
