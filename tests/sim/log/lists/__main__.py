"""`python -m tests.sim.log.lists --schedules N --seed S`: the seeds S to S + N - 1."""

from __future__ import annotations

import sys
from functools import partial

from tests.sim.command import play
from tests.sim.log.lists.world import list_schedule
from tests.sim.log.schedules import run_host_schedules, use_small_heads

if __name__ == "__main__":
    use_small_heads()
    run = partial(run_host_schedules, run=list_schedule, what="log lists")
    sys.exit(play("tests.sim.log.lists", run))
