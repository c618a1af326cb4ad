"""`python -m tests.sim.log.stores --schedules N --seed S`: the seeds S to S + N - 1."""

from __future__ import annotations

import sys
from functools import partial

from tests.sim.command import play
from tests.sim.log.schedules import run_host_schedules, use_small_heads
from tests.sim.log.stores.schedule import store_schedule

if __name__ == "__main__":
    use_small_heads()
    run = partial(run_host_schedules, run=store_schedule, what="log stores")
    sys.exit(play("tests.sim.log.stores", run))
