"""Scripted and random schedules in which workers heal ledgers."""

from __future__ import annotations

import pytest

from tests.sim.checker import Violation
from tests.sim.healing import recovery_scripts as rs
from tests.sim.healing import scripts as s
from tests.sim.healing.mutations import MUTATIONS, applied
from tests.sim.healing.schedule import run_healing
from tests.sim.healing.scripts import Script

SCHEDULES = 90
BATCHES = 6

COUNTEREXAMPLES = [
    (s.a_mark_of_another_time_is_not_deleted, "mark_deleted_on_new_session", "WHOLE"),
    (s.entries_behind_the_end_are_left_over, "copies_beyond_end", "ENDED"),
    (s.an_open_ledger_keeps_its_last_fragment, "swap_in_last_open", "L20"),
    (
        s.a_record_changes_before_its_mark_is_deleted,
        "task_deleted_over_a_new_record",
        "WHOLE",
    ),
    (s.damage_is_written_again, "repair_is_a_repeat", "DAMAGE"),
    (s.a_list_is_younger_than_the_force, "list_before_force", "HELD"),
    (s.a_list_is_younger_than_the_force, "swap_before_durable", "HELD"),
    (s.a_stripe_is_counted_from_entry_0, "stripe_of_relative_ids", "HELD"),
    (rs.the_cookie_of_a_replacement_is_made_again, "recovery_ignores_identities", "L5"),
    (rs.the_cookie_of_a_replacement_is_made_again, "cookie_made_again", "L5"),
    (rs.a_replacement_loses_its_directory, "no_cookie_check", "L5"),
    (rs.a_replacement_loses_its_directory, "recovery_ignores_identities", "L5"),
    (rs.a_close_is_sent_again_after_the_loss, "resends_without_identities", "L5"),
    (s.a_target_loses_its_directory, "no_cookie_check", "HELD"),
    (s.a_cookie_is_made_again, "cookie_made_again", "HELD"),
    (s.a_target_is_outside_the_ensemble, "same_bookie_twice", "L10"),
    (s.a_conflict_is_a_release, "conflict_keeps_copies", "HELD"),
    (s.an_entry_that_only_the_dead_bookie_has, "swaps_over_a_hole", "HELD"),
    (s.an_entry_that_only_the_dead_bookie_has, "copies_without_naming", "SPLIT"),
    (s.a_silent_bookie_may_have_the_entry, "unknown_is_lost", "LOST"),
    (s.a_bookie_in_limbo_may_have_the_entry, "limbo_negative_counts", "LOST"),
    (s.an_open_ledger_gets_its_grace, "fence_before_grace", "GRACE"),
    (s.an_open_ledger_without_a_spare_stays_open, "fences_without_spare", "SPARE"),
    (s.a_log_lists_more_than_the_bookies_prove, "recover_without_floor", "FLOOR"),
    (s.an_answer_is_garbled, "no_digest_check", "L6"),
    (s.a_list_from_before_the_release_meets_the_touch, "drop_without_touch", "HELD"),
    (s.a_list_during_a_release_shows_nothing, "drop_without_hide", "HELD"),
]
IDS = [f"{script.__name__}-{mutation}" for script, mutation, _ in COUNTEREXAMPLES]
SCRIPTS = [
    *dict.fromkeys(script for script, _, _ in COUNTEREXAMPLES),
    s.a_lost_bookie_is_replaced,
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
    "bookie lost",
    "closed by recovery",
    "fragment moved",
    "job HEALED",
    "mark deleted",
    "move conflicts",
    "moved while open",
    "power loss",
    "released",
    "spare wiped",
    "touched",
)
"""Situations that random schedules must reach."""

met: set[str] = set()


@pytest.mark.parametrize("batch", range(BATCHES))
def test_no_random_schedule_with_workers_breaks_an_invariant(batch: int) -> None:
    each = -(-SCHEDULES // BATCHES)
    for seed in range(batch * each, (batch + 1) * each):
        outcome = run_healing(seed)
        met.update(outcome.marks)
        assert outcome.violation is None, (
            f"{outcome.violation}; see it with: python -m tests.sim.healing --seed {seed} --replay"
        )


def test_random_schedules_met_what_they_are_for() -> None:
    if not met:
        pytest.skip("only together with the schedules")
    assert not set(MARKS) - met


@pytest.mark.parametrize("mutation", ["swap_in_last_open", "same_bookie_twice"])
def test_random_schedules_find_a_mutation_by_themselves(mutation: str) -> None:
    with applied(mutation):
        outcomes = (run_healing(seed) for seed in range(60))
        found = next((outcome for outcome in outcomes if outcome.violation), None)
    assert found, f"60 schedules did not notice {mutation}"
