"""Random schedules through pytest, determinism, and mutations found without a script."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchmarks.options import positive
from tests.sim.caught import seeds
from tests.sim.mutations import applied
from tests.sim.options import Options
from tests.sim.schedule import run_schedule
from tests.sim.shrink import shrink

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
SCHEDULES = positive(os.environ.get("LEDGERLOG_SIM_SCHEDULES", "5000"))
FIRST_SEED = int(os.environ.get("LEDGERLOG_SIM_SEED", "0"))
BATCHES = 20

MARKS = (
    "LAC announced",
    "absent by exactly a negative quorum",
    "clean restart",
    "client frozen",
    "client restarted",
    "closed by recovery",
    "confirmed while not open",
    "connection reset",
    "crash at answer",
    "crash at boot",
    "crash at write back",
    "deleted when closed",
    "deleted while in use",
    "disk full",
    "disk slow",
    "ensemble changed",
    "entries read",
    "failed ADD_TIMEOUT",
    "failed CLOSED",
    "failed FENCED",
    "failed NEEDS_OPERATOR",
    "failed NOT_FOUND",
    "failed TOO_MANY_CHANGES",
    "garbage collected",
    "compacted",
    "late add",
    "ledger rolled",
    "power loss",
    "process killed",
    "recovery tried again",
    "rot",
    "stopped after a disk error",
    "tail torn",
    "three ensemble changes",
    "tombstones forgotten",
    "writer cut off",
    "writer died after a change",
)
"""Situations that random schedules must reach. Otherwise they test less than intended."""

met: dict[str, int] = {}


@pytest.mark.parametrize("batch", range(BATCHES))
def test_no_random_schedule_breaks_an_invariant(batch: int) -> None:
    each = -(-SCHEDULES // BATCHES)
    first = FIRST_SEED + batch * each
    for seed in range(first, first + each):
        outcome = run_schedule(seed)
        for name in outcome.marks:
            met[name] = met.get(name, 0) + 1
        assert outcome.violation is None, (
            f"{outcome.violation}; see it with: python -m tests.sim --seed {seed} --schedules 1"
        )


def test_random_schedules_met_what_they_are_for() -> None:
    if not met:
        pytest.skip("only together with the schedules")
    rare = [name for name in MARKS if met.get(name, 0) < SCHEDULES // 200]
    assert not rare, f"{rare} hardly happened: {met}"


def hashes(hash_seed: str) -> str:
    command = [sys.executable, "-m", "tests.sim", "--schedules", "25", "--trace-hash"]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    return "\n".join(line for line in done.stdout.splitlines() if len(line.split()) == 2)


def test_the_same_seeds_give_the_same_traces_in_processes_with_other_hash_seeds() -> None:
    first, second = hashes("1"), hashes("2")
    assert first == second
    assert len(first.splitlines()) == 25


@pytest.mark.parametrize(
    ("mutation", "schedules"),
    [
        ("blind_metadata_write", 1_000),
        ("close_at_last_pushed", 1_000),
        ("fence_one_is_enough", 1_000),
        ("gc_forgets_fence", 1_000),
        ("gc_trusts_stale_listing", 1_000),
        ("lac_moves_during_change", 2_000),
        ("no_floor_at_last_fragment", 2_000),
        ("one_negative_is_enough", 1_000),
        ("timeouts_are_negatives", 1_000),
    ],
)
def test_random_schedules_find_a_mutation_by_themselves(
    mutation: str, schedules: int, show: Callable[[object], None]
) -> None:
    with applied(mutation):
        outcomes = (run_schedule(seed) for seed in seeds(f"sim {mutation}", schedules))
        found = next((outcome for outcome in outcomes if outcome.violation), None)
    assert found, f"{schedules} schedules did not notice {mutation}"
    show(f"sim {mutation}: seed {found.seed}")


def test_shrinking_leaves_only_the_deviations_that_matter() -> None:
    def still_fails(left_out: frozenset[str]) -> bool:
        return not left_out & {"b", "f"}

    assert shrink(list("abcdefgh"), still_fails) == ["b", "f"]


def test_a_schedule_without_its_faults_is_an_ordinary_run() -> None:
    calm = run_schedule(3, options=Options(readers=0))
    assert calm.violation is None
    assert calm.deviations == []
