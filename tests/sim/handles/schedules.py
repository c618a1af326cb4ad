"""Runs schedules of clients and counts what happened in them."""

from __future__ import annotations

from functools import partial

from tests.sim.handles.world import handle_schedule
from tests.sim.log.schedules import run_host_schedules

run_schedules = partial(run_host_schedules, run=handle_schedule, what="handles")
"""Runs one schedule for each seed until the first `Violation`, and returns a line with counts."""
