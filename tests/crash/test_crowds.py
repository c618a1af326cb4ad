"""Many requests at once, with peers that fail and disks that are short or fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.crash.crowd import Crowd, short_turns
from tests.crash.seeds import SEEDS, play_all

if TYPE_CHECKING:
    from collections import Counter


@pytest.mark.parametrize("part", range(2))
def test_whatever_others_do_every_request_is_answered(part: int) -> None:
    def play(seed: int) -> Counter[str]:
        crowd = Crowd(seed)
        with short_turns():
            crowd.play()
        return crowd.seen

    marks = ("raised", "given up", "short", "failed", "stopped", "dropped")
    play_all(range(part, SEEDS, 2), play, marks)
