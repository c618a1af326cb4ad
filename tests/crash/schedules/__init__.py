"""Random schedules of a bookie's storage, of all kinds: `python -m tests.crash.schedules`.

The number of a schedule chooses its kind and its seed. So the same number plays the same schedule
until the code changes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any

import hypothesis
import pytest

from tests.crash.compacting import CompactingRun, short_slices
from tests.crash.crowd import Crowd, short_turns
from tests.crash.errors import MODES, faults_of, names_of, play_fault
from tests.crash.failing import FailingRun
from tests.crash.full import FullDiskRun
from tests.crash.idle import IdleRun
from tests.crash.modes import ALL_MODES, DIRECT, JOURNAL, SYNCED
from tests.crash.points import KINDS as KINDS_OF_POINTS
from tests.crash.points import PointRun
from tests.crash.rot import JournalRotRun, RotRun
from tests.crash.run import Run
from tests.properties import test_v2_together as together
from tests.sim.schedule import run_schedule

POINTS = 400
"""Approximate number of disk operations of a run."""
UNFIT = (TypeError, AttributeError, NameError, ImportError)
"""A mutation that does not fit the code any more ends with one of these, which proves nothing."""


def _point(seed: int) -> None:
    random = Random(seed)
    kind = random.choice(list(KINDS_OF_POINTS))
    PointRun(seed, KINDS_OF_POINTS[kind], random.randrange(1, POINTS)).play()


def _compacting(seed: int) -> None:
    with short_slices():
        CompactingRun(seed, (SYNCED, ALL_MODES)[seed % 2]).play()


def _crowd(seed: int) -> None:
    with short_turns():
        Crowd(seed, (DIRECT, SYNCED, ALL_MODES)[seed % 3]).play()


@cache
def _operations_of(mode: str) -> int:
    return len(names_of(mode))


def _fault(seed: int) -> None:
    random = Random(seed)
    mode = random.choice(list(MODES))
    number = random.randrange(1, _operations_of(mode) + 1)
    play_fault(mode, random.choice(faults_of(number)))


def _receptions(seed: int) -> None:
    """Play two random streams of frames, because hypothesis begins with the smallest example."""
    test: Any = together.test_any_receptions_are_like_one_frame_at_a_time
    options = hypothesis.settings(
        max_examples=2,
        database=None,
        deadline=None,
        derandomize=False,
        phases=(hypothesis.Phase.generate,),
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    given = hypothesis.given(together.STREAMS, hypothesis.strategies.data())

    def play(stream: list[list[bytes]], data: hypothesis.strategies.DataObject) -> None:
        test.hypothesis.inner_test(stream, data)

    hypothesis.seed(seed)(options(given(play)))()


def _ledger(seed: int) -> None:
    violation = run_schedule(seed).violation
    if violation is not None:
        raise violation.__cause__ if isinstance(violation.__cause__, UNFIT) else violation


KINDS: dict[str, Callable[[int], object]] = {
    "journal": lambda seed: Run(seed, JOURNAL).run(),
    "compacting": _compacting,
    "failing": lambda seed: FailingRun(seed).play(),
    "full": lambda seed: FullDiskRun(seed).play(),
    "direct": lambda seed: Run(seed).run(),
    "rot": lambda seed: RotRun(seed).play(),
    "journal rot": lambda seed: JournalRotRun(seed).play(),
    "point": _point,
    "all modes": lambda seed: Run(seed, ALL_MODES).run(),
    "crowd": _crowd,
    "fault": _fault,
    "receptions": _receptions,
    "ledger": _ledger,
    "idle": lambda seed: IdleRun(seed).play(),
}
"""The functions that play one schedule of each kind. They raise an error after a violation."""


def violation_of(number: int) -> str:
    """Play a schedule, and return the violation, or ""."""
    kind = list(KINDS)[number % len(KINDS)]
    seed = number // len(KINDS)
    try:
        KINDS[kind](seed)
    except UNFIT:
        raise
    except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - any error ends a schedule
        first = str(error).splitlines()[:1]
        return f"{kind} {seed}: {type(error).__name__}: {first[0][:200] if first else ''}"
    return ""
