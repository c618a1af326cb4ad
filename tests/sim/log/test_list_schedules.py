"""Random schedules of long lists, and the mutations that they notice."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from ledgerlog_spark.protocol.log.change import expiry as log_expiry
from ledgerlog_spark.protocol.log.change.retention import RetentionMachine
from tests.sim.log.lists.world import list_schedule
from tests.sim.log.schedules import run_host_schedules
from tests.sim.share import played

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

SCHEDULES = played(30)
SCHEDULES_TO_CATCH_MAX = 40

pytestmark = pytest.mark.usefixtures("small_heads")


def run(seeds: Iterable[int]) -> str:
    return run_host_schedules(seeds, run=list_schedule, what="log lists")


def test_no_schedule_breaks_a_rule(show: Callable[[object], None]) -> None:
    counts = run(range(9_000, 9_000 + SCHEDULES))
    show(counts)


def versions_expire_one_too_late(patch: pytest.MonkeyPatch) -> None:
    def oldest_retained(history: Any, since_ms: int) -> Any:
        for version, following in itertools.pairwise(history[:-1]):
            if following.commit_time_ms > since_ms:
                return version
        return history[-2:][0]

    patch.setattr(log_expiry, "oldest_retained", oldest_retained)


def retention_looks_again_an_hour_later(patch: pytest.MonkeyPatch) -> None:
    due_by_age = RetentionMachine._due_by_age

    def late(self: RetentionMachine, items: Any, *, is_cut: bool) -> Any:
        found = due_by_age(self, items, is_cut=is_cut)
        assert self.next_due_ms is not None
        self.next_due_ms += 3_600_000
        return found

    patch.setattr(RetentionMachine, "_due_by_age", late)


MUTATIONS: dict[Callable[[pytest.MonkeyPatch], None], str] = {
    retention_looks_again_an_hour_later: "are due before",
    versions_expire_one_too_late: "is to be the oldest version",
}


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_mutation_is_caught(
    mutation: Callable[[pytest.MonkeyPatch], None], catch: Callable[..., None]
) -> None:
    catch(MUTATIONS, mutation, run, SCHEDULES_TO_CATCH_MAX)
