"""Random schedules of shipped hosts and stores, and the mutations that they notice."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from ledgerlog_spark.metadata.store_clock import StoreClock
from tests.sim.log.checks import Violation
from tests.sim.log.hosts.base import BEGAN_MS, Hosts, play_hosts
from tests.sim.log.hosts.mutations import MUTATIONS
from tests.sim.log.hosts.tree import SimTree
from tests.sim.log.hosts.world import host_schedule
from tests.sim.log.schedules import run_host_schedules
from tests.sim.share import played

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEDULES = played(40)
SCHEDULES_TO_CATCH_MAX = 700

pytestmark = [
    pytest.mark.usefixtures("small_heads"),
]


def test_no_schedule_breaks_an_invariant(show: Callable[[object], None]) -> None:
    counts = run_host_schedules(range(5_000, 5_000 + SCHEDULES))
    show(counts)


def test_same_seed_gives_the_same_history() -> None:
    first, second = host_schedule(7), host_schedule(7)
    assert first.events == second.events
    assert first.counts == second.counts
    assert [v.store.state for v in first.views.values()] == [
        v.store.state for v in second.views.values()
    ]


def test_an_error_that_nobody_gets_ends_a_schedule() -> None:
    async def run(seed: int) -> int:
        asyncio.get_running_loop().call_soon(lambda: seed // 0)
        await asyncio.sleep(1)
        return seed

    with pytest.raises(Violation, match="seed 3: nobody gets ZeroDivisionError"):
        play_hosts(3, run)


def test_clocks_of_a_world_are_ahead_by_exactly_what_was_waited() -> None:
    """This holds even if floats add up to slightly less. Otherwise time limits would seem unmet."""

    async def run(seed: int) -> list[tuple[int, int, int | None]]:
        world = Hosts(seed)
        clock = SimTree(world).clock
        assert isinstance(clock, StoreClock)
        clock.note(0)
        ends: list[tuple[int, int, int | None]] = [(0, world.now_ms(), 0)]
        for _ in range(1_000):
            wait_ms = world.random.randint(1, 300)
            await asyncio.sleep(wait_ms / 1e3)
            ends.append((ends[-1][0] + wait_ms, world.now_ms(), clock.estimate_ms()))
        return ends

    ends = play_hosts(71, run)
    assert [(now_ms - BEGAN_MS, of_store_ms) for _, now_ms, of_store_ms in ends] == [
        (requested_ms, requested_ms) for requested_ms, _, _ in ends
    ]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_mutation_is_caught(
    mutation: Callable[[pytest.MonkeyPatch], None], catch: Callable[..., None]
) -> None:
    catch(MUTATIONS, mutation, run_host_schedules, SCHEDULES_TO_CATCH_MAX)
