"""`python -m tests.sim.handles --schedules N --seed S`: the seeds S to S + N - 1."""

from __future__ import annotations

import logging
import sys

from tests.sim.command import play
from tests.sim.handles.schedules import run_schedules

if __name__ == "__main__":
    logging.disable(logging.WARNING)  # ledgers that continue without a bookie log warnings
    sys.exit(play("tests.sim.handles", run_schedules))
