"""Random schedules of commits, zombies, sweepers and seals; and the mutations they catch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ledgerlog_spark.errors import ConcurrentCommitError
from ledgerlog_spark.protocol import log_pages, log_seal
from ledgerlog_spark.protocol.log_commit import CommitMachine, CommitResult, CommitStatus
from ledgerlog_spark.protocol.log_epoch import EpochMachine
from ledgerlog_spark.protocol.log_known import KnownLog
from ledgerlog_spark.protocol.log_sweep import PagesSweep, SweepPhase
from tests.sim.log.schedules import SMALL_HEAD, run_schedules
from tests.sim.log.world import Violation, schedule

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEDULES = 400
SCHEDULES_TO_CATCH_MAX = 1_500


@pytest.fixture(autouse=True)
def _small_head(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SMALL_HEAD.items():
        monkeypatch.setattr(log_pages, name, value)


def test_no_schedule_breaks_an_invariant(capsys: pytest.CaptureFixture[str]) -> None:
    counts = run_schedules(range(SCHEDULES))
    with capsys.disabled():
        print(f"\n{counts}")  # noqa: T201 (the count line)
    assert counts.commits > SCHEDULES * 3


def test_same_seed_gives_the_same_history() -> None:
    first, second = schedule(7), schedule(7)
    assert [s.head for s in first.store.states] == [s.head for s in second.store.states]
    assert first.store.events == second.store.events


def test_history_does_not_depend_on_the_hash_seed() -> None:
    traces = set()
    for hash_seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-m", "tests.sim.log", "--schedules", "5", "--trace"],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            cwd=Path(__file__).parents[3],
            capture_output=True,
            text=True,
            check=True,
        )
        traces.add(done.stdout)
    (trace,) = traces
    assert trace.count("\n") > 100


def sweep_pages_blindly(patch: pytest.MonkeyPatch) -> None:
    begin = PagesSweep._begin

    def look_without_touching(self: PagesSweep) -> Any:
        if self.sweep_phase is SweepPhase.BEFORE:
            self._touched, self._tokens = self._tokens, []
        return begin(self)

    patch.setattr(PagesSweep, "_begin", look_without_touching)


def commit_assumes_failure(patch: pytest.MonkeyPatch) -> None:
    def failed(self: CommitMachine, write: Any) -> Any:
        raise ConcurrentCommitError("no answer, so it failed")

    patch.setattr(CommitMachine, "_on_unknown", failed)


def commit_assumes_success(patch: pytest.MonkeyPatch) -> None:
    def succeeded(self: CommitMachine, write: Any) -> Any:
        return self._end(CommitResult(CommitStatus.COMMITTED, write.head.version, 0))

    patch.setattr(CommitMachine, "_on_unknown", succeeded)


def replay_batch_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CommitMachine, "_is_replay", lambda *_: False)


def zombie_takes_epoch_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(EpochMachine, "_is_zombie", lambda *_: False)


def commit_forgets_registration_check(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CommitMachine, "_missing", lambda *_: [])


def zombie_starts_from_what_is_known(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(KnownLog, "may_precede", lambda *_: True)


def seal_ignores_floor(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(log_seal, "check_close", lambda *_, **__: None)


MUTATIONS: dict[Callable[[pytest.MonkeyPatch], None], str] = {
    sweep_pages_blindly: "is missing",
    commit_assumes_failure: "was said to have failed",
    commit_assumes_success: "was said to be committed",
    replay_batch_again: "was committed twice|after batch",
    zombie_takes_epoch_back: "took over twice",
    commit_forgets_registration_check: "was deleted",
    zombie_starts_from_what_is_known: "zombie|was committed twice|after batch",
    seal_ignores_floor: "below its listed end",
}


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_mutation_is_caught(
    mutation: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation(monkeypatch)
    with pytest.raises(Violation, match=MUTATIONS[mutation]):
        run_schedules(range(SCHEDULES_TO_CATCH_MAX))
