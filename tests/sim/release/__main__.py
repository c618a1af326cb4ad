"""`python -m tests.sim.release --schedules N`: runs random schedules of moves and releases."""

from __future__ import annotations

import sys

from tests.sim.release.mutations import MUTATIONS, applied
from tests.sim.release.schedule import run_releases
from tests.sim.search import Search

SEARCH = Search(
    "tests.sim.release",
    run_releases,
    MUTATIONS,
    applied,
    {"released": "releases", "fragment moved": "moves"},
)

if __name__ == "__main__":
    sys.exit(SEARCH.main(sys.argv[1:]))
