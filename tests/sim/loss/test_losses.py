"""Scripted and random schedules in which bookies lose acknowledged records."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.sim.checker import Violation
from tests.sim.loss import absent_scripts as a
from tests.sim.loss import doubt_scripts as d
from tests.sim.loss import scripts as s
from tests.sim.loss.mutations import MUTATIONS, applied
from tests.sim.loss.options import LIMITS
from tests.sim.loss.schedule import run_losses
from tests.sim.loss.setup import Script

SCHEDULES = 90
BATCHES = 6

COUNTEREXAMPLES = [
    (s.t4_what_may_be_lost_is_not_denied, "no_limbo", "L32"),
    (s.t4_closes_below, "no_limbo", "L1"),
    (s.t4_an_old_acknowledgement_is_under_way, "open_ledgers_are_cleared", "L2"),
    (s.t3_the_first_add_is_checked, "no_first_add_check", "L2"),
    (s.t3_a_repaired_ledger_is_checked_too, "clearing_forgets_fence", "L14"),
    (s.t3_the_check_reads_the_newest_record, "check_reads_old_record", "L14"),
    (s.t37_a_bookie_that_no_fragment_names_checks_too, "no_first_add_check", "L2"),
    (s.t34_nobody_closes_what_an_ack_quorum_may_have_lost, "no_limbo", "L1"),
    (s.t34_nobody_closes_what_an_ack_quorum_may_have_lost, "two_limbo_members_close", "L1"),
    (s.t38_a_closing_write_names_what_was_lost, "cleared_by_old_record", "L32"),
    (s.a_recovery_closes_only_the_record_that_it_read, "close_over_any_record", "L1"),
    (d.a_wiped_bookie_has_no_lac, "limbo_answers_lac", "L33"),
    (d.what_is_lost_while_serving_is_older_than_its_doubt, "doubt_judged_by_start", "L32"),
    (d.a_new_id_is_no_proof, "new_by_id", "L32"),
    (d.a_clock_is_no_proof, "new_by_clock", "L32"),
    (d.an_answer_covers_no_later_loss, "creation_counts_for_later_losses", "L32"),
    (d.a_new_state_begins_in_limbo, "new_states_are_clear", "L32"),
    (d.a_listing_that_is_not_whole_ends_no_doubt, "partial_listing_clears", "L32"),
    (d.an_old_listing_ends_no_doubt, "listing_is_old", "L32"),
    (d.the_state_in_memory_may_come_from_a_lost_record, "limbo_state_is_not_written", "L32"),
    (d.a_ledger_in_limbo_has_a_durable_state, "limbo_state_is_not_durable", "L32"),
    (d.a_bookie_that_does_not_answer_denies_nothing, "silence_is_a_denial", "L32"),
    (d.a_second_crash_keeps_the_doubt, "second_crash_forgets_doubt", "L32"),
    (d.the_last_run_decides, "mode_from_settings", "L32"),
    (d.an_empty_directory_is_not_new, "empty_directory_is_new", "L32"),
    (d.an_older_copy_of_the_same_run_is_noticed, "counter_per_start", "L32"),
    (d.a_kill_during_a_failing_sync_proves_nothing, "cache_is_not_dropped", "L32"),
    (d.what_only_the_cache_has_is_not_held, "cache_is_not_dropped", "L32"),
    (s.a_power_loss_takes_no_recovery_add, "recovery_adds_are_not_synced", "L32"),
    (s.a_worker_names_no_bookie_that_began_a_doubt, "worker_checks_no_doubt", "L32"),
    (s.a_repair_begins_after_the_node_of_its_doubt, "repair_before_its_node", "L32"),
    (a.a_hole_and_an_empty_directory_are_not_two_denials, "no_limbo", "L1"),
    (a.a_hole_and_an_empty_directory_are_not_two_denials, "empty_directory_is_new", "L1"),
    (s.new_ledgers_close_after_three_losses, "creation_is_not_compared", "V1"),
    (s.the_writer_of_an_active_ledger_is_not_fenced, "limbo_recovers_always", "SCRIPT"),
    (s.a_ledger_without_a_writer_leaves_limbo, "limbo_recovers_never", "R2"),
    (
        s.only_its_writer_can_close_what_an_ack_quorum_may_have_lost,
        "limbo_recovers_without_quorum",
        "V1",
    ),
]
IDS = [f"{script.__name__}-{mutation}" for script, mutation, _ in COUNTEREXAMPLES]


@pytest.mark.parametrize("script", list(dict.fromkeys(one for one, _, _ in COUNTEREXAMPLES)))
def test_the_counterexample_passes_on_the_shipped_rules(script: Script) -> None:
    script().audit()


@pytest.mark.parametrize(("script", "mutation", "broken"), COUNTEREXAMPLES, ids=IDS)
def test_the_counterexample_breaks_its_invariant_with_its_mutation(
    script: Script, mutation: str, broken: str
) -> None:
    with applied(mutation), pytest.raises(Violation) as caught:
        script().audit()
    assert caught.value.name == broken


@pytest.mark.parametrize(
    "script",
    [d.a_record_that_is_made_again_looks_new, d.a_copy_younger_than_the_counter_looks_current],
)
def test_a_limit_of_the_rules_is_known(script: Script) -> None:
    """ADR 39 lists these limits. A rule that removes one makes its test fail."""
    with pytest.raises(Violation) as caught:
        script()
    assert caught.value.name == "L32"


def test_every_mutation_has_a_counterexample() -> None:
    assert {mutation for _, mutation, _ in COUNTEREXAMPLES} == set(MUTATIONS)


MARKS = (
    "absent bookie returned",
    "wiped while absent",
    "check FENCE",
    "check REFUSE",
    "check TAKE",
    "closed by recovery",
    "closed ledger reopened",
    "doubt at start",
    "doubt ended",
    "doubt while serving",
    "entry repaired",
    "kill proved",
    "ledger cleared",
    "ledger rolled",
    "lost by damage",
    "lost by failed sync",
    "lost by older copy",
    "lost by power",
    "lost by wipe",
    "newer than the loss",
    "recovered by a bookie in limbo",
    "recovery of Apache's client",
    "repair WAITING",
    "three ensemble changes",
    "unknown in limbo",
)
"""Situations that random schedules must reach."""

met: set[str] = set()


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("batch", range(BATCHES))
def test_no_random_schedule_with_losses_breaks_an_invariant(limit: str, batch: int) -> None:
    each = -(-SCHEDULES // BATCHES)
    for seed in range(batch * each, (batch + 1) * each):
        outcome = run_losses(seed, limit)
        met.update(outcome.marks)
        assert outcome.violation is None, (
            f"{outcome.violation}; see it with: python -m tests.sim.loss --limit {limit} "
            f"--seed {seed} --replay"
        )


def test_random_schedules_met_what_they_are_for() -> None:
    if not met:
        pytest.skip("only together with the schedules")
    assert not set(MARKS) - met


@pytest.mark.parametrize(
    ("mutation", "limit"),
    [
        ("no_limbo", "one"),
        ("no_first_add_check", "one"),
        ("clearing_forgets_fence", "one"),
        ("new_states_are_clear", "one"),
        ("open_ledgers_are_cleared", "one"),
        ("mode_from_settings", "any"),
        ("second_crash_forgets_doubt", "one"),
    ],
)
def test_random_schedules_find_a_mutation_by_themselves(
    mutation: str, limit: str, show: Callable[[object], None]
) -> None:
    with applied(mutation):
        outcomes = (run_losses(seed, limit) for seed in range(100))
        found = next((outcome for outcome in outcomes if outcome.violation), None)
    assert found, f"100 schedules did not notice {mutation}"
    show(f"loss {mutation}: seed {found.seed}: {found.violation}")
