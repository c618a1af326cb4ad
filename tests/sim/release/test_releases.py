"""Scripted and random schedules in which bookies release ledgers."""

from __future__ import annotations

import pytest

from tests.sim.checker import Violation
from tests.sim.release import scripts as s
from tests.sim.release.mutations import MUTATIONS, applied
from tests.sim.release.schedule import run_releases
from tests.sim.release.scripts import Script

SCHEDULES = 60
BATCHES = 6

COUNTEREXAMPLES = [
    (s.a_list_from_before_the_release_meets_the_touch, "drop_without_touch", "HELD"),
    (s.a_list_from_before_the_release_meets_the_touch, "conflict_keeps_copies", "HELD"),
    (s.a_workers_write_that_comes_first_ends_the_release, "release_beats_cas", "HELD"),
    (s.a_list_during_a_release_shows_nothing, "drop_without_hide", "HELD"),
    (s.a_list_during_the_drop_shows_nothing, "release_is_shown_before_it_is_durable", "HELD"),
    (s.a_repeated_add_ends_a_release, "repeat_answers_from_released", "HELD"),
    (s.an_unnamed_bookie_may_have_what_a_recovery_wrote, "release_in_recovery", "L5"),
    (s.a_record_that_is_restored_names_the_bookie_again, "release_fences", "L31"),
]
IDS = [f"{script.__name__}-{mutation}" for script, mutation, _ in COUNTEREXAMPLES]
SCRIPTS = [
    *dict.fromkeys(script for script, _, _ in COUNTEREXAMPLES),
    s.a_ledger_that_was_moved_is_released,
    s.a_release_ends_with_its_process,
    s.a_forced_recovery_names_a_bookie_that_released,
]


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_script_passes_with_the_shipped_code(script: Script) -> None:
    script().audit()


@pytest.mark.parametrize(("script", "mutation", "broken"), COUNTEREXAMPLES, ids=IDS)
def test_the_counterexample_breaks_its_invariant_with_its_mutation(
    script: Script, mutation: str, broken: str
) -> None:
    with applied(mutation), pytest.raises(Violation) as caught:
        script().audit()
    assert caught.value.name == broken


def test_every_mutation_has_a_counterexample() -> None:
    assert {mutation for _, mutation, _ in COUNTEREXAMPLES} == set(MUTATIONS)


MARKS = (
    "closed by recovery",
    "closed ledger reopened",
    "fragment moved",
    "move conflicts",
    "power loss",
    "recovery of Apache's client",
    "released",
    "touched",
)
"""Situations that random schedules must reach."""

met: set[str] = set()


@pytest.mark.parametrize("batch", range(BATCHES))
def test_no_random_schedule_with_releases_breaks_an_invariant(batch: int) -> None:
    each = -(-SCHEDULES // BATCHES)
    for seed in range(batch * each, (batch + 1) * each):
        outcome = run_releases(seed)
        met.update(outcome.marks)
        assert outcome.violation is None, (
            f"{outcome.violation}; see it with: python -m tests.sim.release --seed {seed} --replay"
        )


def test_random_schedules_met_what_they_are_for() -> None:
    if not met:
        pytest.skip("only together with the schedules")
    assert not set(MARKS) - met


@pytest.mark.parametrize("mutation", ["drop_without_touch", "drop_without_hide"])
def test_random_schedules_find_a_mutation_by_themselves(mutation: str) -> None:
    with applied(mutation):
        outcomes = (run_releases(seed) for seed in range(100))
        found = next((outcome for outcome in outcomes if outcome.violation), None)
    assert found, f"100 schedules did not notice {mutation}"
