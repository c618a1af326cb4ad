"""Random joint schedules of everything that heals a cluster."""

from __future__ import annotations

import pytest

from tests.sim.joint.mutations import applied
from tests.sim.joint.schedule import run_joint

SCHEDULES = 40
BATCHES = 4
LEFT_LOCK = 122
"""A schedule in which the request of a bookie for a lock arrives after its time limit."""
MARKS = (
    "auditors: bookies lost",
    "auditors: marked",
    "began to decommission",
    "began to drain",
    "bookie lost",
    "fragment moved",
    "job HEALED",
    "lost in limbo",
    "mark deleted",
    "released",
    "vacation cancelled",
)
"""Situations that random schedules must reach."""

met: set[str] = set()


@pytest.mark.parametrize("batch", range(BATCHES))
def test_no_joint_schedule_breaks_an_invariant(batch: int) -> None:
    each = -(-SCHEDULES // BATCHES)
    for seed in range(batch * each, (batch + 1) * each):
        outcome = run_joint(seed)
        met.update(outcome.marks)
        assert outcome.violation is None, (
            f"{outcome.violation}; see it with: python -m tests.sim.joint --seed {seed} --replay"
        )


def test_joint_schedules_met_what_they_are_for() -> None:
    if not met:
        pytest.skip("only together with the schedules")
    assert not set(MARKS) - met


def test_joint_schedules_find_a_bookie_that_denies_what_it_lost() -> None:
    with applied("limbo_denies"):
        outcomes = (run_joint(seed) for seed in range(60))
        found = next((outcome for outcome in outcomes if outcome.violation), None)
    assert found is not None
    assert found.violation is not None
    assert found.violation.name == "LIMBO"


def test_a_lock_that_is_left_keeps_a_ledger_from_all_workers() -> None:
    with applied("left_lock_stays"):
        outcome = run_joint(LEFT_LOCK)
    assert outcome.violation is not None
    assert outcome.violation.name == "ENDED"
