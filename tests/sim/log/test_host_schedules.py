"""Random schedules of hosts and stores as they ship; the mutations they catch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.sim.log.hosts.mutations import MUTATIONS
from tests.sim.log.hosts.world import host_schedule
from tests.sim.log.schedules import run_host_schedules

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEDULES = 40
SCHEDULES_TO_CATCH_MAX = 300

pytestmark = [
    pytest.mark.usefixtures("small_heads"),
]


def test_no_schedule_breaks_an_invariant(capsys: pytest.CaptureFixture[str]) -> None:
    counts = run_host_schedules(range(5_000, 5_000 + SCHEDULES))
    with capsys.disabled():
        print(f"\n{counts}")  # noqa: T201 (the count line)


def test_same_seed_gives_the_same_history() -> None:
    first, second = host_schedule(7), host_schedule(7)
    assert first.events == second.events
    assert first.counts == second.counts
    assert [v.store.state for v in first.views.values()] == [
        v.store.state for v in second.views.values()
    ]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_mutation_is_caught(
    mutation: Callable[[pytest.MonkeyPatch], None], catch: Callable[..., None]
) -> None:
    catch(MUTATIONS, mutation, lambda: run_host_schedules(range(SCHEDULES_TO_CATCH_MAX)))
