"""Schedules of vacations: some random ones, and for each mistake one that shows it."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.sim.checker import Violation
from tests.sim.vacate.mutations import MUTATIONS, applied
from tests.sim.vacate.schedule import play

SHOWN_BY = {
    "drain_in_ur_queue": (0, "Y5"),
    "vacated_on_stale_walk": (105, "Y6"),
    "walk_is_not_synced": (13567, "Y6"),
    "unreadable_ledgers_are_skipped": (16, "Y6"),
    "quiet_survives": (398, "Y6"),
    "cookie_deleted_under_a_returner": (963, "Y7"),
    "return_before_the_load_is_ignored": (1206, "Y7"),
}
"""For each mistake the seed of a schedule that shows it, and the rule."""


def test_random_schedules_keep_the_rules() -> None:
    counts: Counter[str] = Counter()
    for seed in range(1_000, 1_030):
        counts.update(play(seed).counts)
    for what in ("cancelled", "deaths", "moved", "returns", "stalls", "lost answers"):
        assert counts[what] > 5, (what, counts)
    assert counts["vacated decommission"] > 3
    assert counts["vacated drain"] > 3


def test_each_mistake_has_a_schedule() -> None:
    assert SHOWN_BY.keys() == MUTATIONS.keys()


@pytest.mark.parametrize("name", SHOWN_BY)
def test_a_schedule_catches_the_mutation(name: str) -> None:
    seed, rule = SHOWN_BY[name]
    play(seed)
    with applied(name), pytest.raises(Violation) as caught:
        play(seed)
    assert caught.value.name == rule
