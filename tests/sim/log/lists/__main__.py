"""`python -m tests.sim.log.lists --schedules N --seed S`: the seeds S to S + N - 1."""

from __future__ import annotations

import sys

from tests.sim.log.alone import main_of
from tests.sim.log.lists.world import list_schedule

if __name__ == "__main__":
    sys.exit(main_of(list_schedule, "log lists"))
