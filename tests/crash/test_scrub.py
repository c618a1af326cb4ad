"""Scrubs of finished files with many flipped bits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.crash.compacting import short_slices
from tests.crash.scrub_rot import ScrubRotRun
from tests.crash.seeds import play_all

if TYPE_CHECKING:
    from collections import Counter

SEEDS = 40


@pytest.mark.parametrize("part", range(2))
def test_a_scrub_finds_each_damaged_live_entry_and_no_other(part: int) -> None:
    def play(seed: int) -> Counter[str]:
        one = ScrubRotRun(seed)
        with short_slices():
            one.play()
        return one.seen

    marks = ("scrubs", "damaged records", "damaged indexes", "reported")
    play_all(range(part, SEEDS, 2), play, marks)
