"""Random schedules of shipped leaders, hosts and stores, and the mutations that they notice."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.sim.caught import caught
from tests.sim.leader.hosts.mutations import MUTATIONS
from tests.sim.leader.hosts.world import host_schedule
from tests.sim.leader.mutations import applied
from tests.sim.log.schedules import run_host_schedules
from tests.sim.share import played

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEDULES = played(40)
SCHEDULES_TO_CATCH_MAX = 200

pytestmark = pytest.mark.usefixtures("small_heads")


def test_no_schedule_breaks_an_invariant(show: Callable[[object], None]) -> None:
    counts = run_host_schedules(
        range(5_000, 5_000 + SCHEDULES), run=host_schedule, what="leader hosts"
    )
    show(counts)


def test_same_seed_gives_the_same_history() -> None:
    first, second = host_schedule(7), host_schedule(7)
    assert first.events == second.events
    assert first.counts == second.counts
    assert [t.values for t in first.truths.values()] == [t.values for t in second.truths.values()]


@pytest.mark.parametrize("name", sorted(MUTATIONS))
def test_a_schedule_catches_the_mutation(name: str, show: Callable[[object], None]) -> None:
    play = partial(run_host_schedules, run=host_schedule)
    with applied(name, MUTATIONS):
        found = caught(f"leader {name}", MUTATIONS[name].caught_by, play, SCHEDULES_TO_CATCH_MAX)
    show(f"leader {name}: {found}")
