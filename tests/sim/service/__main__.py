"""`python -m tests.sim.service --schedules N --seed S`: the seeds S to S + N - 1."""

from __future__ import annotations

import logging
import sys

import structlog

from tests.sim.command import play
from tests.sim.service.world import run_schedules

if __name__ == "__main__":
    quiet = structlog.make_filtering_bound_logger(logging.ERROR)
    structlog.configure(wrapper_class=quiet)  # each closed connection logs a line
    sys.exit(play("tests.sim.service", run_schedules))
