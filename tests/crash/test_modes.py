"""Crashes and power losses in each write mode, and switches of the mode between two starts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from tests.crash.run import ALL_MODES, SYNCED, Mode, Run
from tests.crash.seeds import SEEDS, play_all


@pytest.mark.parametrize("part", range(2))
@pytest.mark.parametrize("modes", [SYNCED[1:], SYNCED, ALL_MODES], ids=["journal", "synced", "all"])
def test_storage_keeps_its_promises_in_all_modes(modes: Sequence[Mode], part: int) -> None:
    def play(seed: int) -> Counter[str]:
        run = Run(seed, modes)
        run.run()
        return run.seen

    marks = ["rolls", "replayed_records", "boots_cut_short", "checkpoints", "redone"]
    if modes is ALL_MODES:
        marks.append("refused")
    play_all(range(part, SEEDS, 2), play, marks)
