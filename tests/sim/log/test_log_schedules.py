"""Random schedules of commits, replaced runs, sweepers, seals and upkeep, with their mutations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.sim.log.mutations import MUTATIONS
from tests.sim.log.schedules import run_schedules, trace_under_two_hash_seeds
from tests.sim.log.world import schedule
from tests.sim.share import played

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEDULES = played(400)
SCHEDULES_TO_CATCH_MAX = 1_500

pytestmark = pytest.mark.usefixtures("small_heads")


def test_no_schedule_breaks_an_invariant(show: Callable[[object], None]) -> None:
    counts = run_schedules(range(SCHEDULES))
    show(counts)
    assert counts.commits > SCHEDULES * 2


def test_same_seed_gives_the_same_history() -> None:
    first, second = schedule(7), schedule(7)
    assert [s.head for s in first.store.states] == [s.head for s in second.store.states]
    assert first.store.events == second.store.events


def test_history_does_not_depend_on_the_hash_seed() -> None:
    assert trace_under_two_hash_seeds("tests.sim.log").count("\n") > 100


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_mutation_is_caught(
    mutation: Callable[[pytest.MonkeyPatch], None], catch: Callable[..., None]
) -> None:
    catch(MUTATIONS, mutation, run_schedules, SCHEDULES_TO_CATCH_MAX)
