"""Runs random schedules of releases: python -m tests.sim.release --schedules 1000."""

from __future__ import annotations

import sys

from tests.sim.release.mutations import MUTATIONS, applied
from tests.sim.release.schedule import run_releases
