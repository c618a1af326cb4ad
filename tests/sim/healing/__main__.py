"""`python -m tests.sim.healing --schedules N`: runs random schedules of workers."""

from __future__ import annotations

import sys

from tests.sim.healing.mutations import MUTATIONS, applied
from tests.sim.healing.schedule import run_healing
from tests.sim.search import Search

SEARCH = Search(
    "tests.sim.healing",
    run_healing,
    MUTATIONS,
    applied,
    {"fragment moved": "members replaced", "mark deleted": "marks deleted"},
)

if __name__ == "__main__":
    sys.exit(SEARCH.main(sys.argv[1:]))
