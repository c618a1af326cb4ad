"""`python -m tests.sim.transport --schedules N --seed S`: the seeds S to S + N - 1."""

from __future__ import annotations

import sys

from tests.sim.command import play
from tests.sim.transport.schedules import run_schedules

if __name__ == "__main__":
    sys.exit(play("tests.sim.transport", run_schedules))
