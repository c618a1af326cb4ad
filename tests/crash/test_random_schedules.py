"""A few schedules of the kinds of which only `python -m tests.crash.schedules` plays hundreds."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from tests.crash.compacting import CompactingRun, short_slices
from tests.crash.failing import FailingRun
from tests.crash.full import FullDiskRun
from tests.crash.idle import IdleRun
from tests.crash.rot import JournalRotRun
from tests.crash.schedules import KINDS, violation_of
from tests.crash.seeds import play_all

if TYPE_CHECKING:
    from collections import Counter

Runs = Callable[[int], Any]


@pytest.mark.parametrize(
    ("run", "seeds", "marks"),
    [
        (
            CompactingRun,
            12,
            ("compacted", "freed", "tombstones_forgotten", "short", "scrubs", "scrubbed files"),
        ),
        (FailingRun, 24, ("failed", "doubts", "stopped", "pages lost")),
        (FullDiskRun, 4, ("full", "has room", "started full", "from the reserve")),
        (JournalRotRun, 12, ("rot", "recycled")),
        (IdleRun, 24, ("idle", "idle at the end", "doubts", "drops")),
    ],
)
def test_schedules_that_mistakes_in_the_storage_violate(
    run: Runs, seeds: int, marks: tuple[str, ...]
) -> None:
    def play(seed: int) -> Counter[str]:
        one = run(seed)
        with short_slices():
            one.play()
        seen: Counter[str] = one.seen
        return seen

    play_all(range(seeds), play, marks)


def test_a_number_chooses_the_kind_and_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[tuple[str, int]] = []

    def playing(kind: str) -> Callable[[int], None]:
        def play(seed: int) -> None:
            played.append((kind, seed))
            if kind == "full" and seed == 2:
                raise AssertionError("an entry is lost\nmore")

        return play

    kinds = list(KINDS)
    for kind in kinds:
        monkeypatch.setitem(KINDS, kind, playing(kind))
    assert violation_of(len(kinds)) == ""
    assert played == [(kinds[0], 1)]
    number = 2 * len(kinds) + kinds.index("full")
    assert violation_of(number) == "full 2: AssertionError: an entry is lost"
