"""Random schedules of rival leaders, truncations and readers, and the mutations they notice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.sim.caught import caught
from tests.sim.leader.cluster import cluster_schedule
from tests.sim.leader.mutations import MUTATIONS, applied
from tests.sim.leader.schedules import run_schedules
from tests.sim.leader.world import LeaderWorld, schedule
from tests.sim.log.schedules import trace_under_two_hash_seeds
from tests.sim.share import played

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEDULES = played(200)
CLUSTER_SCHEDULES = 60
TOO_RARE = {"list_left_empty"}
"""Only a counterexample shows this mutation, because random schedules rarely lose the offsets."""
SCHEDULES_TO_CATCH_MAX = 600

pytestmark = pytest.mark.usefixtures("small_heads")


def test_no_schedule_breaks_an_invariant(show: Callable[[object], None]) -> None:
    counts = run_schedules(range(SCHEDULES))
    show(counts)
    assert counts.acknowledged > SCHEDULES * 20
    assert counts.ledgers > SCHEDULES * 5
    assert counts.deposed > SCHEDULES // 2


def test_no_schedule_over_a_cluster_breaks_an_invariant_of_log_or_ledgers(
    show: Callable[[object], None],
) -> None:
    changes = 0

    def count(world: LeaderWorld) -> None:
        nonlocal changes
        changes += sum(ledger.changes for ledger in world.ledgers.by_id.values())

    counts = run_schedules(range(CLUSTER_SCHEDULES), count, cluster_schedule)
    show(f"{counts}, {changes} changes of ensembles")
    assert counts.acknowledged > CLUSTER_SCHEDULES * 20
    assert counts.ledgers > CLUSTER_SCHEDULES * 5
    assert changes > CLUSTER_SCHEDULES // 2


def test_same_seed_gives_the_same_history() -> None:
    for run in (schedule, cluster_schedule):
        first, second = run(7), run(7)
        assert [s.head for s in first.store.states] == [s.head for s in second.store.states]
        assert first.checks.log == second.checks.log
        assert first.events == second.events


def test_history_does_not_depend_on_the_hash_seed() -> None:
    assert trace_under_two_hash_seeds("tests.sim.leader").count("\n") > 30


@pytest.mark.parametrize("name", sorted(set(MUTATIONS) - TOO_RARE))
def test_a_schedule_catches_the_mutation(name: str, show: Callable[[object], None]) -> None:
    with applied(name):
        found = caught(
            f"leader {name}", MUTATIONS[name].caught_by, run_schedules, SCHEDULES_TO_CATCH_MAX
        )
    show(f"leader {name}: {found}")
