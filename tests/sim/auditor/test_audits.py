"""Random schedules of auditors and of checks of copies, and their mutations."""

from __future__ import annotations

import pytest

from tests.sim.auditor.mutations import COPY_MUTATIONS, MUTATIONS, applied
from tests.sim.auditor.schedule import run_audit, run_copies

SCHEDULES = 600
COPY_SCHEDULES = 120
BATCHES = 6
SEARCHED = 400
"""A mutation must be noticed within this number of schedules."""

MARKS = (
    "all sessions ended",
    "audit now",
    "bookies lost",
    "disable",
    "flap",
    "mark deleted",
    "marked",
    "paused",
    "walk ended",
)
COPY_MARKS = ("damage", "drop", "leave", "limbo", "move", "replicas checked", "digests checked")
"""Situations that random schedules must reach."""

met: set[str] = set()
copies_met: set[str] = set()


@pytest.mark.parametrize("batch", range(BATCHES))
def test_no_random_schedule_of_auditors_breaks_an_invariant(batch: int) -> None:
    each = SCHEDULES // BATCHES
    for seed in range(batch * each, (batch + 1) * each):
        outcome = run_audit(seed)
        met.update(outcome.marks)
        assert outcome.violation is None, (
            f"{outcome.violation}; see it with: python -m tests.sim.auditor --seed {seed} --replay"
        )


@pytest.mark.parametrize("batch", range(BATCHES))
def test_no_random_schedule_of_checks_breaks_an_invariant(batch: int) -> None:
    each = COPY_SCHEDULES // BATCHES
    for seed in range(batch * each, (batch + 1) * each):
        outcome = run_copies(seed)
        copies_met.update(outcome.marks)
        assert outcome.violation is None, (
            f"{outcome.violation}; see it with: python -m tests.sim.auditor --copies --seed {seed} "
            "--replay"
        )


def test_random_schedules_met_what_they_are_for() -> None:
    if not (met and copies_met):
        pytest.skip("only together with the schedules")
    assert not set(MARKS) - met
    assert not set(COPY_MARKS) - copies_met


@pytest.mark.parametrize("mutation", [*MUTATIONS, *COPY_MUTATIONS])
def test_random_schedules_find_each_mutation(mutation: str) -> None:
    run = run_audit if mutation in MUTATIONS else run_copies
    with applied(mutation):
        outcomes = (run(seed) for seed in range(SEARCHED))
        found = next((each.violation for each in outcomes if each.violation), None)
    assert found is not None, f"{SEARCHED} schedules did not notice {mutation}"
    assert found.name == (MUTATIONS | COPY_MUTATIONS)[mutation].rule
