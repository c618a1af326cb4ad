"""`python -m tests.sim.joint --schedules N`: runs random schedules of everything that heals."""

from __future__ import annotations

import sys

from tests.sim.joint.mutations import MUTATIONS, applied
from tests.sim.joint.schedule import run_joint
from tests.sim.search import Search

SEARCH = Search(
    "tests.sim.joint",
    run_joint,
    MUTATIONS,
    applied,
    {
        "auditors: marked": "marks written",
        "fragment moved": "members replaced",
        "mark deleted": "marks deleted",
        "released": "releases",
        "lost in limbo": "bookies in limbo",
        "vacated by drain": "bookies drained",
        "vacated by decommission": "bookies decommissioned",
    },
)

if __name__ == "__main__":
    sys.exit(SEARCH.main(sys.argv[1:]))
