"""After a flipped bit, no stored entry is absent, none is invented, and no deleted one returns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.crash.rot import RotRun
from tests.crash.seeds import SEEDS, play_all

if TYPE_CHECKING:
    from collections import Counter


@pytest.mark.parametrize("part", range(2))
def test_a_flipped_bit_is_never_an_absence_and_never_other_bytes(part: int) -> None:
    def play(seed: int) -> Counter[str]:
        one = RotRun(seed)
        one.play()
        return one.seen

    marks = ("rot", "rot of both", "rebuilt", "damaged", "unknown", "added again", "brought back")
    play_all(range(part, SEEDS, 2), play, marks)
