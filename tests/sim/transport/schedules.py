"""Runs schedules of the transport and counts what happened in them."""

from __future__ import annotations

from functools import partial

from tests.sim.log.schedules import run_host_schedules
from tests.sim.transport.world import transport_schedule

run_schedules = partial(run_host_schedules, run=transport_schedule, what="transport")
"""Runs one schedule for each seed until the first `Violation`, and returns a line with counts."""
