"""`python -m tests.sim.log.stores --schedules N --seed S`: the seeds S to S + N - 1."""

from __future__ import annotations

import sys

from tests.sim.log.alone import main_of
from tests.sim.log.stores.schedule import store_schedule

if __name__ == "__main__":
    sys.exit(main_of(store_schedule, "log stores"))
