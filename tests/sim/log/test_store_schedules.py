"""Random schedules of calls of the shipped metadata stores, and the mutations they notice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ledgerlog_spark.metadata.leases import Leases
from ledgerlog_spark.metadata.logs.nodes import CommitQueue
from ledgerlog_spark.metadata.logs.store import LogStore
from ledgerlog_spark.metadata.store_clock import StoreClock
from tests.sim.log.schedules import run_host_schedules
from tests.sim.log.stores.schedule import store_schedule
from tests.sim.share import played

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

SCHEDULES = played(60)
SCHEDULES_TO_CATCH_MAX = 60

pytestmark = pytest.mark.usefixtures("small_heads")


def run(seeds: Iterable[int]) -> str:
    return run_host_schedules(seeds, run=store_schedule, what="log stores")


def test_no_schedule_breaks_an_invariant(show: Callable[[object], None]) -> None:
    counts = run(range(9_000, 9_000 + SCHEDULES))
    show(counts)


def test_same_seed_gives_the_same_history() -> None:
    first, second = store_schedule(7), store_schedule(7)
    assert first.history == second.history
    assert first.counts == second.counts


def lease_is_everybodys(patch: pytest.MonkeyPatch) -> None:
    async def acquire(self: Leases, name: str, holder: Mapping[str, str]) -> bool:
        del self, name, holder
        return True

    patch.setattr(Leases, "acquire", acquire)


def queue_forgets_who_was_first(patch: pytest.MonkeyPatch) -> None:
    async def members(self: CommitQueue) -> Sequence[str]:
        return sorted(await self._tree.children(self._directory))

    patch.setattr(CommitQueue, "members", members)


def clock_stands_still(patch: pytest.MonkeyPatch) -> None:
    def estimate_ms(self: StoreClock, age_ms_max: int | None = None) -> int | None:
        del age_ms_max
        return self._store_ms

    patch.setattr(StoreClock, "estimate_ms", estimate_ms)


def deleted_log_goes_with_what_is_registered(patch: pytest.MonkeyPatch) -> None:
    async def remove_log(self: LogStore, log_id: str) -> bool:
        await self._nodes.delete_below(self._paths.log(log_id))
        return True

    patch.setattr(LogStore, "remove_log", remove_log)


MUTATIONS: dict[Callable[[pytest.MonkeyPatch], None], str] = {
    clock_stands_still: "clock is taken to show",
    deleted_log_goes_with_what_is_registered: "is forgotten|lost its mark",
    lease_is_everybodys: "has the lease of",
    queue_forgets_who_was_first: " came at ",
}


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_mutation_is_caught(
    mutation: Callable[[pytest.MonkeyPatch], None], catch: Callable[..., None]
) -> None:
    catch(MUTATIONS, mutation, run, SCHEDULES_TO_CATCH_MAX)
