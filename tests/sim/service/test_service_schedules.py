"""Random schedules of a bookie's data plane, and the mutations that they notice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from bookie_server.service.v2 import operations
from bookie_server.service.v2.connection import PeerConnection
from bookie_server.service.v2.receive_memory import ReceiveMemory
from bookie_server.service.v2.sweeper import ConnectionSweeper
from tests.sim.service.world import run_schedules, service_schedule
from tests.sim.share import played

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEDULES = played(60)
SCHEDULES_TO_CATCH_MAX = 60


def test_no_schedule_breaks_an_invariant(show: Callable[[object], None]) -> None:
    counts = run_schedules(range(7_000, 7_000 + SCHEDULES))
    show(counts)


def test_same_seed_gives_the_same_history() -> None:
    first, second = service_schedule(9), service_schedule(9)
    assert first.answers == second.answers
    assert first.counters.pauses == second.counters.pauses
    assert first.loop.time() == second.loop.time()


def waits_for_itself(patch: pytest.MonkeyPatch) -> None:
    """A request waits for the memory that contains it."""
    patch.setattr(PeerConnection, "_waits_for_itself", lambda *_: False)


def everybody_is_in_the_way(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ConnectionSweeper, "_is_in_the_way", lambda *_: True)


def memory_goes_with_the_first_answer(patch: pytest.MonkeyPatch) -> None:
    """Memory is reused although it contains other open requests."""
    free = ReceiveMemory.free

    def free_all(self: Any, buffer: Any) -> bool:
        buffer.unanswered = 1
        return free(self, buffer)

    patch.setattr(ReceiveMemory, "free", free_all)


def slices_cost_nothing(patch: pytest.MonkeyPatch) -> None:
    """No lane counts the memory of a decoded request for slices."""
    patch.setattr(operations, "slices_cost", lambda _: 0)


MUTATIONS: dict[Callable[[pytest.MonkeyPatch], None], str] = {
    waits_for_itself: "waits for",
    everybody_is_in_the_way: "was closed with requests out",
    slices_cost_nothing: "bytes are held, and",
    memory_goes_with_the_first_answer: "bytes|changed|counted|overtook|is closed|AssertionError",
}


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_mutation_is_caught(
    mutation: Callable[[pytest.MonkeyPatch], None], catch: Callable[..., None]
) -> None:
    catch(MUTATIONS, mutation, run_schedules, SCHEDULES_TO_CATCH_MAX)
